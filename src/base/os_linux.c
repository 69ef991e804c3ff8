/* The calls of Linux, with glibc: see os.h. Numbers of system calls stand here where headers may be older
 * than the kernel, or the C library than the headers. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <locale.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range /* headers of an older kernel */
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define MOST_FILES (1 << 20) /* Linux allows a process no more, unless that was changed (fs.nr_open) */

const char *os_error_text(int number)
{
    static _Thread_local char unknown[64];
    return strerror_r(number, unknown, sizeof unknown); /* GNU's: known ones are not copied */
}

void os_random(void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = getrandom((char *)bytes + done, size - done, 0);
        if (got > 0) done += (size_t)got;
        if (got < 0 && errno != EINTR) abort(); /* a filter of system calls: names and keys would be guessed */
    }
}

const char *os_find_last(const char *text, char wanted, size_t len)
{
    return memrchr(text, wanted, len);
}

void os_sort(void *values, size_t n, size_t size, int (*compare)(const void *a, const void *b, void *ud), void *ud)
{
    qsort_r(values, n, size, compare, ud);
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

/* ---- Small files of the kernel ---- */

/* The number in one; -1 where there is none. */
static long read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    char text[32] = "", *end;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    long number = strtol(text, &end, 10);
    return len == 0 || end == text ? -1 : number;
}

/* The number after a word at the start of a line, as in /proc/meminfo and memory.stat; 0 where there is none. */
static uint64_t read_entry(const char *path, const char *word)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    char line[256];
    uint64_t number = 0;
    size_t len = strlen(word);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, word, len) != 0) continue;
        number = strtoull(line + len, NULL, 10);
        break;
    }
    fclose(file);
    return number;
}

/* ---- Memory ---- */

size_t os_usable_size(void *memory)
{
    return malloc_usable_size(memory);
}

void os_trim_heap(void)
{
#ifdef __GLIBC__
    malloc_trim(0); /* glibc keeps what was freed in small pieces */
#endif
}

void *os_map_stack(size_t size)
{
    void *stack =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack != MAP_FAILED) madvise(stack, size, MADV_NOHUGEPAGE); /* of two megabytes, at the first touch */
    return stack;
}

/* The two versions of control groups (cgroups) differ in names only. "max" and v1's huge number both mean no limit. */
struct group_version {
    const char *line; /* identifies this version's line of /proc/self/cgroup */
    const char *root, *limit, *usage, *reclaimable;
};

static const struct group_version group_versions[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

/* Bytes that one group can still allocate: its limit less what it uses and cannot reclaim at once. */
static uint64_t free_in_group(const struct group_version *version, const char *group)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s/%s", version->root, group, version->limit);
    long limit = read_number(path);
    if (limit < 0) return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s/%s", version->root, group, version->usage);
    long usage = read_number(path);
    snprintf(path, sizeof path, "%s%s/memory.stat", version->root, group);
    uint64_t held = usage < 0 ? 0 : (uint64_t)usage;
    uint64_t reclaimable = read_entry(path, version->reclaimable);
    held -= reclaimable < held ? reclaimable : held;
    return (uint64_t)limit > held ? (uint64_t)limit - held : 0;
}

/* The least free memory of a group and all its parents. Inside a container a group may not be visible under its name,
 * but is mounted as the root, where the walk ends in any case. */
static uint64_t free_in_groups(const struct group_version *version)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL) return UINT64_MAX;
    char line[512];
    uint64_t room = UINT64_MAX;
    while (fgets(line, sizeof line, file) != NULL) {
        char *group = strstr(line, version->line);
        if (group == NULL) continue;
        group += strlen(version->line);
        group[strcspn(group, "\n")] = '\0';
        for (;;) {
            uint64_t here = free_in_group(version, group);
            if (here < room) room = here;
            char *slash = strrchr(group, '/');
            if (slash == NULL) break;
            *slash = '\0';
        }
        break;
    }
    fclose(file);
    return room;
}

