/* The table of errors, and OpenAI's form of one. No state; any thread. */
#include "serve/core/errors.h"

#include "base/error.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct errors_kind kinds[] = {
    {HEARTH_INVALID, 400, "invalid_request_error", "invalid_value", 0},
    {HEARTH_TOO_LONG, 400, "invalid_request_error", "context_length_exceeded", 0},
    {HEARTH_NOT_FOUND, 404, "not_found_error", "model_not_found", 0},
    {ERRORS_NO_ROUTE, 404, "not_found_error", "route_not_found", 0},
    {ERRORS_NO_ENTRY, 404, "not_found_error", "not_found", 0},
    {ERRORS_NO_PREVIOUS, 400, "invalid_request_error", "previous_response_not_found", 0},
    {ERRORS_NO_METHOD, 405, "invalid_request_error", "method_not_allowed", 0},
    {ERRORS_NO_KEY, 401, "authentication_error", "invalid_api_key", 0},
    {ERRORS_NO_GRANT, 403, "permission_error", "permission_denied", 0},
    {ERRORS_ORIGIN, 403, "permission_error", "origin_not_allowed", 0},
    {ERRORS_HOST, 403, "permission_error", "host_not_allowed", 0},
    {ERRORS_MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media_type", 0},
    {ERRORS_RATE_LIMIT, 429, "rate_limit_error", "rate_limit_exceeded", 0},
    {ERRORS_SLOT_LIMIT, 429, "rate_limit_error", "slot_limit_exceeded", 1},
    {ERRORS_IN_USE, 409, "conflict_error", "in_use", 1},
    {HEARTH_BUSY, 429, "rate_limit_error", "server_busy", 1},
    /* Not 501: official clients send what was answered with 5xx again. */
    {HEARTH_UNSUPPORTED, 400, "invalid_request_error", "not_supported", 0},
    {HEARTH_UNAVAILABLE, 503, "unavailable_error", "unavailable", 1},
    /* A client that cancels does not read the answer; one that reads this was cut off by a shutdown. */
    {HEARTH_CANCELLED, 503, "unavailable_error", "cancelled", 1},
    {HEARTH_NO_MEMORY, 500, "server_error", "out_of_memory", 0},
    {HEARTH_IO, 500, "server_error", "io_error", 0},
    {ERRORS_BAD_REQUEST, 400, "invalid_request_error", "bad_request", 0},
    {ERRORS_TIMEOUT, 408, "invalid_request_error", "request_timeout", 0},
    {ERRORS_TOO_LARGE, 413, "invalid_request_error", "content_too_large", 0},
    {ERRORS_EXPECTATION, 417, "invalid_request_error", "expectation_failed", 0},
    {ERRORS_HEADERS_TOO_LARGE, 431, "invalid_request_error", "request_header_fields_too_large", 0},
    {ERRORS_NO_CONNECTION, 503, "server_error", "service_unavailable", 1},
    {ERRORS_HTTP_VERSION, 505, "invalid_request_error", "http_version_not_supported", 0},
    {HEARTH_INTERNAL, 500, "server_error", "internal_error", 0},
};

/* llama-server's type, whose clients read both numbers beside it; OpenAI's go by the code. */
#define TOO_LONG_TYPE "exceed_context_size_error"

#define N_KINDS       (sizeof kinds / sizeof *kinds)

const struct errors_kind *errors_kind(int code)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].code == code) return &kinds[i];
    return &kinds[N_KINDS - 1];
}

enum errors_code errors_code_of_status(int status)
{
    static const enum errors_code codes[] = {ERRORS_TIMEOUT,           ERRORS_TOO_LARGE,     ERRORS_EXPECTATION,
                                             ERRORS_HEADERS_TOO_LARGE, ERRORS_NO_CONNECTION, ERRORS_HTTP_VERSION};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (errors_kind(codes[i])->status == status) return codes[i];
    return ERRORS_BAD_REQUEST;
}

/* Whether `text` stands right before `at`. */
static bool follows(const char *message, const char *at, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(at - message) >= len && memcmp(at - len, text, len) == 0;
}

