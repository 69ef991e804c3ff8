/* Signals as a file descriptor: see signals.h. */
#include "cli/chat/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const struct {
    int number;
    enum signal_kind kind;
} kinds[] = {
    {SIGINT, SIGNAL_STOP},     {SIGTERM, SIGNAL_END},    {SIGHUP, SIGNAL_END},
    {SIGWINCH, SIGNAL_REDRAW}, {SIGCONT, SIGNAL_REDRAW},
};

#define N_KINDS (sizeof kinds / sizeof *kinds)

int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_KINDS; i++) sigaddset(&set, kinds[i].number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
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

enum signal_kind signals_wait(int signals, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    return fds[1].revents & POLLIN ? signals_take(signals) : SIGNAL_NONE;
}
