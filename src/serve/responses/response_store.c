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
    pthread_mutex_t mutex;
    struct stored_bounds bounds, size;
    void *by_id;
    TAILQ_HEAD(, lru_entry) by_use; /* the least recently used one first */
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct lru_entry *)a)->id, ((const struct lru_entry *)b)->id);
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* ---- Turns ---- */

static size_t item_bytes(const struct stored_item *item)
{
    return sizeof *item + strlen(item->id) + item->len + 2;
}

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
static void drop_turn(struct stored *stored, struct stored_turn *turn)
{
    while (turn != NULL && --turn->refs == 0) {
        struct stored_turn *before = turn->before;
        if (turn->is_counted) stored->size.bytes -= turn_bytes(turn);
        for (size_t i = 0; i < turn->n; i++) {
            free(turn->items[i].id);
            free(turn->items[i].text);
        }
        free(turn->items);
        free(turn);
        turn = before;
    }
}

/* Counts a turn's bytes. The turns before it are counted already, since they are stored. */
static void count_turn(struct stored *stored, struct stored_turn *turn)
{
    if (turn == NULL || turn->is_counted) return;
    turn->is_counted = true;
    stored->size.bytes += turn_bytes(turn);
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
    drop_turn(stored, turn);
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
    turn->all_bytes += item_bytes(item);
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
    return found != NULL && is_same((*found)->owner, owner) ? *found : NULL;
}

static void touch(struct stored *stored, struct lru_entry *entry)
{
    TAILQ_REMOVE(&stored->by_use, entry, by_use);
    TAILQ_INSERT_TAIL(&stored->by_use, entry, by_use);
}

static void remove_entry(struct stored *stored, struct lru_entry *entry)
{
    tdelete(entry, &stored->by_id, compare);
    TAILQ_REMOVE(&stored->by_use, entry, by_use);
    stored->size.entries--;
    stored->size.bytes -= entry_bytes(entry);
    drop_turn(stored, entry->turn);
    buf_release(&entry->text);
    free(entry->owner);
    free(entry->id);
    free(entry);
}

static void evict_to_bounds(struct stored *stored)
{
    struct lru_entry *entry;
    while ((entry = TAILQ_FIRST(&stored->by_use)) != NULL &&
           (stored->size.entries > stored->bounds.entries || stored->size.bytes > stored->bounds.bytes)) {
        log_event(LOG_DEBUG, "serve", "a stored response was evicted", log_str("id", entry->id));
        remove_entry(stored, entry);
    }
}

void stored_put(struct stored *stored, const struct stored_entry *given)
{
    struct lru_entry *entry = mem_alloc(sizeof *entry);
    *entry = (struct lru_entry){.id = mem_strdup(given->id), .owner = mem_strdup(given->owner), .text = *given->text};
    *given->text = (struct buf){0};
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry **same = tfind(entry, &stored->by_id, compare);
    entry->turn = given->turn;
    if (entry->turn != NULL) entry->turn->refs++;
    count_turn(stored, entry->turn);
    if (same != NULL) remove_entry(stored, *same);
    tsearch(entry, &stored->by_id, compare);
    TAILQ_INSERT_TAIL(&stored->by_use, entry, by_use);
    stored->size.entries++;
    stored->size.bytes += entry_bytes(entry);
    evict_to_bounds(stored);
    pthread_mutex_unlock(&stored->mutex);
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
}

bool stored_extend(struct stored *stored, const char *owner, const char *id, struct stored_turn *turn)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    if (entry != NULL) {
        link_turn(turn, entry->turn);
        drop_turn(stored, entry->turn); /* the new turn holds it now */
        entry->turn = turn;
        turn->refs++;
        count_turn(stored, turn);
        touch(stored, entry);
        evict_to_bounds(stored);
    }
    pthread_mutex_unlock(&stored->mutex);
    return entry != NULL;
}

bool stored_set_text(struct stored *stored, const char *owner, const char *id, struct buf *text)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    if (entry != NULL) {
        stored->size.bytes -= entry_bytes(entry);
        buf_release(&entry->text);
        entry->text = *text;
        *text = (struct buf){0};
        stored->size.bytes += entry_bytes(entry);
        touch(stored, entry);
        evict_to_bounds(stored);
    }
    pthread_mutex_unlock(&stored->mutex);
    return entry != NULL;
}

bool stored_remove(struct stored *stored, const char *owner, const char *id)
{
    pthread_mutex_lock(&stored->mutex);
    struct lru_entry *entry = find_entry(stored, owner, id);
    if (entry != NULL) remove_entry(stored, entry);
    pthread_mutex_unlock(&stored->mutex);
    return entry != NULL;
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
    TAILQ_INIT(&stored->by_use);
    return stored;
}

void stored_close(struct stored *stored)
{
    if (stored == NULL) return;
    stored->bounds = (struct stored_bounds){0};
    while (!TAILQ_EMPTY(&stored->by_use)) remove_entry(stored, TAILQ_FIRST(&stored->by_use));
    pthread_mutex_destroy(&stored->mutex);
    free(stored);
}

bool stored_is_on(const struct stored *stored)
{
    return stored->bounds.entries > 0;
}
