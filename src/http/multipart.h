/* Bodies of the type multipart/form-data (RFC 7578): the fields of a form, a file among them, one part each.
 *
 * The parser walks over a body that is whole in memory and copies nothing: names and values are bytes of the body. It
 * is strict, since such bodies are written by libraries: it refuses bytes that are no part, and a part that is no
 * field. Pure functions over the caller's struct; any thread. */
#ifndef HTTP_MULTIPART_H
#define HTTP_MULTIPART_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

#define MULTIPART_PARTS_MAX    64   /* of a body */
#define MULTIPART_HEAD_MAX     8192 /* bytes of a part's headers */
#define MULTIPART_BOUNDARY_MAX 70   /* bytes; the RFC's */

/* Some of the body's bytes. */
struct multipart_bytes {
    const char *v;
    size_t len;
};

struct multipart_part {
    struct multipart_bytes name; /* as it is written, what is escaped in it too; not empty */
    struct multipart_bytes value;
};

struct multipart {
    const char *at, *end;                       /* what is not read yet, from a delimiter on */
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CRLF, "--", the boundary */
    size_t n;                                   /* parts so far */
};

/* Whether a Content-Type (NULL: none) says that the body is a form. */
bool multipart_is_form(const char *content_type);

/* Begins with the first part of the body, which is borrowed. HEARTH_INVALID: the Content-Type names no boundary, or the
 * body does not begin with it. */
int multipart_open(struct multipart *form, const char *content_type, struct multipart_bytes body, hearth_error *error);

/* The next part. 1: there is one; 0: there was none left; HEARTH_INVALID, HEARTH_UNSUPPORTED: it cannot be read.
 * `error` then names the part, by its name if that is known (also in `param`), else by its number. */
int multipart_next(struct multipart *form, struct multipart_part *part, hearth_error *error);

#endif
