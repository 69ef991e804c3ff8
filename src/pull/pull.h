/* Pulling a model: what a reference names comes into the models folder, whole and checked, or not at all. Blocks on the
 * network and the disk; any thread, and several processes at once. */
#ifndef PULL_PULL_H
#define PULL_PULL_H

#include "pull/download.h"
#include "pull/folder.h"
#include "pull/reference.h"

#define PULL_ENDPOINT        "https://huggingface.co"
#define PULL_CONNECTIONS     4
#define PULL_CONNECTIONS_MAX 16

/* All strings are borrowed. */
struct pull_options {
    const char *folder;   /* the models folder */
    const char *name;     /* of the model; NULL: its first file's */
    const char *endpoint; /* of repositories */
    const char *token;    /* for that alone; NULL or "": none */
    bool allow_http;
    int connections;                                                /* for one file */
    int stall_seconds;                                              /* without a kilobyte a connection is given up */
    int retries;                                                    /* in a row, of a request that fails */
    bool (*report)(void *ud, const struct pull_progress *progress); /* may be NULL */
    void *ud;
};

/* Pulls a model, or finds that it is there already. `model` is what its manifest says; release it after HEARTH_OK. */
int pull_model(const struct pull_reference *reference, const struct pull_options *options, struct pull_model *model,
               hearth_error *error);

#endif
