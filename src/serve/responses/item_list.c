/* Paged lists of items: see item_list.h. */
#include "serve/responses/item_list.h"

#include "base/error.h"
#include "serve/core/errors.h"
#include "serve/core/member.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_DEFAULT 20
#define LIMIT_MAX     100

struct page {
    size_t limit;
    bool is_ascending;
    const char *after; /* NULL: from the beginning */
};

static int read_page(const struct http_request *http, struct page *page, hearth_error *error)
{
    const char *limit = http_query(http, "limit"), *order = http_query(http, "order");
    char *end = NULL;
    long n = limit == NULL ? LIMIT_DEFAULT : strtol(limit, &end, 10);
    if (n < 1 || n > LIMIT_MAX || (end != NULL && *end != '\0'))
        return error_at(error, HEARTH_INVALID, "limit", "'limit' must be a whole number from 1 to %d", LIMIT_MAX);
    if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return error_at(error, HEARTH_INVALID, "order", "'order' must be \"asc\" or \"desc\"");
    *page = (struct page){.limit = (size_t)n,
                          .is_ascending = order != NULL && strcmp(order, "asc") == 0,
                          .after = http_query(http, "after")};
    return HEARTH_OK;
}

static void turn_round(struct stored_item *items, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct stored_item item = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = item;
    }
}

static int find_start(const struct page *page, const struct stored_item *items, size_t n, size_t *start,
                      hearth_error *error)
{
    *start = 0;
    if (page->after == NULL) return HEARTH_OK;
    for (size_t i = 0; i < n && *start == 0; i++)
        if (strcmp(items[i].id, page->after) == 0) *start = i + 1;
    return *start > 0 ? HEARTH_OK : error_at(error, HEARTH_INVALID, "after", "'after' is the id of none of the items");
}

void item_list_put(struct buf *out, const struct stored_item *items, size_t n, bool has_more)
{
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        buf_append(out, items[i].text, items[i].len);
    }
    buf_printf(out, "],\"has_more\":%s,", has_more ? "true" : "false");
    if (n == 0) {
        buf_puts(out, "\"first_id\":null,\"last_id\":null}");
        return;
    }
    member_puts(out, "first_id", items[0].id);
    buf_puts(out, ",");
    member_puts(out, "last_id", items[n - 1].id);
    buf_puts(out, "}");
}

void item_list_reply(struct call *call, const struct stored_turn *turn, size_t n)
{
    struct stored_item *items = stored_turn_items(turn);
    size_t start = 0;
    struct page page = {.limit = 0};
    hearth_error error;
    struct buf body = {0};
    int rc = read_page(call->http, &page, &error);
    if (rc == HEARTH_OK && !page.is_ascending) turn_round(items, n);
    if (rc == HEARTH_OK) rc = find_start(&page, items, n, &start, &error);
    if (rc == HEARTH_OK) {
        size_t shown = n - start < page.limit ? n - start : page.limit;
        item_list_put(&body, items + start, shown, start + shown < n);
        call_reply(call, 200, "application/json", &body);
    } else {
        call_fail(call, &error, errors_put);
    }
    free(items);
}

void item_list_miss(struct call *call, const char *what, const char *id)
{
    hearth_error error;
    error_set(&error, ERRORS_NO_ENTRY,
              "no %s '%.80s' is stored here: it was never stored, it was evicted or deleted, the server was started "
              "again since, or it is another key's",
              what, id);
    call_fail(call, &error, errors_put);
}

void item_list_deleted(struct call *call, const char *object, const char *id)
{
    struct buf body = {0};
    buf_puts(&body, "{");
    member_puts(&body, "id", id);
    buf_printf(&body, ",\"object\":\"%s\",\"deleted\":true}", object);
    call_reply(call, 200, "application/json", &body);
}
