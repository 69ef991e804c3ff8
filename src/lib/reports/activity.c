/* Activities of models: see activity.h, hearth_activities(). A model is kept in memory while its queue is asked. */
#include "lib/reports/activity.h"

#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

#include "base/metrics.h"

size_t activity_admission(struct model_entry *entry)
{
    size_t waiting = manager_waiting(entry);
    struct model *model = brief_lease_take(entry);
    if (model == NULL) return waiting;
    waiting += model->pool != NULL ? embed_waiting(model->pool) : admission_waiting(model->admission);
    brief_lease_end(entry);
    return waiting;
}

static hearth_activity activity_of(struct model_entry *entry)
{
    const struct engine_stats *stats = &entry->engine_stats;
    return (hearth_activity){.model = entry->config->name,
                             .waiting = (int64_t)activity_admission(entry) + metric_get(&stats->jobs_waiting),
                             .prompt_tokens = metric_get(&stats->prompt_tokens),
                             .cached_tokens = metric_get(&stats->cached_tokens),
                             .generated_tokens = metric_get(&stats->generated_tokens)};
}

size_t hearth_activities(const hearth *instance, hearth_activity *activities, size_t max)
{
    size_t total = 0, n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        if (!entry_is_listed(entry) || entry->facts.type != HEARTH_MODEL_CHAT) continue;
        if (total < max) activities[total] = activity_of(entry);
        total++;
    }
    return total;
}
