/* From a fault to what a client sees of it: one table gives status, type and code of every kind of error. */
#ifndef SERVE_CORE_ERRORS_H
#define SERVE_CORE_ERRORS_H

#include "base/buf.h"
#include "hearth.h"

/* Kinds that only HTTP knows; they stand in hearth_error.code beside the library's. What src/http refuses by itself
 * has the status as its code. */
enum {
    ERRORS_NO_ROUTE = -100,
    ERRORS_NO_METHOD = -101,
    ERRORS_NO_KEY = -102,
    ERRORS_NO_GRANT = -103,
    ERRORS_ORIGIN = -104,      /* a web page that may not ask */
    ERRORS_HOST = -105,        /* asked for by a name that is not the server's */
    ERRORS_MEDIA_TYPE = -106,  /* a web page's body that is no JSON */
    ERRORS_RATE_LIMIT = -107,  /* of an API key: it says itself when to try again */
    ERRORS_SLOT_LIMIT = -108,  /* of an API key */
    ERRORS_NO_PREVIOUS = -109, /* a request goes on from what is not stored */
    ERRORS_NO_ENTRY = -110     /* a route to what is not stored */
};

struct errors_kind {
    int code; /* hearth_code, one of the above, or a status */
    int status;
    const char *type;  /* the family, as OpenAI and llama-server name them */
    const char *name;  /* error.code in the reply */
    int retry_after_s; /* 0: trying again will not help */
};

/* Never NULL: an unknown code is HEARTH_INTERNAL. */
const struct errors_kind *errors_kind(int code);

/* Appends a message as a JSON string, without the paths of this machine's file system that may stand in it: those are
 * for the log. Every form of an error is to use it. */
void errors_put_message(struct buf *out, const char *message);

/* Appends OpenAI's form: {"error":{"message","type","code","param"}}; an empty param is null. The id has no place
 * in it. */
void errors_put(struct buf *out, const hearth_error *error, const char *request_id);

#endif
