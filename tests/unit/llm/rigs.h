/* Rigs for tests of sequences: every architecture with a decoder, with a unified KV cache and with streams, and the
 * oracle: a cold run, which computes the same tokens from nothing in a context of its own. Cells are F32 and flash
 * attention is off, since it rounds to F16 and would hide a wrong cell. What is left between a warm and a cold run is
 * the order of summation: a prompt split elsewhere, or the same cells at other indices. The models and contexts are
 * opened once, by rigs_open(), and cleared for each test. */
#ifndef UNIT_LLM_RIGS_H
#define UNIT_LLM_RIGS_H

#include "support.h"

#include "base/log.h"

#include <gguf.h>

enum { N_SEQ = 8, WINDOW = 256, CHUNK = 32, PROMPT = 128, OWN = 40, N_OPERATIONS = 200 };

/* `bound`: the largest difference allowed between a logit of a warm and of a cold run (logits lie between -20 and 20).
 * Over all tests the largest seen is 2.2e-5; 1.1e-2 for gemma3 (with AVX2; 3.4e-3 with AVX-512), whose GELU llama.cpp
 * reads from a table of F16 numbers, where the last bit may choose another entry. One wrong token among 128 changes ten
 * times the bound. */
struct arch {
    const char *name;
    bool cuts_anywhere;
    float bound;
    uint32_t window; /* sliding window given to all attention layers of a model that hearth-mkmodel makes without; 0: as
                        made */
};

static const struct arch archs[] = {
    {"llama", true, 1e-4F, 0},   {"qwen3", true, 1e-4F, 0},      {"qwen3moe", true, 1e-4F, 0},
    {"qwen2vl", true, 1e-4F, 0}, {"gemma3", false, 1.3e-2F, 0},  {"gpt-oss", false, 1e-4F, 0},
    {"qwen35", false, 1e-4F, 0}, {"falcon-h1", false, 1e-4F, 0}, {"lfm2", false, 1e-4F, 0},
    {"lfm2", false, 1e-4F, 32},  {"mamba2", false, 1e-4F, 0},
};

enum { N_ARCHS = sizeof archs / sizeof *archs };

/* Type of the cells, flash attention, and a lower limit for `bound`. To be set before rigs_open(). */
static const char *rig_cells = "f32", *rig_flash_attention = "off";
static float rig_bound = 0;

/* A model with one layout of cells, and a context for cold runs. */
struct rig {
    const struct arch *arch;
    bool unified;
    struct llm_model *model;
    struct llm_context *context, *cold;
    int32_t n_vocab;
};

static struct llm_model *models[N_ARCHS];
static struct rig rigs[2 * N_ARCHS];

/* ---- Tokens ---- */

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static inline int32_t below(uint32_t *state, int32_t n)
{
    return (int32_t)(next_random(state) % (uint32_t)n);
}

static inline void add_random(const struct rig *rig, struct tokens *tokens, uint32_t seed, int32_t n)
{
    for (int32_t i = 0; i < n; i++) tokens_push(tokens, below(&seed, rig->n_vocab));
}

static inline struct tokens random_tokens(const struct rig *rig, uint32_t seed, int32_t n)
{
    struct tokens tokens = {0};
    add_random(rig, &tokens, seed, n);
    return tokens;
}

/* The first n of `tokens`, followed by OWN others. */
static inline struct tokens branch_of(const struct rig *rig, const struct tokens *tokens, int32_t n, uint32_t seed)
{
    struct tokens branch = {0};
    tokens_append(&branch, tokens->v, (size_t)n);
    add_random(rig, &branch, seed, OWN);
    return branch;
}

/* ---- Warm against cold ---- */

static inline void clear_all(struct rig *rig)
{
    for (int32_t seq = 0; seq < N_SEQ; seq++) llm_seq_clear(rig->context, seq);
}

static inline void put(struct rig *rig, int32_t seq, const struct tokens *tokens, int32_t from)
{
    assert_int_equal(decode_range(rig->context, tokens, seq, from, (int32_t)tokens->len, CHUNK), LLM_DECODED);
}

