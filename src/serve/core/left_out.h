/* What of a request the model does not see, though the client sent it as a part of the conversation: parts of another
 * type than any template can show, tools that nothing here runs. A client whose history holds such a thing would never
 * get an answer again if it were refused. It is left out and named instead: by the path of the client's own field, in a
 * header of the answer and one line of the log.
 *
 * A list of bounded size without pointers, so that it is copied as a value and has nothing to be released. It belongs
 * to what holds it: a body that is being converted, the parsed request, then the call. */
#ifndef SERVE_CORE_LEFT_OUT_H
#define SERVE_CORE_LEFT_OUT_H

#include <stdbool.h>
#include <stddef.h>

struct http_request;

/* Maximum number of paths that are named, and bytes of their list. */
#define LEFT_OUT_PATHS 16
#define LEFT_OUT_BYTES 512

struct left_out {
    char paths[LEFT_OUT_BYTES]; /* "messages[2].content[1], input[4]": printable ASCII */
    size_t named, more;         /* paths of the list, and those that it has no room for */
};

/* Adds a path, unless the list has it. Other characters than printable ASCII become "?". */
void left_out_add(struct left_out *list, const char *path);

/* Adds the paths of another list. */
void left_out_add_all(struct left_out *list, const struct left_out *other);

bool left_out_is_empty(const struct left_out *list);

/* Names the paths in the header X-Hearth-Left-Out, and in the log with the request and its model (NULL: not known).
 * Nothing if there are none. HTTP thread only. */
void left_out_report(const struct left_out *list, struct http_request *http, const char *request_id, const char *model);

#endif
