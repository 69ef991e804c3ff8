/* Landlock and seccomp: see confine.h. Neither needs a library: rules and filter are tables here. The kernel's headers
 * may be older than the kernel, so that the numbers of Landlock stand here as well. */
#include "base/confine.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Files: Landlock ---- */

struct landlock_ruleset {
    uint64_t files, network, scopes;
};

struct landlock_beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));

enum { BENEATH = 1, ASK_VERSION = 1 };

#define EXECUTE   (UINT64_C(1) << 0)
#define READ_FILE (UINT64_C(1) << 2)
#define READ_DIR  (UINT64_C(1) << 3)

/* All that each version of Landlock can forbid: of files, of TCP, of signals and abstract sockets. */
static const struct {
    struct landlock_ruleset forbidden;
    size_t size;
} versions[] = {
    {{(UINT64_C(1) << 13) - 1, 0, 0}, 8},  /* 1 */
    {{(UINT64_C(1) << 14) - 1, 0, 0}, 8},  /* 2: moves between folders */
    {{(UINT64_C(1) << 15) - 1, 0, 0}, 8},  /* 3: truncate */
    {{(UINT64_C(1) << 15) - 1, 3, 0}, 16}, /* 4: TCP */
    {{(UINT64_C(1) << 16) - 1, 3, 0}, 16}, /* 5: ioctl of devices */
    {{(UINT64_C(1) << 16) - 1, 3, 3}, 24}, /* 6: signals, abstract sockets */
};

/* The files of programs: they, their libraries, fonts and tables. None of it is a user's. */
static const char *const readable[] = {
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix/store",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/sys/devices/system/cpu",
};

static int landlock_create(const struct landlock_ruleset *ruleset, size_t size, unsigned flags)
{
    return (int)syscall(SYS_landlock_create_ruleset, ruleset, size, flags);
}

/* A ruleset that forbids everything; -1: there is no Landlock. Safe after fork(). */
static int open_ruleset(void)
{
    int version = landlock_create(NULL, 0, ASK_VERSION), known = sizeof versions / sizeof *versions;
    if (version < 1) return -1;
    int i = (version < known ? version : known) - 1;
    return landlock_create(&versions[i].forbidden, versions[i].size, 0);
}

/* In the parent, so that the child only has to take it. */
static void allow_path(int ruleset, const char *path)
{
    struct stat facts;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return; /* then nobody can open it */
    if (fstat(fd, &facts) == 0) {
        uint64_t rights = EXECUTE | READ_FILE | (S_ISDIR(facts.st_mode) ? READ_DIR : 0);
        syscall(SYS_landlock_add_rule, ruleset, BENEATH, &(struct landlock_beneath){rights, fd}, 0);
    }
    close(fd);
}

/* A program elsewhere has its libraries beside its folder. */
static void allow_program(int ruleset, const char *program)
{
    char *path = realpath(program, NULL), *name = path == NULL ? NULL : strrchr(path, '/');
    if (name == NULL) return;
    allow_path(ruleset, path);
    *name = '\0';
    if (name - path >= 4 && strcmp(name - 4, "/bin") == 0) {
        char *libraries = mem_format("%.*slib", (int)(name - path) - 3, path);
        allow_path(ruleset, libraries);
        free(libraries);
    }
    free(path);
}

/* ---- Calls: seccomp ---- */

#if defined(__x86_64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define THIS_ARCHITECTURE AUDIT_ARCH_RISCV64
#else
#define THIS_ARCHITECTURE 0 /* not known: there is no filter */
#endif

/* The calls that decoding takes: memory, threads, time, reading. Calls that are not here fail with ENOSYS, for which
 * the C library has another way where there is one. */
static const uint32_t harmless[] = {
    SYS_read,
    SYS_write,
    SYS_futex,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_membarrier,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_preadv,
    SYS_lseek,
    SYS_close,
    SYS_close_range,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_fadvise64,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_statfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_getcpu,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrandom,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_uname,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
#ifdef __x86_64__
    SYS_arch_prctl,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_time,
#endif
};

/* Where the kernel's description of a call has the lower and the upper half of its nth argument. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOW(n)  (offsetof(struct seccomp_data, args) + 8 * (n))
#define HIGH(n) (LOW(n) + 4)
#else
#define HIGH(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define LOW(n)  (HIGH(n) + 4)
#endif

enum { MOST_VALUES = 6, ALL_BITS = -1, ITSELF = -2 /* as a value: the process */ };

#define OPENING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define SPACES                                                                                                         \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define NAME_MEMORY 0x53564d41 /* PR_SET_VMA */

/* Calls that depend on an argument. Its bits under the mask have to be one of the values, else the call fails with
 * `refusal`. Where a call has several rows, all hold. */
