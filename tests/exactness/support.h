/* What the exactness tests share: models of every architecture with a decoder, prompts and their cold runs through
 * src/llm, which are the oracle, and instances of libhearth.
 *
 * There are two kinds of cold runs. In deterministic mode the prompt is computed in the same chunks, with cells as they
 * are by default, and a warm run must give the same bits. Otherwise cells are F32 and flash attention is off, since it
 * rounds to F16 and would hide a wrong cell; what is left between a warm and a cold run is the order of summation. That
 * can still change a reply where two tokens are about equally likely. Prompts are therefore chosen by rule: random
 * ones, one after the other, until in the cold run the likeliest token leads at each step by more than twice what a
 * logit may differ by. */
#ifndef EXACTNESS_SUPPORT_H
#define EXACTNESS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fakes/sanitized.h"
#include "base/memory.h"
#include "base/tokens.h"
#include "base/utf8.h"
#include "hearth.h"
#include "image.h"
#include "instance/models/loaded_model.h"
#include "instance/requests/reply_book.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLY = 32, PIECE = 64, N_ARCHS = 10, MESSAGES_MAX = 8, TRIES = 500 };

enum layout { UNIFIED, SPLIT, DETERMINISTIC, N_LAYOUTS };

static const char *const layout_names[N_LAYOUTS] = {"unified", "split", "deterministic"};

/* `sections` and `coordinates`: see image_of_state(). `bound`: the largest difference allowed between a logit of a warm
 * and of a cold run, as in tests/unit/llm/test_seq_share.c, which measures it and shows that one wrong token changes
 * ten times as much. */
struct arch {
    const char *name, *sections;
    bool coordinates;
    float bound;
};

static const struct arch archs[N_ARCHS] = {
    {"llama", "K", false, 1e-4F},  {"qwen3", "K", false, 1e-4F},      {"qwen3moe", "K", false, 1e-4F},
    {"qwen2vl", "K", true, 1e-4F}, {"gemma3", "KK", false, 1e-2F},    {"gpt-oss", "KK", false, 1e-4F},
    {"qwen35", "KR", true, 1e-4F}, {"falcon-h1", "KR", false, 1e-4F}, {"lfm2", "KR", false, 1e-4F},
    {"mamba2", "R", false, 1e-4F},
};

static inline bool cuts_anywhere(const struct arch *arch)
{
    return strcmp(arch->sections, "K") == 0;
}

static inline bool is_sliding(const struct arch *arch)
{
    return strcmp(arch->sections, "KK") == 0;
}

#ifdef __SANITIZE_THREAD__
/* llama.cpp is built without the sanitizer, which therefore sees none of the barriers between its workers. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ggml_\nrace:llama_\nrace:set_input\nrace:llm_graph\nrace:tsan_new_delete";
}
#endif

/* ---- Models ---- */

/* A model file, and a context for cold runs as the layout wants them. */
struct oracle {
    const struct arch *arch;
    enum layout layout;
    char *path;
    struct llm_model *model;
    struct llm_context *context;
    int32_t n_vocab;
};

static inline const char *env(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL) fail_msg("%s is not set: run the tests with ctest", name);
    return value;
}

static inline void run_command(char *command)
{
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
}

