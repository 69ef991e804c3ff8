/* A client of the engine for tests: makes jobs, collects their events, waits for their ends. */
#ifndef FAKES_CLIENT_H
#define FAKES_CLIENT_H

#include "engine/job.h"

#include <pthread.h>

struct client {
    struct job job; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct tokens got; /* tokens of the reply */
    struct buf text;
    struct client_score { /* of the prompt's tokens */
        int32_t token;
        double log;
        bool behind_text; /* the reply had begun */
    } * scores;
    size_t n_scores;
    bool ended, failed;
    int n_started;     /* STARTED: once at most */
    int n_last_events; /* DONE or FAILED: must become exactly 1 */
    hearth_result start, result;
    hearth_error error;
    void (*on_text)(struct client *client); /* called on the engine's thread, may be NULL */
    void (*on_done)(struct client *client); /* the same, at the end */
    struct engine *engine;                  /* for these two, and for the rows of media */
    struct client_media {
        float *rows[8]; /* of each span that was asked for */
        int asked[8], computed[8];
        int pending;       /* so many times rows are said to be pending, and the engine is poked */
        _Atomic bool held; /* rows are pending until the test lets go, and pokes the engine */
        bool fails;        /* they cannot be encoded */
    } media;
};

/* A client with a prompt of n tokens: first, first + 1, … (modulo 190). */
void client_init(struct client *client, int32_t first, size_t n, int32_t max_tokens);
void client_release(struct client *client);

/* The prompt's media: each run of tokens that stand for rows is one, those with an even first token causal. They are
 * encoded by a function that gives each token its row. To be called once the prompt is complete. */
void client_find_media(struct client *client);

/* The same spans of any tokens. */
struct media_spans client_spans_of(const struct tokens *tokens);

/* A medium of n rows for the end of a prompt; another key is another medium. */
void client_add_medium(struct tokens *prompt, uint8_t key, int32_t n);

void client_await_end(struct client *client);
void client_await_tokens(struct client *client, size_t n);
void client_await_start(struct client *client);

#define CLIENT_ADAPTERS 2 /* job.scales: of so many, or NULL */

/* Whether the reply is what the fake model gives to this prompt when nothing goes wrong. */
bool client_got_right_reply(struct client *client);

/* Whether the logprobs of the prompt's tokens, as far as they came, are the fake model's: each once, in order, before
 * the reply. */
bool client_got_right_scores(const struct client *client);

#endif
