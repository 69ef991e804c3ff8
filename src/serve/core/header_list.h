/* Lists of names that headers of an answer report, for requests that are answered all the same. There are two:
 *
 * - Parts of the conversation that the client sent and the model does not see: parts of another type than any template
 * can show, tools that nothing here runs. A client whose history holds such a thing would never get an answer again if
 * it were refused. It is named by the path of the client's own field, and in one line of the log.
 * - Keywords of the request's JSON schemas that nothing enforces.
 *
 * A list of bounded size without pointers, so that it is copied as a value and has nothing to be released. It belongs
 * to what holds it: a body that is being converted, the parsed request, then the call. */
#ifndef SERVE_CORE_HEADER_LIST_H
#define SERVE_CORE_HEADER_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Maximum number of names, and bytes of the list. */
#define HEADER_LIST_NAMES 16
#define HEADER_LIST_BYTES 512
#define HEADER_LIST_VALUE (HEADER_LIST_BYTES + 32)

struct header_list {
    char names[HEADER_LIST_BYTES]; /* "messages[2].content[1], input[4]": printable ASCII */
    size_t named, more;            /* names in the list, and those that it has no room for */
};

/* Adds a name, unless the list has it. Other characters than printable ASCII become "?". */
void header_list_add(struct header_list *list, const char *name);

/* Adds the names of another list. */
void header_list_add_all(struct header_list *list, const struct header_list *other);

bool header_list_is_empty(const struct header_list *list);

/* The list as a header's value. False: it is empty. */
bool header_list_value(const struct header_list *list, char value[HEADER_LIST_VALUE]);

#endif
