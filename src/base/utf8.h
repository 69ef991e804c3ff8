/* UTF-8 in pieces, as bytes arrive: where a character ends, and replacements for invalid bytes. Pure functions; any
 * thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Length of the incomplete character at the end of `text`; 0: there is none. */
size_t utf8_incomplete_tail(const char *text, size_t len);

/* Appends `text` with invalid bytes replaced: one U+FFFD for each byte that cannot begin a character, and for each
 * character that is broken off. */
void utf8_put_clean(struct buf *out, const char *text, size_t len);

/* Appends `text` as a JSON string, quotes included; invalid bytes become U+FFFD. */
void utf8_put_json_string(struct buf *out, const char *text, size_t len);

/* Appends `text` for a log line or a terminal: escapes (\u001b) every character that ends a line, or that a terminal or
 * an editor interprets; invalid bytes become U+FFFD. `quoted`: quotation marks and backslashes are escaped as well, so
 * that between quotation marks the result is a JSON string. */
void utf8_put_visible(struct buf *out, const char *text, size_t len, bool quoted);

/* Characters in `text`, which is valid UTF-8. */
size_t utf8_count(const char *text, size_t len);

#endif
