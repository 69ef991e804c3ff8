/* The routes of the KV cache. JSON is written as text: members have a fixed order: tiers, what is resident, counters.
 * HTTP thread only, except parsing. */
#include "serve/status/cache_routes.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/anthropic/anthropic.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/fields.h"
#include "serve/ollama/ollama.h"
#include "serve/responses/responses.h"

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

/* ---- Which API's body ---- */

static void *read_own(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, NULL, error);
}

static void *read_messages(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, &anthropic_api, error);
}

/* Refuses bodies that continue stored items: without those the prompt would be another than the one that is looked
 * up. */
static json_t *whole_response_chat(const json_t *body, struct uploads *uploads, struct left_out *left_out,
                                   hearth_error *error)
{
    static const char *const links[] = {"previous_response_id", "conversation"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        if (!fields_asks(body, links[i])) continue;
        error_at(error, HEARTH_UNSUPPORTED, links[i],
                 "a lookup does not continue stored items: leave out '%s', and send all of them in 'input'", links[i]);
        return NULL;
    }
    return responses_chat(body, uploads, left_out, error);
}

static const struct fields_api whole_response_api = {.name = "responses", .convert = whole_response_chat};

static void *read_response(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, &whole_response_api, error);
}

static void *read_ollama(struct buf *text, hearth_error *error)
{
    json_t *body = fields_parse_body(text, error);
    if (body == NULL) return NULL;
    bool is_chat = json_object_get(body, "messages") != NULL;
    return fields_open_tree(body, FIELDS_LOOKUP, is_chat ? &ollama_chat_api : &ollama_generate_api, error);
}

static bool has_any(const json_t *object, const char *const *names)
{
    for (; *names != NULL; names++)
        if (json_object_get(object, *names) != NULL) return true;
    return false;
}

/* Whether a message has content blocks that only Anthropic's API has. */
static bool has_blocks(const json_t *message)
{
    static const char *const types[] = {"tool_use", "tool_result", "thinking", "redacted_thinking"};
    const json_t *content = json_object_get(message, "content");
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block)
    {
        const char *type = json_string_value(json_object_get(block, "type"));
        for (size_t k = 0; type != NULL && k < sizeof types / sizeof *types; k++)
            if (strcmp(type, types[k]) == 0) return true;
    }
    return false;
}

/* Whether the body has fields that only Anthropic's API has. */
static bool is_anthropic(const json_t *body)
{
    static const char *const own[] = {"system", "stop_sequences", "anthropic_version", "output_config", NULL};
    static const char *const of_tools[] = {"input_schema", NULL};
    size_t i;
    json_t *item;
    if (has_any(body, own)) return true;
    json_array_foreach(json_object_get(body, "tools"), i, item) if (has_any(item, of_tools)) return true;
    json_array_foreach(json_object_get(body, "messages"), i, item) if (has_blocks(item)) return true;
    return false;
}

/* Detects the API by its fields; other bodies are OpenAI chats or completions. The query parameter ?as= overrides
 * it. */
static void *read_any(struct buf *text, hearth_error *error)
{
    json_t *body = fields_parse_body(text, error);
    if (body == NULL) return NULL;
    const struct fields_api *api = NULL;
    if (json_object_get(body, "input") != NULL)
        api = &whole_response_api;
    else if (json_object_get(body, "messages") != NULL && is_anthropic(body))
        api = &anthropic_api;
    return fields_open_tree(body, FIELDS_LOOKUP, api, error);
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

#define FORM(how)                                                                                                      \
    {                                                                                                                  \
        .read = (how), .size = fields_size, .answer = answer, .release = fields_close, .put_error = errors_put         \
    }

void cache_lookup(struct call *call)
{
    static const struct {
        const char *as;
        struct reading_form form;
    } forms[] = {{"", FORM(read_any)},
                 {"chat", FORM(read_own)},
                 {"completion", FORM(read_own)},
                 {"messages", FORM(read_messages)},
                 {"responses", FORM(read_response)},
                 {"ollama", FORM(read_ollama)}};
    const char *as = http_query(call->http, "as");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(as == NULL ? "" : as, forms[i].as) != 0) continue;
        reading_start(call, &forms[i].form);
        return;
    }
    hearth_error error;
    error_at(&error, HEARTH_INVALID, "as", "'as' must be chat, completion, messages, responses or ollama");
    call_fail(call, &error, errors_put);
}
