/* The conversations of an instance: in slots and KV cells, as the engines of all models report them, and in the store,
 * which knows them by keys. Lists of them, and orders about one, which are handed to the engine or the store, and their
 * end back. Any thread; a model is kept in memory while its engine is asked, and an order belongs to its engine until
 * that ends it. */
#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"
#include "hearth.h"
#include "instance/models/instance_store.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "instance/models/model_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Slots and cells ---- */

/* Calls `list` for every engine, with the room that those before it leave in an array of `max` elements; it returns the
 * number of its entries. Returns all of them. */
static size_t over_engines(const hearth *instance,
                           size_t (*list)(struct engine *engine, const char *model, void *v, size_t room), void *v,
                           size_t size, size_t max)
{
    size_t total = 0, n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        struct model *model = brief_lease_take(entry);
        if (model == NULL) continue;
        size_t room = total < max ? max - total : 0;
        if (model->engine != NULL)
            total += list(model->engine, entry->config->name, room == 0 ? NULL : (char *)v + total * size, room);
        brief_lease_end(entry);
    }
    return total;
}

static size_t list_slots(struct engine *engine, const char *model, void *v, size_t room)
{
    hearth_slot *slots = v;
    size_t n = engine_slots(engine, slots, room);
    for (size_t i = 0; i < n && i < room; i++) slots[i].model = model;
    return n;
}

size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max)
{
    return over_engines(instance, list_slots, slots, sizeof *slots, max);
}

static size_t list_residents(struct engine *engine, const char *model, void *v, size_t room)
{
    hearth_resident *residents = v;
    size_t n = engine_residents(engine, residents, room);
    for (size_t i = 0; i < n && i < room; i++) residents[i].model = model;
    return n;
}

size_t hearth_residents(const hearth *instance, hearth_resident *residents, size_t max)
{
    return over_engines(instance, list_residents, residents, sizeof *residents, max);
}

/* ---- Orders about one in the cells ---- */

struct given_order {
    struct engine_order order; /* first */
    hearth_ordered_fn on_end;
    void *ud;
};

static void note_order_end(struct engine_order *order)
{
    struct given_order *given = (struct given_order *)order;
    given->on_end(given->ud, order->error.code == HEARTH_OK ? NULL : &order->error);
    free(given);
}

int hearth_order_resident(hearth *instance, const hearth_resident_order *order, hearth_ordered_fn on_end, void *ud,
                          hearth_error *error)
{
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct model_entry *entry = instance_find_model(instance, order->model, error);
    if (entry == NULL) return (int)error->code;
    struct given_order *given = mem_alloc(sizeof *given);
    *given = (struct given_order){
        .order = {.seq_id = order->seq_id, .order = order->order, .done = note_order_end}, .on_end = on_end, .ud = ud};
    snprintf(given->order.hash, sizeof given->order.hash, "%s", order->hash);
    struct model *model = brief_lease_take(entry);
    bool taken = model != NULL && model->engine != NULL && engine_give_order(model->engine, &given->order);
    if (model != NULL) brief_lease_end(entry);
    if (taken) return HEARTH_OK;
    free(given); /* the model is not loaded, has no cells, or is being unloaded */
    return error_at(error, HEARTH_NOT_FOUND, "model", "nothing of model '%s' is in KV cells: it is not loaded",
                    entry->config->name);
}

/* ---- What is stored ---- */

static hearth_stored stored_of(const struct store_conversation *c)
{
    hearth_stored out = {.tier = store_tier_names[c->tier],
                         .tokens = c->tokens,
                         .own_tokens = c->own_tokens,
                         .own_bytes = c->own_bytes,
                         .resident = c->marked < c->tokens ? c->marked : c->tokens,
                         .kept = c->kept,
                         .last_used = c->used_ms,
                         .used = c->used};
    _Static_assert(sizeof out.model == sizeof c->model, "a model's name fits");
    sha256_to_hex(c->key.v, out.key);
    memcpy(out.model, c->model, sizeof out.model);
    return out;
}

static size_t list_marks(struct engine *engine, const char *model, void *v, size_t room)
{
    (void)model;
    return engine_stored(engine, v, room);
}

size_t hearth_stored_list(const hearth *instance, const hearth_stored *after, hearth_stored *list, size_t max,
                          size_t *total)
{
    struct store_conversation place = {0};
    size_t n_all = 0, n = 0;
    if (total == NULL) total = &n_all;
    *total = 0;
    if (instance->store == NULL) return 0;
    if (after != NULL) {
        place.tier = tier_named(after->tier);
        place.used = after->used;
        if (place.tier == STORE_TIERS || !sha256_from_hex(after->key, place.key.v)) return 0;
    }
    /* Where the idle conversations in the KV cells of all models end in the store. */
    size_t most = over_engines(instance, list_marks, NULL, 0, 0);
    struct stored_mark *marks = mem_alloc((most + 1) * sizeof *marks);
    size_t n_marks = over_engines(instance, list_marks, marks, sizeof *marks, most);
    struct store_page page = {
        .after = after == NULL ? NULL : &place, .marks = marks, .n_marks = n_marks < most ? n_marks : most};
    struct store_conversation *found = mem_alloc((max + 1) * sizeof *found);
    n = store_conversations(instance->store, &page, found, max, total);
    for (size_t i = 0; i < n; i++) list[i] = stored_of(&found[i]);
    free(found);
    free(marks);
    return n;
}

/* ---- Orders about what is stored ---- */

struct given_stored {
    hearth_ordered_fn on_end;
    void *ud;
};

static void note_stored_end(void *ud, const hearth_error *error)
{
    struct given_stored *given = ud;
    given->on_end(given->ud, error);
    free(given);
}

int hearth_order_stored(hearth *instance, const hearth_stored_order *order, hearth_ordered_fn on_end, void *ud,
                        hearth_error *error)
{
    static const enum store_order orders[] = {
        [HEARTH_STORED_KEEP] = STORE_KEEP, [HEARTH_STORED_RELEASE] = STORE_RELEASE, [HEARTH_STORED_DROP] = STORE_DROP};
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct store_ordered ordered = {.order = orders[order->act], .done = note_stored_end};
    ordered.tier = tier_named(order->tier);
    if (ordered.tier == STORE_TIERS)
        return error_at(error, HEARTH_INVALID, "tier", "there is no tier '%s': GET /cache lists them", order->tier);
    if (!sha256_from_hex(order->key, ordered.key.v))
        return error_at(error, HEARTH_INVALID, "key",
                        "'key' must be 64 hexadecimal digits, as GET /cache/stored shows");
    if (instance->store == NULL)
        return error_at(error, HEARTH_NOT_FOUND, "key", "nothing is stored: every tier is off");
    struct given_stored *given = mem_alloc(sizeof *given);
    *given = (struct given_stored){.on_end = on_end, .ud = ud};
    ordered.ud = given;
    store_order(instance->store, &ordered);
    return HEARTH_OK;
}
