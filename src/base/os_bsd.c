/* The calls of FreeBSD and macOS: see os.h. It is checked against macOS's headers alone (scripts/ports.sh),
 * and was never run. */
#include "base/os.h"

#include "base/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xlocale.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#else
#include <malloc_np.h>
#include <pthread_np.h>
#include <sys/cpuset.h>
#include <sys/procctl.h>
#endif

const char *os_error_text(int number)
{
    static _Thread_local char text[128];
    strerror_r(number, text, sizeof text); /* where it knows none, it writes that */
    return text;
}

void os_random(void *bytes, size_t size)
{
    arc4random_buf(bytes, size);
}

const char *os_find_last(const char *text, char wanted, size_t len)
{
    while (len > 0)
        if (text[--len] == wanted) return text + len;
    return NULL;
}

/* The order of qsort_r()'s parameters differs between the two, and between versions of one. */
static _Thread_local struct {
    int (*compare)(const void *a, const void *b, void *ud);
    void *ud;
} sorting;

static int compare_two(const void *a, const void *b)
{
    return sorting.compare(a, b, sorting.ud);
}

void os_sort(void *values, size_t n, size_t size, int (*compare)(const void *a, const void *b, void *ud), void *ud)
{
    sorting.compare = compare;
    sorting.ud = ud;
    qsort(values, n, size, compare_two);
}

void os_locale_enter(struct os_locale *locale)
{
    locale->own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale->former = uselocale(locale->own);
}

void os_locale_leave(const struct os_locale *locale)
{
    uselocale(locale->former);
    freelocale(locale->own);
}

/* A number of the kernel's; `otherwise` where it has none of that name. */
static int64_t number_of(const char *name, int64_t otherwise)
{
    int64_t wide = 0;
    size_t size = sizeof wide;
    if (sysctlbyname(name, &wide, &size, NULL, 0) != 0) return otherwise;
    int32_t narrow;
    memcpy(&narrow, &wide, sizeof narrow);
    return size == sizeof narrow ? narrow : wide;
}

/* ---- Memory ---- */

size_t os_usable_size(void *memory)
{
#ifdef __APPLE__
    return malloc_size(memory);
#else
    return malloc_usable_size(memory);
#endif
}

void os_trim_heap(void)
{
#ifdef __APPLE__
    malloc_zone_pressure_relief(NULL, 0);
#endif
}

void *os_map_stack(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
}

#ifdef __APPLE__
uint64_t os_free_memory(void)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &n) != KERN_SUCCESS) return 0;
    return ((uint64_t)pages.free_count + pages.inactive_count + pages.purgeable_count) *
           (uint64_t)sysconf(_SC_PAGESIZE);
}
#else
uint64_t os_free_memory(void)
{
    int64_t pages = number_of("vm.stats.vm.v_free_count", 0) + number_of("vm.stats.vm.v_inactive_count", 0) +
                    number_of("vm.stats.vm.v_laundry_count", 0);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
#endif

/* ---- Processors and threads ---- */

#ifdef __APPLE__
/* macOS gives no choice of processors, and has slow ones, on which a thread would delay the others. */
static size_t count_fast_cpus(void)
{
    return (size_t)number_of("hw.perflevel0.logicalcpu", number_of("hw.logicalcpu", 1));
}

void os_allowed_cpus(bool *cpus, size_t n)
{
    size_t fast = count_fast_cpus();
    for (size_t i = 0; i < n; i++) cpus[i] = i < fast;
}

void os_keep_to_cpus(const bool *cpus, size_t n)
{
    (void)cpus, (void)n;
}

long os_core_of(size_t cpu)
{
    int64_t cores = number_of("hw.perflevel0.physicalcpu", number_of("hw.physicalcpu", 1));
    return (long)((int64_t)cpu * cores / (int64_t)count_fast_cpus());
}

void os_give_way(int steps)
{
    (void)steps; /* a priority is the whole process's */
}

/* Conditions know the clock of the day alone, but also durations. */
void os_cond_init(pthread_cond_t *cond)
{
    pthread_cond_init(cond, NULL);
}

void os_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t left = deadline - ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    if (left < 0) left = 0;
    const struct timespec duration = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    pthread_cond_timedwait_relative_np(cond, mutex, &duration);
}
#else
void os_allowed_cpus(bool *cpus, size_t n)
{
    cpuset_t allowed;
    bool known = cpuset_getaffinity(CPU_LEVEL_WHICH, CPU_WHICH_PID, -1, sizeof allowed, &allowed) == 0;
    for (size_t i = 0; i < n; i++) cpus[i] = known && i < CPU_SETSIZE && CPU_ISSET(i, &allowed);
}

