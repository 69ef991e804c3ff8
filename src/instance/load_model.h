/* Opens and closes one model with all its parts: weights, adapters, chat template, engine or pool, projector, and the
 * threads that prepare its requests. The model manager (model_manager.h) calls model_open() and model_close() on the
 * thread that loads; the others are steps of hearth_drain(), called after manager_stop(). */
#ifndef INSTANCE_LOAD_MODEL_H
#define INSTANCE_LOAD_MODEL_H

#include "instance/models/model_manager.h"

/* NULL with `error` set where a part cannot be opened. Beside it the file's digest is computed, which the states that
 * it stores are named after. */
struct model *model_open(struct hearth *instance, struct model_entry *entry, struct model_progress *progress,
                         hearth_error *error);

/* Stores what is resident. NULL is fine. */
void model_close(struct model *model);

/* Fails requests that wait for admission, cancels those that are being prepared, and refuses later ones. */
void model_stop_admission(struct model *model);

/* Waits for those in slots, until the clock's `deadline` (nanoseconds), at which they are cut off. */
void model_drain(struct model *model, int64_t deadline);

#endif
