/* What hearth.h says of a model: its facts, its state, and the sampling that its requests begin with. Any thread. */
#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

bool hearth_model(const hearth *instance, size_t index, hearth_model_info *out)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    struct model_entry *entry = &instance->entries[index];
    *out = entry->facts.info;
    out->created_ms = atomic_load(&entry->created_ms);
    out->created = out->created_ms / 1000;
    out->state = manager_state(entry);
    out->idle_left = manager_idle_left(entry);
    return true;
}

bool hearth_model_sampling(const hearth *instance, size_t index, hearth_sampling *sampling)
{
    if (index >= atomic_load(&instance->n_entries)) return false;
    *sampling = instance->entries[index].facts.defaults->sampling;
    return true;
}
