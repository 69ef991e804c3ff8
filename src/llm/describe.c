/* Describes a context: the parameters that its saved states depend on beside weights and tokens, and its resolved RoPE
 * parameters. No state; the engine's thread, which owns the context. */
#include "llm/llm_parts.h"
#include "llm/model_identity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model's metadata on its own RoPE scaling. */
static bool text_of_model(const struct llama_context *handle, const char *name, char *text, size_t size)
{
    const struct llama_model *model = llama_get_model(handle);
    char architecture[64], key[128];
    if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0) return false;
    snprintf(key, sizeof key, "%s.rope.scaling.%s", architecture, name);
    return llama_model_meta_val_str(model, key, text, size) >= 0;
}

static double of_model(const struct llama_context *handle, const char *name, double otherwise)
{
    char text[32];
    return text_of_model(handle, name, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

/* LongRoPE has factors for short and for long contexts, and llama.cpp chooses by the window (of a unified KV cache: all
 * of it), not by the tokens in it. Where a model does not name its original context, llama.cpp takes the trained one.
 * Models without such factors have one class, so that what they stored stays valid with another n_seq_max. */
static const char *window_class(const struct llm_context *context)
{
    const struct llama_context *handle = llm_context_handle(context);
    double original = of_model(handle, "original_context_length", llm_context_trained(context));
    return llm_context_window_factors(context) && llama_n_ctx_seq(handle) > original ? "long" : "short";
}

/* llama.cpp rotates keys and values before it quantises them, unless the environment disables that. */
static bool rotates(const struct llama_context_params *translated)
{
    const char *off = getenv("LLAMA_ATTN_ROT_DISABLE");
    bool quantised = ggml_is_quantized(translated->type_k) || ggml_is_quantized(translated->type_v);
    return quantised && (off == NULL || strtol(off, NULL, 10) == 0);
}

/* ---- For the store ---- */

void llm_describe_build(struct buf *out)
{
    buf_printf(out, "llama.cpp %s (ggml %s, %s)\n", llama_version(), ggml_version(), ggml_commit());
}

void llm_context_describe(const struct llm_context *context, struct buf *out)
{
    const struct llama_context_params *translated = llm_context_translated(context);
    llm_describe_build(out);
    buf_printf(out, "flash_attention %s\n", llm_flash_attention(context) ? "on" : "off");
    buf_printf(out, "keys %s\nvalues %s\nrotated %s\n", ggml_type_name(translated->type_k),
               ggml_type_name(translated->type_v), rotates(translated) ? "yes" : "no");
    buf_printf(out, "rope_scaling %d\nwindow %s\n", (int)translated->rope_scaling_type, window_class(context));
    const struct {
        const char *name;
        float value;
    } numbers[] = {
        {"rope_freq_base", translated->rope_freq_base},      {"rope_freq_scale", translated->rope_freq_scale},
        {"yarn_ext_factor", translated->yarn_ext_factor},    {"yarn_attn_factor", translated->yarn_attn_factor},
        {"yarn_beta_fast", translated->yarn_beta_fast},      {"yarn_beta_slow", translated->yarn_beta_slow},
        {"yarn_orig_ctx", (float)translated->yarn_orig_ctx},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        buf_printf(out, "%s %.9g\n", numbers[i].name, (double)numbers[i].value);
}

/* ---- For people ---- */

/* In llama.cpp a negative number means "not set". */
static double given_or(float given, double otherwise)
{
    return given >= 0 ? (double)given : otherwise;
}

static void name_scaling(const struct llama_context *handle, const struct llama_context_params *translated,
                         char name[16])
{
    bool own = translated->rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
    if (own && text_of_model(handle, "type", name, 16)) return;
    bool yarn = translated->rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_YARN;
    snprintf(name, 16, "%s", own ? "none" : yarn ? "yarn" : "linear");
}

/* llama.cpp has no getters for these and resolves them in its constructor: base and scale come from its log, the rest
 * is resolved here by the same rules. */
struct llm_rope llm_context_rope(const struct llm_context *context)
{
    const struct llama_context *handle = llm_context_handle(context);
    const struct llama_context_params *t = llm_context_translated(context);
    struct llm_rope rope = {.beta_fast = given_or(t->yarn_beta_fast, of_model(handle, "yarn_beta_fast", 32)),
                            .beta_slow = given_or(t->yarn_beta_slow, of_model(handle, "yarn_beta_slow", 1)),
                            .ext_factor = given_or(t->yarn_ext_factor, of_model(handle, "yarn_ext_factor", -1)),
                            .orig_ctx = t->yarn_orig_ctx};
    name_scaling(handle, t, rope.scaling);
    llm_context_logged_rope(context, &rope.freq_base, &rope.freq_scale);
    if (rope.ext_factor < 0) rope.ext_factor = strcmp(rope.scaling, "yarn") == 0;
    if (rope.orig_ctx == 0)
        rope.orig_ctx = (uint32_t)of_model(handle, "original_context_length", llm_context_trained(context));
    /* With YaRN's ramp (ext_factor) llama.cpp replaces the given factor by the one for the scale, which cancels what
     * the ramp itself adds: 1 is left. */
    rope.attn_factor =
        rope.ext_factor != 0 ? 1 : given_or(t->yarn_attn_factor, of_model(handle, "yarn_attn_factor", 1));
    return rope;
}
