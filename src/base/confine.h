/* Confines a process that is about to run a program of the machine. It has no network, reaches no other process, and
 * can open no files but those that programs are made of, which it cannot change. Two parts of Linux do that
 * (os_confine_linux.c): Landlock says which files can be opened, a filter of system calls (seccomp) leaves those alone
 * that decoding takes. On other systems there are no means (os_bsd.c).
 *
 * A process gives up both for itself, without privileges, where namespaces are forbidden too, as they are to a service
 * under systemd's RestrictNamespaces=. */
#ifndef BASE_CONFINE_H
#define BASE_CONFINE_H

#include <stdbool.h>

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
