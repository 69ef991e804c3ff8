/* The store of responses and conversations: see response_store.h. A search tree indexes entries by id, a list has them
 * in LRU order. A turn's bytes count once, however many entries lead to it. */
#include "serve/responses/response_store.h"

#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct lru_entry {
    char *id, *owner; /* owner: NULL: none */
    struct buf text;
    struct stored_turn *turn;
    TAILQ_ENTRY(lru_entry) by_use;
};

struct stored {
    pthread_mutex_t changes; /* stored_lock(); taken before `mutex` */
    pthread_mutex_t mutex;
    struct stored_bounds bounds, size;
    void *by_id;
    TAILQ_HEAD(, lru_entry) by_use; /* the least recently used one first */
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct lru_entry *)a)->id, ((const struct lru_entry *)b)->id);
}

/* ---- Turns ---- */

static size_t turn_bytes(const struct stored_turn *turn)
{
    return turn->all_bytes - (turn->before == NULL ? 0 : turn->before->all_bytes);
}

static void link_turn(struct stored_turn *turn, struct stored_turn *before)
{
    turn->before = before;
    if (before == NULL) return;
    before->refs++;
    turn->all_n += before->all_n;
    turn->all_bytes += before->all_bytes;
}

/* Drops a reference; frees the turn and those before it that lose their last one. A loop, since recursion could be
 * deep. */
static void drop_turn(struct stored_turn *turn)
{
    while (turn != NULL && --turn->refs == 0) {
        struct stored_turn *before = turn->before;
        for (size_t i = 0; i < turn->n; i++) {
            free(turn->items[i].id);
            free(turn->items[i].text);
        }
        free(turn->items);
        free(turn);
        turn = before;
    }
}

static size_t bytes_to(const struct stored_turn *turn)
{
    return turn == NULL ? 0 : turn->all_bytes;
}

struct stored_turn *stored_turn_new(struct stored *stored, struct stored_turn *before)
{
    struct stored_turn *turn = mem_alloc(sizeof *turn);
    turn->refs = 1;
    turn->all_bytes = sizeof *turn;
    pthread_mutex_lock(&stored->mutex);
    link_turn(turn, before);
    pthread_mutex_unlock(&stored->mutex);
    return turn;
}

void stored_turn_unref(struct stored *stored, struct stored_turn *turn)
{
    if (turn == NULL) return;
    pthread_mutex_lock(&stored->mutex);
    drop_turn(turn);
    pthread_mutex_unlock(&stored->mutex);
}

void stored_turn_add(struct stored_turn *turn, const char *id, struct buf *text)
{
    turn->items = mem_grow(turn->items, turn->n + 1, sizeof *turn->items);
    struct stored_item *item = &turn->items[turn->n++];
    item->len = text->len;
    item->id = mem_strdup(id);
    item->text = buf_take(text);
    turn->all_n++;
    turn->all_bytes += sizeof *item + strlen(item->id) + item->len + 2;
}

struct stored_item *stored_turn_items(const struct stored_turn *turn)
{
    size_t at = turn == NULL ? 0 : turn->all_n;
    struct stored_item *items = mem_alloc((at + 1) * sizeof *items);
    for (; turn != NULL; turn = turn->before)
        for (size_t i = turn->n; i-- > 0;) items[--at] = turn->items[i];
    return items;
}

/* ---- Entries ---- */

static size_t entry_bytes(const struct lru_entry *entry)
{
    return sizeof *entry + strlen(entry->id) + (entry->owner == NULL ? 0 : strlen(entry->owner)) + entry->text.len + 3;
}

static struct lru_entry *find_entry(struct stored *stored, const char *owner, const char *id)
{
    struct lru_entry wanted = {.id = (char *)id}, **found = tfind(&wanted, &stored->by_id, compare);
    const char *its = found == NULL ? NULL : (*found)->owner;
    bool is_same = its == NULL || owner == NULL ? its == owner : strcmp(its, owner) == 0;
    return found != NULL && is_same ? *found : NULL;
}

static void touch(struct stored *stored, struct lru_entry *entry)
{
    TAILQ_REMOVE(&stored->by_use, entry, by_use);
    TAILQ_INSERT_TAIL(&stored->by_use, entry, by_use);
}

/* Gives an entry another last turn. */
static void set_turn(struct stored *stored, struct lru_entry *entry, struct stored_turn *turn)
{
    struct stored_turn *former = entry->turn;
    if (turn != NULL) turn->refs++;
    entry->turn = turn;
    /* The turn's bytes count now, and those of turns before it that did not; then the former one's as far as no entry
     * leads there any more. */
    for (struct stored_turn *t = turn; t != NULL && t->led_to++ == 0; t = t->before)
        stored->size.bytes += turn_bytes(t);
    for (struct stored_turn *t = former; t != NULL && --t->led_to == 0; t = t->before)
        stored->size.bytes -= turn_bytes(t);
    drop_turn(former);
}

static void free_entry(struct lru_entry *entry)
{
    buf_release(&entry->text);
    free(entry->owner);
    free(entry->id);
    free(entry);
}

static void remove_entry(struct stored *stored, struct lru_entry *entry)
{
    tdelete(entry, &stored->by_id, compare);
    TAILQ_REMOVE(&stored->by_use, entry, by_use);
    stored->size.entries--;
    stored->size.bytes -= entry_bytes(entry);
    set_turn(stored, entry, NULL);
    free_entry(entry);
}

bool stored_can_hold(const struct stored *stored, size_t bytes)
{
    return stored->bounds.entries > 0 && bytes <= stored->bounds.bytes;
}

/* The entry was stored or changed, and can be held: it is used last, and once the others are gone only what it leads to
 * is left. */
