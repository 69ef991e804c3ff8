/* Rate limits of API keys: requests a minute, tokens a minute, and slots at once (docs/security.md). Token buckets that
 * begin full and hold a minute's worth, so that after a pause a key may use as much at once.
 *
 * HTTP thread only. Each key has its own buckets: no key waits for another. */
#ifndef SERVE_CORE_RATELIMIT_H
#define SERVE_CORE_RATELIMIT_H

#include "base/clock.h"
#include "http/http.h"
#include "serve/core/keys.h"

struct ratelimit;  /* what one API key has used */
struct ratelimits; /* of all keys; only those that lately used something are kept in memory */

struct ratelimits *ratelimits_open(struct clock *clock);
void ratelimits_close(struct ratelimits *all);

/* The number of keys whose use is in memory. */
size_t ratelimits_kept(const struct ratelimits *all);

/* HEARTH_OK if another request with the key (NULL: none) may begin, or one that was `counted` may go on. Does not count
 * it: ratelimit_count_request() does. */
int ratelimit_check(struct ratelimits *all, const struct key *key, bool counted, hearth_error *error);

/* The use of a key. NULL for a key without limits and for no key: the functions below take that and allow
 * everything. A key that is reloaded keeps what it has used, under its new limits. */
struct ratelimit *ratelimit_ref(struct ratelimits *all, const struct key *key);
void ratelimit_unref(struct ratelimit *limit);

void ratelimit_count_request(struct ratelimit *limit);

/* Counts computed tokens. Their number is known only afterwards, so that a bucket may become negative; the key's
 * next request waits until it is not. Negative `tokens` correct an earlier count. */
void ratelimit_count_tokens(struct ratelimit *limit, int64_t tokens);

/* Takes `n` slots, all or none, until they are returned; the caller holds `limit` as long. */
int ratelimit_take_slots(struct ratelimit *limit, size_t n, hearth_error *error);
void ratelimit_return_slots(struct ratelimit *limit, size_t n);

/* Sets OpenAI's headers: the limits, what remains of them, and the time until they are whole again. */
void ratelimit_put_headers(const struct ratelimit *limit, struct http_request *http);

/* Sets Retry-After: the seconds until another request may begin. `limit` is not NULL. */
void ratelimit_put_retry(const struct ratelimit *limit, struct http_request *http);

#endif
