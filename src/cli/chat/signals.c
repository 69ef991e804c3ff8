/* Signals as a file descriptor: see signals.h. */
#include "cli/chat/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

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
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

enum signal_kind signals_take(int signals)
{
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) != (ssize_t)sizeof info) return SIGNAL_NONE;
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].number == (int)info.ssi_signo) return kinds[i].kind;
    return SIGNAL_NONE;
}

bool signals_are_waiting(void)
{
    const struct timespec at_once = {0};
    sigset_t redraws, waiting;
    sigemptyset(&redraws);
    for (size_t i = 0; i < N_KINDS; i++)
        if (kinds[i].kind == SIGNAL_REDRAW) sigaddset(&redraws, kinds[i].number);
    while (sigtimedwait(&redraws, NULL, &at_once) > 0) {
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
