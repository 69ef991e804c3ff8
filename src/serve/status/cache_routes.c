/* The routes of the KV cache: see status.h. JSON is written as text: members have a fixed order. A struct
 * order_end lives until the end of its order has come back by a post. */
#include "serve/status/status.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/pieces.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"

#include <inttypes.h>
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

static void put_resident(struct buf *out, const hearth_resident *r)
{
    buf_puts(out, "{");
    member_puts(out, "model", r->model);
    buf_printf(out, ",\"seq_id\":%d,\"slot_id\":%d,\"state\":\"%s\",\"tokens\":%d,\"own_tokens\":%d", r->seq_id,
               r->slot_id, hearth_resident_state_name(r->state), r->tokens, r->own_tokens);
    buf_printf(out, ",\"shared_tokens\":%d,\"branch_of\":%d,\"branch_at\":%d,\"messages\":%d", r->shared_tokens,
               r->branch_of, r->branch_at, r->messages);
    buf_printf(out, ",\"kept\":%s", r->kept ? "true" : "false");
    buf_printf(out, ",\"media\":%d,\"media_tokens\":%d", r->media, r->media_tokens);
    buf_printf(out, ",\"cost_ms\":%.3f,\"return_ms\":%.3f,\"hash\":\"%s\",\"last_used\":%lld}", r->cost_ms,
               r->return_ms, r->hash, (long long)r->last_used);
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
        const hearth_tier *tier = &cache.tiers[i];
        buf_printf(out, "%s\"%s\":{\"on\":%s,\"entries\":%llu,\"bytes\":%llu,\"quota_bytes\":%llu,\"evictions\":%llu",
                   i > 0 ? "," : "", tier->name, tier->on ? "true" : "false", (unsigned long long)tier->entries,
                   (unsigned long long)tier->bytes, (unsigned long long)tier->quota_bytes,
                   (unsigned long long)tier->evictions);
        if (tier->trouble[0] != '\0') {
            buf_puts(out, ",\"trouble\":");
            errors_put_message(out, tier->trouble);
        }
        buf_puts(out, "}");
    }
    buf_puts(out, "}");
    put_unstored(out, instance);
    /* There may be more a moment after they were counted; those are left out. */
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
    if (text == NULL)
        buf_printf(out, ",\"%s\":null", name);
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
static void put_lookup(void *state, const struct answer *answers, size_t n, struct buf *out)
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
static const struct dialect lookup_dialect = {.whole = put_lookup, .error = errors_put, .release = free};

static void answer_lookup(struct call *call, void *owner)
{
    struct fields *fields = owner;
    fields->params.only_lookup = true;
    fields_start(call, fields,
                 (struct exchange_plan){.dialect = &lookup_dialect,
                                        .state = mem_strdup(call_model(call, fields->params.model))});
}

#define FORM(how) READING_FORM(how, fields_size, answer_lookup, fields_close, errors_put)

void cache_lookup(struct call *call)
{
    static const struct any_api_form forms[] = {
        {"", FORM(any_api_detected)},           {"chat", FORM(any_api_openai)},
        {"completion", FORM(any_api_openai)},   {"messages", FORM(any_api_messages)},
        {"responses", FORM(any_api_responses)}, {"ollama", FORM(any_api_ollama)}};
    any_api_start(call, forms, sizeof forms / sizeof *forms);
}

/* ---- GET /cache/stored ---- */

enum { LIMIT_DEFAULT = 50, LIMIT_MAX = 100, KEY_DIGITS = 64 };

/* A place in the list is written USED.KEY.TIER. */
static bool parse_place(const char *text, hearth_stored *place)
{
    char *end;
    *place = (hearth_stored){.used = strtoll(text, &end, 10)};
    if (end == text || *end != '.') return false;
    const char *key = end + 1;
    if (strspn(key, "0123456789abcdef") != KEY_DIGITS || key[KEY_DIGITS] != '.') return false;
    memcpy(place->key, key, KEY_DIGITS);
    for (size_t i = 0; i < HEARTH_TIERS; i++) {
        place->tier = hearth_tier_name(i);
        if (strcmp(key + KEY_DIGITS + 1, place->tier) == 0) return true;
    }
    return false;
}

