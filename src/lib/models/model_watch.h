/* The watch of a model's files: of all that its states depend on by way of a digest. They are the parts of the model,
 * its adapters and its projector. No state; the thread that loads the model. */
#ifndef LIB_MODELS_MODEL_WATCH_H
#define LIB_MODELS_MODEL_WATCH_H

#include "base/file_watch.h"
#include "config/config.h"

/* Opened before any of the files is read. What is wrong with one is told when it is loaded. `report` and `ud` as in
 * file_watch.h. */
struct file_watch *model_watch_open(const struct config_model *config, void (*report)(void *ud, const char *reason),
                                    void *ud, hearth_error *error);

#endif
