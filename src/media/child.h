/* Runs a program of the machine on an upload. Decoders of PDF and video are large and have faults. So each runs as a
 * process of its own, with nothing but the bytes, for a limited time, in limited memory. Blocks; any thread. */
#ifndef MEDIA_CHILD_H
#define MEDIA_CHILD_H

#include "base/os.h"
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
#define MEDIA_CHILD_INPUT OS_STANDARD_INPUT

/* Whether PATH has it, and it can be confined or need not be. */
bool media_child_can_run(const struct media_program *program);

/* Gives what the program writes to the sink. HEARTH_UNSUPPORTED: it is not installed, or not to be run here.
 * HEARTH_TOO_LONG: it took more than it may. HEARTH_INVALID: it failed, so that the upload is damaged.
 * HEARTH_CANCELLED: it was stopped. */
int media_child_run(const struct media_program *program, const struct media_bytes *upload,
                    const struct media_sink *sink, hearth_error *error);

#endif