static void evict_others(struct stored *stored, struct lru_entry *entry)
{
    touch(stored, entry);
    struct lru_entry *first;
    while ((first = TAILQ_FIRST(&stored->by_use)) != entry &&
           (stored->size.entries > stored->bounds.entries || stored->size.bytes > stored->bounds.bytes)) {
        log_event(LOG_DEBUG, "serve", "a stored response was evicted", log_str("id", first->id));
        remove_entry(stored, first);
    }
}

bool stored_put(struct stored *stored, const struct stored_entry *given)
{
    struct lru_entry *entry = mem_alloc(sizeof *entry);
    *entry = (struct lru_entry){.id = mem_strdup(given->id), .owner = mem_strdup(given->owner), .text = *given->text};
    *given->text = (struct buf){0};
    pthread_mutex_lock(&stored->mutex);
    bool fits = stored_can_hold(stored, entry_bytes(entry) + bytes_to(given->turn));
    if (fits) {
        /* In place of one of the same id. Turns that both lead to stay counted all the while, and are not walked
         * through. */
        struct lru_entry **same = tfind(entry, &stored->by_id, compare);
        set_turn(stored, entry, given->turn);
        if (same != NULL) remove_entry(stored, *same);
        tsearch(entry, &stored->by_id, compare);
        TAILQ_INSERT_TAIL(&stored->by_use, entry, by_use);
        stored->size.entries++;
        stored->size.bytes += entry_bytes(entry);
        evict_others(stored, entry);
    }
    pthread_mutex_unlock(&stored->mutex);
    if (!fits) free_entry(entry);
    return fits;
}

bool stored_find(struct stored *stored, const char *owner, const char *id, bool with_text, struct stored_found *found)
{
    *found = (struct stored_found){.turn = NULL};
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    if (entry != NULL) {
        touch(stored, entry);
        if (with_text) buf_append(&found->text, entry->text.v, entry->text.len);
        found->turn = entry->turn;
        if (found->turn != NULL) found->turn->refs++;
    }
    pthread_mutex_unlock(&stored->mutex);
    return entry != NULL;
}

void stored_release(struct stored *stored, struct stored_found *found)
{
    buf_release(&found->text);
    stored_turn_unref(stored, found->turn);
    free(found->id);
}

/* With the mutex: the result of a change after which the entry's own bytes and those of its turns are `bytes`. */
static enum stored_change judge(const struct stored *stored, const struct lru_entry *entry, size_t bytes)
{
    if (entry == NULL) return STORED_ABSENT;
    return stored_can_hold(stored, bytes) ? STORED_CHANGED : STORED_TOO_LARGE;
}

/* Whether appended to the entry's last turn, or in place of it. */
static enum stored_change change_turn(struct stored *stored, const char *owner, const char *id,
                                      struct stored_turn *turn, bool appended)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    size_t bytes = entry == NULL ? 0 : entry_bytes(entry) + turn->all_bytes + (appended ? bytes_to(entry->turn) : 0);
    enum stored_change change = judge(stored, entry, bytes);
    if (change == STORED_CHANGED) {
        if (appended) link_turn(turn, entry->turn);
        set_turn(stored, entry, turn);
        evict_others(stored, entry);
    }
    pthread_mutex_unlock(&stored->mutex);
    return change;
}

enum stored_change stored_extend(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn)
{
    return change_turn(stored, owner, id, turn, true);
}

enum stored_change stored_set_turn(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn)
{
    return change_turn(stored, owner, id, turn, false);
}

enum stored_change stored_set_text(struct stored *stored, const char *owner, const char *id, struct buf *text)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    size_t bytes = entry == NULL ? 0 : entry_bytes(entry) - entry->text.len + text->len + bytes_to(entry->turn);
    enum stored_change change = judge(stored, entry, bytes);
    if (change == STORED_CHANGED) {
        stored->size.bytes -= entry_bytes(entry);
        buf_release(&entry->text);
        entry->text = *text;
        *text = (struct buf){0};
        stored->size.bytes += entry_bytes(entry);
        evict_others(stored, entry);
    }
    pthread_mutex_unlock(&stored->mutex);
    return change;
}

bool stored_remove(struct stored *stored, const char *owner, const char *id)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    if (entry != NULL) remove_entry(stored, entry);
    pthread_mutex_unlock(&stored->mutex);
    return entry != NULL;
}

void stored_lock(struct stored *stored)
{
    pthread_mutex_lock(&stored->changes);
}

void stored_unlock(struct stored *stored)
{
    pthread_mutex_unlock(&stored->changes);
}

struct stored_bounds stored_size(struct stored *stored)
{
    pthread_mutex_lock(&stored->mutex);
    struct stored_bounds size = stored->size;
    pthread_mutex_unlock(&stored->mutex);
    return size;
}

/* ---- Opening and closing ---- */

struct stored *stored_open(struct stored_bounds bounds)
{
    struct stored *stored = mem_alloc(sizeof *stored);
    stored->bounds = bounds;
    pthread_mutex_init(&stored->mutex, NULL);
    pthread_mutex_init(&stored->changes, NULL);
    TAILQ_INIT(&stored->by_use);
    return stored;
}

void stored_close(struct stored *stored)
{
    if (stored == NULL) return;
    stored->bounds = (struct stored_bounds){0};
    while (!TAILQ_EMPTY(&stored->by_use)) remove_entry(stored, TAILQ_FIRST(&stored->by_use));
    pthread_mutex_destroy(&stored->mutex);
    pthread_mutex_destroy(&stored->changes);
    free(stored);
}

bool stored_is_on(const struct stored *stored)
{
    return stored->bounds.entries > 0;
}