void stored_list(struct call *call)
{
    const char *after = http_query(call->http, "after");
    hearth_error error;
    hearth_stored place;
    size_t limit = LIMIT_DEFAULT, total;
    int rc = body_limit(http_query(call->http, "limit"), LIMIT_MAX, &limit, &error);
    if (rc == HEARTH_OK && after != NULL && !parse_place(after, &place))
        rc = error_at(&error, HEARTH_INVALID, "after", "'after' must be the 'next' of another page");
    if (rc != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    struct buf body = {0};
    hearth_stored *list = mem_alloc((limit + 1) * sizeof *list); /* one more: whether there is another page */
    size_t n = hearth_stored_list(call->server->instance, after == NULL ? NULL : &place, list, limit + 1, &total);
    size_t shown = n < limit ? n : limit;
    buf_printf(&body, "{\"total\":%zu,\"conversations\":[", total);
    for (size_t i = 0; i < shown; i++) {
        const hearth_stored *s = &list[i];
        buf_puts(&body, i > 0 ? ",{" : "{");
        member_puts(&body, "model", s->model);
        buf_printf(&body, ",\"tier\":\"%s\",\"key\":\"%s\",\"tokens\":%d,\"own_tokens\":%d,\"own_bytes\":%" PRIu64,
                   s->tier, s->key, s->tokens, s->own_tokens, s->own_bytes);
        buf_printf(&body, ",\"resident\":%d,\"kept\":%s,\"last_used\":%" PRId64 "}", s->resident,
                   s->kept ? "true" : "false", s->last_used);
    }
    buf_puts(&body, "],\"next\":");
    if (n > shown)
        buf_printf(&body, "\"%" PRId64 ".%s.%s\"", list[shown - 1].used, list[shown - 1].key, list[shown - 1].tier);
    else
        buf_puts(&body, "null");
    buf_puts(&body, "}");
    free(list);
    call_reply(call, 200, "application/json", &body);
}

/* ---- Orders and their end ---- */

struct order_end {
    struct call *call; /* NULL: the client is gone */
    struct http_server *http;
    hearth_error error; /* its code is HEARTH_OK: it was carried out */
};

static struct order_end *open_order(struct call *call)
{
    struct order_end *end = mem_alloc(sizeof *end);
    *end = (struct order_end){.call = call, .http = call->server->http};
    return end;
}

/* Gives the error a code of its own: the library's HEARTH_BUSY and HEARTH_NOT_FOUND have other meanings, too. */
static void fail_order(struct call *call, hearth_error *error)
{
    int code = (int)error->code;
    if (code == HEARTH_BUSY) code = ERRORS_IN_USE;
    if (code == HEARTH_NOT_FOUND && strcmp(error->param, "model") != 0) code = ERRORS_NO_ENTRY;
    error->code = (hearth_code)code;
    call_fail(call, error, errors_put);
}

static void answer_order(void *ud)
{
    struct order_end *end = ud;
    if (end->call != NULL && end->error.code != HEARTH_OK)
        fail_order(end->call, &end->error);
    else if (end->call != NULL)
        call_reply_success(end->call);
    free(end);
}

/* A hearth_ordered_fn, whose `ud` is the struct order_end: any thread, once for an order that was given. */
static void note_order_end(void *ud, const hearth_error *error)
{
    struct order_end *end = ud;
    if (error != NULL) end->error = *error;
    http_post(end->http, answer_order, end);
}

static void on_client_gone(void *ud)
{
    struct order_end *end = ud;
    call_gone(end->call);
    end->call = NULL;
}

/* After the order was given: waits for its end, or (`refused`) answers with that. */
static void watch_order(struct order_end *end, hearth_error *refused)
{
    if (refused == NULL) {
        http_watch(end->call->http, on_client_gone, end);
        return;
    }
    fail_order(end->call, refused);
    free(end);
}

/* The fields of an order's body, which has their strings. */
struct wanted {
    json_t *body;
    const char *model, *hash; /* of one in the cells; model: NULL: not named */
    const char *tier, *key;   /* of a stored one */
    int32_t seq_id;
    int order;
};

static void release_wanted(void *ud)
{
    struct wanted *wanted = ud;
    json_decref(wanted->body);
    free(wanted);
}

static size_t wanted_size(const void *ud)
{
    const struct wanted *wanted = ud;
    return sizeof *wanted + json_size_of_tree(wanted->body);
}

static void *read_order(struct buf *body, int (*read)(struct wanted *wanted, hearth_error *error), hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    struct wanted *wanted = mem_alloc(sizeof *wanted);
    *wanted = (struct wanted){.body = tree, .seq_id = -1, .order = -1};
    if (read(wanted, error) == HEARTH_OK) return wanted;
    release_wanted(wanted);
    return NULL;
}

/* ---- POST /cache/resident ---- */

static int read_resident_fields(struct wanted *wanted, hearth_error *error)
{
    static const char *const orders[] = {
        [HEARTH_ORDER_KEEP] = "keep", [HEARTH_ORDER_RELEASE] = "release", [HEARTH_ORDER_EVICT] = "evict", NULL};
    int rc = body_text(wanted->body, "model", &wanted->model, error);
    if (rc == HEARTH_OK) rc = body_int(wanted->body, "seq_id", 0, &wanted->seq_id, error);
    if (rc == HEARTH_OK) rc = body_text(wanted->body, "hash", &wanted->hash, error);
    if (rc == HEARTH_OK) rc = body_word(wanted->body, "order", orders, &wanted->order, error);
    if (rc != HEARTH_OK) return rc;
    const char *missing = wanted->seq_id < 0     ? "seq_id"
                          : wanted->hash == NULL ? "hash"
                          : wanted->order < 0    ? "order"
                                                 : NULL;
    if (missing == NULL) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, missing,
                    "'%s' is missing: an order needs seq_id and hash, as GET /cache shows them, and order", missing);
}

