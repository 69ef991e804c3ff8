/* What an API key may use: requests a minute, tokens a minute, and slots at once (docs/security.md). Token buckets,
 * which begin full and hold a minute's worth: after a pause a key may use as much at once.
 *
 * HTTP thread only. Whoever is told to wait has used up its own; nobody waits for another key. */
#ifndef SERVE_CORE_RATELIMIT_H
#define SERVE_CORE_RATELIMIT_H

#include "base/clock.h"
#include "http/http.h"
#include "serve/core/keys.h"

struct ratelimit;  /* what a key has used */
struct ratelimits; /* what all have: no more of them than keys that lately used something */

struct ratelimits *ratelimits_open(struct clock *clock);
void ratelimits_close(struct ratelimits *all);

/* The number of keys whose use is kept. */
size_t ratelimits_kept(const struct ratelimits *all);

/* Whether another request with the key (NULL: none) may begin; counting it is for who lets it in. */
int ratelimit_check(struct ratelimits *all, const struct key *key, hearth_error *error);

/* What the key has used. NULL for one without limits, and for none: the functions below take that and allow everything.
 * A key that was reloaded keeps what it has used, under its new limits. */
struct ratelimit *ratelimit_ref(struct ratelimits *all, const struct key *key);
void ratelimit_unref(struct ratelimit *limit);

void ratelimit_count_request(struct ratelimit *limit);

/* Tokens that were computed. They are known afterwards only: a key may come to owe some, and waits until it does not.
 * Negative: fewer than was said before. */
void ratelimit_count_tokens(struct ratelimit *limit, int64_t tokens);

/* Slots for `n` computations, all or none, each until it is given back; `limit` lives as long. */
int ratelimit_take_slots(struct ratelimit *limit, size_t n, hearth_error *error);
void ratelimit_return_slots(struct ratelimit *limit, size_t n);

/* OpenAI's headers: the limits, what remains of them, and in how long all of it will again. */
void ratelimit_put_headers(const struct ratelimit *limit, struct http_request *http);

/* Retry-After: in how many seconds another request may begin. Not of NULL. */
void ratelimit_put_retry(const struct ratelimit *limit, struct http_request *http);

#endif
