/* The machine's files with a gate before every sync, and optionally before every read: a disk that is slow for as long
 * as a test wants. And with a callback after every call that changes a folder. */
#ifndef FAKES_GATED_FILES_H
#define FAKES_GATED_FILES_H

#include "base/files.h"

#include <pthread.h>
#include <stdbool.h>

struct gated_files {
    struct files files; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closed, reads_too;
    int waiting; /* calls at the gate */
    int synced;
    void (*look)(void *ud); /* NULL: none */
    void *ud;
};

void gated_files_init(struct gated_files *gated);
void gate_close(struct gated_files *gated);
void gate_open(struct gated_files *gated);
void gate_await(struct gated_files *gated); /* waits until a call is at the closed gate */

#endif
