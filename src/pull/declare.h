/* Models of the models folder (models_folder.h) as models of a configuration. Blocks on the disk. A configuration is
 * changed by one thread at a time. */
#ifndef PULL_DECLARE_H
#define PULL_DECLARE_H

#include "hearth.h"
#include "pull/models_folder.h"

/* The models folder of a configuration; the caller frees it. NULL, with an error: no home folder is known. */
char *pull_folder_of(const hearth_config *config, hearth_error *error);

/* Whether a model of that name was pulled; release `model` then. */
bool pull_find_named(const hearth_config *config, const char *name, struct pull_model *model);

/* The declared model that has this name or alias; NULL: none. */
const char *pull_find_declared(const hearth_config *config, const char *name);

/* Declares a pulled model, with its projector. */
int pull_declare(hearth_config *config, const char *folder, const struct pull_model *model, hearth_error *error);

/* The same as a server declares one that nobody has configured: loaded on demand, and left out where its file cannot be
 * read. */
int pull_declare_on_demand(hearth_config *config, const char *folder, const struct pull_model *model,
                           hearth_error *error);

/* Declares all of them on demand. One that is configured stays as it is; of one that has a section without a path, that
 * is used. One that is not whole, or whose name is an alias of another, is left out, with a line in the log. So are all
 * of a folder that cannot be read. Configured models are served all the same. `declared` is called with the names of
 * those that nobody has configured. */
void pull_declare_all(hearth_config *config, void (*declared)(void *ud, const char *name), void *ud);

#endif
