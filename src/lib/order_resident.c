/* hearth_order_resident(): hands an order to the engine of its model, and its end back. Any thread; the order belongs
 * to the engine until it calls note_end(). */
#include "lib/models/loaded_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "lib/models/model_manager.h"
#include "lib/models/model_names.h"

#include <stdio.h>
#include <stdlib.h>

struct given_order {
    struct engine_order order; /* first */
    hearth_ordered_fn on_end;
    void *ud;
};

static void note_end(struct engine_order *order)
{
    struct given_order *given = (struct given_order *)order;
    given->on_end(given->ud, order->error.code == HEARTH_OK ? NULL : &order->error);
    free(given);
}

/* False: the model is not loaded, has no cells, or is being unloaded. */
static bool give(struct model_entry *entry, struct given_order *given)
{
    struct model *model = brief_lease_take(entry);
    if (model == NULL) return false;
    bool taken = model->engine != NULL && engine_give_order(model->engine, &given->order);
    brief_lease_end(entry);
    return taken;
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
        .order = {.seq_id = order->seq_id, .order = order->order, .done = note_end}, .on_end = on_end, .ud = ud};
    snprintf(given->order.hash, sizeof given->order.hash, "%s", order->hash);
    if (give(entry, given)) return HEARTH_OK;
    free(given);
    return error_at(error, HEARTH_NOT_FOUND, "model", "nothing of model '%s' is in KV cells: it is not loaded",
                    entry->config->name);
}
