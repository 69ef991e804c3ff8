/* Responses and conversations that clients come back to by their ids: kept in memory, within bounds, until the process
 * ends. Of what exceeds a bound the least recently used goes first.
 *
 * A turn is the items of one request and of its answer. It follows the turn before it, which it holds: a conversation
 * of a hundred responses is in memory once, and a response can be gone on from after those before it were evicted.
 *
 * A lock of the store guards all that is here; the items of a turn that is stored do not change any more and may be
 * read without it by who holds the turn. Any thread. */
#ifndef SERVE_RESPONSES_STORED_H
#define SERVE_RESPONSES_STORED_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct stored;

struct stored_bounds {
    size_t entries; /* responses and conversations together; 0: nothing is stored */
    size_t bytes;   /* of all that is stored, with what it takes to find it */
};

struct stored *stored_open(struct stored_bounds bounds);
void stored_close(struct stored *stored); /* NULL is fine */

/* Whether anything is stored at all. */
bool stored_is_on(const struct stored *stored);

/* ---- Turns ---- */

struct stored_item {
    char *id;
    char *text; /* a JSON object */
    size_t len;
};

struct stored_turn {
    struct stored_turn *before; /* NULL: the first */
    struct stored_item *items;
    size_t n;
    size_t n_input;          /* the first of them, which the request brought; the others are its answer */
    size_t all_n, all_bytes; /* of its items and those before it */
    size_t refs;             /* the store's lock */
    bool is_counted;         /* in the store's bytes; the same */
};

/* A turn without items, held by the caller; `before` may be NULL. */
struct stored_turn *stored_turn_new(struct stored *stored, struct stored_turn *before);
void stored_turn_unref(struct stored *stored, struct stored_turn *turn); /* NULL is fine */

/* Adds an item to a turn that was never stored; `text` is emptied. */
void stored_turn_add(struct stored_turn *turn, const char *id, struct buf *text);

/* All items, those of the first turn first: free() the list, whose strings are the turn's. */
struct stored_item *stored_turn_items(const struct stored_turn *turn);

/* ---- Entries ---- */

/* What an id stands for. */
struct stored_entry {
    const char *owner; /* of its API key; NULL: no key was asked for. Others' entries are not found */
    const char *id;
    struct buf *text;         /* its JSON, which is emptied */
    struct stored_turn *turn; /* the last one; NULL: none. The caller goes on holding it */
};

/* Stores an entry, in the place of one with the same id; others, and it itself where it alone is too large, may be
 * evicted for it. */
void stored_put(struct stored *stored, const struct stored_entry *entry);

/* An entry as it is now. */
struct stored_found {
    struct buf text;
    struct stored_turn *turn; /* held; NULL: none */
};

/* Finds an entry and makes it the most recently used one; stored_release() what was found. `with_text`: else that is
 * left empty. */
bool stored_find(struct stored *stored, const char *owner, const char *id, bool with_text, struct stored_found *found);
void stored_release(struct stored *stored, struct stored_found *found);

/* Lets a turn, which was never stored and has none before it, follow the last one of the entry. False: it is gone. */
bool stored_extend(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn);

/* Gives the entry another text. False: it is gone. */
bool stored_set_text(struct stored *stored, const char *owner, const char *id, struct buf *text);

bool stored_remove(struct stored *stored, const char *owner, const char *id);

/* What there is. */
struct stored_bounds stored_size(struct stored *stored);

#endif
