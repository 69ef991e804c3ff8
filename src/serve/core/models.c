/* Models in lists: see models.h. */
#include "serve/core/models.h"

#include <string.h>

bool models_next(const hearth *instance, size_t *i, hearth_model_info *info)
{
    while (hearth_model(instance, *i, info)) {
        if (info->state != HEARTH_MODEL_REMOVED) return true;
        ++*i;
    }
    return false;
}

bool models_is_called(const hearth_model_info *info, const char *name)
{
    bool called = strcmp(info->name, name) == 0;
    for (size_t i = 0; !called && i < info->n_aliases; i++) called = strcmp(info->aliases[i], name) == 0;
    return called;
}
