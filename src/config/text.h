/* Text of configuration values: to and from bools and numbers, quoting, and shortening for messages. Pure functions;
 * any thread. */
#ifndef CONFIG_TEXT_H
#define CONFIG_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Valid UTF-8 without control characters and line breaks of any kind. */
bool text_is_printable(const char *text, size_t len);

/* False: the text is no such value, and `value` is undefined. */
bool text_to_bool(const char *text, bool *value);
bool text_to_int(const char *text, int64_t *value);
bool text_to_number(const char *text, double *value);

/* Appends the shortest spelling that reads back to the same number. */
void text_put_number(double value, struct buf *out);

/* Appends a string in its YAML spelling, quoted where it must be. */
void text_put_yaml(const char *text, struct buf *out);

/* Appends the first bytes (up to 60), printable, for a message of one line. */
void text_put_shown(const char *bytes, size_t len, struct buf *out);

#endif
