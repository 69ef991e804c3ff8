/* What is drawn on a terminal beside plain text: nothing of it appears where output goes to a file or a pipe. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

/* A hearth_progress: one line on stderr that fills up as a model loads and vanishes when it is loaded. */
bool terminal_progress(void *ud, const char *model, float fraction);

/* Takes away a progress line that was left half full, before something else is printed on stderr. */
void terminal_clear_line(void);

/* Has the terminal at standard input hand over each byte as it is typed, and show none; signals stay what they are.
 * `before`: its settings, to be set again. False: it does not. */
bool terminal_take_bytes(struct termios *before);

#endif
