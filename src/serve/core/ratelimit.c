/* Token buckets of API keys. A bucket stores what was taken out and has not flowed back yet, so that an unused key's
 * is 0 and need not stay in memory. HTTP thread only. */
#include "serve/core/ratelimit.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE_NS    6e10
#define SWEEP_AT_MIN 16

struct bucket {
    int64_t limit; /* a minute; 0: none */
    double used;   /* as of `at` */
    int64_t at;
};

struct ratelimit {
    struct ratelimit *next;
    struct clock *clock;
    uint8_t digest[SHA256_BYTES]; /* of the key */
    struct bucket requests, tokens;
    size_t max_slots, slots; /* max_slots 0: unlimited */
    size_t refs;
};

struct ratelimits {
    struct clock *clock;
    struct ratelimit *first;
    size_t n, sweep_at;
};

/* ---- Buckets ---- */

static double used_now(const struct bucket *b, int64_t now)
{
    double used = b->used - (double)(now - b->at) * (double)b->limit / MINUTE_NS;
    return used > 0 ? used : 0;
}

static void take_from_bucket(struct bucket *b, int64_t now, int64_t n)
{
    if (b->limit == 0) return;
    b->used = fmax(used_now(b, now) + (double)n, 0);
    b->at = now;
}

/* Seconds until one can be taken. */
static double seconds_until_one(const struct bucket *b, int64_t now)
{
    double missing = used_now(b, now) + 1 - (double)b->limit;
    return b->limit == 0 || missing <= 0 ? 0 : missing * MINUTE_NS / 1e9 / (double)b->limit;
}

static void set_limit(struct bucket *b, int64_t now, int64_t limit)
{
    if (b->limit == limit) return;
    b->used = used_now(b, now);
    b->at = now;
    b->limit = limit;
}

/* ---- All of them ---- */

struct ratelimits *ratelimits_open(struct clock *clock)
{
    struct ratelimits *all = mem_alloc(sizeof *all);
    all->clock = clock;
    all->sweep_at = SWEEP_AT_MIN;
    return all;
}

void ratelimits_close(struct ratelimits *all)
{
    if (all == NULL) return;
    for (struct ratelimit *limit = all->first, *next; limit != NULL; limit = next) {
        next = limit->next;
        free(limit);
    }
    free(all);
}

size_t ratelimits_kept(const struct ratelimits *all)
{
    return all->n;
}

/* Frees unused entries; only when there are twice as many entries as the last sweep left, so that the cost is
 * amortised. */
static void sweep(struct ratelimits *all)
{
    if (all->n < all->sweep_at) return;
    int64_t now = clock_now(all->clock);
    for (struct ratelimit **link = &all->first; *link != NULL;) {
        struct ratelimit *limit = *link;
        bool is_idle = limit->refs == 0 && limit->slots == 0 && used_now(&limit->requests, now) <= 0 &&
                       used_now(&limit->tokens, now) <= 0;
        if (!is_idle) {
            link = &limit->next;
            continue;
        }
        *link = limit->next;
        free(limit);
        all->n--;
    }
    all->sweep_at = all->n * 2 > SWEEP_AT_MIN ? all->n * 2 : SWEEP_AT_MIN;
}

struct ratelimit *ratelimit_ref(struct ratelimits *all, const struct key *key)
{
    if (key == NULL || (key->limits.requests == 0 && key->limits.tokens == 0 && key->limits.slots == 0)) return NULL;
    struct ratelimit *limit = all->first;
    while (limit != NULL && memcmp(limit->digest, key->digest, sizeof limit->digest) != 0) limit = limit->next;
    if (limit == NULL) {
        sweep(all);
        limit = mem_alloc(sizeof *limit);
        limit->clock = all->clock;
        memcpy(limit->digest, key->digest, sizeof limit->digest);
        limit->next = all->first;
        all->first = limit;
        all->n++;
    }
    int64_t now = clock_now(all->clock);
    set_limit(&limit->requests, now, key->limits.requests);
    set_limit(&limit->tokens, now, key->limits.tokens);
    limit->max_slots = (size_t)key->limits.slots;
    limit->refs++;
    return limit;
}

void ratelimit_unref(struct ratelimit *limit)
{
    if (limit != NULL) limit->refs--;
}

