/* Presets: names (a tag ":latest" is ignored) for a model with a system message and sampling parameters of their own,
 * which hold where a request says nothing else. A request has a reference to the preset that it was submitted under, so
 * that one may be replaced or removed at any time. Any thread; the lock is held for copies and comparisons alone. */
#ifndef LIB_MODELS_PRESETS_H
#define LIB_MODELS_PRESETS_H

#include "hearth.h"

#include "base/buf.h"

struct presets;

struct presets *presets_open(void);
void presets_close(struct presets *presets);

/* Adds a copy, or replaces the one of that name. HEARTH_BUSY: there are too many. */
int presets_set(struct presets *presets, const hearth_preset *preset, hearth_error *error);
bool presets_remove(struct presets *presets, const char *name); /* false: there is none */

/* A reference to the preset of that name, immutable; NULL: there is none. */
const hearth_preset *presets_find(struct presets *presets, const char *name);
void preset_unref(const hearth_preset *preset); /* NULL is fine */

/* A reference to the i-th, in the order of their names; NULL: there are fewer. */
const hearth_preset *presets_at(struct presets *presets, size_t i);

#endif
