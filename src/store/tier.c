/* One tier: opening it, making room in it, what goes wrong with it.
 *
 * Files of a folder are written and removed by the saver's thread alone (and before that, until the tier is ready, by
 * the scanner's). So what left the index is never removed after it has been written anew. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Life ---- */

void tier_open(struct store *store, enum store_tier id)
{
    struct tier *tier = &store->tiers[id];
    hearth_error error = {0};
    tier->id = id;
    tier->quota = store->params.tiers[id].quota;
    tier->ready = true;
    if (tier->quota == 0) return;
    if (id != STORE_RAM) {
        tier->folder = folder_open(store->params.files, store->params.tiers[id].path, &error);
        if (tier->folder == NULL) {
            snprintf(tier->trouble, sizeof tier->trouble, "%.159s", error.message);
            log_event(LOG_ERROR, LOG_GROUP, "a tier is off", log_str("tier", store_tier_names[id]),
                      log_str("path", store->params.tiers[id].path), log_str("reason", error.message));
            return;
        }
        tier->ready = false; /* until it has been looked through */
    }
    tier->index = index_open(store->params.stride, tier->quota, image_free);
    tier->on = true;
}

static void free_victims(struct index *index, struct victim *first)
{
    while (first != NULL) {
        struct victim *next = first->next;
        index_deleted(index, first);
        first = next;
    }
}

void tier_close(struct tier *tier)
{
    if (tier->index != NULL) {
        free_victims(tier->index, tier->doomed);
        free_victims(tier->index, tier->damaged);
        index_close(tier->index);
    }
    if (tier->folder != NULL) folder_close(tier->folder);
}

/* ---- Going ---- */

static void append(struct victim **list, struct victim *more)
{
    while (*list != NULL) list = &(*list)->next;
    *list = more;
}

static struct victim *take_all(struct store *store, struct victim **list)
{
    store_lock(store);
    struct victim *all = *list;
    *list = NULL;
    store_unlock(store);
    return all;
}

void tier_doom(struct store *store, struct tier *tier, struct victim *victims)
{
    store_lock(store);
    append(&tier->doomed, victims);
    store_unlock(store);
}

static int remove_all(struct store *store, struct tier *tier, hearth_error *error)
{
    struct victim *victim = take_all(store, &tier->doomed);
    int result = 0;
    while (victim != NULL && result == 0) {
        struct victim *next = victim->next;
        if (tier->folder != NULL) result = folder_remove(tier->folder, &victim->key, victim->kind, error);
        if (result != 0) break;
        index_deleted(tier->index, victim);
        victim = next;
    }
    tier_doom(store, tier, victim); /* its bytes count as long as its file is there */
    return result;
}

int tier_tidy(struct store *store, struct tier *tier, hearth_error *error)
{
    struct victim *victim = take_all(store, &tier->damaged);
    while (victim != NULL) {
        struct victim *next = victim->next;
        folder_quarantine(tier->folder, &victim->key, victim->kind);
        index_deleted(tier->index, victim);
        victim = next;
    }
    return remove_all(store, tier, error);
}

void tier_drop(struct store *store, struct tier *tier, struct entry *entry, bool damaged)
{
    store_lock(store);
    struct victim *victims = index_drop(tier->index, entry);
    if (victims != NULL && damaged) {
        append(&tier->doomed, victims->next);
        victims->next = NULL;
        append(&tier->damaged, victims);
    } else {
        append(&tier->doomed, victims);
    }
    store->saver.tidy = true;
    pthread_cond_signal(&store->saver.work);
    store_unlock(store);
}

/* ---- Room ---- */

static enum reserved reserve(struct store *store, struct tier *tier, const struct reserve *what,
                             struct reservation **reservation)
{
    struct victim *victims;
    enum reserved reserved = index_reserve(tier->index, what, reservation, &victims);
    tier_doom(store, tier, victims);
    return reserved;
}

/* With one saver, a key that is being written is one that was dropped and has its file still. */
int tier_reserve(struct store *store, struct tier *tier, const struct reserve *what, struct reservation **reservation,
                 enum reserved *reserved, hearth_error *error)
{
    *reserved = reserve(store, tier, what, reservation);
    int result = tier_tidy(store, tier, error);
    if (result == 0 && *reserved == RESERVED_WRITING) {
        *reserved = reserve(store, tier, what, reservation);
        result = tier_tidy(store, tier, error);
    }
    if (*reserved != RESERVED) return result != 0 ? result : HEARTH_BUSY;
    if (result != 0) index_cancel(tier->index, *reservation);
    return result;
}

/* ---- Trouble ---- */

void tier_trouble(struct store *store, struct tier *tier, const char *message)
{
    store_lock(store);
    bool was = tier->trouble[0] != '\0';
    snprintf(tier->trouble, sizeof tier->trouble, "%.159s", message == NULL ? "" : message);
    store_unlock(store);
    if (!was && message != NULL)
        log_event(LOG_WARN, LOG_GROUP, "saves fail", log_str("tier", store_tier_names[tier->id]),
                  log_str("reason", message));
    if (was && message == NULL)
        log_event(LOG_INFO, LOG_GROUP, "saves succeed again", log_str("tier", store_tier_names[tier->id]));
}

/* ---- Images ---- */

void image_free(void *user)
{
    struct image *image = user;
    if (image == NULL) return;
    free(image->bytes);
    free(image);
}

void images_free(struct image *first)
{
    while (first != NULL) {
        struct image *next = first->next;
        image_free(first);
        first = next;
    }
}
