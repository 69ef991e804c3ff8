/* Presets in the models folder: a file each, MODELS/NAME.preset.json, with what it was made of. Blocks on the disk;
 * several processes at once, of each one thread at a time that writes: a file is written whole or not at all. */
#ifndef PULL_PRESET_FILES_H
#define PULL_PRESET_FILES_H

#include "hearth.h"

#include <stdbool.h>

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
