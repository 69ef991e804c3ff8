/* Writes a text in the user's editor: $VISUAL, $EDITOR, else vi. Main thread only; it waits for the editor. */
#ifndef CLI_CHAT_COMPOSE_H
#define CLI_CHAT_COMPOSE_H

#include "base/buf.h"
#include "hearth.h"

/* `text` is what the editor begins with and what it has written. HEARTH_IO. */
int compose(struct buf *text, hearth_error *error);

#endif
