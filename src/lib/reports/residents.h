/* What the engines of all models have in slots and KV cells. Any thread. */
#ifndef LIB_REPORTS_RESIDENTS_H
#define LIB_REPORTS_RESIDENTS_H

#include "engine/engine.h"
#include "hearth.h"

/* Where the idle conversations in the KV cells of all models end in the store: fills up to `max`, returns how many
 * there are. */
size_t instance_stored_marks(const hearth *instance, struct stored_mark *marks, size_t max);

#endif
