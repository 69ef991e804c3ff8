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

bool models_find(const hearth *instance, const char *name, hearth_model_info *info)
{
    for (size_t i = 0; models_next(instance, &i, info); i++)
        if (strcmp(info->name, name) == 0) return true;
    return false;
}

bool models_next_preset(const hearth *instance, size_t *i, hearth_model_info *info, const hearth_preset **preset)
{
    hearth_error error;
    for (; (*preset = hearth_preset_at(instance, *i)) != NULL; ++*i) {
        int32_t index = hearth_find_model(instance, (*preset)->model, &error);
        const hearth_preset *named = hearth_find_preset(instance, (*preset)->name);
        /* Another model may answer for one that is not there, or have the preset's name. */
        bool found = named != NULL && index >= 0 && hearth_model(instance, (size_t)index, info) &&
                     models_is_called(info, (*preset)->model);
        hearth_release_preset(named);
        if (found) {
            info->name = (*preset)->name;
            info->n_aliases = 0;
            return true;
        }
        hearth_release_preset(*preset);
    }
    return false;
}

bool models_is_called(const hearth_model_info *info, const char *name)
{
    bool called = strcmp(info->name, name) == 0;
    for (size_t i = 0; !called && i < info->n_aliases; i++) called = strcmp(info->aliases[i], name) == 0;
    return called;
}
