/* Calls that differ from one operating system to another: os_linux.c, and os_bsd.c for FreeBSD and macOS. The rest of
 * src calls what POSIX has alone, which scripts/layers.sh holds. Any thread, but for what is said. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The system's text for an error number (errno). It lives until the thread's next call. */
const char *os_error_text(int number);

/* Random bytes that nobody can guess, as for keys. */
void os_random(void *bytes, size_t size);

/* memrchr() and qsort_r(), with glibc's order of parameters. */
const char *os_find_last(const char *text, char wanted, size_t len);
void os_sort(void *values, size_t n, size_t size, int (*compare)(const void *a, const void *b, void *ud), void *ud);

/* The calling thread has the C locale in between, whatever locale the program has set: numbers have decimal points. */
struct os_locale {
    void *own, *former;
};

void os_locale_enter(struct os_locale *locale);
void os_locale_leave(const struct os_locale *locale);

/* ---- Memory ---- */

/* The bytes that malloc() really gave. */
size_t os_usable_size(void *memory);

/* Gives the system back what was freed and is still held. */
void os_trim_heap(void);

/* A stack of that size, of pages that take memory only once they are touched; MAP_FAILED with errno. munmap() frees it.
 */
void *os_map_stack(size_t size);

/* Bytes that this process can still allocate, what others limit it to included. */
uint64_t os_free_memory(void);

/* ---- Processors and threads ---- */

#define OS_CPUS 512 /* that are told apart: as many as llama.cpp does */

/* Sets cpus[i] where the calling thread may run on processor i, of `n`. None is set where the system does not tell. */
void os_allowed_cpus(bool *cpus, size_t n);

/* The scheduling policy of a thread that gives way a little. */
#ifdef __linux__
#define OS_POLICY_LOW SCHED_BATCH
#else
#define OS_POLICY_LOW SCHED_OTHER
#endif

/* Keeps the calling thread to these, where the system can. */
void os_keep_to_cpus(const bool *cpus, size_t n);

/* A number that the processors of one core have in common. */
long os_core_of(size_t cpu);

/* The calling thread gets so much less of a processor than others, in steps of nice(), where the system can. */
void os_give_way(int steps);

/* A condition whose waits end by CLOCK_MONOTONIC, and such a wait; deadline in nanoseconds of it. It may return early.
 */
void os_cond_init(pthread_cond_t *cond);
void os_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline);

/* A mutex that is held for a moment only: a thread that finds it taken spins before it sleeps, where the system can. */
void os_mutex_init_brief(pthread_mutex_t *mutex);

/* How often the calling thread has waited for something, where the system counts that; else 0. */
long os_count_waits(void);

/* ---- Files ---- */

/* When its bytes, and when its inode, were changed last. */
struct timespec os_time_of_content(const struct stat *status);
struct timespec os_time_of_inode(const struct stat *status);

/* Returns once the bytes of a file are on the medium; -1 with errno. */
int os_sync(int fd);

/* Tells the system that a file will be read from its beginning to its end. */
void os_expect_reading(int fd);

/* A file without a name, open for reading and writing; -1 with errno. */
int os_open_nameless(void);

/* Opens for reading what lies below the folder, wherever its names and links point; -1 with errno. A FIFO does not
 * block. */
int os_open_below(const char *folder, const char *path);

/* The name by which a program that is started with a file as its standard input can open this. */
#ifdef __linux__
#define OS_STANDARD_INPUT "/proc/self/fd/0"
#else
#define OS_STANDARD_INPUT "/dev/fd/0"
#endif

/* ---- Descriptors; all are closed on exec ---- */

/* A pipe; -1 with errno. */
int os_pipe(int ends[2]);

/* A socket; -1 with errno. A write to it whose reader is gone fails with EPIPE, by os_send() and os_send_message(). */
int os_socket(int domain, int type, int protocol);
int os_socket_nonblocking(int domain, int type, int protocol);

struct msghdr;
ssize_t os_send(int fd, const void *bytes, size_t size);
ssize_t os_send_message(int fd, const struct msghdr *message);

/* recvmsg(), where descriptors that come with it are closed on exec. */
ssize_t os_receive_message(int fd, struct msghdr *message);

/* Whether the process at the other end of a connected unix socket is of this user. */
bool os_peer_is_same_user(int fd);

/* Whether the other side of a connected socket has closed it, or its half, or it is broken. Reads nothing. */
bool os_is_hung_up(int fd);

/* Something to wait for by poll(): `fd` is readable from os_waker_wake() until os_waker_clear(). */
struct os_waker {
    int fd, to; /* -1: not open */
};

int os_waker_open(struct os_waker *waker); /* -1 with errno */
void os_waker_wake(const struct os_waker *waker);
void os_waker_clear(const struct os_waker *waker);
void os_waker_close(struct os_waker *waker);

/* ---- Signals ---- */

/* Blocks the signals in the calling thread, and returns a descriptor that is readable while one of them waits; -1 with
 * errno. */
int os_signals_open(const sigset_t *set);

/* Takes one that waits; 0: none does. */
int os_signals_take(int fd);

/* Takes one of a set that is blocked and waits; 0: none does. */
int os_take_pending(const sigset_t *set);

/* ---- Processes ---- */

/* The path of the program that runs: its length, without a NUL; -1 where it cannot be told. */
ssize_t os_program_path(char *path, size_t size);

/* The path by which execv() starts this program again, also after its file was replaced where the system can. */
const char *os_same_program(void);

/* In a child: the signal that comes when its parent ends, where the system can. Between fork() and exec. */
void os_end_with_parent(int number);

/* Closes all files from this number on. Between fork() and exec. */
void os_close_from(int first);

/* A file that can be read from once the child has ended; -1 with errno. The caller closes it. */
int os_open_process(pid_t pid);

#ifdef __cplusplus
}
#endif

#endif
