/* What a program would try that an upload has taken over. Names a line of each attempt that it made, and "done"; those
 * that succeeded say so. Its argument is a folder of its user's with a file, `file`, and a script, `script`. Without
 * sanitizers, which need more than a confined program has.
 *
 * A program of its own: test_child.c runs it as it runs ffmpeg, and by itself, to see that it could. */
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *at; /* the folder */

static const char *in(const char *name)
{
    static char paths[2][4096];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", at, name);
    return path;
}

static const char *of_parent(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), name);
    return path;
}

/* A process that must not come to be; it ends at once. */
static long by_child(long id)
{
    if (id == 0) _exit(0);
    if (id > 0) waitpid((pid_t)id, NULL, 0);
    return id;
}

/* Row: what it is, whether any program of a user's can do it, the attempt, whose result is negative where it fails. */
/* clang-format off */
#define ATTEMPTS(ROW)                                                                                                  \
    ROW("connect by IPv4", true, socket(AF_INET, SOCK_STREAM, 0))                                                      \
    ROW("connect by IPv6", false, socket(AF_INET6, SOCK_STREAM, 0))                                                    \
    ROW("send by UDP", true, socket(AF_INET, SOCK_DGRAM, 0))                                                           \
    ROW("connect to a unix socket", true, socket(AF_UNIX, SOCK_STREAM, 0))                                             \
    ROW("ask the kernel by netlink", false, socket(AF_NETLINK, SOCK_RAW, 0))                                           \
    ROW("a pair of sockets", true, socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0}))                                   \
    ROW("io_uring", false, syscall(SYS_io_uring_setup, 1, (char[256]){0}))                                             \
    ROW("read a file", true, open(in("file"), O_RDONLY))                                                               \
    ROW("read /etc/passwd", true, open("/etc/passwd", O_RDONLY))                                                       \
    ROW("list a folder", true, open(at, O_RDONLY | O_DIRECTORY))                                                       \
    ROW("list the root", true, open("/", O_RDONLY | O_DIRECTORY))                                                      \
    ROW("list processes", true, open("/proc", O_RDONLY | O_DIRECTORY))                                                 \
    ROW("write a file", true, open(in("file"), O_WRONLY))                                                              \
    ROW("append to a file", true, open(in("file"), O_WRONLY | O_APPEND))                                               \
    ROW("open a file to read and write", true, open(in("file"), O_RDWR))                                               \
    ROW("truncate while opening to read", true, open(in("file"), O_RDONLY | O_TRUNC))                                  \
    ROW("create a file", true, open(in("created"), O_WRONLY | O_CREAT, 0600))                                          \
    ROW("create a file to read", true, open(in("created too"), O_RDONLY | O_CREAT, 0600))                              \
    ROW("creat()", true, syscall(SYS_openat, AT_FDCWD, in("created last"), O_CREAT | O_WRONLY | O_TRUNC, 0600))        \
    ROW("a file without a name", false, open(at, O_TMPFILE | O_RDWR, 0600))                                            \
    ROW("openat2()", true, syscall(SYS_openat2, AT_FDCWD, in("file"), (uint64_t[3]){O_RDONLY}, sizeof(uint64_t[3])))   \
    ROW("truncate a file", true, truncate(in("file"), 1))                                                              \
    ROW("move a file", true, syscall(SYS_renameat2, AT_FDCWD, in("file"), AT_FDCWD, in("moved"), 1))                   \
    ROW("rename a file", true, rename(in("moved"), in("file")))                                                        \
                                                                                                                       \
    ROW("link a file", true, link(in("file"), in("linked")))                                                           \
    ROW("a symbolic link", true, symlink("/etc/passwd", in("symbolic")))                                               \
    ROW("remove a file", true, unlink(in("victim")))                                                                   \
    ROW("make a folder", true, mkdir(in("folder"), 0700))                                                              \
    ROW("remove a folder", true, rmdir(in("empty")))                                                                   \
    ROW("make a FIFO", true, mkfifo(in("fifo"), 0600))                                                                 \
    ROW("change a mode", true, chmod(in("file"), 0600))                                                                \
    ROW("change an owner", true, chown(in("file"), getuid(), (gid_t)-1))                                               \
    ROW("change times", true, utimensat(AT_FDCWD, in("file"), NULL, 0))                                                \
    ROW("set an attribute", false, setxattr(in("file"), "user.a", "b", 1, 0))                                          \
    ROW("run a script", true, system(in("script")) == 0 ? 0 : -1)                                                      \
    ROW("fork", true, by_child(fork()))                                                                                \
    ROW("clone()", true, by_child(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)))                                            \
    ROW("clone3()", false, by_child(syscall(SYS_clone3, (uint64_t[8]){[4] = SIGCHLD}, sizeof(uint64_t[8]))))           \
    ROW("a process with namespaces", false, by_child(syscall(SYS_clone, SIGCHLD | CLONE_NEWUSER, 0, 0, 0, 0)))         \
    ROW("signal the server", true, kill(getppid(), 0))                                                                 \
    ROW("signal a thread of the server", true, syscall(SYS_tgkill, getppid(), getppid(), 0))                           \
    ROW("signal everybody", true, kill(0, 0))                                                                          \
    ROW("a pidfd of the server", true, syscall(SYS_pidfd_open, getppid(), 0))                                          \
    ROW("signals of a descriptor for the server", true, fcntl(1, F_SETOWN, getppid()))                                 \
    ROW("trace the server", false, ptrace(PTRACE_SEIZE, getppid(), 0, 0))                                              \
    ROW("open the server's memory", false, open(of_parent("mem"), O_RDONLY))                                           \
    ROW("read the server's environment", true, open(of_parent("environ"), O_RDONLY))                                   \
    ROW("a descriptor of the server", true, open(of_parent("exe"), O_RDONLY))                                          \
    ROW("limits of the server", true, syscall(SYS_prlimit64, getppid(), RLIMIT_NOFILE, NULL, (char[16]){0}))           \
    ROW("outlive the server", true, prctl(PR_SET_PDEATHSIG, 0))                                                        \
    ROW("priority of the server", true, setpriority(PRIO_PROCESS, parent, getpriority(PRIO_PROCESS, parent)))          \
    ROW("CPUs of the server", true, sched_setaffinity(getppid(), sizeof(cpu_set_t), &all))                             \
    ROW("become somebody", false, setuid(1))                                                                           \
    ROW("become of a group", false, setgroups(0, NULL))                                                                \
    ROW("userfaultfd", false, syscall(SYS_userfaultfd, 0))                                                             \
    ROW("keys of the kernel", false, syscall(SYS_keyctl, 0, -3, 0))                                                    \
    ROW("watch files", true, inotify_init1(0))                                                                         \
    ROW("shared memory", true, shmctl(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), IPC_RMID, NULL))                    \
    ROW("memory that is a file", true, memfd_create("a", 0))                                                           \
    ROW("set its own limits", true, setrlimit(RLIMIT_NOFILE, &(struct rlimit){60, 60}))                                \
    ROW("a user namespace", false, unshare(CLONE_NEWUSER))                                                             \
    ROW("ask a descriptor", true, ioctl(1, FIONREAD, &(int){0}))
