/* Takes what libraries write to standard error: llama.cpp where it does not use its log, the C library when it aborts.
 * Such a line may hold words of a client's, and would reach a terminal as it is, between lines of the log or as one of
 * them. While standard error is taken, a pipe stands in the place of descriptor 2. A thread makes each line that comes
 * an event of the log, which escapes it. The log itself writes to where standard error was.
 *
 * For a program of hearth's own. The library never does this: standard error is its host's. */
#ifndef BASE_LOG_STDERR_H
#define BASE_LOG_STDERR_H

#include "hearth.h"

#include <stdio.h>

/* Takes it; the log is open. Until log_give_stderr(), or the end of the process. */
int log_take_stderr(hearth_error *error);

/* Logs what came, and puts descriptor 2 back. Harmless where it was not taken. */
void log_give_stderr(void);

/* Where standard error is meanwhile, for what the program itself says to its user. Any thread; never closed. */
FILE *log_console(void);

/* Installs handlers for the signals of a crash. They wait up to 1 s for lines on standard error and for queued lines,
 * and then let the signal do what it always did. Signals that have a handler are left alone. */
void log_outlive_crashes(void);

#endif
