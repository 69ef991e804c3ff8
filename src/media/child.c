/* Programs run on uploads: see child.h. The child has nothing of the server's environment, no file but the upload, is
 * confined (base/confine.h) and dies with the server. Its stderr is thrown away, since it may hold words of the upload.
 */
#include "media/child.h"

#include "base/clock.h"
#include "base/confine.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Before it starts ---- */

/* The program's path; free() it. NULL: it is not in PATH. */
static char *find_program(const char *name)
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        size_t len = strcspn(at, ":");
        char *path = mem_format("%.*s/%s", (int)len, at, name);
        if (len > 0 && access(path, X_OK) == 0) return path;
        free(path);
        at += len + (at[len] == ':');
    }
    return NULL;
}

/* The program's path; NULL: it cannot be run. */
static char *path_of(const struct media_program *program, hearth_error *error)
{
    char *path = find_program(program->name);
    if (path == NULL)
        error_set(error, HEARTH_UNSUPPORTED, "needs %s, which is not installed here (Debian's package %s)",
                  program->name, program->package);
    if (path == NULL || program->unconfined || confine_lacks() == NULL) return path;
    free(path);
    error_set(error, HEARTH_UNSUPPORTED,
              "needs %s, which is not run here: this system has %s to confine it: see "
              "models.*.media_unconfined",
              program->name, confine_lacks());
    return NULL;
}

bool media_child_can_run(const struct media_program *program)
{
    hearth_error error;
    char *path = path_of(program, &error);
    free(path);
    return path != NULL;
}

/* A file in memory with the bytes, at its beginning; -1: there is no memory. */
static int file_of(const struct media_bytes *upload)
{
    int fd = os_open_nameless();
    size_t done = 0;
    while (fd >= 0 && done < upload->len) {
        ssize_t n = write(fd, upload->v + done, upload->len - done);
        if (n > 0) done += (size_t)n;
        if (n >= 0 || errno == EINTR) continue;
        close(fd);
        return -1;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd;
}

/* ---- In the child, where only calls are made that are safe after fork() ---- */

/* A macro, since the type of `what` is an enumeration here and a number there. */
#define LIMIT(what, most) setrlimit((what), &(const struct rlimit){.rlim_cur = (most), .rlim_max = (most)})

/* The parameters of a child. */
struct start {
    const char *path;
    char *const *argv;
    int input, output;
    struct confine_means means;
    int files; /* of confine_prepare() */
};

static void become(const struct start *start, const struct media_program *program)
{
    static char *const environment[] = {(char *)"PATH=/usr/bin:/bin", (char *)"LC_ALL=C.UTF-8", NULL};
    os_end_with_parent(SIGKILL);
    LIMIT(RLIMIT_CPU, 4 * (rlim_t)program->seconds); /* of all its threads */
    LIMIT(RLIMIT_AS, program->most_memory);
    LIMIT(RLIMIT_FSIZE, 0);
    LIMIT(RLIMIT_CORE, 0);
    int nothing = open("/dev/null", O_WRONLY);
    if (dup2(start->input, 0) == 0 && dup2(start->output, 1) == 1 && dup2(nothing, 2) == 2 &&
        confine_self(&start->means, start->files)) {
        os_close_from(3);
        LIMIT(RLIMIT_NOFILE, 64); /* now that there is none beyond: some systems close up to it */
        execve(start->path, start->argv, environment);
    }
    _exit(127);
}

/* ---- While it runs ---- */

enum ending { ENDED, TOOK_TOO_LONG, WROTE_TOO_MUCH, STOPPED };

/* How long nobody looks at `stop`. */
enum { LOOK_MS = 100 };

static enum ending collect(const struct media_program *program, int from, int64_t deadline,
                           const struct media_sink *sink)
{
    char block[1 << 16];
    size_t written = 0;
    for (;;) {
        struct pollfd one = {.fd = from, .events = POLLIN};
        int64_t left = deadline - clock_now(clock_monotonic());
        if (left <= 0) return TOOK_TOO_LONG;
        if (media_has_to_stop(program->stop)) return STOPPED;
        int64_t left_ms = (int64_t)clock_to_ms(left) + 1;
        if (poll(&one, 1, (int)(left_ms < LOOK_MS ? left_ms : LOOK_MS)) <= 0) continue;
        ssize_t n = read(from, block, sizeof block);
        if (n == 0 || (n < 0 && errno != EINTR)) return ENDED;
        if (n < 0) continue;
        if ((written += (size_t)n) > program->most_output) return WROTE_TOO_MUCH;
        sink->take(sink->ud, block, (size_t)n);
    }
}

/* A program may close its output and go on. */
static bool ends_by(pid_t pid, int64_t deadline)
{
    struct pollfd one = {.fd = os_open_process(pid), .events = POLLIN};
    int64_t left = deadline - clock_now(clock_monotonic());
    bool has_ended = one.fd >= 0 && poll(&one, 1, left > 0 ? (int)clock_to_ms(left) + 1 : 0) > 0;
    if (one.fd >= 0) close(one.fd);
    return has_ended;
}

static int run_found(const struct media_program *program, char *path, int input, const struct media_sink *sink,
                     hearth_error *error)
{
    char *argv[32] = {path};
    int ends[2], status = 1 << 8; /* it failed, unless it says otherwise */
    for (size_t i = 0; program->args[i] != NULL && i < 30; i++) argv[i + 1] = (char *)(uintptr_t)program->args[i];
    if (os_pipe(ends) != 0) return error_set(error, HEARTH_NO_MEMORY, "cannot be read: %s", strerror(errno));
    const struct start start = {path, argv, input, ends[1], confine_means(), confine_prepare(path)};
    pid_t pid = fork();
    if (pid == 0) become(&start, program);
    close(ends[1]);
    if (start.files >= 0) close(start.files);
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms((int64_t)program->seconds * 1000);
    enum ending ending = pid < 0 ? ENDED : collect(program, ends[0], deadline, sink);
    close(ends[0]);
    if (pid < 0) return error_set(error, HEARTH_NO_MEMORY, "cannot be read: no process can be started");
    if (ending == ENDED && !ends_by(pid, deadline)) ending = TOOK_TOO_LONG;
    if (ending != ENDED) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (ending == STOPPED) return error_set(error, HEARTH_CANCELLED, "request was cancelled");
    if (ending == TOOK_TOO_LONG)
        return error_set(error, HEARTH_TOO_LONG, "takes %s more than %d seconds", program->name, program->seconds);
    if (ending == WROTE_TOO_MUCH)
        return error_set(error, HEARTH_TOO_LONG, "is more than %zu KiB when %s has read it%s%s",
                         program->most_output >> 10, program->name, program->output_key != NULL ? ": see " : "",
                         program->output_key != NULL ? program->output_key : "");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID,
                     "cannot be read by %s: it is damaged, needs a password, or has nothing to read", program->name);
}