static inline const float *cold_logits(struct rig *rig, const struct tokens *tokens, int32_t chunk)
{
    int32_t len = (int32_t)tokens->len;
    llm_seq_clear(rig->cold, 0);
    assert_int_equal(decode_range(rig->cold, tokens, 0, 0, len, chunk), LLM_DECODED);
    return llm_logits(rig->cold, (len - 1) % chunk);
}

static inline float difference(const struct rig *rig, const float *a, const float *b)
{
    float most = 0;
    for (int32_t i = 0; i < rig->n_vocab; i++) most = fabsf(a[i] - b[i]) > most ? fabsf(a[i] - b[i]) : most;
    return most;
}

static inline void expect_close(const struct rig *rig, const float *warm, const float *cold)
{
    float most = difference(rig, warm, cold);
    if (!(most <= fmaxf(rig_bound, rig->arch->bound)))
        fail_msg("%s, %s: logits differ by %g", rig->arch->name, rig->unified ? "unified" : "split", (double)most);
}

/* Continues a sequence that holds the first `from` tokens, and checks that the logits are those of a cold run. */
static inline void expect_goes_on(struct rig *rig, int32_t seq, const struct tokens *tokens, int32_t from)
{
    assert_int_equal(llm_seq_end(rig->context, seq), from);
    put(rig, seq, tokens, from);
    const float *warm = llm_logits(rig->context, ((int32_t)tokens->len - from - 1) % CHUNK);
    expect_close(rig, warm, cold_logits(rig, tokens, CHUNK));
}

static inline void expect_branch(struct rig *rig, int32_t seq, const struct tokens *prefix, int32_t n, uint32_t seed)
{
    struct tokens tokens = branch_of(rig, prefix, n, seed);
    expect_goes_on(rig, seq, &tokens, n);
    tokens_release(&tokens);
}

/* Runs the test on every rig in turn, with all sequences empty. */
typedef void rig_test(struct rig *rig);

static inline void each_rig(void **state)
{
    rig_test **play = *state;
    for (size_t i = 0; i < 2 * N_ARCHS; i++) {
        clear_all(&rigs[i]);
        (*play)(&rigs[i]);
    }
}

static inline struct CMUnitTest on_every_rig(const char *name, rig_test **play)
{
    return (struct CMUnitTest){.name = name, .test_func = each_rig, .initial_state = play};
}

#define RIG_TEST(play) on_every_rig(#play, &(rig_test *){play})

/* ---- Opening ---- */

static inline void add_window(const char *path, const struct arch *arch)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *out = gguf_init_empty();
    char *key = mem_format("%s.attention.sliding_window", arch->name);
    gguf_set_kv(out, file);
    gguf_set_val_u32(out, key, arch->window);
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++)
        gguf_add_tensor(out, ggml_get_tensor(tensors, gguf_get_tensor_name(file, i)));
    assert_true(gguf_write_to_file(out, path, false));
    gguf_free(out);
    gguf_free(file);
    ggml_free(tensors);
    free(key);
}

static inline void open_rig(struct rig *rig, const struct arch *arch, struct llm_model *model, bool unified)
{
    struct llm_context_params params = context_params(WINDOW, N_SEQ);
    params.type_k = params.type_v = rig_cells;
    params.flash_attention = rig_flash_attention;
    params.unified = unified;
    *rig = (struct rig){.arch = arch, .unified = unified, .model = model, .n_vocab = llm_model_info(model)->n_vocab};
    rig->context = open_context(model, &params);
    params.n_seq = 1;
    params.unified = false;
    rig->cold = open_context(model, &params);
}

static inline int rigs_open(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    if (log_open(NULL, "error", "text", &error) != HEARTH_OK) return -1;
    char *folder = folder_open();
    for (size_t i = 0; i < N_ARCHS; i++) {
        char *path = make_model(folder, archs[i].name, "");
        if (archs[i].window > 0) add_window(path, &archs[i]);
        models[i] = open_model(path);
        free(path);
        for (size_t unified = 0; unified < 2; unified++)
            open_rig(&rigs[2 * i + unified], &archs[i], models[i], unified == 1);
    }
    folder_remove(folder);
    return 0;
}

static inline int rigs_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_ARCHS; i++) {
        llm_context_close(rigs[i].context);
        llm_context_close(rigs[i].cold);
    }
    for (size_t i = 0; i < N_ARCHS; i++) llm_model_close(models[i]);
    return 0;
}

#endif
