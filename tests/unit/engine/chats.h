/* Conversations for the tests of the engine: what the library would make of messages, without templates. A message is a
 * token for its role, its words, and a token that ends it; the generation prompt is the assistant's token, so that a
 * reply continues as the assistant's message of the next turn. */
#ifndef UNIT_ENGINE_CHATS_H
#define UNIT_ENGINE_CHATS_H

#include "rig.h"

#include "base/log.h"
#include "base/memory.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum role { SYSTEM = 190, USER, ASSISTANT, END_OF_MESSAGE };

#define MESSAGES_MAX 12

struct chat {
    size_t n;
    struct {
        enum role role;
        struct tokens words;
    } m[MESSAGES_MAX];
};

/* So many words; chats with other seeds have other words. */
static inline void say(struct chat *chat, enum role role, int32_t seed, int32_t n)
{
    struct tokens *words = &chat->m[chat->n].words;
    chat->m[chat->n++].role = role;
    for (int32_t i = 0; i < n; i++) tokens_push(words, (seed * 31 + i) % 190);
}

/* Words with an image behind them. */
static inline void say_with_image(struct chat *chat, enum role role, int32_t seed, int32_t n, uint8_t image)
{
    say(chat, role, seed, n);
    client_add_medium(&chat->m[chat->n - 1].words, image, 60);
}

static inline void say_reply(struct chat *chat, const struct tokens *reply)
{
    chat->m[chat->n].role = ASSISTANT;
    tokens_append(&chat->m[chat->n++].words, reply->v, reply->len);
}

static inline void chat_release(struct chat *chat)
{
    for (size_t i = 0; i < chat->n; i++) tokens_release(&chat->m[i].words);
    *chat = (struct chat){0};
}

static inline struct chat chat_copy(const struct chat *chat, size_t n)
{
    struct chat copy = {.n = n};
    for (size_t i = 0; i < n; i++) {
        copy.m[i].role = chat->m[i].role;
        tokens_append(&copy.m[i].words, chat->m[i].words.v, chat->m[i].words.len);
    }
    return copy;
}

/* A client that asks what the chat says. */
struct asker {
    struct client client; /* first */
    uint64_t hashes[MESSAGES_MAX + 1];
    int32_t ends[MESSAGES_MAX + 1]; /* of the first i messages */
};

static inline void add_bound(struct job *job, int32_t bound)
{
    if (bound > 0 && (job->n_checkpoints == 0 || bound > job->checkpoints[job->n_checkpoints - 1]))
        job->checkpoints[job->n_checkpoints++] = bound;
}

static inline void asker_init(struct asker *asker, const struct chat *chat, int32_t max_tokens)
{
    struct job *job = &asker->client.job;
    size_t n = chat->n;
    client_init(&asker->client, 0, 0, max_tokens);
    asker->ends[0] = 0;
    asker->hashes[0] = tokens_short_hash(&job->prompt);
    for (size_t i = 0; i < n; i++) {
        tokens_push(&job->prompt, (int32_t)chat->m[i].role);
        tokens_append(&job->prompt, chat->m[i].words.v, chat->m[i].words.len);
        tokens_push(&job->prompt, END_OF_MESSAGE);
        asker->ends[i + 1] = (int32_t)job->prompt.len;
        asker->hashes[i + 1] = tokens_short_hash(&job->prompt);
    }
    tokens_push(&job->prompt, ASSISTANT);
    client_find_media(&asker->client);
    job->conversation = (struct conversation){.n_messages = n,
                                              .hashes = asker->hashes,
                                              .system_end = chat->m[0].role == SYSTEM ? asker->ends[1] : 0,
                                              .stable_end = n > 1 ? asker->ends[n - 1] : 0};
    if (fake_llm.cuts) return;
    add_bound(job, asker->ends[1]);
    add_bound(job, asker->ends[n - 1]);
    add_bound(job, asker->ends[n]);
}

static inline void asker_release(struct asker *asker)
{
    client_release(&asker->client);
}

/* Waits until the status says that all slots are idle. */
static inline void await_idle(struct rig *rig, hearth_slot *slots, size_t max)
{
    bool idle = false;
    while (!idle) {
        size_t n = engine_slots(rig->engine, slots, max);
        idle = true;
        for (size_t i = 0; i < n; i++) idle = idle && slots[i].state == HEARTH_SLOT_IDLE;
        sched_yield();
    }
}

/* Submits the chat, waits for the end, and adds the reply to the chat. */
static inline hearth_result turn(struct rig *rig, struct chat *chat, int32_t max_tokens)
{
    struct asker asker;
    hearth_slot slots[16];
    asker_init(&asker, chat, max_tokens);
    run_alone(rig, &asker.client);
    assert_false(asker.client.failed);
    assert_true(client_got_right_reply(&asker.client));
    assert_int_equal(asker.client.start.cache_n, asker.client.result.cache_n);
    say_reply(chat, &asker.client.got);
    hearth_result result = asker.client.result;
    asker_release(&asker);
    await_idle(rig, slots, 16);
    return result;
}

/* ---- The log ---- */

static char log_path[256];

static inline int set_up_with_log(void **state)
{
    hearth_error error;
    snprintf(log_path, sizeof log_path, "%s/unit-engine-%d.log", getenv("HEARTH_BUILD"), (int)getpid());
    unlink(log_path);
    return log_open(log_path, "debug", "text", &error) == HEARTH_OK ? set_up(state) : -1;
}

static inline int tear_down_with_log(void **state)
{
    hearth_error error;
    int left = tear_down(state);
    log_open(NULL, "error", "text", &error);
    return left + unlink(log_path);
}

static inline char *log_text(void)
{
    FILE *file = fopen(log_path, "re");
    assert_non_null(file);
    struct buf text = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buf_append(&text, chunk, n);
    fclose(file);
    return buf_take(&text);
}

/* How often the log has this text. */
static inline int times_said(const char *what)
{
    char *text = log_text();
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    free(text);
    return n;
}

static inline void assert_said(const char *what)
{
    if (times_said(what) > 0) return;
    char *text = log_text();
    fputs(text, stderr); /* cmocka would cut it off */
    free(text);
    fail_msg("the log does not say '%s'", what);
}

/* Clears the log that the test has captured. */
static inline void forget_log(void)
{
    assert_int_equal(truncate(log_path, 0), 0);
}

#define logged_test(name) cmocka_unit_test_setup_teardown(name, set_up_with_log, tear_down_with_log)

#endif
