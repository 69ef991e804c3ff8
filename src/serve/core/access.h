/* Authorization: finds the API key in a request's headers and checks that it has the grant of the route. HTTP thread
 * only; no state of its own. */
#ifndef SERVE_CORE_ACCESS_H
#define SERVE_CORE_ACCESS_H

#include "serve/core/server.h"

/* HEARTH_OK if the request may use a route that needs that grant (see keys.h). `key` gets the request's API key,
 * which lives until the keys are reloaded; NULL if it has none. */
int access_check(const struct server *server, const struct http_request *http, int grant, const struct key **key,
                 hearth_error *error);

/* The owner of an API key, in the form that cache salts use: "name alice", or "key " and its digest. free() it. No
 * client can write a salt that begins with another owner's, since names have no blanks and no line ends. */
char *access_owner(const struct key *key);

#endif
