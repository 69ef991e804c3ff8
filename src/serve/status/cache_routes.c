/* The routes of the KV cache. JSON is written as text: members have a fixed order: tiers, models without a store, what
 * is resident, counters. HTTP thread only, except parsing. */
#include "serve/status/cache_routes.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/fields.h"
#include "serve/status/any_api.h"

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
    {"probes", AT(probes)},
    {"probes_failed", AT(probes_failed)},
    {"uploaded_bytes", AT(uploaded_bytes)},
    {"uploads_dropped", AT(uploads_dropped)},
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

static void put_resident(struct buf *out, const hearth_resident *r)
{
    buf_puts(out, "{");
    member_puts(out, "model", r->model);
    buf_printf(out, ",\"seq_id\":%d,\"slot_id\":%d,\"state\":\"%s\",\"tokens\":%d,\"own_tokens\":%d", r->seq_id,
               r->slot_id, hearth_resident_state_name(r->state), r->tokens, r->own_tokens);
    buf_printf(out, ",\"shared_tokens\":%d,\"messages\":%d", r->shared_tokens, r->messages);
    buf_printf(out, ",\"kept\":%s", r->kept ? "true" : "false");
    buf_printf(out, ",\"media\":%d,\"media_tokens\":%d", r->media, r->media_tokens);
    buf_printf(out, ",\"cost_ms\":%.3f,\"return_ms\":%.3f,\"hash\":\"%s\",\"last_used\":%lld}", r->cost_ms,
               r->return_ms, r->hash, (long long)r->last_used);
}

/* There may be more a moment after they were counted; those are left out. */
static void put_residents(struct buf *out, const hearth *instance)
{
    size_t max = hearth_residents(instance, NULL, 0);
    hearth_resident *residents = mem_alloc((max + 1) * sizeof *residents);
    size_t n = hearth_residents(instance, residents, max);
    buf_puts(out, ",\"resident\":[");
    for (size_t i = 0; i < n && i < max; i++) {
        if (i > 0) buf_puts(out, ",");
        put_resident(out, &residents[i]);
    }
    buf_puts(out, "]");
    free(residents);
}

static void put_unstored(struct buf *out, const hearth *instance)
{
    size_t max = hearth_unstored_models(instance, NULL, 0);
    hearth_unstored *models = mem_alloc((max + 1) * sizeof *models);
    size_t n = hearth_unstored_models(instance, models, max);
    buf_puts(out, ",\"not_stored\":[");
    for (size_t i = 0; i < n && i < max; i++) {
        buf_puts(out, i > 0 ? ",{" : "{");
        member_puts(out, "model", models[i].model);
        buf_puts(out, ",\"reason\":");
        errors_put_message(out, models[i].reason);
        buf_puts(out, "}");
    }
    buf_puts(out, "]");
    free(models);
}

void cache_put_status(struct buf *out, const hearth *instance)
{
    hearth_cache cache;
    hearth_cache_status(instance, &cache);
    buf_puts(out, "{\"tiers\":{");
    for (size_t i = 0; i < HEARTH_TIERS; i++) {
        if (i > 0) buf_puts(out, ",");
        put_tier(out, &cache.tiers[i]);
    }
    buf_puts(out, "}");
    put_unstored(out, instance);
    put_residents(out, instance);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        int64_t value;
        memcpy(&value, (const char *)&cache + counters[i].offset, sizeof value);
        buf_printf(out, ",\"%s\":%lld", counters[i].name, (long long)value);
    }
    buf_puts(out, "}");
}

void cache_status(struct call *call)
{
    struct buf body = {0};
    cache_put_status(&body, call->server->instance);
    call_reply(call, 200, "application/json", &body);
}

/* ---- POST /cache/lookup ---- */

/* NULL: null. */
static void put_text(struct buf *out, const char *name, const char *text)
{
    buf_puts(out, ",");
    if (text == NULL)
        buf_printf(out, "\"%s\":null", name);
    else
        member_puts(out, name, text);
}

static void put_divergence(struct buf *out, const hearth_divergence *d)
{
    buf_puts(out, ",\"divergence\":");
    if (d->where == NULL) {
        buf_puts(out, "null");
        return;
    }
    buf_printf(out, "{\"position\":%d", d->position);
    put_text(out, "where", d->where);
    put_text(out, "limit", d->limit);
    put_text(out, "common", d->common);
    put_text(out, "prompt", d->prompt);
    put_text(out, "nearest", d->nearest);
    if (d->message >= 0)
        buf_printf(out, ",\"message\":%d", d->message);
    else
        buf_puts(out, ",\"message\":null");
    put_text(out, "role", d->message >= 0 ? d->role : NULL);
    buf_puts(out, "}");
}

/* The dialect of cache lookups; its state is the model's name. */
static void put_whole(void *state, const struct answer *answers, size_t n, struct buf *out)
{
    (void)n; /* 1 */
    const char *model = state;
    const hearth_cache_lookup *w = &answers[0].result.lookup;
    int32_t most = w->resident;
    for (size_t i = 0; i < HEARTH_TIERS; i++)
        if (w->tiers[i] > most) most = w->tiers[i];
    buf_puts(out, "{");
    member_puts(out, "model", model);
    buf_printf(out, ",\"prompt_tokens\":%d,\"tokens\":%d,\"resident\":%d", w->prompt, most, w->resident);
    for (size_t i = 0; i < HEARTH_TIERS; i++) buf_printf(out, ",\"%s\":%d", hearth_tier_name(i), w->tiers[i]);
    buf_printf(out, ",\"computed\":%d", w->prompt - w->reusable);
    put_text(out, "key", w->key[0] == '\0' ? NULL : w->key);
    put_divergence(out, &answers[0].divergence);
    buf_puts(out, "}");
}

/* Never streamed: the functions for streams are NULL. */
static const struct dialect lookup_dialect = {.whole = put_whole, .error = errors_put, .release = free};

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

#define FORM(how)                                                                                                      \
    {                                                                                                                  \
        .read = (how), .size = fields_size, .answer = answer, .release = fields_close, .put_error = errors_put         \
    }

void cache_lookup(struct call *call)
{
    static const struct any_api_form forms[] = {
        {"", FORM(any_api_detected)},           {"chat", FORM(any_api_openai)},
        {"completion", FORM(any_api_openai)},   {"messages", FORM(any_api_messages)},
        {"responses", FORM(any_api_responses)}, {"ollama", FORM(any_api_ollama)}};
    any_api_start(call, forms, sizeof forms / sizeof *forms);
}
