/* A growable list of tokens: what a prompt is made of, and what the cells of a sequence hold. */
#ifndef BASE_TOKENS_H
#define BASE_TOKENS_H

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

/* 64 bits of a hash over the tokens, for people to tell lists apart; never decides whether a state is reused. */
uint64_t tokens_short_hash(const struct tokens *t);

#endif
