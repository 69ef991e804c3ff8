/* From a fault to what a client sees of it: one table gives status, type and code of every kind of error. */
#ifndef SERVE_ERRORS_H
#define SERVE_ERRORS_H

#include "base/buf.h"
#include "hearth.h"

/* Kinds that only HTTP knows; they stand in hearth_error.code beside the library's. */
enum { ERRORS_NO_ROUTE = -100, ERRORS_NO_METHOD = -101 };

struct errors_kind {
    int code; /* hearth_code or one of the above */
    int status;
    const char *type;  /* the family, as OpenAI and llama-server name them */
    const char *name;  /* error.code in the reply */
    int retry_after_s; /* 0: trying again will not help */
};

/* Never NULL: an unknown code is HEARTH_INTERNAL. */
const struct errors_kind *errors_kind(int code);

/* Appends OpenAI's form: {"error":{"message","type","code","param"}}; an empty param is null. */
void errors_put(struct buf *out, const hearth_error *error);

#endif
