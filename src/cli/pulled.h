/* Models of the models folder (pull/folder.h) in a configuration. Main thread only. */
#ifndef CLI_PULLED_H
#define CLI_PULLED_H

#include "hearth.h"
#include "pull/folder.h"

/* The models folder of a configuration; the caller frees it. NULL, with an error: no home folder is known. */
char *pulled_folder(const hearth_config *config, hearth_error *error);

/* Whether a model of that name was pulled; release `model` then. */
bool pulled_find(const hearth_config *config, const char *name, struct pull_model *model);

/* Declares a pulled model in the configuration, with its projector. */
int pulled_declare(hearth_config *config, const struct pull_model *model, hearth_error *error);

/* Declares all of them, each to be loaded on demand. One that is configured stays as it is; of one that has a section
 * without a path, that is used. One that is not whole is left out, with a line in the log, and so are all of a folder
 * that cannot be read: what is configured is served all the same. */
void pulled_declare_all(hearth_config *config);

#endif