/* ---- Requests and tokens ---- */

static int check_bucket(const struct bucket *b, int64_t now, const char *what, hearth_error *error)
{
    if (seconds_until_one(b, now) <= 0) return HEARTH_OK;
    return error_set(error, ERRORS_RATE_LIMIT,
                     "this API key has used up its limit of %lld %s a minute: the header Retry-After says when to try "
                     "again",
                     (long long)b->limit, what);
}

int ratelimit_check(struct ratelimits *all, const struct key *key, bool counted, hearth_error *error)
{
    struct ratelimit *limit = ratelimit_ref(all, key);
    if (limit == NULL) return HEARTH_OK;
    int64_t now = clock_now(all->clock);
    int rc = counted ? HEARTH_OK : check_bucket(&limit->requests, now, "requests", error);
    if (rc == HEARTH_OK) rc = check_bucket(&limit->tokens, now, "tokens", error);
    ratelimit_unref(limit);
    return rc;
}

void ratelimit_count_request(struct ratelimit *limit)
{
    if (limit != NULL) take_from_bucket(&limit->requests, clock_now(limit->clock), 1);
}

void ratelimit_count_tokens(struct ratelimit *limit, int64_t tokens)
{
    if (limit != NULL) take_from_bucket(&limit->tokens, clock_now(limit->clock), tokens);
}

/* ---- Slots ---- */

int ratelimit_take_slots(struct ratelimit *limit, size_t n, hearth_error *error)
{
    if (limit == NULL) return HEARTH_OK;
    if (limit->max_slots > 0 && n > limit->max_slots)
        return error_set(error, HEARTH_INVALID, "the request needs %zu slots, and this API key may use %zu at once", n,
                         limit->max_slots);
    if (limit->max_slots > 0 && limit->slots + n > limit->max_slots)
        return error_set(error, ERRORS_SLOT_LIMIT,
                         "this API key uses %zu of its %zu slots, and the request needs %zu: try again when others "
                         "have ended",
                         limit->slots, limit->max_slots, n);
    limit->slots += n;
    return HEARTH_OK;
}

void ratelimit_return_slots(struct ratelimit *limit, size_t n)
{
    if (limit != NULL) limit->slots -= n;
}

/* ---- Headers ---- */

static void put_bucket(const struct bucket *b, int64_t now, const char *name, struct http_request *http)
{
    char header[48], value[48];
    if (b->limit == 0) return;
    snprintf(header, sizeof header, "X-RateLimit-Limit-%s", name);
    snprintf(value, sizeof value, "%lld", (long long)b->limit);
    http_set_header(http, header, value);
    snprintf(header, sizeof header, "X-RateLimit-Remaining-%s", name);
    /* Never negative, though the bucket may be. */
    snprintf(value, sizeof value, "%lld", (long long)fmax(floor((double)b->limit - used_now(b, now)), 0));
    http_set_header(http, header, value);
    snprintf(header, sizeof header, "X-RateLimit-Reset-%s", name);
    /* As OpenAI writes durations: "250ms", "8.5s", "6m0s". */
    double seconds = used_now(b, now) * MINUTE_NS / 1e9 / (double)b->limit;
    double minutes = floor(seconds / 60);
    if (seconds < 1)
        snprintf(value, sizeof value, "%.0fms", ceil(seconds * 1e3));
    else if (minutes < 1)
        snprintf(value, sizeof value, "%.4gs", seconds);
    else
        snprintf(value, sizeof value, "%.0fm%.0fs", minutes, floor(seconds - minutes * 60));
    http_set_header(http, header, value);
}

void ratelimit_put_headers(const struct ratelimit *limit, struct http_request *http)
{
    if (limit == NULL) return;
    int64_t now = clock_now(limit->clock);
    put_bucket(&limit->requests, now, "Requests", http);
    put_bucket(&limit->tokens, now, "Tokens", http);
}

void ratelimit_put_retry(const struct ratelimit *limit, struct http_request *http)
{
    char seconds[32];
    int64_t now = clock_now(limit->clock);
    snprintf(seconds, sizeof seconds, "%.0f",
             ceil(fmax(seconds_until_one(&limit->requests, now), seconds_until_one(&limit->tokens, now))));
    http_set_header(http, "Retry-After", seconds);
}
