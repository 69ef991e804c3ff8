/* One value of the configuration: from its YAML spelling to its field and back. The field owns its memory; functions
 * without state, any thread. */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "base/buf.h"
#include "config/table.h"
#include "config/yaml_node.h"

/* Reads the node into the field, and releases the old value. False: the row does not allow it; the field is unchanged,
 * and what was expected and what was found is appended to `why`. */
bool value_read(const struct config_row *row, const struct node *node, void *field, struct buf *why);

/* The same from the text of a command line: a string as it is, unless it is a YAML list, a YAML map or a quoted string.
 */
bool value_read_text(const struct config_row *row, const char *text, void *field, struct buf *why);

void value_release(const struct config_row *row, void *field);

/* `to` was released or zeroed before. */
void value_copy(const struct config_row *row, void *to, const void *from);

/* Appends the YAML spelling, on one line. */
void value_put_yaml(const struct config_row *row, const void *field, struct buf *out);

/* The value for a program, to be freed: strings without quotes, lists joined by commas. NULL: null. */
char *value_text(const struct config_row *row, const void *field);

/* Appends what the row allows: "a whole number from 0 to 256". */
void value_put_expected(const struct config_row *row, struct buf *out);

#endif
