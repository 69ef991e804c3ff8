/* The estimated size of a JSON tree, compared with what jansson allocates for it. */
#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "serve/core/errors.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting jansson's allocations ---- */

static size_t in_use, peak;

static void *counted_malloc(size_t size)
{
    void *block = malloc(size);
    in_use += malloc_usable_size(block) + sizeof(size_t);
    if (in_use > peak) peak = in_use;
    return block;
}

static void counted_free(void *block)
{
    if (block != NULL) in_use -= malloc_usable_size(block) + sizeof(size_t);
    free(block);
}

/* `head`, `n` times `item` with commas, `tail`. "%d" in an item is its number. */
static struct buf repeat(const char *head, const char *item, size_t n, const char *tail)
{
    struct buf text = {0};
    buf_puts(&text, head);
    for (size_t i = 0; i < n; i++) {
        const char *number = strstr(item, "%d");
        if (i > 0) buf_puts(&text, ",");
        if (number == NULL)
            buf_puts(&text, item);
        else
            buf_printf(&text, "%.*s%zu%s", (int)(number - item), item, i, number + 2);
    }
    buf_puts(&text, tail);
    return text;
}

static const struct {
    const char *head, *item, *tail;
} shapes[] = {
    {"[", "{}", "]"},
    {"[", "[]", "]"},
    {"[", "\"\"", "]"},
    {"[", "1", "]"},
    {"[", "1.5e-3", "]"},
    {"[", "null", "]"},
    {"[", "{\"a\":[{}]}", "]"},
    {"{", "\"k%d\":1", "}"},
    {"{", "\"a much longer name of a member %d\":{}", "}"},
    {"[", "\"\\u00e4\\n\"", "]"},
    {"{\"a\":{\"b\":[", "{\"role\":\"user\",\"content\":\"Hello\"}", "]}}"},
};

/* The parser itself holds a copy of the longest string. */
static void a_tree_takes_no_more_than_was_estimated(void **state)
{
    (void)state;
    json_set_alloc_funcs(counted_malloc, counted_free);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t n = 1; n < 20000; n = n * 4 + 1) {
            struct buf text = repeat(shapes[i].head, shapes[i].item, n, shapes[i].tail);
            struct json_size size = json_size_of_text(text.v, text.len);
            in_use = peak = 0;
            json_t *tree = json_loadb(text.v, text.len, JSON_ALLOW_NUL, NULL);
            assert_non_null(tree);
            if (peak > size.memory + text.len + 512)
                fail_msg("%s x %zu took %zu, %zu were estimated", shapes[i].item, n, peak, size.memory);
            size_t weight = json_size_of_tree(tree);
            if (in_use > weight + 512 || weight > size.memory + text.len)
                fail_msg("%s x %zu has %zu, %zu were weighed", shapes[i].item, n, in_use, weight);
            json_decref(tree);
            buf_release(&text);
        }
    }
}

static void values_and_depth_are_counted_and_strings_are_not_looked_into(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t values, depth;
    } rows[] = {
        {"", 0, 0},        {"{}", 1, 1},
        {"[[[1]]]", 4, 3}, {"{\"a\":1,\"b\":[true,null]}", 7, 2},
        {"\"[[[\"", 1, 0}, {"\"\\\"[[\\\\\"", 1, 0},
        {"[\"a\\", 2, 1},  {"-1.5E+7 false", 2, 0},
        {"]]]][", 1, 1},   {"[{\"[\":\"]\"}]", 4, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json_size size = json_size_of_text(rows[i].text, strlen(rows[i].text));
        if (size.values != rows[i].values || size.depth != rows[i].depth)
            fail_msg("%s: %zu values, depth %zu", rows[i].text, size.values, size.depth);
    }
}

static void assert_body(const struct buf *text, int code, const char *part)
{
    hearth_error error = {0};
    json_t *body = fields_parse(text->v, text->len, &error);
    assert_int_equal(body == NULL ? (int)error.code : HEARTH_OK, code);
    if (part != NULL && strstr(error.message, part) == NULL) fail_msg("%s", error.message);
    json_decref(body);
}

static void bodies_beyond_the_bounds_are_refused_before_a_tree_is_made(void **state)
{
    (void)state;
    size_t most = FIELDS_TREE_MAX / 256;
    struct buf text = repeat("{\"a\":[", "{}", most - 10, "]}");
    assert_body(&text, HEARTH_OK, NULL);
    buf_release(&text);
    text = repeat("{\"a\":[", "{}", most + most / 50, "]}");
    assert_body(&text, ERRORS_TOO_LARGE, "JSON values");
    buf_release(&text);
    for (int extra = 0; extra <= 1; extra++) {
        text = (struct buf){0};
        buf_puts(&text, "{\"a\":");
        for (int i = 1; i < FIELDS_DEPTH_MAX + extra; i++) buf_puts(&text, "[");
        for (int i = 1; i < FIELDS_DEPTH_MAX + extra; i++) buf_puts(&text, "]");
        buf_puts(&text, "}");
        assert_body(&text, extra == 0 ? HEARTH_OK : HEARTH_INVALID, extra == 0 ? NULL : "at most 512");
        buf_release(&text);
    }
}

static void a_chat_may_hold_so_many_values(void **state)
{
    (void)state;
    for (int extra = 0; extra <= 1; extra++) {
        hearth_error error = {0};
        struct fields fields;
        size_t n = (FIELDS_VALUES_MAX - 1) / 5 + (size_t)extra;
        struct buf text = repeat("{\"messages\":[", "{\"role\":\"user\",\"content\":\"a\"}", n, "]}");
        int rc = fields_read(&fields, FIELDS_CHAT, text.v, text.len, &error);
        assert_int_equal(rc, extra == 0 ? HEARTH_OK : ERRORS_TOO_LARGE);
        if (rc == HEARTH_OK) fields_release(&fields);
        buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_takes_no_more_than_was_estimated),
        cmocka_unit_test(values_and_depth_are_counted_and_strings_are_not_looked_into),
        cmocka_unit_test(bodies_beyond_the_bounds_are_refused_before_a_tree_is_made),
        cmocka_unit_test(a_chat_may_hold_so_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
