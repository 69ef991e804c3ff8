/* An HTTP client (libcurl) with which commands query a running server. Main thread only. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/buf.h"

#define REMOTE_DEFAULT "http://127.0.0.1:8080"

struct remote {
    char *url;       /* without trailing slashes */
    const char *key; /* API key: HEARTH_API_KEY, or "none", which a server without keys ignores */
};

struct remote remote_open(const char *url);
void remote_close(struct remote *remote);

/* Sends a POST with the body (NULL: a GET) to a path, and appends the response's body to `answer`. Returns its status;
 * 0: no server answered within the time limit. */
long remote_ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer);

#endif
