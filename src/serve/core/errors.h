/* Error responses: one table maps every error code to its HTTP status, type and code; and the client's own fields,
 * which errors name. Pure functions; any thread. */
#ifndef SERVE_CORE_ERRORS_H
#define SERVE_CORE_ERRORS_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>

/* Error codes of the HTTP server, used in hearth_error.code beside the library's. */
enum errors_code {
    ERRORS_NO_ROUTE = -100,
    ERRORS_NO_METHOD = -101,
    ERRORS_NO_KEY = -102,
    ERRORS_NO_GRANT = -103,
    ERRORS_ORIGIN = -104,      /* the web page's origin is not allowed */
    ERRORS_HOST = -105,        /* the Host header names another host */
    ERRORS_MEDIA_TYPE = -106,  /* a web page sent a body that is not JSON */
    ERRORS_RATE_LIMIT = -107,  /* of an API key; ratelimit_put_retry() sets Retry-After */
    ERRORS_SLOT_LIMIT = -108,  /* of an API key */
    ERRORS_NO_PREVIOUS = -109, /* previous_response_id, conversation or item reference that is not stored */
    ERRORS_NO_ENTRY = -110,    /* the path names an id that is not stored */
    ERRORS_TOO_LARGE = -111,   /* a body, or the tree that its JSON becomes */
    /* Codes of requests that src/http refuses by itself: errors_code_of_status(). */
    ERRORS_BAD_REQUEST = -112,
    ERRORS_TIMEOUT = -113,
    ERRORS_EXPECTATION = -114,
    ERRORS_HEADERS_TOO_LARGE = -115,
    ERRORS_NO_CONNECTION = -116, /* all are taken */
    ERRORS_HTTP_VERSION = -117,
    ERRORS_IN_USE = -118 /* by a request: possible later */
};

struct errors_kind {
    int code; /* a hearth_code or an errors_code */
    int status;
    const char *type;  /* error.type in the reply, as OpenAI and llama-server name them */
    const char *name;  /* error.code in the reply */
    int retry_after_s; /* seconds; 0: no Retry-After */
};

/* Never NULL: an unknown code is HEARTH_INTERNAL. */
const struct errors_kind *errors_kind(int code);

/* The code for a request that src/http refused with this HTTP status. */
enum errors_code errors_code_of_status(int status);

/* Appends a message as a JSON string with file system paths replaced by "[path]": paths are for the log only. Every
 * API's error form uses it. */
void errors_put_message(struct buf *out, const char *message);

/* Appends OpenAI's form: {"error":{"message","type","code","param"}}; an empty param is null. The form has no
 * request id. */
void errors_put(struct buf *out, const hearth_error *error, const char *request_id);

/* The path of a field, as errors name it: "messages[2].role". */
struct field_path {
    char v[sizeof((hearth_error *)NULL)->param];
};

struct field_path field_path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where the messages and tools of a chat stand in the body that the client sent: of another API, or with some left out.
 * The library names them by their place in the chat; clients are told their own fields.
 *
 * A JSON object with a list of the chat's "messages", and one of its "tools"; the list "media" has paths that are the
 * client's already, since media keep theirs. An entry is the path of the client's field, which has the same members. Of
 * a message that was assembled from several it is a list: the path where it begins, then that of each part of its
 * content.
 *
 * The client's field for the library's, "messages[2].content[0]". NULL: the chat is as the client sent it. */
struct field_path places_find(const json_t *places, const char *path);

/* The library's error with the client's field, also at the beginning of its message. */
hearth_error places_rename(const json_t *places, const hearth_error *error);

#endif
