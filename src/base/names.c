/* Names of the enums of hearth.h, as configuration and JSON write them. Constant data. */
#include "hearth.h"

const char *hearth_model_type_name(hearth_model_type type)
{
    static const char *const names[] = {"chat", "embedding", "rerank"};
    return names[type];
}

const char *hearth_model_kind_name(hearth_model_kind kind)
{
    static const char *const names[] = {"dense", "moe", "hybrid", "recurrent"};
    return names[kind];
}

const char *hearth_pooling_name(hearth_pooling pooling)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    return pooling == HEARTH_POOLING_UNSPECIFIED ? "" : names[pooling];
}

const char *hearth_model_state_name(hearth_model_state state)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "unloading", "failed", "removed"};
    return names[state];
}

const char *hearth_slot_state_name(hearth_slot_state state)
{
    static const char *const names[] = {"idle", "pending", "prefill", "generate"};
    return names[state];
}

const char *hearth_resident_state_name(hearth_resident_state state)
{
    static const char *const names[] = {"running", "idle", "suspended", "leaving"};
    return names[state];
}
