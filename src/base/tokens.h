/* A growable list of tokens: what a prompt is made of, and what the cells of a sequence hold. */
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

/* Where a list and the one most like it diverge. */
struct divergence {
    int32_t common; /* leading tokens that both have */
    int32_t n_next; /* tokens that the other has next, as far as they are noted; 0: it ends there */
    int32_t next[16];
};

#define DIVERGENCE_NEXT (sizeof((struct divergence *)NULL)->next / sizeof(int32_t))

/* Notes the other list where it has more tokens in common with this one than what is noted. Whether it has. */
bool tokens_note_divergence(const struct tokens *t, const struct tokens *other, struct divergence *divergence);

/* 64 bits of a hash over the tokens, for people to tell lists apart; never decides whether a state is reused. */
uint64_t tokens_short_hash(const struct tokens *t);

#endif
