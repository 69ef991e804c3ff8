/* The work of the thread of a pull or of a removal, from the models folder to the instance and back; and the names that
 * requests may give there. Blocks on network and disk; any thread, several at once. */
#ifndef SERVE_PULLS_WORK_H
#define SERVE_PULLS_WORK_H

#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>

/* Where models come to and go from. */
struct pulls_place {
    hearth *instance;
    const hearth_config *config;                   /* as the server was started with it */
    bool (*is_pulled)(void *ud, const char *name); /* as struct serve_options has it; NULL: none is */
    void *ud;
};

enum pulls_step {
    PULLS_LISTING,  /* which files the reference means */
    PULLS_FETCHING, /* a file */
    PULLS_CHECKING, /* that file */
    PULLS_SERVING   /* all are there */
};

/* How far a pull is. */
struct pulls_news {
    enum pulls_step step;
    char file[256];                    /* "" where the step is of no file */
    char digest[2 * SHA256_BYTES + 1]; /* of the file, as its source says; "": it does not */
    int64_t done, total;               /* bytes; total -1: not known */
};

struct pulls_work {
    const struct pulls_place *place;
    const char *subject; /* a reference; the name of a model */
    bool insecure;       /* http without encryption is allowed beyond this machine */
    void (*on_news)(void *ud, const struct pulls_news *news);
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* HEARTH_OK: the model was pulled and is served; the caller frees *name. */
int work_pull(const struct pulls_work *work, char **name, hearth_error *error);

/* HEARTH_OK: a pulled model is neither served nor in the models folder any more. */
int work_remove(const struct pulls_work *work, hearth_error *error);

#endif
