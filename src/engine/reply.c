/* Text of a reply, from token bytes to whole characters, and stop strings: see reply.h. */
#include "engine/reply.h"

#include "base/utf8.h"

#include <string.h>

void reply_init(struct reply *r, const char *const *stop, size_t n_stop)
{
    *r = (struct reply){.stop = stop, .n_stop = n_stop};
}

void reply_release(struct reply *r)
{
    buf_release(&r->held);
    buf_release(&r->ready);
}

/* The stop string that occurs first in the held bytes; of several at one position, the first of the list. */
static const char *find_stop(const struct reply *r, size_t *at)
{
    const char *found = NULL;
    for (size_t i = 0; i < r->n_stop; i++) {
        const char *hit = memmem(r->held.v, r->held.len, r->stop[i], strlen(r->stop[i]));
        if (hit == NULL || (found != NULL && (size_t)(hit - r->held.v) >= *at)) continue;
        *at = (size_t)(hit - r->held.v);
        found = r->stop[i];
    }
    return found;
}

/* Length of the longest suffix of the held bytes that is a prefix of some stop string. */
static size_t possible_stop(const struct reply *r)
{
    size_t longest = 0;
    for (size_t i = 0; i < r->n_stop; i++) {
        size_t len = strlen(r->stop[i]) - 1;
        if (len > r->held.len) len = r->held.len;
        while (len > longest && memcmp(r->held.v + r->held.len - len, r->stop[i], len) != 0) len--;
        if (len > longest) longest = len;
    }
    return longest;
}

static void release_text(struct reply *r, size_t len)
{
    utf8_put_clean(&r->ready, r->held.v, len);
    buf_drop_front(&r->held, len);
}

const char *reply_add(struct reply *r, const char *bytes, size_t len)
{
    buf_clear(&r->ready);
    buf_append(&r->held, bytes, len);
    size_t at = 0;
    const char *stop = find_stop(r, &at);
    if (stop != NULL) {
        release_text(r, at);
        buf_clear(&r->held);
        return stop;
    }
    size_t keep = possible_stop(r);
    size_t incomplete = utf8_incomplete_tail(r->held.v, r->held.len);
    if (incomplete > keep) keep = incomplete;
    /* The bytes held for a stop string may begin inside a character: hold that whole character. */
    keep += utf8_incomplete_tail(r->held.v, r->held.len - keep);
    release_text(r, r->held.len - keep);
    return NULL;
}

void reply_finish(struct reply *r)
{
    buf_clear(&r->ready);
    if (r->held.len > 0) release_text(r, r->held.len);
}
