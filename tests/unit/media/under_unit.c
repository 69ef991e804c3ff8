/* Runs a program as the service that hearth installs would run it, as far as that is a matter of system calls:
 *
 *     hearth-under-unit packaging/hearth.service.in PROGRAM ARGUMENT...
 *
 * Of the unit it reads SystemCallFilter=, whose sets systemd-analyze spells, RestrictNamespaces=,
 * RestrictAddressFamilies=, NoNewPrivileges= and SystemCallErrorNumber=, and makes the filters that systemd makes of
 * them. */
#include "base/memory.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
#define CALL(name, number)                                                                                             \
    {                                                                                                                  \
        name, number                                                                                                   \
    }
#include "syscalls.inc" /* made by CMakeLists.txt */
};

static struct sock_filter *steps;
static unsigned short n_steps;

static void step(int code, unsigned value, int if_true, int if_false)
{
    steps = mem_grow(steps, n_steps + 1U, sizeof *steps);
    steps[n_steps++] =
        (struct sock_filter){(unsigned short)code, (unsigned char)if_true, (unsigned char)if_false, value};
}

static void skip_unless(unsigned value, int n)
{
    step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n);
}

static void answer(unsigned with)
{
    step(BPF_RET | BPF_K, with, 0, 0);
}

static void load(size_t where)
{
    step(BPF_LD | BPF_W | BPF_ABS, (unsigned)where, 0, 0);
}

static void install(void)
{
    const struct sock_fprog program = {n_steps, steps};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        exit(1);
    }
    n_steps = 0;
}

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "%s%s\n", what, which);
    exit(1);
}

/* ---- SystemCallFilter= ---- */

static void allow_word(const char *word);

static void allow_set(const char *set)
{
    char *command = mem_format("systemd-analyze syscall-filter '%s'", set), line[256], word[200];
    FILE *out = popen(command, "re");
    size_t n = 0;
    while (out != NULL && fgets(line, sizeof line, out) != NULL) {
        if (line[0] != ' ' || sscanf(line, "%199s", word) != 1 || word[0] == '#') continue;
        n++;
        allow_word(word);
    }
    if (out == NULL || pclose(out) != 0 || n == 0) fail("systemd-analyze does not know ", set);
    free(command);
}

/* Names that this processor does not have are skipped, as systemd skips them. */
static void allow_word(const char *word)
{
    if (word[0] == '@') allow_set(word);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, word) != 0) continue;
        skip_unless(calls[i].number, 1);
        answer(SECCOMP_RET_ALLOW);
    }
}

/* execve() is what systemd itself needs, so that it adds it. */
static void filter_calls(char *words)
{
    load(offsetof(struct seccomp_data, nr));
    allow_word("execve");
    for (char *rest = words, *word; (word = strtok_r(rest, " \n", &rest)) != NULL;) allow_word(word);
    answer(SECCOMP_RET_ERRNO | EPERM);
    install();
}

/* ---- RestrictNamespaces=yes ---- */

#define SPACES                                                                                                         \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static void refuse_spaces(unsigned call)
{
    skip_unless(call, 3);
    load(offsetof(struct seccomp_data, args));
    step(BPF_JMP | BPF_JSET | BPF_K, SPACES, 0, 1);
    answer(SECCOMP_RET_ERRNO | EPERM);
    load(offsetof(struct seccomp_data, nr));
}

static void filter_namespaces(char *value)
{
    if (strncmp(value, "yes", 3) != 0) fail("not known here: RestrictNamespaces=", value);
    load(offsetof(struct seccomp_data, nr));
    skip_unless(SYS_clone3, 1);
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    skip_unless(SYS_setns, 1);
    answer(SECCOMP_RET_ERRNO | EPERM);
    refuse_spaces(SYS_unshare);
    refuse_spaces(SYS_clone);
    answer(SECCOMP_RET_ALLOW);
    install();
}

/* ---- RestrictAddressFamilies= ---- */

static void filter_families(char *words)
{
    static const struct {
        const char *name;
        unsigned number;
    } families[] = {{"AF_INET", AF_INET}, {"AF_INET6", AF_INET6}, {"AF_UNIX", AF_UNIX}};
    load(offsetof(struct seccomp_data, nr));
    step(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0);
    answer(SECCOMP_RET_ALLOW);
    load(offsetof(struct seccomp_data, args));
    for (char *rest = words, *word; (word = strtok_r(rest, " \n", &rest)) != NULL;) {
        size_t i = 0;
        while (i < sizeof families / sizeof *families && strcmp(families[i].name, word) != 0) i++;
        if (i == sizeof families / sizeof *families) fail("not known here: ", word);
        skip_unless(families[i].number, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
    install();
}

/* ---- The unit ---- */

/* The value of a key, which is allocated. */
static char *find(const char *unit, const char *key)
{
    char line[4096], *value = NULL;
    FILE *file = fopen(unit, "re");
    if (file == NULL) fail("cannot be read: ", unit);
    while (value == NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) value = mem_strdup(line + strlen(key));
    fclose(file);
    if (value == NULL) fail("the unit lacks ", key);
    return value;
}

int main(int argc, char **argv)
{
    if (argc < 3) fail("UNIT PROGRAM ARGUMENT...", "");
    free(find(argv[1], "NoNewPrivileges=yes"));
    free(find(argv[1], "SystemCallErrorNumber=EPERM"));
    char *call_words = find(argv[1], "SystemCallFilter="), *families = find(argv[1], "RestrictAddressFamilies=");
    char *namespaces = find(argv[1], "RestrictNamespaces=");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    filter_families(families);
    filter_namespaces(namespaces);
    filter_calls(call_words);
    setenv("HEARTH_UNDER_UNIT", "1", 1);
    execv(argv[2], argv + 2);
    fail("cannot be run: ", argv[2]);
}
