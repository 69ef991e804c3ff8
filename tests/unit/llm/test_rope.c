/* Long context: the configuration keys of RoPE, against contexts that are opened through llama.h with every number
 * written out. The model has the shape of Qwen3 and was "trained" for 32,768 tokens. */
#include "support.h"

#include "base/log.h"
#include "llm/model_identity.h"
#include "llm/model_struct.h"

enum { TRAINED = 32768, LONG = 131072, PROMPT = 100 };

static char *folder;
static struct llm_model *model;
static struct tokens prompt;

/* ---- Logits ---- */

static size_t logits_size(void)
{
    return (size_t)llm_model_info(model)->n_vocab * sizeof(float);
}

static struct llm_context_params long_params(void)
{
    struct llm_context_params params = context_params(LONG, 1);
    params.rope_scaling = "yarn";
    return params;
}

/* With hearth's configuration keys. */
static float *ours(const struct llm_context_params *params)
{
    struct llm_context *context = open_context(model, params);
    float *logits = logits_after(context, model, &prompt, 0, 0, PROMPT, PROMPT);
    llm_context_close(context);
    return logits;
}

/* llama.cpp's parameters for a window four times as long as trained. */
static struct llama_context_params written_out(void)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = LONG;
    params.n_batch = 512;
    params.n_ubatch = 128;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = 1;
    params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    params.rope_freq_scale = 0.25F;
    params.yarn_ext_factor = 1;
    params.yarn_attn_factor = 1;
    params.yarn_beta_fast = 32;
    params.yarn_beta_slow = 1;
    params.yarn_orig_ctx = TRAINED;
    return params;
}

static float *theirs(struct llama_context_params params)
{
    struct llama_context *context = llama_init_from_model(llm_model_handle(model), params);
    assert_non_null(context);
    assert_int_equal(llama_decode(context, llama_batch_get_one(prompt.v, PROMPT)), 0);
    float *logits = mem_alloc(logits_size());
    memcpy(logits, llama_get_logits_ith(context, -1), logits_size());
    llama_free(context);
    return logits;
}

/* ---- The keys ---- */

static void a_window_and_yarn_are_enough(void **state)
{
    (void)state;
    struct llm_context_params params = long_params();
    float *got = ours(&params), *wanted = theirs(written_out());
    assert_memory_equal(got, wanted, logits_size());
    free(got);
    free(wanted);
    struct llm_context *context = open_context(model, &params);
    struct llm_rope rope = llm_context_rope(context);
    assert_string_equal(rope.scaling, "yarn");
    assert_true(rope.freq_scale == 0.25 && rope.ext_factor == 1 && rope.attn_factor == 1);
    assert_true(rope.beta_fast == 32 && rope.beta_slow == 1);
    assert_int_equal(rope.orig_ctx, TRAINED);
    llm_context_close(context);
}

/* A key of hearth's and the parameter of llama.cpp that it sets. Each changes the logits. */
struct key {
    const char *name;
    void (*set)(struct llm_context_params *ours, struct llama_context_params *theirs);
};

static void set_linear(struct llm_context_params *o, struct llama_context_params *t)
{
    o->rope_scaling = "linear";
    t->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_LINEAR;
    t->yarn_ext_factor = 0;
}

static void set_freq_base(struct llm_context_params *o, struct llama_context_params *t)
{
    o->rope_freq_base = t->rope_freq_base = 500000;
}

static void set_freq_scale(struct llm_context_params *o, struct llama_context_params *t)
{
    o->rope_freq_scale = t->rope_freq_scale = 0.5;
}

static void set_no_ramp(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_ext_factor = t->yarn_ext_factor = 0;
}

static void set_half_a_ramp(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_ext_factor = t->yarn_ext_factor = 0.5;
}

static void set_attn_factor_without_ramp(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_ext_factor = t->yarn_ext_factor = 0;
    o->yarn_attn_factor = t->yarn_attn_factor = 1.5;
}

static void set_beta_fast(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_beta_fast = t->yarn_beta_fast = 8;
}

static void set_beta_slow(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_beta_slow = t->yarn_beta_slow = 6;
}

static void set_orig_ctx(struct llm_context_params *o, struct llama_context_params *t)
{
    o->yarn_orig_ctx = 16384;
    t->yarn_orig_ctx = 16384;
    t->rope_freq_scale = 0.125F;
}

