/* What states depend on beside weights and tokens, as text. No state; the engine's thread, which owns the context. */
#include "llm/identity.h"
#include "llm/private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LongRoPE has factors for short and for long contexts, and takes those of the window, not of the tokens in it. Which
 * models have such factors their tensors know alone; where a model does not say for how many tokens it was trained
 * first, llama.cpp takes those that it was trained for. */
static const char *window_class(const struct llama_context *handle)
{
    const struct llama_model *model = llama_get_model(handle);
    unsigned long original = (unsigned long)llama_model_n_ctx_train(model);
    char architecture[64], key[128], text[32];
    if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) >= 0) {
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", architecture);
        if (llama_model_meta_val_str(model, key, text, sizeof text) >= 0) original = strtoul(text, NULL, 10);
    }
    return llama_n_ctx_seq(handle) > original ? "long" : "short";
}

/* Quantised keys and values are rotated first, unless the environment says otherwise. */
static bool rotates(const struct llama_context_params *translated)
{
    const char *off = getenv("LLAMA_ATTN_ROT_DISABLE");
    bool quantised = ggml_is_quantized(translated->type_k) || ggml_is_quantized(translated->type_v);
    return quantised && (off == NULL || strtol(off, NULL, 10) == 0);
}

void llm_context_describe(const struct llm_context *context, const struct llm_context_params *params, struct buf *out)
{
    const struct llama_context *handle = llm_context_handle(context);
    struct llama_context_params translated = llama_context_default_params();
    hearth_error error; /* there is none: the context was opened with the same */
    llm_translate_cells(&translated, params, &error);
    llm_translate_rope(&translated, params, llama_model_n_ctx_train(llama_get_model(handle)), &error);
    buf_printf(out, "llama.cpp %s (ggml %s, %s)\n", llama_version(), ggml_version(), ggml_commit());
    buf_printf(out, "flash_attention %s\n", llm_flash_attention(context) ? "on" : "off");
    buf_printf(out, "keys %s\nvalues %s\nrotated %s\n", ggml_type_name(translated.type_k),
               ggml_type_name(translated.type_v), rotates(&translated) ? "yes" : "no");
    buf_printf(out, "rope_scaling %d\nwindow %s\n", (int)translated.rope_scaling_type, window_class(handle));
    const struct {
        const char *name;
        float value;
    } numbers[] = {
        {"rope_freq_base", translated.rope_freq_base},      {"rope_freq_scale", translated.rope_freq_scale},
        {"yarn_ext_factor", translated.yarn_ext_factor},    {"yarn_attn_factor", translated.yarn_attn_factor},
        {"yarn_beta_fast", translated.yarn_beta_fast},      {"yarn_beta_slow", translated.yarn_beta_slow},
        {"yarn_orig_ctx", (float)translated.yarn_orig_ctx},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        buf_printf(out, "%s %.9g\n", numbers[i].name, (double)numbers[i].value);
}
