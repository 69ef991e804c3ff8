/* The routes of the cache. JSON is written as text: members come in a fixed order, tiers before counters. */
#include "serve/cache.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "serve/errors.h"
#include "serve/fields.h"
#include "serve/reading.h"
#include "serve/server.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- GET /cache ---- */

#define AT(member) offsetof(hearth_cache, member) /* of an int64_t */

static const struct {
    const char *name;
    size_t offset;
} counters[] = {
    {"hits_exact", AT(hits_exact)},
    {"hits_resume", AT(hits_resume)},
    {"hits_longest_prefix", AT(hits_longest_prefix)},
    {"misses", AT(misses)},
    {"saves_cold", AT(saves_cold)},
    {"saves_continued", AT(saves_continued)},
    {"saves_finish", AT(saves_finish)},
    {"saves_evict", AT(saves_evict)},
    {"saves_shutdown", AT(saves_shutdown)},
    {"saves_dropped", AT(saves_dropped)},
    {"duplicate_dropped", AT(duplicate_dropped)},
    {"corrupt_files", AT(corrupt_files)},
    {"longest_prefix_probes", AT(longest_prefix_probes)},
    {"pack_ns", AT(pack_ns)},
    {"load_ns", AT(load_ns)},
    {"written_bytes", AT(written_bytes)},
    {"read_bytes", AT(read_bytes)},
};

static void put_tier(struct buf *out, const hearth_tier *tier)
{
    buf_printf(out, "\"%s\":{\"on\":%s,\"entries\":%llu,\"bytes\":%llu,\"quota_bytes\":%llu,\"evictions\":%llu",
               tier->name, tier->on ? "true" : "false", (unsigned long long)tier->entries,
               (unsigned long long)tier->bytes, (unsigned long long)tier->quota_bytes,
               (unsigned long long)tier->evictions);
    if (tier->trouble[0] != '\0') {
        buf_puts(out, ",\"trouble\":");
        errors_put_message(out, tier->trouble);
    }
    buf_puts(out, "}");
}

void cache_status(struct call *call)
{
    hearth_cache cache;
    struct buf body = {0};
    hearth_cache_status(call->server->instance, &cache);
    buf_puts(&body, "{\"tiers\":{");
    for (size_t i = 0; i < HEARTH_TIERS; i++) {
        if (i > 0) buf_puts(&body, ",");
        put_tier(&body, &cache.tiers[i]);
    }
    buf_puts(&body, "}");
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        int64_t value;
        memcpy(&value, (const char *)&cache + counters[i].offset, sizeof value);
        buf_printf(&body, ",\"%s\":%lld", counters[i].name, (long long)value);
    }
    buf_puts(&body, "}");
    call_reply(call, 200, "application/json", &body);
}

/* ---- POST /cache/lookup ---- */

/* The state of an exchange is the model's name. */
static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const char *model = state;
    const hearth_warmth *w = &answers[0].result.warmth;
    int32_t most = w->resident;
    for (size_t i = 0; i < HEARTH_TIERS; i++)
        if (w->tiers[i] > most) most = w->tiers[i];
    buf_puts(out, "{\"model\":");
    utf8_put_json_string(out, model, strlen(model));
    buf_printf(out, ",\"prompt_tokens\":%d,\"tokens\":%d,\"resident\":%d", w->prompt, most, w->resident);
    for (size_t i = 0; i < HEARTH_TIERS; i++) buf_printf(out, ",\"%s\":%d", hearth_tier_name(i), w->tiers[i]);
    buf_puts(out, ",\"key\":");
    if (w->key[0] == '\0')
        buf_puts(out, "null}");
    else
        buf_printf(out, "\"%s\"}", w->key);
}

/* Never streamed, so that the pieces of a stream are left out. */
static const struct dialect lookup_dialect = {.whole = put_whole, .error = errors_put, .release = free};

static void *read_lookup(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, NULL, error);
}

static void answer(struct call *call, void *owner)
{
    struct fields *fields = owner;
    size_t n;
    fields->params.only_lookup = true;
    hearth_params *choices = fields_choices(fields, &n);
    struct exchange_plan plan = {.dialect = &lookup_dialect,
                                 .state = mem_strdup(call_model(call, fields->params.model)),
                                 .choices = choices,
                                 .n_choices = n,
                                 .owner = owner,
                                 .release_owner = fields_close};
    exchange_start(call, &plan);
    free(choices);
}

void cache_lookup(struct call *call)
{
    static const struct reading_form form = {
        .read = read_lookup, .weigh = fields_weigh, .answer = answer, .release = fields_close, .put_error = errors_put};
    reading_start(call, &form);
}
