/* The progress bar and the input mode of a terminal: see terminal.h. */
#include "cli/terminal.h"

#include "base/log_stderr.h"

#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 30

void terminal_clear_line(void)
{
    if (isatty(fileno(log_console()))) fputs("\r\033[K", log_console());
}

bool terminal_progress(void *ud, const char *model, float fraction)
{
    (void)ud;
    static const char full[] = "##############################", empty[] = "..............................";
    if (!isatty(fileno(log_console()))) return true;
    const int filled = (int)(fraction * BAR_WIDTH);
    if (fraction >= 1)
        terminal_clear_line();
    else
        fprintf(log_console(), "\rloading %s [%.*s%.*s] %3.0f %%", model, filled, full, BAR_WIDTH - filled, empty,
                (double)fraction * 100);
    fflush(log_console());
    return true;
}

bool terminal_take_bytes(struct termios *before)
{
    if (tcgetattr(STDIN_FILENO, before) != 0) return false;
    struct termios bytes = *before;
    bytes.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    bytes.c_cc[VMIN] = 1;
    bytes.c_cc[VTIME] = 0;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &bytes) == 0;
}
