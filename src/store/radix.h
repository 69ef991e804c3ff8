/* Token lists by their prefixes: a radix tree. Each prefix of each list has exactly one spot in it, so going down it is
 * a search through all lists, however they share what they begin with.
 *
 * It knows nothing of what it holds: a place, where a list ends or where lists part, has a list of guests. Belongs to
 * whoever owns the trees (index.c). */
#ifndef STORE_RADIX_H
#define STORE_RADIX_H

#include "base/hash_table.h"
#include "store/packed.h"

struct guest {
    struct guest *next;
    bool rows; /* it has the rows of all tokens that lead to its place */
};

struct place {
    struct hash_link edge; /* by parent and first token */
    struct place *parent, *first_child, *prev, *next;
    struct packed tokens; /* that lead here from the parent */
    int32_t end;          /* how many lead here from the root */
    uint32_t n_rows;      /* guests with rows, and children with any below them */
    struct guest *guests;
};

/* On the way to `place`, after `end` tokens: parent->end < end <= place->end; the root itself: 0. */
struct spot {
    struct place *place;
    int32_t end;
};

/* What the trees of one index have in common. Zeroed: none. */
struct radix {
    struct hash_table edges;
};

struct place *radix_open(void); /* a root */
void radix_close(struct place *root);

/* As far down from the spot as the next tokens lead. */
struct spot radix_walk(const struct radix *radix, struct spot from, const int32_t *next, size_t n);

/* Up to `max` tokens that some list goes on with from the spot; how many there are. */
size_t radix_next(struct spot spot, int32_t *tokens, size_t max);

/* After `end` tokens on the way to the place. */
struct spot radix_spot(struct place *place, int32_t end);

/* The tokens [from, place->end) that lead to the place. */
void radix_copy(const struct place *place, int32_t from, int32_t *tokens);

/* Whether those are these. */
bool radix_has(const struct place *place, int32_t from, const int32_t *tokens);

/* The guest goes where the next tokens lead from the spot. Returns the place, which stays until the guest leaves. */
struct place *radix_enter(struct radix *radix, struct spot from, const int32_t *next, size_t n, struct guest *guest);
void radix_leave(struct radix *radix, struct place *place, struct guest *guest);

/* The last spot on the way to this one for which there are rows; its place is the root: none. */
struct spot radix_with_rows(struct spot spot);

/* A guest that has the rows of the spot, which has some. */
struct guest *radix_rows_of(struct spot spot);

#endif