void os_keep_to_cpus(const bool *cpus, size_t n)
{
    cpuset_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < n && i < CPU_SETSIZE; i++)
        if (cpus[i]) CPU_SET(i, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

long os_core_of(size_t cpu)
{
    int64_t threads = number_of("kern.smp.threads_per_core", 1);
    return (long)((int64_t)cpu / (threads > 0 ? threads : 1));
}

void os_give_way(int steps)
{
    (void)steps; /* a priority is the whole process's */
}

void os_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void os_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    struct timespec ts = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    pthread_cond_timedwait(cond, mutex, &ts);
}
#endif

void os_mutex_init_brief(pthread_mutex_t *mutex)
{
    pthread_mutex_init(mutex, NULL);
}

long os_count_waits(void)
{
    return 0; /* those of the process alone are counted */
}

/* ---- Files ---- */

struct timespec os_time_of_content(const struct stat *status)
{
#ifdef __APPLE__
    return status->st_mtimespec;
#else
    return status->st_mtim;
#endif
}

struct timespec os_time_of_inode(const struct stat *status)
{
#ifdef __APPLE__
    return status->st_ctimespec;
#else
    return status->st_ctim;
#endif
}

int os_sync(int fd)
{
#ifdef __APPLE__
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0; /* fsync() leaves the bytes in the medium's own memory */
#endif
    return fsync(fd); /* of a file system that has no such thing */
}

void os_expect_reading(int fd)
{
#ifdef __APPLE__
    fcntl(fd, F_RDAHEAD, 1);
#else
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
}

static int close_on_exec(int fd)
{
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

int os_open_nameless(void)
{
    char path[] = "/tmp/hearth.XXXXXX";
    int fd = close_on_exec(mkstemp(path));
    if (fd >= 0) unlink(path);
    return fd;
}

#ifdef __APPLE__
/* No part of the path may be a symbolic link, and none may lead up. */
int os_open_below(const char *folder, const char *path)
{
    for (const char *at = path; *at != '\0'; at += strspn(at, "/")) {
        size_t len = strcspn(at, "/");
        if ((at == path && len == 0) || (len == 2 && strncmp(at, "..", 2) == 0)) {
            errno = EXDEV;
            return -1;
        }
        at += len;
    }
    int below = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (below < 0) return -1;
    int fd = openat(below, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW_ANY), fault = errno;
    close(below);
    errno = fault;
    return fd;
}
#else
int os_open_below(const char *folder, const char *path)
{
    int below = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (below < 0) return -1;
    int fd = openat(below, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_RESOLVE_BENEATH), fault = errno;
    close(below);
    errno = fault;
    return fd;
}
#endif

/* ---- Descriptors ----
 * Without a flag for it a descriptor is open on exec for a moment; hearth's own children close all that they do not
 * want. */

int os_pipe(int ends[2])
{
    if (pipe(ends) != 0) return -1;
    close_on_exec(ends[0]);
    close_on_exec(ends[1]);
    return 0;
}

int os_socket(int domain, int type, int protocol)
{
    int fd = close_on_exec(socket(domain, type, protocol)), on = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    return fd;
}

static void never_block(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int os_socket_nonblocking(int domain, int type, int protocol)
{
    int fd = os_socket(domain, type, protocol);
    if (fd >= 0) never_block(fd);
    return fd;
}

ssize_t os_send(int fd, const void *bytes, size_t size)
{
    int on = 1; /* the socket may be one that was accepted */
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    return send(fd, bytes, size, 0);
}

ssize_t os_send_message(int fd, const struct msghdr *message)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    return sendmsg(fd, message, 0);
}

ssize_t os_receive_message(int fd, struct msghdr *message)
{
    ssize_t got = recvmsg(fd, message, 0);
    if (got < 0) return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
            int passed;
            memcpy(&passed, (const char *)CMSG_DATA(c) + i * sizeof passed, sizeof passed);
            close_on_exec(passed);
        }
    }
    return got;
}

bool os_peer_is_same_user(int fd)
{
    uid_t user;
    gid_t group;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
}

