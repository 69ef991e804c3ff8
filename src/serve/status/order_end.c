/* Ends of orders: see order_end.h. A struct order_end lives until the end has come back by a post. */
#include "serve/status/order_end.h"

#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/server.h"

#include <stdlib.h>
#include <string.h>

struct order_end {
    struct call *call; /* NULL: the client is gone */
    struct http_server *http;
    hearth_error error; /* its code is HEARTH_OK: it was carried out */
};

struct order_end *order_end_open(struct call *call)
{
    struct order_end *end = mem_alloc(sizeof *end);
    *end = (struct order_end){.call = call, .http = call->server->http};
    return end;
}

/* What the library cannot tell apart from other errors of its codes. */
static void fail(struct call *call, hearth_error *error)
{
    int code = (int)error->code;
    if (code == HEARTH_BUSY) code = ERRORS_IN_USE;
    if (code == HEARTH_NOT_FOUND && strcmp(error->param, "model") != 0) code = ERRORS_NO_ENTRY;
    error->code = (hearth_code)code;
    call_fail(call, error, errors_put);
}

static void succeed(struct call *call)
{
    struct buf body = {0};
    buf_puts(&body, "{\"success\":true}");
    call_reply(call, 200, "application/json", &body);
}

static void answer(void *ud)
{
    struct order_end *end = ud;
    if (end->call != NULL && end->error.code == HEARTH_OK) succeed(end->call);
    if (end->call != NULL && end->error.code != HEARTH_OK) fail(end->call, &end->error);
    free(end);
}

void order_end_note(void *ud, const hearth_error *error)
{
    struct order_end *end = ud;
    if (error != NULL) end->error = *error;
    http_post(end->http, answer, end);
}

static void on_gone(void *ud)
{
    struct order_end *end = ud;
    call_gone(end->call);
    end->call = NULL;
}

void order_end_watch(struct order_end *end, hearth_error *refused)
{
    if (refused == NULL) {
        http_watch(end->call->http, on_gone, end);
        return;
    }
    fail(end->call, refused);
    free(end);
}
