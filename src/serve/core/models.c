/* Models in lists: see models.h. */
#include "serve/core/models.h"

bool models_next(const hearth *instance, size_t *i, hearth_model_info *info)
{
    while (hearth_model(instance, *i, info)) {
        if (info->state != HEARTH_MODEL_REMOVED) return true;
        ++*i;
    }
    return false;
}
