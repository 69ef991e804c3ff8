/* What is drawn on a terminal beside plain text: nothing of it appears where output goes to a file or a pipe. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>

/* A hearth_progress: one line on stderr that fills up as a model loads and vanishes when it is loaded. */
bool terminal_progress(void *ud, const char *model, float fraction);

/* Takes away a progress line that was left half full, before something else is printed on stderr. */
void terminal_clear_line(void);

#endif
