/* Watches of files: see file_watch.h. One mutex guards everything but the stamps, which are the thread's. A look that
 * hangs when the watch is closed is left alone, and frees the watch when it returns. */
#include "base/file_watch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

/* Times of files advance with the kernel's tick, of 10 ms at most; where they have no fractions, by up to two seconds.
 */
#define TICK_NS   (2 * INT64_C(10000000))
#define COARSE_NS (2 * NS_PER_S)

struct file_stamp file_stamp_of(const struct stat *st)
{
    struct timespec content = os_time_of_content(st), inode = os_time_of_inode(st);
    return (struct file_stamp){.device = (int64_t)st->st_dev,
                               .inode = (int64_t)st->st_ino,
                               .size = st->st_size,
                               .content_s = content.tv_sec,
                               .content_ns = content.tv_nsec,
                               .inode_s = inode.tv_sec,
                               .inode_ns = inode.tv_nsec};
}

/* Opens the file, since a network file system asks its server then; so it may wait for a disk or a network. O_NONBLOCK:
 * a pipe that has taken its name is not waited for. */
static int read_stamp(const char *path, struct file_stamp *stamp)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int number = fstat(fd, &st) == 0 ? 0 : errno;
    close(fd);
    if (number == 0) *stamp = file_stamp_of(&st);
    return number;
}

static bool is_near(int64_t s, int64_t ns, int64_t now_ns, int64_t grain_ns)
{
    int64_t distance = now_ns - (s * NS_PER_S + ns);
    return distance < grain_ns && distance > -grain_ns;
}

/* Whether a change from now on (nanoseconds since 1970) gives the file another stamp. It does not while the clock of
 * its file system may still show the time of the last change. */
static bool is_settled(const struct file_stamp *stamp, int64_t now_ns)
{
    int64_t grain = stamp->content_ns == 0 && stamp->inode_ns == 0 ? COARSE_NS : TICK_NS;
    return !is_near(stamp->content_s, stamp->content_ns, now_ns, grain) &&
           !is_near(stamp->inode_s, stamp->inode_ns, now_ns, grain);
}

/* How long closing waits for a look. */
#define END_WAIT_NS clock_from_ms(1000)

/* How long opening waits for stamps to settle, and how often it looks. */
#define SETTLE_NS   clock_from_ms(3000)
#define SETTLE_STEP clock_from_ms(5)

struct file_watch {
    struct file_watch_params params;
    char **paths;
    struct file_stamp *stamps; /* of the last look */
    _Atomic uint64_t changes;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t asked_now, looked; /* looked: also the thread's end */
    uint64_t asked, done;             /* calls of file_watch_check(), and those for which was looked */
    bool failed;                      /* the last look could not be had */
    bool late;                        /* a look takes longer than somebody has waited for it */
    bool closing, reporting, ended, abandoned;
};

/* ---- Looking ---- */

/* The result of one look. */
struct look {
    const char *changed; /* the path of a file; NULL: none was */
    bool gone, failed;
};

static struct look look_at_files(struct file_watch *watch)
{
    struct look look = {0};
    for (size_t i = 0; i < watch->params.n; i++) {
        struct file_stamp stamp = {0};
        int number = watch->params.read(watch->paths[i], &stamp);
        bool is_gone = number == ENOENT || number == ENOTDIR || number == ESTALE,
             was_there = watch->stamps[i].inode != 0;
        if (number != 0 && !(is_gone && was_there)) {
            look.failed = true;
            continue;
        }
        /* A change right after another one may leave no trace. So a file that was changed a moment ago counts as
         * changed again. */
        bool unsettled = atomic_load(&watch->changes) > 0 && !is_settled(&stamp, clock_unix_ns());
        if (!unsettled && memcmp(&watch->stamps[i], &stamp, sizeof stamp) == 0) continue;
        watch->stamps[i] = stamp;
        look.changed = watch->paths[i];
        look.gone = number != 0;
    }
    return look;
}

/* With the mutex, which it releases meanwhile. */
static void report(struct file_watch *watch, const struct look *look)
{
    char reason[192];
    if (watch->params.report == NULL || watch->closing) return;
    watch->reporting = true;
    pthread_mutex_unlock(&watch->mutex);
    snprintf(reason, sizeof reason, "%.120s %s: load the model again", look->changed,
             look->gone ? "was removed while it was in use" : "was changed while it was in use");
    watch->params.report(watch->params.ud, reason);
    pthread_mutex_lock(&watch->mutex);
    watch->reporting = false;
}

/* ---- The thread ---- */

