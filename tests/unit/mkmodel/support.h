/* Helpers for tests of hearth-mkmodel: run the built program in a temporary folder, and have llama.cpp load and run
 * what it wrote. The vocabulary is the demo model's, which keeps the files small. */
#ifndef TEST_MKMODEL_SUPPORT_H
#define TEST_MKMODEL_SUPPORT_H

#include "base/buf.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ggml.h>
#include <gguf.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DECODED = 40, PROMPT = 200, MAX_BYTES = 2000000 };

/* What llama.cpp must find in each file. */
static const struct expected {
    const char *arch;
    bool hybrid, recurrent;
    int32_t n_swa;
    enum llama_rope_type rope;
    enum llama_pooling_type pooling; /* NONE: it generates text */
} expectations[] = {
    {"llama", false, false, 0, LLAMA_ROPE_TYPE_NORM, LLAMA_POOLING_TYPE_NONE},
    {"qwen3", false, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"qwen3moe", false, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"gemma3", false, false, 32, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"gpt-oss", false, false, 32, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"qwen35", true, false, 0, LLAMA_ROPE_TYPE_IMROPE, LLAMA_POOLING_TYPE_NONE},
    {"qwen35-mtp", true, false, 0, LLAMA_ROPE_TYPE_IMROPE, LLAMA_POOLING_TYPE_NONE},
    {"qwen35moe", true, false, 0, LLAMA_ROPE_TYPE_IMROPE, LLAMA_POOLING_TYPE_NONE},
    {"glm4moe", false, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"falcon-h1", true, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"lfm2", true, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_NONE},
    {"mamba2", false, true, 0, LLAMA_ROPE_TYPE_NONE, LLAMA_POOLING_TYPE_NONE},
    {"qwen2vl", false, false, 0, LLAMA_ROPE_TYPE_MROPE, LLAMA_POOLING_TYPE_NONE},
    {"bert", false, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_MEAN},
    {"reranker", false, false, 0, LLAMA_ROPE_TYPE_NEOX, LLAMA_POOLING_TYPE_RANK},
};

enum { ARCHS = sizeof expectations / sizeof expectations[0] };

static char *folder, *demo;

static inline bool generates(const struct expected *expected)
{
    return expected->pooling == LLAMA_POOLING_TYPE_NONE;
}

/* ---- Running the program ---- */

static inline const char *env(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL) fail_msg("%s is not set: run this through ctest", name);
    return value;
}

static inline char *in_folder(const char *name)
{
    return mem_format("%s/%s", folder, name);
}

static inline char *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    struct buf bytes = {0};
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, file)) > 0) buf_append(&bytes, block, n);
    fclose(file);
    if (len != NULL) *len = bytes.len;
    return buf_take(&bytes);
}

static inline bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

struct outcome {
    int code;
    char *out, *err; /* release_outcome() */
};

static inline void release_outcome(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->err);
}

static inline struct outcome run(const char *const *args)
{
    char *program = mem_format("%s/bin/hearth-mkmodel", env("HEARTH_BUILD"));
    char *out = in_folder("stdout"), *err = in_folder("stderr");
    const char *argv[40] = {program};
    for (int i = 0; args[i] != NULL; i++) argv[i + 1] = args[i];
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
        dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    struct outcome outcome = {WEXITSTATUS(status), read_file(out, NULL), read_file(err, NULL)};
    free(program);
    free(out);
    free(err);
    return outcome;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

/* Writes a model with the demo model's vocabulary; free() the path. */
static inline char *write_model(const char *name, const char *const *extra)
{
    char *path = in_folder(name);
    const char *args[32] = {"--vocab", demo, "-o", path};
    for (int i = 0; extra[i] != NULL; i++) args[4 + i] = extra[i];
    struct outcome outcome = run(args);
    if (outcome.code != 0) fail_msg("%s: exit code %d, %s", name, outcome.code, outcome.err);
    assert_string_equal(outcome.err, "");
    release_outcome(&outcome);
    return path;
}

#define WRITE(name, ...) write_model(name, (const char *const[]){__VA_ARGS__, NULL})

static inline char *write_arch(const char *arch)
{
    char name[64];
    snprintf(name, sizeof name, "%s.gguf", arch);
    return WRITE(name, "--arch", arch);
}

/* ---- Running what it wrote ---- */

static inline struct llama_model *load(const char *path)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(path, params);
    if (model == NULL) fail_msg("llama.cpp does not load %s", path);
    return model;
}

