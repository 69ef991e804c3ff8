/* Draws progress on a terminal, and switches its input to single bytes. Nothing is drawn where stderr is not a
 * terminal.
 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

/* A hearth_progress: draws a progress bar on stderr, and removes it once the model is loaded. Called on the thread that
 * loads. */
bool terminal_progress(void *ud, const char *model, float fraction);

/* Removes a progress bar that is still there, before something else is printed on stderr. */
void terminal_clear_line(void);

/* Switches the terminal at standard input to deliver each byte as it is typed, without echo; Ctrl-C still sends SIGINT.
 * `before` gets the former settings, for tcsetattr(). False: the terminal refuses. */
bool terminal_take_bytes(struct termios *before);

#endif
