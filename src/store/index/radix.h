/* A radix tree over token lists. Every prefix of every list has exactly one position in it, so a walk down from the
 * root compares a prompt with all lists at once, however they share prefixes.
 *
 * The tree knows nothing of what it indexes: a node, where a list ends or where lists diverge, has a list of entries,
 * which are embedded in the owner's structs. Nodes belong to the tree, entries to their owner; the owner of the trees
 * (index.c) guards both. */
#ifndef STORE_INDEX_RADIX_H
#define STORE_INDEX_RADIX_H

#include "base/hash_table.h"
#include "base/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A packed token list, for those kept long: 3 bytes a token where all of them fit, as those of every known vocabulary
 * do, else 4. A plain value without sharing: its owner releases it. Zeroed: no tokens. */
struct packed {
    uint8_t *v;
    uint32_t len;
    uint32_t width; /* bytes a token */
};

struct packed packed_of(const int32_t *tokens, size_t n);
void packed_release(struct packed *packed);

int32_t packed_at(const struct packed *packed, size_t i);
void packed_copy(const struct packed *packed, size_t from, size_t n, int32_t *tokens);

/* How many of the n tokens equal those of the list from `from` on, until the first that differs. */
size_t packed_common(const struct packed *packed, size_t from, const int32_t *tokens, size_t n);

/* Keeps only the tokens [from, to). */
void packed_cut(struct packed *packed, size_t from, size_t to);

struct radix_entry {
    struct radix_entry *next; /* of the same node */
    bool rows;                /* it has the KV rows of all tokens from the root to its node */
};

struct radix_node {
    struct hash_link edge; /* by parent and first token */
    struct radix_node *parent, *first_child, *prev, *next;
    struct packed tokens; /* of the edge from the parent to this node */
    int32_t end;          /* tokens from the root to this node */
    uint32_t n_rows;      /* entries with rows, and children with any at or below them */
    struct radix_entry *entries;
};

/* After `end` tokens on the path to `node`: parent->end < end <= node->end; at the root itself 0. */
struct radix_position {
    struct radix_node *node;
    int32_t end;
};

/* A table of the edges, which all trees of one index share, so that a node with many children costs no more. Zeroed: it
 * is empty. */
struct radix {
    struct hash_table edges;
};

struct radix_node *radix_open(void); /* a root */
void radix_close(struct radix_node *root);

/* Walks down from the position as far as the next tokens match. */
struct radix_position radix_walk(const struct radix *radix, struct radix_position from, const int32_t *next, size_t n);

/* Copies up to `max` tokens by which some list continues after the position. Returns how many. */
size_t radix_next_tokens(struct radix_position position, int32_t *tokens, size_t max);

/* Appends up to `most` tokens of each edge that goes on from the position, to one of the `max` lists each. Returns how
 * many edges. */
size_t radix_ways_on(struct radix_position position, struct tokens *ways, size_t max, size_t most);

/* The position after `end` tokens on the path to the node. */
struct radix_position radix_position_at(struct radix_node *node, int32_t end);

/* Copies the tokens [from, node->end) of the path to the node. */
void radix_copy_tokens(const struct radix_node *node, int32_t from, int32_t *tokens);

/* Whether the tokens [from, node->end) of the path to the node equal these. */
bool radix_matches(const struct radix_node *node, int32_t from, const int32_t *tokens);

/* Inserts the entry at the end of the next tokens, walking from the position. Returns its node, which stays valid until
 * the entry is removed. */
struct radix_node *radix_insert(struct radix *radix, struct radix_position from, const int32_t *next, size_t n,
                                struct radix_entry *entry);
void radix_remove(struct radix *radix, struct radix_node *node, struct radix_entry *entry);

/* The last position on the path to this one at or below which an entry has rows. At the root: there is none. */
struct radix_position radix_deepest_with_rows(struct radix_position position);

/* An entry with the rows of all tokens up to the position, at or below which there is one. */
struct radix_entry *radix_entry_with_rows(struct radix_position position);

/* Asserts what always holds of the nodes of all trees, and that so many entries are at them. */
void radix_check(const struct radix *radix, size_t n_entries);

#endif
