/* Signals as a file descriptor: hearth chat blocks them in all threads and reads them where it waits, so that no
 * handler interrupts anything. Main thread only. */
#ifndef CLI_CHAT_SIGNALS_H
#define CLI_CHAT_SIGNALS_H

#include <stdbool.h>

enum signal_kind {
    SIGNAL_NONE,
    SIGNAL_STOP,  /* Ctrl-C */
    SIGNAL_END,   /* SIGTERM, SIGHUP, SIGQUIT */
    SIGNAL_REDRAW /* the terminal has another size, or the program runs again after Ctrl-Z */
};

/* Blocks the signals, in this thread and those that it creates, and returns a signalfd; has writes to a closed pipe
 * fail, so that the terminal gets its settings back and what is to be stored is. Before any other thread. */
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
