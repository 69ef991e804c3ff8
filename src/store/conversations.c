/* The stored entries as conversations: listing those of all tiers, and orders about one.
 *
 * The index says what there is; nothing is read. To keep one is a matter of the index alone. The tier's saver removes
 * dropped slabs, since it alone changes what the backend holds. The giver of the order hears of its end from that
 * thread, or from store_end_orders(). Any thread. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/store_struct.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Listing ---- */

static struct tip_place place_of(const struct store_conversation *c)
{
    return (struct tip_place){.used = c->used, .key = c->key};
}

/* The same conversation may be in two tiers, used at the same time. */
static bool comes_before(const struct store_conversation *a, const struct store_conversation *b)
{
    struct tip_place one = place_of(a), other = place_of(b);
    if (tip_comes_before(&one, &other)) return true;
    return !tip_comes_before(&other, &one) && a->tier < b->tier;
}

static struct store_conversation conversation_of(struct store *store, enum store_tier tier, const struct tip *tip)
{
    struct store_conversation c = {.tier = tier,
                                   .key = tip->place.key,
                                   .tokens = tip->end,
                                   .own_tokens = tip->own_tokens,
                                   .own_bytes = tip->own_bytes,
                                   .marked = tip->marked,
                                   .kept = tip->kept,
                                   .used = tip->place.used,
                                   .used_ms = tip->used_ms};
    store_lock(store);
    const char *name = store_model_name(store, tip->model);
    store_unlock(store);
    if (name != NULL) snprintf(c.model, sizeof c.model, "%s", name);
    return c;
}

size_t store_conversations(struct store *store, const struct store_page *page, struct store_conversation *out,
                           size_t max, size_t *total)
{
    assert((out != NULL || max == 0) && total != NULL);
    assert(page->marks != NULL || page->n_marks == 0);
    assert(page->after == NULL || page->after->tier < STORE_TIERS);
    struct tip *tips = mem_alloc((max + 1) * sizeof *tips);
    struct tip_place after = {0};
    if (page->after != NULL) after = place_of(page->after);
    size_t n = 0;
    *total = 0;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) {
        struct tier *tier = &store->tiers[i];
        if (tier->index == NULL) continue;
        const struct tip_query query = {.after = page->after != NULL ? &after : NULL,
                                        .inclusive = page->after != NULL && i > page->after->tier,
                                        .marks = page->marks,
                                        .n_marks = page->n_marks};
        size_t n_all = 0, n_tips = index_tips(tier->index, &query, tips, max, &n_all);
        *total += n_all;
        for (size_t k = 0; k < n_tips; k++) {
            const struct store_conversation c = conversation_of(store, i, &tips[k]);
            size_t at = n;
            while (at > 0 && comes_before(&c, &out[at - 1])) at--;
            if (at == max) continue;
            if (n < max) n++;
            memmove(out + at + 1, out + at, (n - 1 - at) * sizeof *out);
            out[at] = c;
        }
    }
    free(tips);
    return n;
}

/* ---- Orders ---- */

/* 0, or why an order was not carried out. */
static int explain(const struct tier *tier, enum tip_order result, hearth_error *error)
{
    if (result == TIP_GONE)
        return error_at(error, HEARTH_NOT_FOUND, "key",
                        "no stored conversation has that key any more: it went on, or was evicted");
    if (result == TIP_IN_USE)
        return error_at(error, HEARTH_BUSY, "key", "a request is reading of it: give the order again in a moment");
    if (result == TIP_NO_ROOM)
        return error_at(
            error, HEARTH_BUSY, "key",
            "what is kept would have more than a quarter of the quota of tier %s: release another one first",
            store_tier_names[tier->id]);
    return 0;
}

static int refuse(const struct tier *tier, hearth_error *error)
{
    return error_set(error, HEARTH_UNAVAILABLE, "tier %s takes no orders now: GET /cache says what it lacks",
                     store_tier_names[tier->id]);
}

