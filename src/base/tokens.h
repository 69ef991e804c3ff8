/* Token lists: a growable list, as of a prompt or the KV cells of a sequence, and the divergence of two lists. A list
 * belongs to one thread at a time. */
#ifndef BASE_TOKENS_H
#define BASE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokens {
    int32_t *v;
    size_t len, cap;
};

void tokens_append(struct tokens *t, const int32_t *v, size_t len);
void tokens_push(struct tokens *t, int32_t token);
void tokens_truncate(struct tokens *t, size_t len);
void tokens_release(struct tokens *t);

/* Length of the longest common prefix. */
size_t tokens_common_prefix(const struct tokens *a, const struct tokens *b);

/* The divergence of a list from the one that has most leading tokens in common with it. */
struct divergence {
    int32_t common; /* leading tokens in common: the position of the divergence */
    int32_t n_next; /* how many of the other list's next tokens are in `next`; 0: it ends there */
    int32_t next[16];
};

#define DIVERGENCE_NEXT (sizeof((struct divergence *)NULL)->next / sizeof(int32_t))

/* Notes the divergence from the other list, if it has more tokens in common than what is noted. Returns whether it has.
 */
bool tokens_note_divergence(const struct tokens *t, const struct tokens *other, struct divergence *divergence);

/* A 64-bit hash, by which people tell lists apart in logs; never decides whether a state is reused. */
uint64_t tokens_short_hash(const struct tokens *t);

#endif
