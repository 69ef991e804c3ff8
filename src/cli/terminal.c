/* Drawing on the terminal; see terminal.h. The progress line is drawn by the thread that loads. */
#include "cli/terminal.h"

#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 30

void terminal_clear_line(void)
{
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

bool terminal_progress(void *ud, const char *model, float fraction)
{
    (void)ud;
    static const char full[] = "##############################", empty[] = "..............................";
    if (!isatty(STDERR_FILENO)) return true;
    const int filled = (int)(fraction * BAR_WIDTH);
    if (fraction >= 1)
        terminal_clear_line();
    else
        fprintf(stderr, "\rloading %s [%.*s%.*s] %3.0f %%", model, filled, full, BAR_WIDTH - filled, empty,
                (double)fraction * 100);
    fflush(stderr);
    return true;
}
