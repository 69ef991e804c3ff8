/* UTF-8 as bytes arrive: where a character ends, and what to put in place of bytes that are none. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Length of the bytes at the end of `text` that begin a character and need more bytes to complete it; 0 if none. */
size_t utf8_incomplete_tail(const char *text, size_t len);

/* Appends `text` with what is not valid UTF-8 replaced: one U+FFFD for each byte that begins nothing and for each
 * character that breaks off. */
void utf8_put_clean(struct buf *out, const char *text, size_t len);

/* Appends `text` as a JSON string, quotes included; invalid bytes become U+FFFD. */
void utf8_put_json_string(struct buf *out, const char *text, size_t len);

/* Appends `text` with every character escaped (\u001b) that ends a line, or that a terminal or an editor acts on
 * instead of showing it; invalid bytes become U+FFFD. `quoted`: quotation marks and backslashes are escaped, too, so
 * that between quotation marks it is a JSON string. */
void utf8_put_visible(struct buf *out, const char *text, size_t len, bool quoted);

/* Characters in `text`, which is valid UTF-8. */
size_t utf8_count(const char *text, size_t len);

#endif
