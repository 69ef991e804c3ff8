/* URLs that models are pulled from: where they lead, what of them may be shown, and which redirects are followed. Pure
 * functions; any thread. */
#ifndef PULL_URL_H
#define PULL_URL_H

#include "base/buf.h"
#include "hearth.h"

#include <stdbool.h>

struct pull_url {
    char *text;
    char *origin; /* scheme://host:port, in small letters: what a token is for */
    bool secure;  /* https */
    bool loopback;
};

/* HEARTH_INVALID for anything but a whole http or https URL without a user's name. Frees what was in `url`. */
int pull_url_read(const char *text, struct pull_url *url, hearth_error *error);
void pull_url_release(struct pull_url *url);

/* HEARTH_UNSUPPORTED unless bytes may be fetched from there: https, or http on this machine or where it is allowed. */
int pull_url_allow(const struct pull_url *url, bool allow_http, hearth_error *error);

/* HEARTH_UNSUPPORTED unless a redirect may lead there: never from https to http, nor from another machine to this one.
 */
int pull_url_allow_redirect(const struct pull_url *from, const struct pull_url *to, bool allow_http,
                            hearth_error *error);

/* Appends the URL without its query, which may be signed: a secret; control characters are escaped. */
void pull_url_put(struct buf *out, const char *url);

/* Appends the last part of the URL's path, decoded. False: it has none, or with a zero byte in it. */
bool pull_url_put_file(struct buf *out, const char *url);

/* A copy with another last part of its path, which is encoded; the query stays. */
char *pull_url_with_file(const char *url, const char *file);

/* Appends a path of several parts, encoded but for its slashes. */
void pull_url_put_path(struct buf *out, const char *path);

#endif
