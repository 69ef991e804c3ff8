/* Pulling a model: the files that a reference names come into the models folder, whole and checked, or not at all.
 * Blocks on the network and the disk; any thread, and several processes at once. */
#ifndef PULL_PULL_H
#define PULL_PULL_H

#include "hearth.h"
#include "pull/download.h"
#include "pull/models_folder.h"

#include <stdbool.h>

/* ---- References ----
 * A reference names a model to pull. It is hf:OWNER/REPO[:QUANT] (or hf.co/OWNER/REPO[:QUANT], as Ollama's clients
 * write it), a URL, a file, or a short name that a file maps to one of these. That file is read, and the path of a file
 * made absolute. */

enum pull_kind { PULL_REPOSITORY, PULL_URL, PULL_FILE };

struct pull_reference {
    enum pull_kind kind;
    char *text;         /* the reference: of a short name the one it stands for, of a URL without its query */
    char *owner, *repo; /* of a repository */
    char *quant;        /* of a repository: "Q4_K_M", or a file's name; NULL: not said */
    char *place;        /* URL or path; NULL: of a repository */
    char *short_name;   /* without ":latest"; NULL: it was named otherwise */
};

/* Reads a reference. `names` is the file of short names, which need not exist. HEARTH_INVALID, or HEARTH_NOT_FOUND for
 * a short name that is unknown, with what to write instead. Release it in either case. */
int pull_reference_read(const char *text, const char *names, struct pull_reference *reference, hearth_error *error);

/* Whether the text can name nothing but a file of this machine. Looks at the text alone. */
bool pull_reference_is_path(const char *text);
void pull_reference_release(struct pull_reference *reference);

/* The file of short names: HEARTH_NAMES, else hearth/names in XDG_CONFIG_HOME or ~/.config. NULL: no home folder is
 * known. The caller frees it. */
char *pull_names_path(void);

/* ---- Pulls ---- */

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
    /* All of these may be NULL. `accept` is called once the model's name is known, before any file is fetched; a result
     * other than HEARTH_OK ends the pull. */
    int (*accept)(void *ud, const char *name, hearth_error *error);
    void (*report)(void *ud, const struct pull_progress *progress);
    /* Called once all is there, while no other may pull or remove the model; its result is the pull's. */
    int (*use)(void *ud, const struct pull_model *model, hearth_error *error);
    bool (*is_cancelled)(void *ud); /* as struct pull_web has it */
    void *ud;
};

/* The defaults: endpoint and token are the environment's, HF_ENDPOINT and HF_TOKEN. */
struct pull_options pull_options_default(void);

/* Pulls a model, or finds that it is there already. `model` is what its manifest says; release it after HEARTH_OK. */
int pull_model(const struct pull_reference *reference, const struct pull_options *options, struct pull_model *model,
               hearth_error *error);

/* Looks up the files of a model that is not pulled yet, and fetches the headers of its weights alone: at most 256 MiB
 * in a minute. That is enough to tell whether it fits. `use` finds them in `folder`, laid out like a models folder,
 * under their names and with their true sizes, but without their bytes; pull_declare() takes it. The folder is gone
 * once `use` has returned, whose result is the call's. The reference is no file of this machine. Of the options
 * `folder`, `accept`, `report` and `use` are not looked at. Beside the errors of a pull: HEARTH_IO where no header
 * comes within these bounds. */
int pull_preview(const struct pull_reference *reference, const struct pull_options *options,
                 int (*use)(void *ud, const char *folder, const struct pull_model *model, hearth_error *error),
                 void *ud, hearth_error *error);

#endif