/* poll() tells of a half that was closed by a readable socket that has nothing to read; unread bytes hide it. */
bool os_is_hung_up(int fd)
{
    char byte;
    struct pollfd state = {.fd = fd, .events = POLLIN};
    if (poll(&state, 1, 0) <= 0) return false;
    return (state.revents & (POLLHUP | POLLERR)) != 0 || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

int os_waker_open(struct os_waker *waker)
{
    int ends[2];
    *waker = (struct os_waker){-1, -1};
    if (os_pipe(ends) != 0) return -1;
    never_block(ends[0]);
    never_block(ends[1]);
    *waker = (struct os_waker){.fd = ends[0], .to = ends[1]};
    return 0;
}

void os_waker_wake(const struct os_waker *waker)
{
    ssize_t written = write(waker->to, "", 1); /* where that fails it is awake already */
    (void)written;
}

void os_waker_clear(const struct os_waker *waker)
{
    char wakes[64];
    while (read(waker->fd, wakes, sizeof wakes) > 0) continue;
}

void os_waker_close(struct os_waker *waker)
{
    if (waker->fd >= 0) close(waker->fd);
    if (waker->to >= 0) close(waker->to);
    *waker = (struct os_waker){-1, -1};
}

/* ---- Signals ---- */

/* A queue of events tells of signals that are blocked as well. They go on waiting, and are taken one by one. */
int os_signals_open(const sigset_t *set)
{
    int queue = close_on_exec(kqueue());
    pthread_sigmask(SIG_BLOCK, set, NULL);
    for (int number = 1; queue >= 0 && number < 32; number++) {
        struct kevent change;
        EV_SET(&change, (uintptr_t)number, EVFILT_SIGNAL, EV_ADD, 0, 0, NULL);
        if (sigismember(set, number) == 1) kevent(queue, &change, 1, NULL, 0, NULL);
    }
    return queue;
}

int os_signals_take(int fd)
{
    const struct timespec at_once = {0};
    struct kevent event;
    if (kevent(fd, NULL, 0, &event, 1, &at_once) != 1) return 0;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, (int)event.ident);
    os_take_pending(&one);
    return (int)event.ident;
}

int os_take_pending(const sigset_t *set)
{
    sigset_t waiting;
    int number = 0;
    sigpending(&waiting);
    for (int i = 1; i < 32; i++)
        if (sigismember(set, i) == 1 && sigismember(&waiting, i) == 1 && sigwait(set, &number) == 0) return number;
    return 0;
}

/* ---- Processes ---- */

#ifdef __APPLE__
ssize_t os_program_path(char *path, size_t size)
{
    char named[4096], *found;
    uint32_t room = sizeof named;
    if (_NSGetExecutablePath(named, &room) != 0 || (found = realpath(named, NULL)) == NULL) return -1;
    size_t len = strlen(found);
    if (len > size) len = size;
    memcpy(path, found, len);
    free(found);
    return (ssize_t)len;
}
#else
ssize_t os_program_path(char *path, size_t size)
{
    const int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PATHNAME, -1};
    return sysctl(name, 4, path, &size, NULL, 0) == 0 && size > 0 ? (ssize_t)size - 1 : -1;
}
#endif

const char *os_same_program(void)
{
    static _Thread_local char path[4096];
    ssize_t len = os_program_path(path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    return path;
}

void os_end_with_parent(int number)
{
#ifdef __APPLE__
    (void)number; /* macOS has nothing of the kind: a child sees the end of what it reads */
#else
    procctl(P_PID, 0, PROC_PDEATHSIG_CTL, &number);
#endif
}

void os_close_from(int first)
{
#ifdef __APPLE__
    struct rlimit most = {0};
    getrlimit(RLIMIT_NOFILE, &most);
    int end = most.rlim_cur > 1 << 20 ? 1 << 20 : (int)most.rlim_cur;
    for (int fd = first; fd < end; fd++) close(fd);
#else
    closefrom(first);
#endif
}

int os_open_process(pid_t pid)
{
    if (pid <= 0) {
        errno = EINVAL;
        return -1;
    }
    int queue = close_on_exec(kqueue());
    struct kevent change;
    EV_SET(&change, (uintptr_t)pid, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
    if (queue < 0 || kevent(queue, &change, 1, NULL, 0, NULL) == 0) return queue;
    int fault = errno;
    close(queue);
    if (fault == ESRCH) return open("/dev/null", O_RDONLY | O_CLOEXEC); /* it has ended: readable at once */
    errno = fault;
    return -1;
}

/* ---- Confinement: there is none ---- */

struct confine_means confine_means(void)
{
    return (struct confine_means){false, false};
}

const char *confine_lacks(void)
{
    return "nothing";
}

int confine_prepare(const char *program)
{
    (void)program;
    return -1;
}

bool confine_self(const struct confine_means *means, int files)
{
    (void)means, (void)files;
    return true;
}