/* For this program's files; also sees to it that only errors are logged. */
static inline char *folder_open(void)
{
    hearth_error error;
    if (hearth_log_open(NULL, "error", "text", &error) != HEARTH_OK) fail_msg("%s", error.message);
    llm_init();
    char *folder = mem_format("%s/exactness-XXXXXX", env("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void folder_remove(char *folder)
{
    run_command(mem_format("rm -r '%s'", folder));
    free(folder);
}

static inline void oracle_open(struct oracle *oracle, const struct arch *arch, enum layout layout, const char *folder)
{
    oracle->arch = arch;
    oracle->layout = layout;
    bool deterministic = layout == DETERMINISTIC;
    oracle->path = mem_format("%s/%s.gguf", folder, arch->name);
    run_command(mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s/models/demo.gguf' -o '%s' >/dev/null",
                           env("HEARTH_BUILD"), arch->name, env("HEARTH_SOURCE"), oracle->path));
    hearth_error error = {0};
    struct llm_model_params model = {.path = oracle->path, .split_mode = "layer", .weights = true};
    oracle->model = llm_model_open(&model, &error);
    if (oracle->model == NULL) fail_msg("%s", error.message);
    struct llm_context_params params = llm_usual_context(WINDOW, 1);
    params.n_ubatch = PIECE;
    if (!deterministic) {
        params.type_k = params.type_v = "f32";
        params.flash_attention = "off";
    }
    params.full_windows = deterministic && is_sliding(arch);
    params.threads.n = 1;
    oracle->context = llm_context_open(oracle->model, &params, &error);
    if (oracle->context == NULL) fail_msg("%s", error.message);
    oracle->n_vocab = llm_model_info(oracle->model)->n_vocab;
}

static inline void oracle_close(struct oracle *oracle)
{
    llm_context_close(oracle->context);
    llm_model_close(oracle->model);
    free(oracle->path);
    *oracle = (struct oracle){0};
}

/* ---- Cold runs ---- */

/* A prompt and all results of its cold run. A chat has its messages too. */
struct turn {
    struct tokens prompt, reply;
    float *logits;              /* n_vocab of them for each token of the reply */
    struct image before, after; /* the cells when the first token of the reply is sampled, and the last */
    struct buf messages;        /* JSON, without the closing bracket */
    struct buf text;            /* the messages, rendered */
    size_t ends[MESSAGES_MAX];  /* of the messages in the text */
    size_t n_messages;
    const hearth_lora *lora; /* the adapters of the request; NULL: those of the configuration */
    size_t n_lora;
};

static inline void turn_release(struct turn *turn)
{
    tokens_release(&turn->prompt);
    tokens_release(&turn->reply);
    buf_release(&turn->messages);
    buf_release(&turn->text);
    free(turn->logits);
    *turn = (struct turn){0};
}

static inline const float *cold_rows(struct oracle *oracle, const int32_t *tokens, int32_t n, int32_t pos)
{
    struct llm_batch_token batch[512];
    assert_in_range(n, 1, 512);
    for (int32_t i = 0; i < n; i++)
        batch[i] = (struct llm_batch_token){.token = tokens[i], .pos = pos + i, .logits = i == n - 1};
    assert_int_equal(llm_decode(oracle->context, batch, n), LLM_DECODED);
    return llm_logits(oracle->context, n - 1);
}

static inline const float *cold_prompt(struct oracle *oracle, const struct tokens *prompt)
{
    int32_t len = (int32_t)prompt->len, most = oracle->layout == DETERMINISTIC ? PIECE : len;
    const float *logits = NULL;
    llm_seq_clear(oracle->context, 0);
    for (int32_t pos = 0; pos < len; pos += most)
        logits = cold_rows(oracle, prompt->v + pos, len - pos < most ? len - pos : most, pos);
    return logits;
}

static inline void cold_image(struct oracle *oracle, struct image *image)
{
    struct buf state;
    save_state(oracle->context, 0, &state);
    image_of_state(image, oracle->arch->sections, oracle->arch->coordinates, &state);
    buf_release(&state);
}

/* The likeliest token, and by how much it leads. */
static inline int32_t likeliest(const float *logits, int32_t n, float *lead)
{
    int32_t best = logits[1] > logits[0], second = !best;
    for (int32_t i = 2; i < n; i++) {
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (logits[i] > logits[second]) {
            second = i;
        }
    }
    *lead = logits[best] - logits[second];
    return best;
}

/* Equal bits give equal replies, however close two tokens are. With ignore_eos an end token is never sampled. */
static inline bool is_clear(const struct oracle *oracle, int32_t token, float lead)
{
    if (llm_token_ends_generation(oracle->model, token)) return false;
    return oracle->layout == DETERMINISTIC || lead > 2 * oracle->arch->bound;
}

/* REPLY greedy tokens after the prompt. False: some step is too close, or ends the reply. */
static inline bool cold_run(struct oracle *oracle, struct turn *turn)
{
    size_t row = (size_t)oracle->n_vocab;
    if (turn->logits == NULL) turn->logits = mem_grow(NULL, REPLY * row, sizeof *turn->logits);
    tokens_truncate(&turn->reply, 0);
    const float *logits = cold_prompt(oracle, &turn->prompt);
    cold_image(oracle, &turn->before);
    while (true) {
        float lead;
        int32_t token = likeliest(logits, oracle->n_vocab, &lead);
        if (!is_clear(oracle, token, lead)) return false;
        memcpy(turn->logits + turn->reply.len * row, logits, row * sizeof *logits);
        tokens_push(&turn->reply, token);
        if (turn->reply.len == REPLY) break;
        logits = cold_rows(oracle, &token, 1, (int32_t)(turn->prompt.len + turn->reply.len) - 1);
    }
    cold_image(oracle, &turn->after);
    return true;
}

/* ---- Prompts of tokens ---- */

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* The first n tokens of `before` (which may be NULL, or have a reply to continue after), and `more` random ones. */
static inline struct turn turn_after(struct oracle *oracle, const struct turn *before, int32_t n, int32_t more,
                                     uint32_t seed)
{
    struct turn turn = {0};
    int tries = 0;
    do {
        if (tries++ == TRIES) fail_msg("%s: no clear reply is found", oracle->arch->name);
        uint32_t random = seed++ * 7919;
        int32_t of_prompt = before == NULL || n < (int32_t)before->prompt.len ? n : (int32_t)before->prompt.len;
        tokens_truncate(&turn.prompt, 0);
        if (n > 0) {
            tokens_append(&turn.prompt, before->prompt.v, (size_t)of_prompt);
            tokens_append(&turn.prompt, before->reply.v, (size_t)(n - of_prompt));
        }
        for (int32_t i = 0; i < more; i++)
            tokens_push(&turn.prompt, (int32_t)(next_random(&random) % (uint32_t)oracle->n_vocab));
    } while (!cold_run(oracle, &turn));
    return turn;
}

/* Continues after the whole reply. */
static inline struct turn turn_grown(struct oracle *oracle, const struct turn *before, uint32_t seed)
{
    return turn_after(oracle, before, (int32_t)before->prompt.len + REPLY, 20, seed);
}

/* ---- Chats ---- */

static inline void put_message(struct turn *turn, const char *role, const struct buf *content)
{
    buf_puts(&turn->messages, turn->messages.len == 0 ? "[" : ",");
    buf_printf(&turn->messages, "{\"role\":\"%s\",\"content\":", role);
    utf8_put_json_string(&turn->messages, content->v, content->len);
    buf_puts(&turn->messages, "}");
    buf_printf(&turn->text, "<|im_start|>%s\n", role);
    utf8_put_clean(&turn->text, content->v, content->len);
    buf_puts(&turn->text, "<|im_end|>\n");
    assert_true(turn->n_messages < MESSAGES_MAX);
    turn->ends[turn->n_messages++] = turn->text.len;
}

static inline void put_words(struct buf *out, uint32_t seed, int n)
{
    static const char *const words[] = {"the",  "a",    "house", "stands", "near", "river", "who",  "calls",
                                        "over", "hill", "seven", "boats",  "came", "back",  "late", "today"};
    for (int i = 0; i < n; i++) buf_printf(out, "%s%s", out->len == 0 ? "" : " ", words[next_random(&seed) % 16]);
}

static inline void tokens_of_text(const struct oracle *oracle, const char *text, size_t len, struct tokens *out)
{
    tokens_truncate(out, 0);
    llm_tokenize(oracle->model, text, len, true, true, out);
}

/* Leading tokens of the prompt up to the end of its first n messages. */
static inline int32_t bound_of(const struct oracle *oracle, const struct turn *turn, size_t n)
{
    struct tokens tokens = {0};
    assert_in_range(n, 1, turn->n_messages);
    tokens_of_text(oracle, turn->text.v, turn->ends[n - 1], &tokens);
    int32_t bound = (int32_t)tokens_common_prefix(&tokens, &turn->prompt);
    tokens_release(&tokens);
    return bound;
}

/* The words of a message: some that are always the same, and others that are tried until the cold run is clear. */
struct saying {
    const char *role;
    int fixed_words, words;
    uint32_t fixed_seed, seed;
};

/* Whether replies that come back are to have the tokens that were sampled; how many prompts they have changed. */
static bool samples;
static size_t n_sampled;

static inline void tokenise_text(const void *ud, size_t from, size_t to, struct tokens *out)
{
    const struct prompt_text *text = ud;
    llm_tokenize(text->weights, text->v + from, to - from, from == 0, true, out);
}

static inline struct tokens with_replies(const struct oracle *oracle, struct reply_book *book, const struct buf *bytes,
                                         struct reply_place *place)
{
    struct prompt_text text = {oracle->model, bytes->v, bytes->len, tokenise_text, NULL};
    struct tokens tokens = {0};
    text.ud = &text;
    reply_book_tokenise(book, 0, &text, &tokens, place);
    return tokens;
}

/* The prompt has the tokens of the reply before it. */
static inline void put_sampled(struct oracle *oracle, const struct turn *before, const struct buf *text,
                               struct turn *turn)
{
    struct reply_book *book = reply_book_open(1 << 20);
    struct reply_place place;
    struct buf asked = {0};
    buf_append(&asked, before->text.v, before->text.len);
    buf_puts(&asked, "<|im_start|>assistant\n");
    struct tokens first = with_replies(oracle, book, &asked, &place);
    reply_book_add(book, &place, &before->reply);
    struct tokens tokens = with_replies(oracle, book, text, &place);
    n_sampled += tokens.len != turn->prompt.len || tokens_common_prefix(&tokens, &turn->prompt) < tokens.len;
    tokens_release(&turn->prompt);
    turn->prompt = tokens;
    tokens_release(&first);
    buf_release(&asked);
    reply_book_close(book);
}

/* One message more than `before`; or two, with the reply to it. */
static inline void write_chat(struct oracle *oracle, const struct turn *before, bool with_reply,
                              const struct saying *say, struct turn *turn)
{
    struct buf content = {0}, text = {0};
    buf_append(&turn->messages, before->messages.v, before->messages.len);
    buf_append(&turn->text, before->text.v, before->text.len);
    memcpy(turn->ends, before->ends, sizeof turn->ends);
    turn->n_messages = before->n_messages;
    for (size_t i = 0; with_reply && i < before->reply.len; i++)
        llm_token_bytes(oracle->model, before->reply.v[i], false, &content);
    if (with_reply) put_message(turn, "assistant", &content);
    buf_clear(&content);
    put_words(&content, say->fixed_seed, say->fixed_words);
    put_words(&content, say->seed * 7919, say->words);
    put_message(turn, say->role, &content);
    buf_append(&text, turn->text.v, turn->text.len);
    buf_puts(&text, "<|im_start|>assistant\n");
    tokens_of_text(oracle, text.v, text.len, &turn->prompt);
    if (samples && with_reply) put_sampled(oracle, before, &text, turn);
    buf_release(&content);
    buf_release(&text);
}

/* With nothing to try it is only what other prompts begin with, and has no reply. */
static inline struct turn chat_after(struct oracle *oracle, const struct turn *before, bool with_reply,
                                     struct saying say)
{
    struct turn turn = {0};
    write_chat(oracle, before, with_reply, &say, &turn);
    for (int tries = 1; say.words > 0 && !cold_run(oracle, &turn); tries++) {
        if (tries == TRIES) fail_msg("%s: no clear reply is found", oracle->arch->name);
        turn_release(&turn);
        say.seed++;
        write_chat(oracle, before, with_reply, &say, &turn);
    }
    return turn;
}

/* ---- Instances ---- */

/* The machine's clock, and how far it was put forward. */
struct fast_clock {
    struct clock clock;
    _Atomic int64_t ahead;
};

static inline int64_t fast_now(struct clock *clock)
{
    return clock_now(clock_monotonic()) + atomic_load(&((struct fast_clock *)clock)->ahead);
}

static inline void fast_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    if (deadline != CLOCK_NEVER) deadline -= atomic_load(&((struct fast_clock *)clock)->ahead);
    clock_monotonic()->wait(clock_monotonic(), cond, mutex, deadline);
}

static struct fast_clock fast_clock = {.clock = {.now = fast_now, .wait = fast_wait}};

static inline void set(hearth_config *config, const char *key, const char *value)
{
    hearth_error error;
    bool of_model = strncmp(key, "cache.", 6) != 0;
    char *path = mem_format("%s%s", of_model ? "models.m." : "", key);
    if (hearth_config_set(config, path, value, &error) != HEARTH_OK) fail_msg("%s", error.message);
    free(path);
}

static inline void set_layout(hearth_config *config, enum layout layout)
{
    if (layout == DETERMINISTIC) {
        set(config, "deterministic", "true");
        return;
    }
    set(config, "kv_unified", layout == UNIFIED ? "true" : "false");
    set(config, "cache_type_k", "f32");
    set(config, "cache_type_v", "f32");
    set(config, "flash_attention", "off");
}

/* Every common prefix is worth reusing, if `keys` does not say otherwise: "key", "value", …, NULL. Tokens are computed
 * chunk by chunk, so that a sliding window wraps around within a prompt. */
static inline hearth *start(const struct oracle *oracle, const char *const *keys)
{
    hearth_error error;
    hearth_config *config = hearth_config_new();
    set(config, "path", oracle->path);
    set(config, "threads", "1");
    set(config, "queue_depth", "8");
    set(config, "context_window", "1024");
    set(config, "n_ubatch", "64");
    set(config, "cache_min_tokens", "1");
    set(config, "cache.tiers.disk.quota_mb", "0"); /* what is not about the store has none */
    set(config, "reply_tokens", samples ? "true" : "false");
    set_layout(config, oracle->layout);
    for (; *keys != NULL; keys += 2) set(config, keys[0], keys[1]);
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL) fail_msg("%s", error.message);
    instance->clock = &fast_clock.clock;
    if (hearth_load(instance, NULL, NULL, &error) != HEARTH_OK) fail_msg("%s", error.message);
    hearth_config_free(config);
    return instance;
}

/* The model's value of a metric; NAN: there is no such metric. */
static inline double metric(const hearth *instance, const char *name)
{
    char *text = hearth_metrics(instance), *start = mem_format("\n%s{model=\"m\"} ", name);
    const char *line = strstr(text, start);
    double value = line == NULL ? (double)NAN : atof(line + strlen(start));
    free(start);
    hearth_free(text);
    return value;
}

#endif
