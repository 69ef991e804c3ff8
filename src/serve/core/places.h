/* Where the messages and tools of a chat stand in the body that the client sent: of another API, or with some left out.
 * The library names them by their place in the chat; clients are told their own fields.
 *
 * A JSON object with a list of the chat's "messages", and one of its "tools"; the list "media" has paths that are the
 * client's already, since media keep theirs. An entry is the path of the client's
 * field, which has the same members; or, of a message that was assembled from several, a list: the path where it
 * begins, then that of each part of its content. No state; any thread. */
#ifndef SERVE_CORE_PLACES_H
#define SERVE_CORE_PLACES_H

#include "hearth.h"

#include <jansson.h>

struct place {
    char v[sizeof((hearth_error *)NULL)->param];
};

/* The client's field for the library's, "messages[2].content[0]". NULL: the chat is as the client sent it. */
struct place places_find(const json_t *places, const char *path);

/* The library's error with the client's field, also at the beginning of its message. */
hearth_error places_rename(const json_t *places, const hearth_error *error);

#endif
