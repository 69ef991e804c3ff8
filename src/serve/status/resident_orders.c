/* Orders about resident conversations: see resident_orders.h. */
#include "serve/status/resident_orders.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"
#include "serve/status/order_end.h"

#include <stdlib.h>
#include <string.h>

/* ---- The body ---- */

struct wanted {
    char *model, *hash; /* model NULL: not named */
    int32_t seq_id;
    hearth_order order;
};

static void release_wanted(void *ud)
{
    struct wanted *wanted = ud;
    free(wanted->model);
    free(wanted->hash);
    free(wanted);
}

static int read_fields(const json_t *tree, struct wanted *wanted, hearth_error *error)
{
    static const char *const orders[] = {
        [HEARTH_ORDER_KEEP] = "keep", [HEARTH_ORDER_RELEASE] = "release", [HEARTH_ORDER_EVICT] = "evict", NULL};
    const char *model = NULL, *hash = NULL;
    int order = -1;
    wanted->seq_id = -1;
    int rc = body_text(tree, "model", &model, error);
    if (rc == HEARTH_OK) rc = body_int(tree, "seq_id", 0, &wanted->seq_id, error);
    if (rc == HEARTH_OK) rc = body_text(tree, "hash", &hash, error);
    if (rc == HEARTH_OK) rc = body_word(tree, "order", orders, &order, error);
    if (rc != HEARTH_OK) return rc;
    const char *missing = wanted->seq_id < 0 ? "seq_id" : hash == NULL ? "hash" : order < 0 ? "order" : NULL;
    if (missing != NULL)
        return error_at(error, HEARTH_INVALID, missing,
                        "'%s' is missing: an order needs seq_id and hash, as GET /cache shows them, and order",
                        missing);
    wanted->model = mem_strdup(model);
    wanted->hash = mem_strdup(hash);
    wanted->order = (hearth_order)order;
    return HEARTH_OK;
}

static void *read_order(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    struct wanted *wanted = mem_alloc(sizeof *wanted);
    int rc = read_fields(tree, wanted, error);
    json_decref(tree);
    if (rc == HEARTH_OK) return wanted;
    release_wanted(wanted);
    return NULL;
}

static size_t wanted_size(const void *ud)
{
    (void)ud;
    return sizeof(struct wanted);
}

/* ---- The order ---- */

static void give(struct call *call, void *ud)
{
    struct wanted *wanted = ud;
    struct order_end *end = order_end_open(call);
    hearth_resident_order order = {.model = call_model(call, wanted->model),
                                   .seq_id = wanted->seq_id,
                                   .hash = wanted->hash,
                                   .order = wanted->order};
    hearth_error error;
    int rc = hearth_order_resident(call->server->instance, &order, order_end_note, end, &error);
    order_end_watch(end, rc == HEARTH_OK ? NULL : &error);
    release_wanted(wanted);
}

void resident_orders_give(struct call *call)
{
    static const struct reading_form form = {
        .read = read_order, .size = wanted_size, .answer = give, .release = release_wanted, .put_error = errors_put};
    reading_start(call, &form);
}
