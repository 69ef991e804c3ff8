/* Runs a program of the machine on an upload: what decodes PDF or video is large and has faults, so it runs as a
 * process of its own, with nothing but the bytes, for a limited time, in limited memory. Blocks; any thread. */
#ifndef MEDIA_CHILD_H
#define MEDIA_CHILD_H

#include "base/buf.h"
#include "media/media.h"

struct media_program {
    const char *name;        /* looked for in PATH */
    const char *package;     /* that brings it, for the error where it is missing */
    const char *const *args; /* after the name, NULL at the end; the upload is the file MEDIA_CHILD_INPUT */
    int seconds;             /* that it may take */
    size_t most_memory;      /* bytes */
    size_t most_output;      /* bytes: a program that writes more is ended */
};

/* The upload's name for the program: readable, seekable, and gone with it. */
#define MEDIA_CHILD_INPUT "/proc/self/fd/0"

/* Appends what the program writes. HEARTH_UNSUPPORTED: it is not installed; HEARTH_TOO_LONG: it took more than it may;
 * HEARTH_INVALID: it failed, so that the upload is damaged. */
int media_child_run(const struct media_program *program, const struct media_bytes *upload, struct buf *output,
                    hearth_error *error);

#endif
