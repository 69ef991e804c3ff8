/* The terminal of a command: progress, single bytes, signals. See terminal.h. */
#include "cli/terminal.h"

#include "base/log_stderr.h"
#include "base/os.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
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

/* ---- Signals ---- */

static const struct {
    int number;
    enum signal_kind kind;
} kinds[] = {
    {SIGINT, SIGNAL_STOP}, {SIGTERM, SIGNAL_END},     {SIGHUP, SIGNAL_END},
    {SIGQUIT, SIGNAL_END}, {SIGWINCH, SIGNAL_REDRAW}, {SIGCONT, SIGNAL_REDRAW},
};

#define N_KINDS (sizeof kinds / sizeof *kinds)

int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_KINDS; i++) sigaddset(&set, kinds[i].number);
    signal(SIGPIPE, SIG_IGN);
    return os_signals_open(&set);
}

enum signal_kind signals_take(int signals)
{
    int number = os_signals_take(signals);
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].number == number) return kinds[i].kind;
    return SIGNAL_NONE;
}

bool signals_are_waiting(void)
{
    sigset_t redraws, waiting;
    sigemptyset(&redraws);
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].kind == SIGNAL_REDRAW) sigaddset(&redraws, kinds[i].number);
    while (os_take_pending(&redraws) > 0) {
    }
    sigpending(&waiting);
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].kind != SIGNAL_REDRAW && sigismember(&waiting, kinds[i].number)) return true;
    return false;
}

bool signals_drop(int signals)
{
    bool ends = false;
    for (enum signal_kind kind = signals_take(signals); kind != SIGNAL_NONE; kind = signals_take(signals))
        ends = ends || kind == SIGNAL_END;
    return ends;
}

enum signal_kind signals_wait(int signals, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    return fds[1].revents & POLLIN ? signals_take(signals) : SIGNAL_NONE;
}
