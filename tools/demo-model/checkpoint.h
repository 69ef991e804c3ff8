/* The state of a training in a file, so that it can be interrupted. One thread; the file is replaced only by a complete
 * one. */
#ifndef DEMO_CHECKPOINT_H
#define DEMO_CHECKPOINT_H

#include "trainer.h"

int checkpoint_save(const struct trainer *trainer, const char *path, hearth_error *error);

/* Resumes the training of the file. HEARTH_NOT_FOUND: there is none; HEARTH_INVALID: it is of another plan, or damaged.
 */
int checkpoint_load(struct trainer *trainer, const char *path, hearth_error *error);

#endif
