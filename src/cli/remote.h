/* A running server as a command asks it: HTTP through libcurl. The main thread's alone. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/buf.h"

#define REMOTE_DEFAULT "http://127.0.0.1:8080"

struct remote {
    char *url;       /* without slashes at its end */
    const char *key; /* HEARTH_API_KEY; "none" where that is not set, which a server without keys ignores */
};

struct remote remote_open(const char *url);
void remote_close(struct remote *remote);

/* Sends the body (NULL: GET) to a path and appends the answer's. Returns its status; 0: nobody answers. */
long remote_ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer);

#endif
