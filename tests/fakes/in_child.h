/* Runs a function in a child process, and says how that ended: for faults that end a process. The child's standard
 * error is caught, it dumps no core, and it ends by an alarm where it hangs. The caller has one thread. */
#ifndef FAKES_IN_CHILD_H
#define FAKES_IN_CHILD_H

#include "fakes/cmocka_all.h"

#include "base/buf.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SECONDS 100

struct child_end {
    int status; /* of waitpid() */
    char *said; /* on standard error; to be freed */
};

static inline void be_child(int error_to, void (*act)(const void *ud), const void *ud)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    dup2(error_to, STDERR_FILENO);
    alarm(CHILD_SECONDS);
    act(ud);
    _exit(0);
}

static inline struct child_end run_in_child(void (*act)(const void *ud), const void *ud)
{
    struct child_end end = {0};
    struct buf said = {0};
    char chunk[1000];
    int ends[2];
    ssize_t n;
    if (pipe(ends) != 0) fail_msg("there is no pipe");
    fflush(stdout); /* the child would say it once more */
    pid_t child = fork();
    if (child == 0) be_child(ends[1], act, ud);
    if (child < 0) fail_msg("there is no child");
    close(ends[1]);
    while ((n = read(ends[0], chunk, sizeof chunk)) > 0) buf_append(&said, chunk, (size_t)n);
    close(ends[0]);
    waitpid(child, &end.status, 0);
    end.said = buf_take(&said);
    return end;
}

static inline bool child_aborted(const struct child_end *end)
{
    return WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGABRT;
}

static inline bool child_ended_well(const struct child_end *end)
{
    return WIFEXITED(end->status) && WEXITSTATUS(end->status) == 0;
}

#endif