static inline struct llama_context *open_context(struct llama_model *model, uint32_t n_ubatch, bool embeddings)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_batch = 512;
    params.n_ubatch = n_ubatch;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    params.embeddings = embeddings;
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    return context;
}

static inline void fill_prompt(llama_token prompt[PROMPT], const struct llama_model *model)
{
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 37 + i * i * 11) % (n_vocab - 300) + 260;
}

static inline const float *decode(struct llama_context *context, llama_token *tokens, int n)
{
    assert_int_equal(llama_decode(context, llama_batch_get_one(tokens, n)), 0);
    const float *logits = llama_get_logits_ith(context, -1);
    assert_non_null(logits);
    return logits;
}

static inline void assert_finite(const float *numbers, int n, const char *whose)
{
    for (int i = 0; i < n; i++) {
        if (!isfinite(numbers[i])) fail_msg("%s: number %d is %f", whose, i, (double)numbers[i]);
    }
}

static inline llama_token likeliest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

/* Decodes the prompt in chunks, then generates `n` tokens greedily. */
static inline void generate(struct llama_model *model, int chunk, llama_token *out, int n)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int n_vocab = llama_vocab_n_tokens(vocab);
    struct llama_context *context = open_context(model, 128, false);
    llama_token prompt[PROMPT];
    fill_prompt(prompt, model);
    const float *logits = NULL;
    for (int i = 0; i < PROMPT; i += chunk) {
        logits = decode(context, prompt + i, i + chunk <= PROMPT ? chunk : PROMPT - i);
    }
    for (int i = 0; i < n; i++) {
        assert_finite(logits, n_vocab, "logits");
        out[i] = likeliest(logits, n_vocab);
        logits = decode(context, &out[i], 1);
    }
    llama_free(context);
}

static inline struct gguf_context *open_gguf(const char *path)
{
    struct gguf_context *gguf = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(gguf);
    return gguf;
}

static inline enum ggml_type type_of(const struct gguf_context *gguf, const char *tensor)
{
    int64_t id = gguf_find_tensor(gguf, tensor);
    if (id < 0) fail_msg("no tensor %s", tensor);
    return gguf_get_tensor_type(gguf, id);
}

static inline bool has_tensor(const struct gguf_context *gguf, const char *name)
{
    return gguf_find_tensor(gguf, name) >= 0;
}

static inline uint32_t u32_of(const struct gguf_context *gguf, const char *key)
{
    int64_t id = gguf_find_key(gguf, key);
    if (id < 0) fail_msg("no key %s", key);
    return gguf_get_val_u32(gguf, id);
}

static inline const char *text_of(const struct gguf_context *gguf, const char *key)
{
    int64_t id = gguf_find_key(gguf, key);
    if (id < 0) fail_msg("no key %s", key);
    return gguf_get_val_str(gguf, id);
}

/* ---- The folder: setup and teardown of a group ---- */

static inline void say_nothing(enum ggml_log_level level, const char *text, void *ud)
{
    (void)level;
    (void)text;
    (void)ud;
}

static inline int open_folder(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    folder = mem_format("%s/hearth-mkmodel-XXXXXX", parent != NULL ? parent : "/tmp");
    demo = mem_format("%s/models/demo.gguf", env("HEARTH_SOURCE"));
    llama_log_set(say_nothing, NULL);
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    if (dir == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    int result = rmdir(folder);
    free(folder);
    free(demo);
    llama_backend_free();
    return result;
}

#endif