/* One program runs at a time: the memory of several would add up. */
static struct {
    pthread_once_t once;
    pthread_mutex_t mutex;
    pthread_cond_t left;
    bool taken;
} turn = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

static void init_turn(void)
{
    clock_cond_init(&turn.left);
}

static bool await_turn(const struct media_stop *stop)
{
    struct clock *clock = clock_monotonic();
    pthread_once(&turn.once, init_turn);
    pthread_mutex_lock(&turn.mutex);
    while (turn.taken && !media_has_to_stop(stop))
        clock->wait(clock, &turn.left, &turn.mutex, clock_now(clock) + clock_from_ms(LOOK_MS));
    bool mine = !turn.taken;
    turn.taken = true;
    pthread_mutex_unlock(&turn.mutex);
    return mine;
}

int media_child_run(const struct media_program *program, const struct media_bytes *upload,
                    const struct media_sink *sink, hearth_error *error)
{
    if (!await_turn(program->stop)) return error_set(error, HEARTH_CANCELLED, "request was cancelled");
    char *path = path_of(program, error);
    int input = path == NULL ? -1 : file_of(upload), rc;
    if (path == NULL)
        rc = (int)error->code;
    else if (input < 0)
        rc = error_set(error, HEARTH_NO_MEMORY, "cannot be read: there is no memory");
    else
        rc = run_found(program, path, input, sink, error);
    if (input >= 0) close(input);
    free(path);
    pthread_mutex_lock(&turn.mutex);
    turn.taken = false;
    pthread_cond_signal(&turn.left);
    pthread_mutex_unlock(&turn.mutex);
    return rc;
}
