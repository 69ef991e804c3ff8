/* What names a model to pull: hf:OWNER/REPO[:QUANT] (or hf.co/OWNER/REPO[:QUANT], as Ollama's clients write it), a URL,
 * a file, or a short name that a file maps to one of these.
 * Any thread; that file is read, and the path of a file made absolute. */
#ifndef PULL_REFERENCE_H
#define PULL_REFERENCE_H

#include "hearth.h"

#include <stdbool.h>

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

#endif
