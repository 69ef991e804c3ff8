/* Pulling a model: what a reference names comes into the models folder, whole and checked, or not at all. Blocks on the
 * network and the disk; any thread, and several processes at once. */
#ifndef PULL_PULL_H
#define PULL_PULL_H

#include "pull/download.h"
#include "pull/models_folder.h"
#include "pull/reference.h"

#define PULL_ENDPOINT        "https://huggingface.co"
#define PULL_CONNECTIONS     4
#define PULL_CONNECTIONS_MAX 16
#define PULL_STALL_SECONDS   30
#define PULL_RETRIES         5

/* All strings are borrowed. */
struct pull_options {
    const char *folder;                     /* the models folder */
    const char *name;                       /* of the model; NULL: its first file's */
    const struct pull_reference *projector; /* a URL or a file that comes with the model; NULL: a repository's own */
    const char *endpoint;                   /* of repositories */
    const char *token;                      /* for that alone; NULL or "": none */
    bool allow_http;
    bool public_only;  /* as struct pull_web has it */
    int connections;   /* for one file */
    int stall_seconds; /* without a kilobyte a connection is given up */
    int retries;       /* in a row, of a request that fails */
    /* All of these may be NULL. `accept` is called once the model's name is known, before anything is fetched; what it
     * returns in place of HEARTH_OK ends the pull. */
    int (*accept)(void *ud, const char *name, hearth_error *error);
    void (*report)(void *ud, const struct pull_progress *progress);
    /* Called once all is there, while nobody else may pull or remove the model; what it returns is the pull's end. */
    int (*use)(void *ud, const struct pull_model *model, hearth_error *error);
    bool (*is_cancelled)(void *ud); /* as struct pull_web has it */
    void *ud;
};

/* What holds where nobody says otherwise: endpoint and token are the environment's, HF_ENDPOINT and HF_TOKEN. */
struct pull_options pull_options_default(void);

/* Pulls a model, or finds that it is there already. `model` is what its manifest says; release it after HEARTH_OK. */
int pull_model(const struct pull_reference *reference, const struct pull_options *options, struct pull_model *model,
               hearth_error *error);

#endif