/* clang-format on */

static void *nothing(void *ud)
{
    return ud;
}

/* What decoding takes. */
static bool can_work(void)
{
    pthread_t thread;
    void *memory = malloc(1 << 20);
    bool works = memory != NULL && pthread_create(&thread, NULL, nothing, NULL) == 0;
    if (works) pthread_join(thread, NULL);
    char byte;
    works = works && read(0, &byte, 1) == 1 && kill(getpid(), 0) == 0 && access("/usr", F_OK) == 0;
    int table = open("/usr/share", O_RDONLY | O_DIRECTORY);
    free(memory);
    return works && table >= 0;
}

static void say(const char *what, const char *how)
{
    printf("%s: %s\n", what, how);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    cpu_set_t all;
    const id_t parent = (id_t)getppid();
    memset(&all, 0xff, sizeof all);
    if (argc != 2) return 2;
    at = argv[1];
    if (!can_work()) say("work", "it cannot");
#define TRY(what, anybody, attempt)                                                                                    \
    if ((attempt) >= 0)                                                                                                \
        say(what, "it could");                                                                                         \
    else if (anybody)                                                                                                  \
        say(what, "refused");                                                                                          \
    else                                                                                                               \
        say(what, "refused, or privileged");
    ATTEMPTS(TRY)
    say("done", "all");
    return 0;
}