static const struct condition {
    uint32_t call, where;
    int32_t mask, values[MOST_VALUES];
    int n_values, refusal;
} conditions[] = {
    {SYS_openat, LOW(2), OPENING, {0}, 1, EACCES}, /* what cannot be written, and is there */
    {SYS_clone, LOW(0), CLONE_THREAD | SPACES, {CLONE_THREAD}, 1, EPERM},
    {SYS_kill, LOW(0), ALL_BITS, {ITSELF}, 1, EPERM},
    {SYS_tgkill, LOW(0), ALL_BITS, {ITSELF}, 1, EPERM},
    {SYS_ioctl, LOW(0), 0, {0}, 0, ENOTTY}, /* never */
    /* Neither to whom signals of a descriptor go, nor locks. */
    {SYS_fcntl, LOW(1), ALL_BITS, {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC}, 6, EPERM},
    /* Not whether it ends with the server. */
    {SYS_prctl, LOW(0), ALL_BITS, {PR_GET_NAME, PR_SET_NAME, NAME_MEMORY}, 3, EPERM},
    {SYS_prlimit64, LOW(0), ALL_BITS, {0}, 1, EPERM}, /* its own limits are asked for, and not changed */
    {SYS_prlimit64, LOW(2), ALL_BITS, {0}, 1, EPERM},
    {SYS_prlimit64, HIGH(2), ALL_BITS, {0}, 1, EPERM},
#ifdef __x86_64__
    {SYS_open, LOW(1), OPENING, {0}, 1, EACCES},
#endif
};

enum {
    N_HARMLESS = sizeof harmless / sizeof *harmless,
    N_CONDITIONS = sizeof conditions / sizeof *conditions,
    MOST_STEPS = 8 + 2 * N_HARMLESS + N_CONDITIONS * (6 + MOST_VALUES)
};

struct filter {
    struct sock_filter steps[MOST_STEPS];
    unsigned short n;
};

static void step(struct filter *filter, uint16_t code, uint32_t value, uint8_t if_true, uint8_t if_false)
{
    filter->steps[filter->n++] = (struct sock_filter){code, if_true, if_false, value};
}

static void load(struct filter *filter, uint32_t where)
{
    step(filter, BPF_LD | BPF_W | BPF_ABS, where, 0, 0);
}

static void skip_unless(struct filter *filter, uint32_t value, uint8_t steps)
{
    step(filter, BPF_JMP | BPF_JEQ | BPF_K, value, 0, steps);
}

static void answer(struct filter *filter, uint32_t with)
{
    step(filter, BPF_RET | BPF_K, with, 0, 0);
}

/* Behind it the call's number is loaded, as before it. */
static void add_condition(struct filter *filter, const struct condition *one, uint32_t own_id)
{
    uint8_t left = (uint8_t)one->n_values;
    skip_unless(filter, one->call, (uint8_t)(one->n_values + 4));
    load(filter, one->where);
    step(filter, BPF_ALU | BPF_AND | BPF_K, (uint32_t)one->mask, 0, 0);
    for (int i = 0; i < one->n_values; i++, left--) {
        uint32_t value = one->values[i] == ITSELF ? own_id : (uint32_t)one->values[i];
        step(filter, BPF_JMP | BPF_JEQ | BPF_K, value, left, 0);
    }
    answer(filter, SECCOMP_RET_ERRNO | (uint32_t)one->refusal);
    load(filter, offsetof(struct seccomp_data, nr));
}

/* Safe after fork(): it only writes to the stack. */
static void make_filter(struct filter *filter, uint32_t own_id)
{
    load(filter, offsetof(struct seccomp_data, arch));
    step(filter, BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 1, 0);
    answer(filter, SECCOMP_RET_KILL_PROCESS);
    load(filter, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_HARMLESS; i++) {
        skip_unless(filter, harmless[i], 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
    for (int i = 0; i < N_CONDITIONS; i++) add_condition(filter, &conditions[i], own_id);
    for (int i = 0; i < N_CONDITIONS; i++) {
        skip_unless(filter, conditions[i].call, 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
    answer(filter, SECCOMP_RET_ERRNO | ENOSYS);
}

/* Through prctl(), which services are allowed that are not allowed seccomp(). */
static bool limit_calls(void)
{
    struct filter filter = {.n = 0};
    make_filter(&filter, (uint32_t)getpid());
    const struct sock_fprog program = {.len = filter.n, .filter = filter.steps};
    return THIS_ARCHITECTURE != 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool limit_files(int ruleset)
{
    return ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
}

/* ---- What there is ---- */

static bool try_files(void)
{
    return limit_files(open_ruleset());
}

/* Whether a child can do it. A service's own filter may end who tries. */
static bool can(bool (*attempt)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(attempt() ? 0 : 1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static struct confine_means found;

static void find(void)
{
    found = (struct confine_means){.files = can(try_files), .calls = can(limit_calls)};
}

struct confine_means confine_means(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return found;
}

const char *confine_lacks(void)
{
    struct confine_means means = confine_means();
    if (!means.files) return means.calls ? "no Landlock" : "neither Landlock nor seccomp";
    return means.calls ? NULL : "no seccomp";
}

/* ---- A program ---- */

int confine_prepare(const char *program)
{
    if (!confine_means().files) return -1;
    int ruleset = open_ruleset();
    for (size_t i = 0; ruleset >= 0 && i < sizeof readable / sizeof *readable; i++) allow_path(ruleset, readable[i]);
    if (ruleset >= 0) allow_program(ruleset, program);
    return ruleset;
}

bool confine_self(const struct confine_means *means, int files)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (!means->files || limit_files(files)) && (!means->calls || limit_calls());
}
