/* Finds where the last tokens of a list occurred before, in that list or in another. The tokens that followed them
 * there are a good guess at what follows here. The index has the end of every run of three tokens; a match is compared
 * token by token. It takes 4 bytes a token and a table of at most 512 KiB. Belongs to one thread at a time; waits for
 * nothing. */
#ifndef DRAFT_SUFFIX_INDEX_H
#define DRAFT_SUFFIX_INDEX_H

#include "base/tokens.h"

#define SUFFIX_LEAST 3  /* tokens of the shortest match */
#define SUFFIX_MOST  64 /* and of the longest: longer ones count as this */

/* {0} is an empty one. */
struct suffix_index {
    int32_t len;      /* tokens of the list that are indexed */
    int32_t *earlier; /* of each position: the last one before it with the same hash; -1: none */
    int32_t n_room;
    int32_t *last; /* by hash: the last position; -1 */
    int32_t n_last;
};

/* Indexes further tokens of the list, at most `most` of them. False: not all of them yet. */
bool suffix_index_extend(struct suffix_index *index, const struct tokens *tokens, int32_t most);

/* The list, which still has its tokens, is to keep only the first n of them; 0: frees all. */
void suffix_index_truncate(struct suffix_index *index, const struct tokens *tokens, int32_t n);

void suffix_index_release(struct suffix_index *index);

struct suffix_match {
    int32_t end; /* position of the token that followed */
    int32_t len; /* matching tokens before it; 0: there is no match */
};

/* The longest match of the end of `tail` in the indexed tokens of `tokens`, which may be the same list; of several the
 * last one. */
struct suffix_match suffix_index_find(const struct suffix_index *index, const struct tokens *tokens,
                                      const struct tokens *tail);

/* How many tokens before position `end` of `tokens` are the last ones of `tail`; SUFFIX_MOST at most. */
int32_t suffix_common(const struct tokens *tokens, int32_t end, const struct tokens *tail);

#endif
