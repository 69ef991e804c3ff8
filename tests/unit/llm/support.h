/* Helpers for the tests of src/llm: models, contexts, prompts. The test that asked for an object owns it. */
#ifndef UNIT_LLM_SUPPORT_H
#define UNIT_LLM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../fakes/sanitized.h"
#include "base/memory.h"
#include "base/tokens.h"
#include "llm/context.h"
#include "llm/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Files ---- */

static inline const char *env(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL) fail_msg("%s is not set: run the tests with ctest", name);
    return value;
}

/* A folder for this program's files; the caller frees the string. */
static inline char *folder_open(void)
{
    char *folder = mem_format("%s/unit-llm-XXXXXX", env("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void run(const char *command)
{
    int status = system(command);
    if (status != 0) fail_msg("failed: %s", command);
}

static inline void folder_remove(char *folder)
{
    char *command = mem_format("rm -r '%s'", folder);
    run(command);
    free(command);
    free(folder);
}

static inline char *demo_path(void)
{
    return mem_format("%s/models/demo.gguf", env("HEARTH_SOURCE"));
}

/* Writes a random model with the demo model's tokenizer; the caller frees the path. */
static inline char *make_model(const char *folder, const char *arch, const char *options)
{
    char *path = mem_format("%s/%s.gguf", folder, arch);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s/models/demo.gguf' %s -o '%s' >/dev/null",
                               env("HEARTH_BUILD"), arch, env("HEARTH_SOURCE"), options, path);
    run(command);
    free(command);
    return path;
}

/* ---- Models and contexts ---- */

#ifdef __SANITIZE_THREAD__
/* llama.cpp is built without the sanitizer, which therefore sees none of the barriers between its workers. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ggml_\nrace:llama_\nrace:set_input\nrace:llm_graph\nrace:tsan_new_delete";
}
#endif

static inline struct llm_model_params model_params(const char *path)
{
    return (struct llm_model_params){.path = path, .split_mode = "layer", .weights = true};
}

static inline struct llm_model *open_model(const char *path)
{
    hearth_error error = {0};
    struct llm_model_params params = model_params(path);
    struct llm_model *model = llm_model_open(&params, &error);
    if (model == NULL) fail_msg("%s", error.message);
    return model;
}

static inline struct llm_model *open_demo(void)
{
    char *path = demo_path();
    struct llm_model *model = open_model(path);
    free(path);
    return model;
}

/* One thread: workers that spin for each other are slow where several tests share a core. */
static inline struct llm_context_params context_params(int32_t window, int32_t n_seq)
{
    struct llm_context_params params = llm_usual_context(window, n_seq);
    params.n_ubatch = 128;
    params.scratch = true;
    params.threads.n = 1;
    return params;
}

static inline struct llm_context *open_context(struct llm_model *model, const struct llm_context_params *params)
{
    hearth_error error = {0};
    struct llm_context *context = llm_context_open(model, params, &error);
    if (context == NULL) fail_msg("%s", error.message);
    return context;
}

/* ---- Prompts ---- */

/* `n` tokens of plain text, the same for the same number; the caller releases them. */
static inline struct tokens prompt_of(const struct llm_model *model, size_t n)
{
    struct tokens tokens = {0};
    for (int i = 0; tokens.len < n; i++) {
        char text[64];
        int len = snprintf(text, sizeof text, "Line %d says that %d is a number. ", i, i * 7919 % 1000);
        llm_tokenize(model, text, (size_t)len, i == 0, false, &tokens);
    }
    tokens_truncate(&tokens, n);
    return tokens;
}

/* Decodes tokens [from, to) at their positions in chunks; the last token of each chunk has logits. */
static inline enum llm_decoded decode_range(struct llm_context *context, const struct tokens *tokens, int32_t seq,
                                            int32_t from, int32_t to, int32_t chunk)
{
    struct llm_batch_token batch[512];
    enum llm_decoded decoded = LLM_DECODED;
    for (int32_t at = from; at < to && decoded == LLM_DECODED; at += chunk) {
        int32_t n = to - at < chunk ? to - at : chunk;
        for (int32_t i = 0; i < n; i++)
            batch[i] =
                (struct llm_batch_token){.token = tokens->v[at + i], .pos = at + i, .seq = seq, .logits = i == n - 1};
        decoded = llm_decode(context, batch, n);
    }
    return decoded;
}

/* The logits after tokens [from, to), copied; the caller frees them. */
static inline float *logits_after(struct llm_context *context, const struct llm_model *model,
                                  const struct tokens *tokens, int32_t seq, int32_t from, int32_t to, int32_t chunk)
{
    assert_int_equal(decode_range(context, tokens, seq, from, to, chunk), LLM_DECODED);
    int32_t last = (to - from - 1) % chunk;
    size_t size = (size_t)llm_model_info(model)->n_vocab * sizeof(float);
    float *copy = mem_alloc(size);
    memcpy(copy, llm_logits(context, last), size);
    return copy;
}

static inline int32_t argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

#endif
