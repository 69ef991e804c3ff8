/* hearth_lora_list() and hearth_lora_set(): the default scales of a model's adapters. Any thread. */
#include "lib/models/adapters.h"
#include "lib/models/model_names.h"

int32_t hearth_lora_list(const hearth *instance, const char *model, hearth_adapter *out, size_t max,
                         hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct model_entry *entry = instance_find_model(instance, model, error);
    return entry == NULL ? (int32_t)error->code : (int32_t)adapters_defaults(entry->adapters, out, max);
}

int hearth_lora_set(hearth *instance, const char *model, const hearth_lora *lora, size_t n, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct model_entry *entry = instance_find_model(instance, model, error);
    return entry == NULL ? (int)error->code : adapters_set_defaults(entry->adapters, lora, n, error);
}