static void free_watch(struct file_watch *watch)
{
    for (size_t i = 0; i < watch->params.n; i++) free(watch->paths[i]);
    free(watch->paths);
    free(watch->stamps);
    pthread_mutex_destroy(&watch->mutex);
    pthread_cond_destroy(&watch->asked_now);
    pthread_cond_destroy(&watch->looked);
    free(watch);
}

/* With the mutex, which it releases meanwhile. */
static void look_once(struct file_watch *watch)
{
    uint64_t asked = watch->asked;
    pthread_mutex_unlock(&watch->mutex);
    struct look look = look_at_files(watch);
    pthread_mutex_lock(&watch->mutex);
    if (look.changed != NULL && atomic_fetch_add(&watch->changes, 1) == 0) report(watch, &look);
    watch->failed = look.failed;
    watch->late = false;
    watch->done = asked;
    pthread_cond_broadcast(&watch->looked);
}

static void *watch_main(void *ud)
{
    struct file_watch *watch = ud;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->closing) {
        if (watch->asked > watch->done)
            look_once(watch);
        else
            clock_monotonic()->wait(clock_monotonic(), &watch->asked_now, &watch->mutex, CLOCK_NEVER);
    }
    watch->ended = true;
    pthread_cond_broadcast(&watch->looked);
    bool abandoned = watch->abandoned;
    pthread_mutex_unlock(&watch->mutex);
    if (abandoned) free_watch(watch);
    return NULL;
}

/* ---- Asking ---- */

/* With the mutex. False: the deadline. */
static bool await(struct file_watch *watch, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    if (clock_now(clock) >= deadline) return false;
    clock->wait(clock, &watch->looked, &watch->mutex, deadline);
    return true;
}

enum file_state file_watch_check(struct file_watch *watch)
{
    if (watch == NULL) return FILES_SAME;
    pthread_mutex_lock(&watch->mutex);
    uint64_t ticket = ++watch->asked;
    int64_t deadline = clock_now(clock_monotonic()) + watch->params.patience_ns;
    pthread_cond_signal(&watch->asked_now);
    while (watch->done < ticket && !watch->late)
        if (!await(watch, deadline)) watch->late = true;
    enum file_state state = atomic_load(&watch->changes) > 0        ? FILES_CHANGED
                            : watch->done < ticket || watch->failed ? FILES_UNKNOWN
                                                                    : FILES_SAME;
    pthread_mutex_unlock(&watch->mutex);
    return state;
}

uint64_t file_watch_changes(const struct file_watch *watch)
{
    return watch == NULL ? 0 : atomic_load(&watch->changes);
}

/* ---- Life ---- */

/* Whether a change of any of the files from now on would be seen. */
static bool take_stamps(struct file_watch *watch)
{
    bool settled = true;
    for (size_t i = 0; i < watch->params.n; i++) {
        watch->stamps[i] = (struct file_stamp){0};
        if (watch->params.read(watch->paths[i], &watch->stamps[i]) != 0) continue;
        settled = settled && is_settled(&watch->stamps[i], clock_unix_ns());
    }
    return settled;
}

struct file_watch *file_watch_open(const struct file_watch_params *params, hearth_error *error)
{
    struct file_watch *watch = mem_alloc(sizeof *watch);
    watch->params = *params;
    if (watch->params.read == NULL) watch->params.read = read_stamp;
    watch->paths = mem_alloc((params->n + 1) * sizeof(char *));
    watch->stamps = mem_alloc((params->n + 1) * sizeof *watch->stamps);
    for (size_t i = 0; i < params->n; i++) watch->paths[i] = mem_strdup(params->paths[i]);
    pthread_mutex_init(&watch->mutex, NULL);
    clock_cond_init(&watch->asked_now);
    clock_cond_init(&watch->looked);
    const struct timespec step = {.tv_nsec = SETTLE_STEP};
    int64_t until = clock_now(clock_monotonic()) + SETTLE_NS;
    while (!take_stamps(watch) && clock_now(clock_monotonic()) < until) nanosleep(&step, NULL);
    if (thread_start(&watch->thread, watch_main, watch, "looks at the model's files", error) == HEARTH_OK) return watch;
    free_watch(watch);
    return NULL;
}

void file_watch_close(struct file_watch *watch)
{
    if (watch == NULL) return;
    pthread_mutex_lock(&watch->mutex);
    watch->closing = true;
    pthread_cond_signal(&watch->asked_now);
    int64_t deadline = clock_now(clock_monotonic()) + END_WAIT_NS;
    while (!watch->ended && await(watch, watch->reporting ? CLOCK_NEVER : deadline)) {
    }
    bool ended = watch->ended;
    watch->abandoned = !ended;
    pthread_mutex_unlock(&watch->mutex);
    if (!ended) {
        pthread_detach(watch->thread);
        return;
    }
    pthread_join(watch->thread, NULL);
    free_watch(watch);
}