static void *read_resident(struct buf *body, hearth_error *error)
{
    return read_order(body, read_resident_fields, error);
}

static void give_resident(struct call *call, void *ud)
{
    struct wanted *wanted = ud;
    struct workers *workers = call->server->workers; /* the call may end below */
    struct order_end *end = open_order(call);
    hearth_resident_order order = {.model = call_model(call, wanted->model),
                                   .seq_id = wanted->seq_id,
                                   .hash = wanted->hash,
                                   .order = (hearth_order)wanted->order};
    hearth_error error;
    int rc = hearth_order_resident(call->server->instance, &order, note_order_end, end, &error);
    watch_order(end, rc == HEARTH_OK ? NULL : &error);
    workers_release(workers, release_wanted, wanted);
}

const struct reading_form resident_orders_give =
    READING_FORM(read_resident, wanted_size, give_resident, release_wanted, errors_put);

/* ---- POST /cache/stored ---- */

static int read_stored_fields(struct wanted *wanted, hearth_error *error)
{
    static const char *const acts[] = {
        [HEARTH_STORED_KEEP] = "keep", [HEARTH_STORED_RELEASE] = "release", [HEARTH_STORED_DROP] = "drop", NULL};
    int rc = body_text(wanted->body, "tier", &wanted->tier, error);
    if (rc == HEARTH_OK) rc = body_text(wanted->body, "key", &wanted->key, error);
    if (rc == HEARTH_OK) rc = body_word(wanted->body, "order", acts, &wanted->order, error);
    if (rc != HEARTH_OK) return rc;
    const char *missing = wanted->tier == NULL  ? "tier"
                          : wanted->key == NULL ? "key"
                          : wanted->order < 0   ? "order"
                                                : NULL;
    if (missing == NULL) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, missing,
                    "'%s' is missing: an order needs tier and key, as GET /cache/stored shows them, and order",
                    missing);
}

static void *read_stored(struct buf *body, hearth_error *error)
{
    return read_order(body, read_stored_fields, error);
}

static void give_stored(struct call *call, void *ud)
{
    struct wanted *wanted = ud;
    struct workers *workers = call->server->workers; /* the call may end below */
    struct order_end *end = open_order(call);
    hearth_stored_order order = {.tier = wanted->tier, .key = wanted->key, .act = (hearth_stored_act)wanted->order};
    hearth_error error;
    int rc = hearth_order_stored(call->server->instance, &order, note_order_end, end, &error);
    watch_order(end, rc == HEARTH_OK ? NULL : &error);
    workers_release(workers, release_wanted, wanted);
}

const struct reading_form stored_order =
    READING_FORM(read_stored, wanted_size, give_stored, release_wanted, errors_put);
