/* Runs a program of the machine on an upload. Decoders of PDF and video are large and have faults. So each runs as a
 * process of its own, with nothing but the bytes, for a limited time, in limited memory. Blocks; any thread. */
#ifndef MEDIA_CHILD_H
#define MEDIA_CHILD_H

#include "media/media.h"

#include <stdbool.h>

struct media_program {
    const char *name;        /* looked for in PATH */
    const char *package;     /* that brings it, for the error where it is missing */
    const char *const *args; /* after the name, NULL at the end; the upload is the file MEDIA_CHILD_INPUT */
    int seconds;             /* that it may take */
    size_t most_memory;      /* bytes */
    size_t most_output;      /* bytes: a program that writes more is ended */
    const char *output_key;  /* what raises that; NULL: nothing does */
    bool unconfined;         /* it is run where the kernel cannot confine it as well */
    const struct media_stop *stop;
};

/* Takes the program's output, as it comes. */
struct media_sink {
    void (*take)(void *ud, const char *bytes, size_t n);
    void *ud;
};

/* The upload's name for the program: readable, seekable, and gone with it. */
#define MEDIA_CHILD_INPUT "/proc/self/fd/0"

/* Whether PATH has it, and it can be confined or need not be. */
bool media_child_can_run(const struct media_program *program);

/* Gives what the program writes to the sink. HEARTH_UNSUPPORTED: it is not installed, or not to be run here.
 * HEARTH_TOO_LONG: it took more than it may. HEARTH_INVALID: it failed, so that the upload is damaged.
 * HEARTH_CANCELLED: it was stopped. */
int media_child_run(const struct media_program *program, const struct media_bytes *upload,
                    const struct media_sink *sink, hearth_error *error);

/* ---- Confinement (confine.c) ----
 * Confines a process that is about to run a program of the machine. It has no network, reaches no other process, and
 * can open no files but those that programs are made of, which it cannot change. Two parts of the kernel do that:
 * Landlock says which files can be opened, a filter of system calls (seccomp) leaves those alone that decoding takes.
 *
 * A process gives up both for itself, without privileges, where namespaces are forbidden too, as they are to a service
 * under systemd's RestrictNamespaces=. */

/* The means of this kernel. */
struct confine_means {
    bool files; /* Landlock */
    bool calls; /* the filter */
};

/* Tried once, in children that end at once; later calls answer the same. Any thread. */
struct confine_means confine_means(void);

/* The means that are missing, as "no Landlock", for an error; NULL: nothing. */
const char *confine_lacks(void);

/* Before fork(): a descriptor for the child, where there is Landlock, of the files that this program may open; -1:
 * none. The caller closes it. */
int confine_prepare(const char *program);

/* In the child, before it becomes the program: only calls that are safe after fork(). Does all that `means` has; false:
 * one of them failed, and the program must not be run. */
bool confine_self(const struct confine_means *means, int files);

#endif
