/* The HTTP client of the workloads: streams replies from hearth or llama-server, of any of their APIs, and records when
 * each token arrived.
 *
 * A client and its streams belong to one thread. Streams make progress only inside client_wait() and client_finish(),
 * and all of them do, whichever is waited for. Functions that fail return a negative hearth_code and fill the error
 * in; a stream that fails makes the wait fail, even if another one is waited for. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include "base/buf.h"
#include "base/tokens.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;

/* The token that replies consist of. It is "a" in the byte-level vocabularies (GPT-2's and its followers), and a
 * printable character of one byte in SentencePiece's. */
enum { CLIENT_REPLY_TOKEN = 64 };

/* A request; copied. It has a prompt, messages, or a route with its whole body. */
struct wish {
    const struct tokens *prompt;
    const char *messages; /* JSON of a chat's messages */
    const char *route;    /* "/v1/messages" */
    const char *body;     /* JSON for the route; it has to ask for a stream. What follows here is for the others */
    int32_t max_tokens;
    bool from_cache;  /* the server may use its cache (cache_prompt) */
    const char *lora; /* JSON of the adapters to compute under, [{"id": 0, "scale": 1}]; NULL: not named */
};

/* Read-only for callers. Times are clock_now()'s, in nanoseconds. */
struct stream {
    int64_t started; /* just before the request was sent */
    int64_t *times;  /* of each token's arrival */
    size_t n_times;
    struct buf text; /* of the whole reply */
    bool done;
    int64_t n_cached;   /* prompt tokens that were cached; -1: the server does not say */
    int64_t n_computed; /* prompt tokens that were computed; -1: the server does not say */
    double queue_ms;    /* from its arrival to a slot, preparation included; NAN: the server does not say */
    double restore_ms;  /* fetching cached state; NAN: the server does not say */
    struct stream_inside *inside;
};

/* `url` is the server's address without a path; `model` may be NULL where the server has only one. Both are copied. */
struct client *client_open(const char *url, const char *model, hearth_error *error);

/* Closes its streams too. */
void client_close(struct client *client);

/* Sends the request. The reply to a prompt or messages is max_tokens times CLIENT_REPLY_TOKEN, so that every token
 * arrives as text, and that the next prompt can contain the reply. NULL: failed. */
struct stream *client_stream(struct client *client, const struct wish *wish, hearth_error *error);

/* Drops the connection if the reply is not complete. NULL does nothing. */
void client_drop(struct client *client, struct stream *stream);

/* Waits until the stream has `n` tokens. Fails if it ends earlier. */
int client_wait(struct client *client, const struct stream *stream, size_t n, hearth_error *error);

/* Waits until the stream is complete. */
int client_finish(struct client *client, const struct stream *stream, hearth_error *error);

/* Streams until the time `end` of clock_now(). */
int client_run_until(struct client *client, int64_t end, hearth_error *error);

/* Milliseconds from the request to the first token, and on average from one token to the next; NAN: there is none. */
double client_first_ms(const struct stream *stream);
double client_token_ms(const struct stream *stream);

/* Sets another address of the server; there must be no streams. */
void client_move(struct client *client, const char *url);

/* A counter of GET /cache; -1: the server has none. */
int64_t client_counter(const struct client *client, const char *name);

/* Waits until the counter is above `before`; fails after CLIENT_STORE_MS milliseconds. */
enum { CLIENT_STORE_MS = 60 * 1000 };
int client_wait_counter(const struct client *client, const char *name, int64_t before, hearth_error *error);

/* The body of a GET request, which the caller frees; NULL: the answer was not 200. */
char *client_get(const struct client *client, const char *path);

/* Appends `n` pseudo-random tokens that every vocabulary has; equal seeds give equal tokens. */
void client_prompt(struct tokens *prompt, size_t n, uint64_t seed);

/* Appends `n` pseudo-random words, a token each in the usual vocabularies, each behind a blank; nothing of it needs
 * escaping in JSON. */
void client_words(struct buf *text, long n, uint64_t seed);

#endif