uint64_t os_free_memory(void)
{
    uint64_t bytes = read_entry("/proc/meminfo", "MemAvailable:") * 1024;
    for (size_t i = 0; i < sizeof group_versions / sizeof group_versions[0]; i++) {
        uint64_t room = free_in_groups(&group_versions[i]);
        if (room < bytes) bytes = room;
    }
    return bytes;
}

/* ---- Processors and threads ---- */

void os_allowed_cpus(bool *cpus, size_t n)
{
    cpu_set_t allowed;
    bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    for (size_t i = 0; i < n; i++) cpus[i] = known && i < CPU_SETSIZE && CPU_ISSET(i, &allowed);
}

void os_keep_to_cpus(const bool *cpus, size_t n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < n && i < CPU_SETSIZE; i++)
        if (cpus[i]) CPU_SET(i, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

long os_core_of(size_t cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/core_id", cpu);
    long core = read_number(path);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/physical_package_id", cpu);
    long package = read_number(path);
    return core < 0 ? -1 - (long)cpu : package * 65536 + core;
}

void os_give_way(int steps)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), steps); /* on Linux of this thread alone */
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

void os_mutex_init_brief(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

long os_count_waits(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

/* ---- Files ---- */

struct timespec os_time_of_content(const struct stat *status)
{
    return status->st_mtim;
}

struct timespec os_time_of_inode(const struct stat *status)
{
    return status->st_ctim;
}

int os_sync(int fd)
{
    struct stat is;
    if (fstat(fd, &is) != 0) return -1;
    return S_ISDIR(is.st_mode) ? fsync(fd)
                               : fdatasync(fd); /* on ext4, fdatasync() of a folder may leave out new names */
}

void os_expect_reading(int fd)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

int os_open_nameless(void)
{
    return memfd_create("hearth", MFD_CLOEXEC);
}

int os_open_below(const char *folder, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return -1;
    int fd = (int)syscall(SYS_openat2, at, path, &how, sizeof how), fault = errno;
    close(at);
    errno = fault;
    return fd;
}

/* ---- Descriptors ---- */

int os_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC);
}

int os_socket(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

int os_socket_nonblocking(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
}

ssize_t os_send(int fd, const void *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL);
}

ssize_t os_send_message(int fd, const struct msghdr *message)
{
    return sendmsg(fd, message, MSG_NOSIGNAL);
}

ssize_t os_receive_message(int fd, struct msghdr *message)
{
    return recvmsg(fd, message, MSG_CMSG_CLOEXEC);
}

bool os_peer_is_same_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

bool os_is_hung_up(int fd)
{
    struct pollfd state = {.fd = fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0;
}

int os_waker_open(struct os_waker *waker)
{
    waker->fd = waker->to = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return waker->fd < 0 ? -1 : 0;
}

void os_waker_wake(const struct os_waker *waker)
{
    eventfd_write(waker->to, 1); /* where that fails it is awake already */
}

void os_waker_clear(const struct os_waker *waker)
{
    eventfd_t wakes; /* one read clears all */
    eventfd_read(waker->fd, &wakes);
}

void os_waker_close(struct os_waker *waker)
{
    if (waker->fd >= 0) close(waker->fd);
    waker->fd = waker->to = -1;
}

/* ---- Signals ---- */

int os_signals_open(const sigset_t *set)
{
    pthread_sigmask(SIG_BLOCK, set, NULL);
    return signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int os_signals_take(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

int os_take_pending(const sigset_t *set)
{
    const struct timespec at_once = {0};
    int number = sigtimedwait(set, NULL, &at_once);
    return number > 0 ? number : 0;
}

/* ---- Processes ---- */

ssize_t os_program_path(char *path, size_t size)
{
    return readlink(os_same_program(), path, size);
}

const char *os_same_program(void)
{
    return "/proc/self/exe";
}

void os_end_with_parent(int number)
{
    prctl(PR_SET_PDEATHSIG, number);
}

void os_close_from(int first)
{
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
    for (int fd = first; fd < MOST_FILES; fd++) close(fd); /* Linux before 5.9 */
}

int os_open_process(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}
