/* Lists of stored conversations, and orders about one: see stored_routes.h. No state. */
#include "serve/status/stored_routes.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"
#include "serve/status/order_end.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- GET /cache/stored ---- */

enum { LIMIT_DEFAULT = 50, LIMIT_MAX = 100, KEY_DIGITS = 64 };

static int read_limit(const char *text, size_t *limit, hearth_error *error)
{
    char *end = NULL;
    long n = text == NULL ? LIMIT_DEFAULT : strtol(text, &end, 10);
    if (n < 1 || n > LIMIT_MAX || (end != NULL && (end == text || *end != '\0')))
        return error_at(error, HEARTH_INVALID, "limit", "'limit' must be a whole number from 1 to %d", LIMIT_MAX);
    *limit = (size_t)n;
    return HEARTH_OK;
}

/* Whether there is a tier of that name; `tier` becomes the library's own spelling of it. */
static bool is_tier(const char *name, const char **tier)
{
    for (size_t i = 0; i < HEARTH_TIERS; i++) {
        *tier = hearth_tier_name(i);
        if (strcmp(name, *tier) == 0) return true;
    }
    return false;
}

/* A place in the list is written USED.KEY.TIER. */
static void put_place(struct buf *out, const hearth_stored *s)
{
    buf_printf(out, "\"%" PRId64 ".%s.%s\"", s->used, s->key, s->tier);
}

static bool parse_place(const char *text, hearth_stored *place)
{
    char *end;
    *place = (hearth_stored){.used = strtoll(text, &end, 10)};
    if (end == text || *end != '.') return false;
    const char *key = end + 1;
    if (strspn(key, "0123456789abcdef") != KEY_DIGITS || key[KEY_DIGITS] != '.') return false;
    memcpy(place->key, key, KEY_DIGITS);
    return is_tier(key + KEY_DIGITS + 1, &place->tier);
}

static int read_place(const char *text, hearth_stored *place, hearth_error *error)
{
    if (parse_place(text, place)) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "after", "'after' must be the 'next' of another page");
}

static void put_stored(struct buf *out, const hearth_stored *s)
{
    buf_puts(out, "{");
    member_puts(out, "model", s->model);
    buf_printf(out, ",\"tier\":\"%s\",\"key\":\"%s\",\"tokens\":%d,\"own_tokens\":%d,\"own_bytes\":%" PRIu64, s->tier,
               s->key, s->tokens, s->own_tokens, s->own_bytes);
    buf_printf(out, ",\"resident\":%d,\"kept\":%s,\"last_used\":%" PRId64 "}", s->resident, s->kept ? "true" : "false",
               s->last_used);
}

static void put_page(struct buf *out, const hearth_stored *list, size_t n, size_t limit, size_t total)
{
    size_t shown = n < limit ? n : limit;
    buf_printf(out, "{\"total\":%zu,\"conversations\":[", total);
    for (size_t i = 0; i < shown; i++) {
        if (i > 0) buf_puts(out, ",");
        put_stored(out, &list[i]);
    }
    buf_puts(out, "],\"next\":");
    if (n > shown)
        put_place(out, &list[shown - 1]);
    else
        buf_puts(out, "null");
    buf_puts(out, "}");
}

void stored_list(struct call *call)
{
    const char *after = http_query(call->http, "after");
    hearth_error error;
    hearth_stored place;
    size_t limit = 0, total;
    int rc = read_limit(http_query(call->http, "limit"), &limit, &error);
    if (rc == HEARTH_OK && after != NULL) rc = read_place(after, &place, &error);
    if (rc != HEARTH_OK) {
        call_fail(call, &error, errors_put);
        return;
    }
    struct buf body = {0};
    hearth_stored *list = mem_alloc((limit + 1) * sizeof *list); /* one more: whether there is another page */
    size_t n = hearth_stored_list(call->server->instance, after == NULL ? NULL : &place, list, limit + 1, &total);
    put_page(&body, list, n, limit, total);
    free(list);
    call_reply(call, 200, "application/json", &body);
}

/* ---- POST /cache/stored ---- */

struct wanted {
    char *tier, *key;
    hearth_stored_act act;
};

static void release_wanted(void *ud)
{
    struct wanted *wanted = ud;
    free(wanted->tier);
    free(wanted->key);
    free(wanted);
}

static int read_fields(const json_t *tree, struct wanted *wanted, hearth_error *error)
{
    static const char *const acts[] = {
        [HEARTH_STORED_KEEP] = "keep", [HEARTH_STORED_RELEASE] = "release", [HEARTH_STORED_DROP] = "drop", NULL};
    const char *tier = NULL, *key = NULL;
    int act = -1;
    int rc = body_text(tree, "tier", &tier, error);
    if (rc == HEARTH_OK) rc = body_text(tree, "key", &key, error);
    if (rc == HEARTH_OK) rc = body_word(tree, "order", acts, &act, error);
    if (rc != HEARTH_OK) return rc;
    const char *missing = tier == NULL ? "tier" : key == NULL ? "key" : act < 0 ? "order" : NULL;
    if (missing != NULL)
        return error_at(error, HEARTH_INVALID, missing,
                        "'%s' is missing: an order needs tier and key, as GET /cache/stored shows them, and order",
                        missing);
    wanted->tier = mem_strdup(tier);
    wanted->key = mem_strdup(key);
    wanted->act = (hearth_stored_act)act;
    return HEARTH_OK;
}

static void *read_order(struct buf *body, hearth_error *error)
{
    json_t *tree = fields_parse_body(body, error);
    if (tree == NULL) return NULL;
    struct wanted *wanted = mem_alloc(sizeof *wanted);
    int rc = read_fields(tree, wanted, error);
    json_decref(tree);
    if (rc == HEARTH_OK) return wanted;
    release_wanted(wanted);
    return NULL;
}

static size_t wanted_size(const void *ud)
{
    (void)ud;
    return sizeof(struct wanted);
}

static void give(struct call *call, void *ud)
{
    struct wanted *wanted = ud;
    struct order_end *end = order_end_open(call);
    hearth_stored_order order = {.tier = wanted->tier, .key = wanted->key, .act = wanted->act};
    hearth_error error;
    int rc = hearth_order_stored(call->server->instance, &order, order_end_note, end, &error);
    order_end_watch(end, rc == HEARTH_OK ? NULL : &error);
    release_wanted(wanted);
}

void stored_order(struct call *call)
{
    static const struct reading_form form = {
        .read = read_order, .size = wanted_size, .answer = give, .release = release_wanted, .put_error = errors_put};
    reading_start(call, &form);
}
