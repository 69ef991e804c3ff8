/* The in-memory store of responses and conversations, by id, until the process ends. Beyond its bounds the least
 * recently used entry is evicted (LRU), but never the one that is stored or changed. Where that is too large by itself
 * nothing changes, and nothing is evicted. Copies and turns that only requests hold are not counted.
 *
 * A turn is the items of one request and of its answer. It references the turn before it: the turns of a conversation
 * are in memory once, and a response can be continued after the responses before it were evicted.
 *
 * Any thread: one mutex guards the store. Stored turns are immutable, so that the holder of a reference reads their
 * items without the mutex. */
#ifndef SERVE_RESPONSES_RESPONSE_STORE_H
#define SERVE_RESPONSES_RESPONSE_STORE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct stored;

struct stored_bounds {
    size_t entries; /* responses and conversations together; 0: nothing is stored */
    size_t bytes;   /* of all entries and turns, with the index */
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
    struct stored_turn *before; /* NULL: the first turn */
    struct stored_item *items;
    size_t n;
    size_t n_input;          /* the first n_input items are the request's, the others its answer's */
    size_t all_n, all_bytes; /* items, and bytes, of this turn and all before it */
    size_t refs;             /* under the store's mutex */
    size_t led_to; /* by so many entries and turns that entries lead to: counted in the store's bytes unless it is 0.
                      Under the mutex */
};

/* A new turn without items; the caller holds a reference. `before` may be NULL. */
struct stored_turn *stored_turn_new(struct stored *stored, struct stored_turn *before);
void stored_turn_unref(struct stored *stored, struct stored_turn *turn); /* NULL is fine */

/* Adds an item to a turn that is not stored yet; `text` is emptied. */
void stored_turn_add(struct stored_turn *turn, const char *id, struct buf *text);

/* All items, those of the first turn first: free() the list; its strings belong to the turns. */
struct stored_item *stored_turn_items(const struct stored_turn *turn);

/* ---- Entries ---- */

/* An entry to store: a response or a conversation. */
struct stored_entry {
    const char *owner; /* of the API key; NULL: none. Other owners do not find the entry */
    const char *id;
    struct buf *text;         /* its JSON; emptied */
    struct stored_turn *turn; /* its last turn; NULL: none. The store takes a reference of its own */
};

/* Stores an entry, replacing one of the same id, and evicts others until the bounds hold. False: it is too large by
 * itself, with all turns that it leads to; then what has its id stays as it is. */
bool stored_put(struct stored *stored, const struct stored_entry *entry);

/* Whether so many bytes of one entry and its turns can be stored at all. */
bool stored_can_hold(const struct stored *stored, size_t bytes);

/* A copy of an entry. */
struct stored_found {
    char *id; /* for the caller's use; NULL: unset */
    struct buf text;
    struct stored_turn *turn; /* a reference; NULL: none */
};

/* Finds an entry and makes it the most recently used one; stored_release() frees the copy. `with_text`: copy the
 * JSON too. */
bool stored_find(struct stored *stored, const char *owner, const char *id, bool with_text, struct stored_found *found);
void stored_release(struct stored *stored, struct stored_found *found);

enum stored_change { STORED_CHANGED, STORED_ABSENT, STORED_TOO_LARGE };

/* Appends a turn, which is not stored yet and has none before it, to the entry's last one. */
enum stored_change stored_extend(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn);

/* Replaces the entry's last turn, and with it all of its items. */
enum stored_change stored_set_turn(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn);

/* Replaces the entry's JSON; `text` is emptied where that is done. */
enum stored_change stored_set_text(struct stored *stored, const char *owner, const char *id, struct buf *text);

bool stored_remove(struct stored *stored, const char *owner, const char *id);

/* Between these no other thread that locks changes what is stored: for what is changed as it was found. */
void stored_lock(struct stored *stored);
void stored_unlock(struct stored *stored);

/* The number of entries and their bytes. */
struct stored_bounds stored_size(struct stored *stored);

#endif
