/* The text in JSON of a service whose forms are not read one by one: what a tool of its own found, ran or said. Strings
 * and codes under the names that such services use for them, each a line, headings first; ids, types and what is
 * encrypted are no text. No state; any thread. */
#ifndef SERVE_FIELDS_READABLE_H
#define SERVE_FIELDS_READABLE_H

#include <jansson.h>

/* The text of a value, a JSON string owned by the caller; NULL: it has none. Lists and objects under "content" are not
 * looked at: they are content parts, which may be media. */
json_t *readable_text(const json_t *value);

#endif