/* Whether a file system path begins at `at`: at the beginning of a word, a slash followed by more than a blank. */
static bool is_path(const char *message, const char *at)
{
    bool begins_word = at == message || strchr(" \t'\"(:=", at[-1]) != NULL;
    bool is_rooted = at[0] == '/' || (at[0] == '~' && at[1] == '/');
    if (!begins_word || !is_rooted || at[1] == ' ' || at[1] == '\0') return false;
    /* A route begins with a slash too, but follows its method: "GET /v1/models". */
    bool is_route = follows(message, at, "GET ") || follows(message, at, "POST ");
    bool is_url = at[1] == '/' && (follows(message, at, "http:") || follows(message, at, "https:"));
    return !is_route && !is_url;
}

void errors_put_message(struct buf *out, const char *message)
{
    struct buf text = {0};
    for (const char *at = message; *at != '\0';) {
        size_t len = is_path(message, at) ? strcspn(at, " \t\n'\"():;,") : 0;
        buf_append(&text, len > 0 ? "[path]" : at, len > 0 ? 6 : 1);
        at += len > 0 ? len : 1;
    }
    utf8_put_json_string(out, text.v == NULL ? "" : text.v, text.len);
    buf_release(&text);
}

void errors_put(struct buf *out, const hearth_error *error, const char *request_id)
{
    (void)request_id;
    const struct errors_kind *kind = errors_kind(error->code);
    buf_puts(out, "{\"error\":{\"message\":");
    errors_put_message(out, error->message);
    bool has_length = error->window > 0;
    buf_printf(out, ",\"type\":\"%s\",\"code\":\"%s\",\"param\":", has_length ? TOO_LONG_TYPE : kind->type, kind->name);
    if (error->param[0] == '\0')
        buf_puts(out, "null");
    else
        errors_put_message(out, error->param);
    if (has_length)
        buf_printf(out, ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld", (long long)error->n_prompt,
                   (long long)error->window);
    buf_puts(out, "}}");
}

/* ---- The client's fields ---- */

struct field_path field_path_of(const char *format, ...)
{
    struct field_path path;
    va_list args;
    va_start(args, format);
    vsnprintf(path.v, sizeof path.v, format, args);
    va_end(args);
    return path;
}

/* The part of a message's content that the rest of a path names; 0: none, or more than one. */
static size_t part_of(const json_t *message, const char *rest)
{
    static const char content[] = ".content";
    const size_t n_parts = json_array_size(message) - 1;
    if (strncmp(rest, content, strlen(content)) != 0) return 0;
    const char *index = rest + strlen(content);
    size_t part = *index == '[' ? strtoul(index + 1, NULL, 10) : n_parts == 1 ? 0 : n_parts;
    return part < n_parts ? part + 1 : 0;
}

struct field_path places_find(const json_t *places, const char *path)
{
    char list[16];
    size_t len = strcspn(path, "["), i;
    bool is_own = path[len] == '\0' || len >= sizeof list;
    json_t *medium;
    json_array_foreach(json_object_get(places, "media"), i, medium) is_own =
        is_own || strcmp(json_string_value(medium), path) == 0;
    if (is_own) return field_path_of("%s", path);
    snprintf(list, sizeof list, "%.*s", (int)len, path);
    char *end;
    const json_t *entry = json_array_get(json_object_get(places, list), strtoul(path + len + 1, &end, 10));
    if (entry == NULL || *end != ']') return field_path_of("%s", path);
    const char *rest = end + 1;
    if (json_is_string(entry)) return field_path_of("%s%s", json_string_value(entry), rest);
    return field_path_of("%s", json_string_value(json_array_get(entry, part_of(entry, rest))));
}

hearth_error places_rename(const json_t *places, const hearth_error *error)
{
    hearth_error renamed = *error;
    struct field_path own = places_find(places, error->param);
    const char *message = error->message;
    size_t len = strlen(error->param);
    if (strcmp(own.v, error->param) == 0) return renamed;
    bool begins = message[0] == '\'' && strncmp(message + 1, error->param, len) == 0 && message[1 + len] == '\'';
    error_at(&renamed, error->code, own.v, "%s%s%s%s", begins ? "'" : "", begins ? own.v : "", begins ? "'" : "",
             begins ? message + len + 2 : message);
    return renamed;
}
