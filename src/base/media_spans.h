/* The media of a prompt: where in its token list an image's or a sound's rows lie, and what positions they take.
 *
 * The token list stays the one authority for what is the same prefix. Each row of a medium has a token of its own
 * there. It is made of the SHA-256 of all that the rows depend on: the content, the projector, its settings, the part
 * of the medium. These tokens are negative, which those of a vocabulary never are. Two media whose rows begin alike
 * differ within the first rows, and a prefix never ends inside a medium (media_spans_whole()). So prefixes are
 * compared, keyed and stored with media as without. A token has 30 bits of the hash. So the tokens of a medium of very
 * few rows may be those of another medium: no prefix that contains one is kept or reused (media_spans_told()).
 *
 * A row is one cell, as a token is. Its position may be another number than its index: with M-RoPE an image of many
 * rows takes as many positions as its longer side has rows. Pure functions; any thread. */
#ifndef BASE_MEDIA_SPANS_H
#define BASE_MEDIA_SPANS_H

#include "base/tokens.h"

#include <stdbool.h>

/* The rows of one chunk of a medium: indices [at, at + n) of the token list. */
struct media_span {
    int32_t at, n;
    int32_t n_pos; /* positions that they take together; n where each has one of its own */
    bool causal;   /* false: they are computed in one decode call */
};

/* Ascending; {0} is none. */
struct media_spans {
    struct media_span *v;
    size_t len, cap;
};

void media_spans_add(struct media_spans *spans, const struct media_span *span);
void media_spans_copy(struct media_spans *to, const struct media_spans *from); /* in place of what it has */
void media_spans_release(struct media_spans *spans);

/* Appends the n tokens of rows with this SHA-256. */
void media_tokens_append(struct tokens *tokens, const uint8_t key[32], int32_t n);
bool media_token_is_one(int32_t token);

/* The span that index lies in; NULL: it is text. */
const struct media_span *media_spans_at(const struct media_spans *spans, int32_t index);

/* The longest prefix of at most n tokens that ends inside no medium. */
int32_t media_spans_whole(const struct media_spans *spans, int32_t n);

/* The longest prefix of at most n tokens all of whose media differ from all others by their tokens. Those are media of
 * MEDIA_TOLD_ROWS rows and more: 240 bits of the hash. */
#define MEDIA_TOLD_ROWS 8
int32_t media_spans_told(const struct media_spans *spans, int32_t n);

/* The position of the token at an index, and the index of the token at a position, also behind the last one. Of rows
 * that take fewer positions than they are: the position of the first, and its index. */
int32_t media_spans_position(const struct media_spans *spans, int32_t index);
int32_t media_spans_index(const struct media_spans *spans, int32_t position);

#endif
