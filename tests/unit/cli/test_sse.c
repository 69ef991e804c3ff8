/* Server-sent events: the same however the bytes are cut, and no more of them than fits. */
#include "base/memory.h"
#include "cli/chat/reply_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *stream, *events; /* each event ends in "|" */
} rows[] = {
    {"data: one\n\ndata: two\n\n", "one|two|"},
    {"data: one\r\n\r\ndata:two\r\n\r\n", "one|two|"},
    {"data: a\ndata: b\n\n", "a\nb|"},
    {"data:  two blanks\n\n", " two blanks|"},
    {"data:\n\n", "|"},
    {"data\n\n", ""},
    {": a comment\n\ndata: x\n: another\n\n", "x|"},
    {"event: message\nid: 7\nretry: 1\ndata: x\n\n", "x|"},
    {"\n\n\n", ""},
    {"datas: x\n\n", ""},
    {"data: no end", "no end|"},
    {"data: no blank line\n", "no blank line|"},
    {"", ""},
};

static void note(void *ud, const char *data, size_t len)
{
    assert_int_equal(data[len], '\0');
    buf_append(ud, data, len);
    buf_puts(ud, "|");
}

static void streams_may_be_cut_anywhere(void **state)
{
    (void)state;
    hearth_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t len = strlen(rows[i].stream);
        for (size_t piece = 1; piece <= len + 1; piece++) {
            struct sse sse = {0};
            struct buf events = {0};
            for (size_t at = 0; at < len; at += piece) {
                struct buf bytes = {0};
                buf_append(&bytes, rows[i].stream + at, at + piece < len ? piece : len - at);
                assert_int_equal(sse_add(&sse, &bytes, note, &events, &error), HEARTH_OK);
                buf_release(&bytes);
            }
            sse_end(&sse, note, &events);
            assert_string_equal(buf_text(&events), rows[i].events);
            sse_release(&sse);
            buf_release(&events);
        }
    }
}

/* Adds the same bytes until they are refused. */
static int add_often(struct sse *sse, const struct buf *bytes, size_t times, hearth_error *error)
{
    struct buf events = {0};
    int status = HEARTH_OK;
    for (size_t i = 0; i < times && status == HEARTH_OK; i++) status = sse_add(sse, bytes, note, &events, error);
    assert_int_equal(events.len, 0);
    buf_release(&events);
    return status;
}

static void a_line_without_an_end_is_refused(void **state)
{
    (void)state;
    struct sse sse = {0};
    struct buf bytes = {0};
    hearth_error error;
    for (size_t i = 0; i < 65536; i++) buf_puts(&bytes, "x");
    assert_int_equal(add_often(&sse, &bytes, SSE_MOST / bytes.len, &error), HEARTH_OK);
    assert_int_equal(add_often(&sse, &bytes, 1, &error), HEARTH_TOO_LONG);
    assert_non_null(strstr(error.message, "a line of more than 4 MiB"));
    assert_true(sse.line.len <= SSE_MOST);
    sse_release(&sse);
    buf_release(&bytes);
}

static void an_event_without_an_end_is_refused(void **state)
{
    (void)state;
    struct sse sse = {0};
    struct buf bytes = {0};
    hearth_error error;
    buf_puts(&bytes, "data:");
    for (size_t i = 0; i < 65530; i++) buf_puts(&bytes, "x");
    buf_puts(&bytes, "\n");
    assert_int_equal(add_often(&sse, &bytes, 100, &error), HEARTH_TOO_LONG);
    assert_non_null(strstr(error.message, "an event of more than 4 MiB"));
    assert_true(sse.data.len <= SSE_MOST + 100);
    sse_release(&sse);
    buf_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_may_be_cut_anywhere),
                                       cmocka_unit_test(a_line_without_an_end_is_refused),
                                       cmocka_unit_test(an_event_without_an_end_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