void store_order(struct store *store, const struct store_ordered *ordered)
{
    assert(ordered->tier < STORE_TIERS && ordered->order <= STORE_DROP && ordered->done != NULL);
    struct tier *tier = &store->tiers[ordered->tier];
    hearth_error error = {0};
    store_lock(store);
    bool shared = tier_is_shared(tier), is_drop = ordered->order == STORE_DROP;
    /* An order to a tier that hangs would wait as long as it does. */
    bool taken = !shared && tier->state == TIER_OPEN && !tier->stalled && !store->closing && !store->orders_ended;
    if (taken && is_drop) {
        struct drop_order *drop = mem_alloc(sizeof *drop);
        drop->ordered = *ordered;
        *tier->drops_end = drop;
        tier->drops_end = &drop->next;
        pthread_cond_signal(&tier->saver.work);
    }
    store_unlock(store);
    if (taken && is_drop) return;
    if (taken) {
        enum tip_order result = ordered->order == STORE_KEEP ? index_keep_tip(tier->index, &ordered->key)
                                                             : index_release_tip(tier->index, &ordered->key);
        explain(tier, result, &error);
    } else if (shared) {
        /* The slabs are others' as well, and leave when the server says so: changes of this index do not matter. */
        error_at(&error, HEARTH_INVALID, "tier",
                 "tier %s takes no orders: others use what is there, and its server alone keeps and evicts it",
                 store_tier_names[tier->id]);
    } else {
        refuse(tier, &error);
    }
    ordered->done(ordered->ud, error.code == HEARTH_OK ? NULL : &error);
}

/* ---- On the saver's thread ---- */

struct drop_order *tier_next_drop(struct tier *tier)
{
    struct drop_order *drop = tier->drops;
    if (drop == NULL) return NULL;
    tier->drops = drop->next;
    if (tier->drops == NULL) tier->drops_end = &tier->drops;
    return tier->dropping = drop;
}

/* Unless store_end_orders() has answered meanwhile. */
static void answer(struct tier *tier, const struct drop_order *drop, const hearth_error *error)
{
    struct store *store = tier->store;
    store_lock(store);
    bool waits = tier->dropping == drop;
    tier->dropping = NULL;
    store->n_answering += waits;
    store_unlock(store);
    if (!waits) return;
    drop->ordered.done(drop->ordered.ud, error->code == HEARTH_OK ? NULL : error);
    store_lock(store);
    store->n_answering--;
    pthread_cond_broadcast(&store->changed);
    store_unlock(store);
}

void tier_carry_out(struct tier *tier, struct drop_order *drop)
{
    hearth_error error = {0};
    struct victim *victims = NULL;
    int result = tier->state != TIER_OPEN
                     ? refuse(tier, &error)
                     : explain(tier, index_drop_tip(tier->index, &drop->ordered.key, &victims), &error);
    if (result == 0) result = tier_remove(tier, victims, &error);
    if (result == 0)
        log_event(LOG_INFO, LOG_GROUP, "a conversation was dropped by order",
                  log_str("tier", store_tier_names[tier->id]));
    answer(tier, drop, &error);
    free(drop);
}

/* ---- The end ---- */

/* With the mutex: takes all that wait out of the tier's list, and adds a copy of the one that is being carried out. */
static struct drop_order *take_all(struct tier *tier, struct drop_order *rest)
{
    struct drop_order *all = tier->drops;
    if (tier->quota == 0) return rest;
    *tier->drops_end = rest;
    if (all == NULL) all = rest;
    tier->drops = NULL;
    tier->drops_end = &tier->drops;
    if (tier->dropping == NULL) return all;
    struct drop_order *copy = mem_alloc(sizeof *copy);
    *copy = (struct drop_order){.next = all, .ordered = tier->dropping->ordered};
    tier->dropping = NULL;
    return copy;
}

void store_end_orders(struct store *store)
{
    struct drop_order *all = NULL;
    hearth_error error;
    error_set(&error, HEARTH_UNAVAILABLE, "the server is stopping");
    store_lock(store);
    store->orders_ended = true;
    for (enum store_tier i = 0; i < STORE_TIERS; i++) all = take_all(&store->tiers[i], all);
    while (store->n_answering > 0) store_wait_changed(store, CLOCK_NEVER);
    store_unlock(store);
    for (struct drop_order *drop = all, *next; drop != NULL; drop = next) {
        next = drop->next;
        drop->ordered.done(drop->ordered.ud, &error);
        free(drop);
    }
}
