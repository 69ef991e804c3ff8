/* The terminal of a command: a progress bar, input by single bytes, and signals as a file descriptor. Nothing is drawn
 * where stderr is no terminal. Main thread only, but for terminal_progress(). */
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

/* ---- Signals ---- */

enum signal_kind {
    SIGNAL_NONE,
    SIGNAL_STOP,  /* Ctrl-C */
    SIGNAL_END,   /* SIGTERM, SIGHUP, SIGQUIT */
    SIGNAL_REDRAW /* the terminal has another size, or the program runs again after Ctrl-Z */
};

/* Blocks the signals, in this thread and those that it creates, and returns a signalfd. Writes to a closed pipe fail
 * from then on and do not end the program, so that it restores the terminal and stores its state. Call it before any
 * other thread starts. */
int signals_open(void);

/* Waits until `fd` is readable or a signal came, which it takes and returns. */
enum signal_kind signals_wait(int signals, int fd);

/* Takes a signal if there is one; waits for nothing. */
enum signal_kind signals_take(int signals);

/* Whether a signal waits that stops or ends something. It goes on waiting; those for a redraw are dropped. */
bool signals_are_waiting(void);

/* Takes all signals that wait; whether one of them ends the program. */
bool signals_drop(int signals);

#endif
