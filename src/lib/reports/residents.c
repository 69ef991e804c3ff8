/* What the engines of all models have in slots and KV cells: hearth_slots(), hearth_residents(), and where idle
 * conversations end in the store. Any thread; a model is kept in memory while its engine is asked. */
#include "lib/reports/residents.h"

#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"

/* Calls `list` for every engine; it returns the number of its entries, of which those of the engines before are
 * `from`. Returns all of them. */
static size_t over_engines(const hearth *instance,
                           size_t (*list)(void *ud, struct engine *engine, const char *model, size_t from), void *ud)
{
    size_t total = 0, n = atomic_load(&instance->n_entries);
    for (size_t i = 0; i < n; i++) {
        struct model_entry *entry = &instance->entries[i];
        struct model *model = brief_lease_take(entry);
        if (model == NULL) continue;
        if (model->engine != NULL) total += list(ud, model->engine, entry->config->name, total);
        brief_lease_end(entry);
    }
    return total;
}

struct slot_list {
    hearth_slot *v;
    size_t max;
};

static size_t list_slots(void *ud, struct engine *engine, const char *model, size_t from)
{
    const struct slot_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0,
           n = engine_slots(engine, room == 0 ? NULL : list->v + from, room);
    for (size_t i = 0; i < n && i < room; i++) list->v[from + i].model = model;
    return n;
}

size_t hearth_slots(const hearth *instance, hearth_slot *slots, size_t max)
{
    return over_engines(instance, list_slots, &(struct slot_list){slots, max});
}

struct resident_list {
    hearth_resident *v;
    size_t max;
};

static size_t list_residents(void *ud, struct engine *engine, const char *model, size_t from)
{
    const struct resident_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0,
           n = engine_residents(engine, room == 0 ? NULL : list->v + from, room);
    for (size_t i = 0; i < n && i < room; i++) list->v[from + i].model = model;
    return n;
}

size_t hearth_residents(const hearth *instance, hearth_resident *residents, size_t max)
{
    return over_engines(instance, list_residents, &(struct resident_list){residents, max});
}

struct mark_list {
    struct stored_mark *v;
    size_t max;
};

static size_t list_marks(void *ud, struct engine *engine, const char *model, size_t from)
{
    (void)model;
    const struct mark_list *list = ud;
    size_t room = from < list->max ? list->max - from : 0;
    return engine_stored(engine, room == 0 ? NULL : list->v + from, room);
}

size_t instance_stored_marks(const hearth *instance, struct stored_mark *marks, size_t max)
{
    return over_engines(instance, list_marks, &(struct mark_list){marks, max});
}