static void every_key_sets_its_rope_parameter_and_changes_what_is_computed(void **state)
{
    (void)state;
    static const struct key keys[] = {
        {"rope_scaling: linear", set_linear},      {"rope_freq_base", set_freq_base},
        {"rope_freq_scale", set_freq_scale},       {"yarn_ext_factor: 0", set_no_ramp},
        {"yarn_ext_factor: 0.5", set_half_a_ramp}, {"yarn_attn_factor", set_attn_factor_without_ramp},
        {"yarn_beta_fast", set_beta_fast},         {"yarn_beta_slow", set_beta_slow},
        {"yarn_orig_ctx", set_orig_ctx},
    };
    struct llm_context_params plain = long_params();
    float *without = ours(&plain);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct llm_context_params params = long_params();
        struct llama_context_params explicit = written_out();
        keys[i].set(&params, &explicit);
        float *got = ours(&params), *wanted = theirs(explicit);
        if (memcmp(got, wanted, logits_size()) != 0) fail_msg("%s: other logits than llama.cpp's", keys[i].name);
        if (memcmp(got, without, logits_size()) == 0) fail_msg("%s changes nothing", keys[i].name);
        free(got);
        free(wanted);
    }
    free(without);
}

/* llama.cpp replaces it by the factor that belongs to the scale. */
static void with_a_yarn_ramp_an_attn_factor_has_no_effect(void **state)
{
    (void)state;
    struct llm_context_params plain = long_params(), params = long_params();
    params.yarn_attn_factor = 1.5;
    float *without = ours(&plain), *with = ours(&params);
    assert_memory_equal(with, without, logits_size());
    free(without);
    free(with);
}

static void without_scaling_the_models_own_rope_stays(void **state)
{
    (void)state;
    struct llm_context_params params = context_params(TRAINED, 1);
    struct llama_context_params explicit = llama_context_default_params();
    explicit.n_ctx = TRAINED;
    explicit.n_batch = 512;
    explicit.n_ubatch = 128;
    explicit.n_threads = explicit.n_threads_batch = 1;
    float *got = ours(&params), *wanted = theirs(explicit);
    assert_memory_equal(got, wanted, logits_size());
    free(got);
    free(wanted);
    struct llm_context *context = open_context(model, &params);
    struct llm_rope rope = llm_context_rope(context);
    assert_string_equal(rope.scaling, "none");
    assert_true(rope.freq_scale == 1 && rope.ext_factor == 0);
    llm_context_close(context);
}

/* llama.cpp reports a larger trained context for a scaled model; states of other scalings are other states. */
static void every_rope_scaling_has_its_own_description(void **state)
{
    (void)state;
    struct buf described[3] = {{0}};
    static const int32_t windows[] = {2 * TRAINED, LONG, 2 * TRAINED};
    for (int i = 0; i < 3; i++) {
        struct llm_context_params params = long_params();
        params.window = windows[i];
        struct llm_context *context = open_context(model, &params);
        llm_context_describe(context, &described[i]);
        llm_context_close(context);
    }
    assert_string_not_equal(described[0].v, described[1].v);
    assert_string_equal(described[0].v, described[2].v);
    for (int i = 0; i < 3; i++) buf_release(&described[i]);
}

/* 0: all, -1: none, N: that many; llama.cpp's numbers differ. */
static void layers_on_the_gpu_are_counted_as_the_configuration_says(void **state)
{
    (void)state;
    assert_true(llm_layers_on_gpu(0) < 0);
    assert_int_equal(llm_layers_on_gpu(-1), 0);
    assert_int_equal(llm_layers_on_gpu(1), 1);
    assert_int_equal(llm_layers_on_gpu(33), 33);
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    folder = folder_open();
    char *path =
        make_model(folder, "qwen3", "--layers 1 --embd 32 --heads 1 --kv-heads 1 --head-dim 32 --ff 32 --ctx 32768");
    model = open_model(path);
    prompt = prompt_of(model, PROMPT);
    free(path);
    return log_open(NULL, "error", "text", &error);
}

static int tear_down(void **state)
{
    (void)state;
    tokens_release(&prompt);
    llm_model_close(model);
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_and_yarn_are_enough),
        cmocka_unit_test(every_key_sets_its_rope_parameter_and_changes_what_is_computed),
        cmocka_unit_test(with_a_yarn_ramp_an_attn_factor_has_no_effect),
        cmocka_unit_test(without_scaling_the_models_own_rope_stays),
        cmocka_unit_test(every_rope_scaling_has_its_own_description),
        cmocka_unit_test(layers_on_the_gpu_are_counted_as_the_configuration_says),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
