/* Orders about resident conversations: see resident_orders.h. An order that was given is carried out, whether or not
 * its client is still there: `struct pending` lives until its end has come back. */
#include "serve/status/resident_orders.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"

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

struct pending {
    struct call *call; /* NULL: the client is gone */
    struct http_server *http;
    hearth_error error; /* its code is HEARTH_OK: it was carried out */
};

/* What the library cannot tell apart from other errors of its codes. */
static void fail(struct call *call, hearth_error *error)
{
    int code = (int)error->code;
    if (code == HEARTH_BUSY) code = ERRORS_IN_USE;
    if (code == HEARTH_NOT_FOUND && strcmp(error->param, "hash") == 0) code = ERRORS_NO_ENTRY;
    error->code = (hearth_code)code;
    call_fail(call, error, errors_put);
}

static void succeed(struct call *call)
{
    struct buf body = {0};
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

static void answer_end(void *ud)
{
    struct pending *pending = ud;
    if (pending->call != NULL && pending->error.code == HEARTH_OK) succeed(pending->call);
    if (pending->call != NULL && pending->error.code != HEARTH_OK) fail(pending->call, &pending->error);
    free(pending);
}

/* On a thread of the library. */
static void on_end(void *ud, const hearth_error *error)
{
    struct pending *pending = ud;
    if (error != NULL) pending->error = *error;
    http_post(pending->http, answer_end, pending);
}

static void on_gone(void *ud)
{
    struct pending *pending = ud;
    call_gone(pending->call);
    pending->call = NULL;
}

static void give(struct call *call, void *ud)
{
    struct wanted *wanted = ud;
    struct pending *pending = mem_alloc(sizeof *pending);
    *pending = (struct pending){.call = call, .http = call->server->http};
    hearth_resident_order order = {.model = call_model(call, wanted->model),
                                   .seq_id = wanted->seq_id,
                                   .hash = wanted->hash,
                                   .order = wanted->order};
    hearth_error error;
    int rc = hearth_order_resident(call->server->instance, &order, on_end, pending, &error);
    if (rc == HEARTH_OK) {
        http_watch(call->http, on_gone, pending);
    } else {
        free(pending);
        fail(call, &error);
    }
    release_wanted(wanted);
}

void resident_orders_give(struct call *call)
{
    static const struct reading_form form = {
        .read = read_order, .size = wanted_size, .answer = give, .release = release_wanted, .put_error = errors_put};
    reading_start(call, &form);
}
