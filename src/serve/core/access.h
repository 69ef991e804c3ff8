/* Who may use a route: finds the API key among a request's headers and asks for the route's grant. HTTP thread only;
 * no state of its own. */
#ifndef SERVE_CORE_ACCESS_H
#define SERVE_CORE_ACCESS_H

#include "serve/core/server.h"

/* Whether the request may use a route of that grant (see keys.h). `key` gets the key it came with, which lives until
 * the keys are reloaded; NULL where there is none. */
int access_check(const struct server *server, const struct http_request *http, int grant, const struct key **key,
                 hearth_error *error);

/* (Re)opens the keys that the configuration names. On failure those of before stay. */
int access_open(struct server *server, const char *path, hearth_error *error);

/* The owner of a key, as salts spell it: "name alice", or "key " and its digest. free() it. No client can write a salt
 * that another owner's begins with, since names have no blanks and no line ends. */
char *access_owner(const struct key *key);

#endif
