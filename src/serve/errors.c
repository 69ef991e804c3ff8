/* The table of errors, and OpenAI's form of one. No state; any thread. */
#include "serve/errors.h"

#include "base/utf8.h"

#include <string.h>

static const struct errors_kind kinds[] = {
    {HEARTH_INVALID, 400, "invalid_request_error", "invalid_value", 0},
    {HEARTH_TOO_LONG, 400, "invalid_request_error", "context_length_exceeded", 0},
    {HEARTH_NOT_FOUND, 404, "not_found_error", "model_not_found", 0},
    {ERRORS_NO_ROUTE, 404, "not_found_error", "route_not_found", 0},
    {ERRORS_NO_METHOD, 405, "invalid_request_error", "method_not_allowed", 0},
    {HEARTH_BUSY, 429, "rate_limit_error", "server_busy", 1},
    {HEARTH_UNSUPPORTED, 501, "not_supported_error", "not_supported", 0},
    {HEARTH_UNAVAILABLE, 503, "unavailable_error", "unavailable", 1},
    /* A client that cancels does not read the answer: who sees this one was cut off by a shutdown. */
    {HEARTH_CANCELLED, 503, "unavailable_error", "cancelled", 1},
    {HEARTH_NO_MEMORY, 500, "server_error", "out_of_memory", 0},
    {HEARTH_IO, 500, "server_error", "io_error", 0},
    {HEARTH_INTERNAL, 500, "server_error", "internal_error", 0},
};

#define N_KINDS (sizeof kinds / sizeof *kinds)

const struct errors_kind *errors_kind(int code)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].code == code) return &kinds[i];
    return &kinds[N_KINDS - 1];
}

void errors_put(struct buf *out, const hearth_error *error)
{
    const struct errors_kind *kind = errors_kind(error->code);
    buf_puts(out, "{\"error\":{\"message\":");
    utf8_put_json_string(out, error->message, strlen(error->message));
    buf_printf(out, ",\"type\":\"%s\",\"code\":\"%s\",\"param\":", kind->type, kind->name);
    if (error->param[0] == '\0')
        buf_puts(out, "null");
    else
        utf8_put_json_string(out, error->param, strlen(error->param));
    buf_puts(out, "}}");
}
