/* The models folder. Each model that was pulled has a folder with its files, a manifest and a lock. The manifest is
 * written once all files are whole; a pull or a removal holds the lock. Models without a manifest are not there yet.
 * Beside them lies a file for each preset, with what it was made of.
 *
 *     MODELS/NAME/manifest.json, lock, FILE.gguf...; while it is pulled FILE.gguf.part, FILE.gguf.journal
 *     MODELS/NAME.preset.json
 *
 * Blocks on the disk. A struct pull_place belongs to one thread; several processes may use the folder at once. Of each,
 * one thread at a time writes presets: a file is written whole or not at all. */
#ifndef PULL_MODELS_FOLDER_H
#define PULL_MODELS_FOLDER_H

#include "hearth.h"

#include <stdbool.h>
#include <sys/types.h>

#define PULL_MANIFEST "manifest.json"
#define PULL_LOCK     "lock"

/* A file of a model. */
struct pull_stored {
    char *name;
    int64_t size;
    char sha[65]; /* hexadecimal */
    char *etag;   /* of where it came from; NULL: it had none */
    bool is_projector;
};

struct pull_model {
    char *name;
    char *reference;           /* as struct pull_reference has it */
    char *path;                /* of the first file in its repository; NULL: it comes from elsewhere */
    int64_t pulled_ms;         /* when its files came, the last of them */
    struct pull_stored *files; /* the weights' first, or only, file is the first */
    size_t n_files;
    bool changed; /* by the pull that it comes from: not all of it was there */
};

void pull_model_release(struct pull_model *model);
void pull_model_add_file(struct pull_model *model, const struct pull_stored *file); /* takes its strings */
int64_t pull_model_bytes(const struct pull_model *model);

/* Creates a folder, and those that it lies in; 0, or -1 with errno. Any thread. */
int pull_make_folders(const char *path, mode_t mode);

/* The path of a user's own: `name` ("", "/models") in the folder hearth of that which a variable names (XDG_DATA_HOME),
 * or of ~/`default_folder`. NULL: no home folder is known. The caller frees it. */
char *pull_user_path(const char *variable, const char *default_folder, const char *name);

/* Where pulled models are: `configured`, else HEARTH_MODELS, else hearth/models in XDG_DATA_HOME or ~/.local/share.
 * NULL: no home folder is known. The caller frees it. */
char *pull_folder_path(const char *configured);

/* The path of a file of a model; the caller frees it. */
char *pull_file_path(const char *folder, const char *model, const char *file);

/* Calls `each` for every model, in the order of their names. Calls `fault` (may be NULL) in its place where the
 * manifest cannot be read, the files are not those that it lists, or a pull or removal was interrupted. HEARTH_IO: the
 * folder cannot be read. One that is not there has no models. */
struct pull_visitor {
    void (*each)(void *ud, const struct pull_model *model);
    void (*fault)(void *ud, const char *name, const char *why);
    void *ud;
};
int pull_folder_list(const char *folder, const struct pull_visitor *visitor, hearth_error *error);

/* The model of that name, or pulled by that reference. HEARTH_NOT_FOUND: there is none. Release it after HEARTH_OK. */
int pull_folder_find(const char *folder, const char *name, const char *reference, struct pull_model *model,
                     hearth_error *error);

/* Removes the files that the model's manifest names, and what an interrupted pull or removal left. HEARTH_BUSY while it
 * is pulled. */
int pull_folder_remove(const char *folder, const char *name, hearth_error *error);

/* ---- One model's folder, locked ---- */

struct pull_place {
    char *path;
    int fd;   /* of the folder */
    int lock; /* held until pull_place_close() */
};

/* Creates the folders that are missing. HEARTH_BUSY: another process has the lock. */
int pull_place_open(const char *folder, const char *name, struct pull_place *place, hearth_error *error);
void pull_place_close(struct pull_place *place);

/* The same of a folder that is there already. HEARTH_NOT_FOUND: there is none. */
int pull_place_find(const char *folder, const char *name, struct pull_place *place, hearth_error *error);

/* The same after a pull that has failed: a folder in which nothing was left goes, too. */
void pull_place_abandon(struct pull_place *place);

/* HEARTH_NOT_FOUND: it has no manifest. `prepared`: the model that was prepared and never listed, since the pull was
 * interrupted, or whose removal was. */
int pull_place_read(const struct pull_place *place, const char *name, bool prepared, struct pull_model *model,
                    hearth_error *error);

/* Takes the manifest away, so that the model is not there, whatever becomes of its files. */
int pull_place_unlist(const struct pull_place *place, hearth_error *error);

/* Writes the manifest under another name, so that nothing but to rename files is left to do. */
int pull_place_prepare(const struct pull_place *place, const struct pull_model *model, hearth_error *error);

/* Gives the manifest that was prepared its name, so that the model is there. */
int pull_place_list(const struct pull_place *place, hearth_error *error);

/* As pull_folder_remove(); the place is closed then. */
int pull_place_remove(struct pull_place *place, const char *name, hearth_error *error);

/* ---- Presets ---- */

/* HEARTH_INVALID: no file can have the name; HEARTH_IO: it cannot be written. */
int pull_preset_write(const char *folder, const char *name, const char *json, hearth_error *error);

/* Its text, to be freed. NULL: HEARTH_NOT_FOUND: there is none; HEARTH_IO: it cannot be read. */
char *pull_preset_read(const char *folder, const char *name, hearth_error *error);

/* HEARTH_NOT_FOUND: there is none; HEARTH_IO: it cannot be removed. */
int pull_preset_remove(const char *folder, const char *name, hearth_error *error);

/* Calls `each` with every preset's name and text, in the order of the names; `fault` for a file that cannot be read.
 * HEARTH_IO: the folder cannot be read. One that is not there has none. */
struct pull_preset_visitor {
    void (*each)(void *ud, const char *name, const char *json);
    void (*fault)(void *ud, const char *name, const char *why);
    void *ud;
};
int pull_presets_list(const char *folder, const struct pull_preset_visitor *visitor, hearth_error *error);

#endif
