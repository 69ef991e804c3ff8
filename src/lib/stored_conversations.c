/* hearth_stored_list() and hearth_order_stored(): what is stored, as conversations. The store knows them by keys, and
 * the engines which of them are in the cells, too. Any thread; no data of its own. */
#include "lib/models/loaded_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "lib/reports/residents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* STORE_TIERS: there is no such tier. */
static enum store_tier tier_named(const char *name)
{
    enum store_tier tier = 0;
    while (tier < STORE_TIERS && strcmp(store_tier_names[tier], name) != 0) tier++;
    return tier;
}

/* ---- Listing ---- */

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

static bool read_place(const hearth_stored *after, struct store_conversation *place)
{
    *place = (struct store_conversation){.tier = tier_named(after->tier), .used = after->used};
    return place->tier < STORE_TIERS && sha256_from_hex(after->key, place->key.v);
}

static struct stored_mark *marks_of(const hearth *instance, size_t *n)
{
    size_t max = instance_stored_marks(instance, NULL, 0);
    struct stored_mark *marks = mem_alloc((max + 1) * sizeof *marks);
    *n = instance_stored_marks(instance, marks, max);
    if (*n > max) *n = max;
    return marks;
}

size_t hearth_stored_list(const hearth *instance, const hearth_stored *after, hearth_stored *list, size_t max,
                          size_t *total)
{
    struct store_conversation place;
    size_t n_all = 0, n = 0;
    if (total == NULL) total = &n_all;
    *total = 0;
    if (instance->store == NULL || (after != NULL && !read_place(after, &place))) return 0;
    struct store_page page = {.after = after == NULL ? NULL : &place};
    struct stored_mark *marks = marks_of(instance, &page.n_marks);
    page.marks = marks;
    struct store_conversation *found = mem_alloc((max + 1) * sizeof *found);
    n = store_conversations(instance->store, &page, found, max, total);
    for (size_t i = 0; i < n; i++) list[i] = stored_of(&found[i]);
    free(found);
    free(marks);
    return n;
}

/* ---- Orders ---- */

struct given {
    hearth_ordered_fn on_end;
    void *ud;
};

static void note_end(void *ud, const hearth_error *error)
{
    struct given *given = ud;
    given->on_end(given->ud, error);
    free(given);
}

static int read_names(const hearth_stored_order *order, struct store_ordered *ordered, hearth_error *error)
{
    ordered->tier = tier_named(order->tier);
    if (ordered->tier == STORE_TIERS)
        return error_at(error, HEARTH_INVALID, "tier", "there is no tier '%s': GET /cache lists them", order->tier);
    if (!sha256_from_hex(order->key, ordered->key.v))
        return error_at(error, HEARTH_INVALID, "key",
                        "'key' must be 64 hexadecimal digits, as GET /cache/stored shows");
    return HEARTH_OK;
}

int hearth_order_stored(hearth *instance, const hearth_stored_order *order, hearth_ordered_fn on_end, void *ud,
                        hearth_error *error)
{
    static const enum store_order orders[] = {
        [HEARTH_STORED_KEEP] = STORE_KEEP, [HEARTH_STORED_RELEASE] = STORE_RELEASE, [HEARTH_STORED_DROP] = STORE_DROP};
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct store_ordered ordered = {.order = orders[order->act], .done = note_end};
    int rc = read_names(order, &ordered, error);
    if (rc != HEARTH_OK) return rc;
    if (instance->store == NULL)
        return error_at(error, HEARTH_NOT_FOUND, "key", "nothing is stored: every tier is off");
    struct given *given = mem_alloc(sizeof *given);
    *given = (struct given){.on_end = on_end, .ud = ud};
    ordered.ud = given;
    store_order(instance->store, &ordered);
    return HEARTH_OK;
}
