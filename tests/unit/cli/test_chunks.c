/* Chunks of a streamed chat: of hearth, of llama-server, of others, and of none of them. */
#include "cli/chat/reply_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What was handed over, in one text: c(content) r(reasoning) p(cached+computed/all). */
static void note(void *ud, const struct reply_event *event)
{
    struct buf *out = ud;
    if (event->type == REPLY_PROGRESS) {
        buf_printf(out, "p(%d+%d/%d)", event->result->cache_n, event->result->prompt_n, event->result->n_prompt);
    } else {
        buf_puts(out, event->type == REPLY_CONTENT ? "c(" : "r(");
        buf_append(out, event->text, event->len);
        buf_puts(out, ")");
    }
}

static void read_all(struct chunks *chunks, struct buf *out, const char *const *data)
{
    *chunks = (struct chunks){.to = {note, out}};
    for (; *data != NULL; data++) chunks_read(chunks, *data, strlen(*data));
}

static void hearths_chunks_have_progress_and_times(void **state)
{
    (void)state;
    static const char *const data[] = {
        "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}",
        "{\"choices\":[{\"delta\":{}}],\"prompt_progress\":{\"total\":90,\"cache\":20,\"processed\":50}}",
        "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":null}],\"usage\":null}",
        "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"timings\":{\"cache_n\":20,\"prompt_n\":70,"
        "\"predicted_n\":3,\"prompt_ms\":12.5,\"predicted_ms\":4,\"queue_ms\":1.5}}",
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}",
        "[DONE]",
        "this is not read",
        NULL};
    struct chunks chunks;
    struct buf out = {0};
    read_all(&chunks, &out, data);
    assert_string_equal(buf_text(&out), "p(20+30/90)r(hm)c(Hel)c(lo)");
    assert_true(chunks.finished && chunks.done && chunks.has_timings);
    assert_int_equal(chunks.error.code, HEARTH_OK);
    assert_int_equal(chunks.result.cache_n, 20);
    assert_int_equal(chunks.result.prompt_n, 70);
    assert_int_equal(chunks.result.predicted_n, 3);
    assert_true(chunks.result.prompt_ms > 12.4 && chunks.result.queue_ms > 1.4);
    buf_release(&out);
}

static void others_have_usage_alone_or_nothing(void **state)
{
    (void)state;
    static const char *const with[] = {
        "{\"choices\":[{\"delta\":{\"reasoning\":\"hm\",\"content\":\"Hi\"},\"finish_reason\":\"length\"}]}",
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
        "\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
        NULL};
    static const char *const without[] = {"{\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}", "[DONE]", NULL};
    struct chunks chunks;
    struct buf out = {0};
    read_all(&chunks, &out, with);
    assert_int_equal(chunks.result.finish, HEARTH_FINISH_LENGTH);
    assert_string_equal(buf_text(&out), "r(hm)c(Hi)");
    assert_true(chunks.finished && !chunks.done && chunks.has_usage && !chunks.has_timings);
    assert_int_equal(chunks.result.cache_n, 4);
    assert_int_equal(chunks.result.prompt_n, 5);
    assert_int_equal(chunks.result.predicted_n, 2);
    read_all(&chunks, &out, without);
    assert_true(chunks.done && !chunks.has_usage);
    buf_release(&out);
}

static void an_error_ends_the_reply(void **state)
{
    (void)state;
    static const struct {
        const char *data, *message;
    } rows[] = {
        {"{\"error\":{\"message\":\"out of cells\",\"code\":\"server_busy\"}}", "ended the reply: out of cells"},
        {"{\"error\":\"broken\"}", "ended the reply: broken"},
        {"{\"error\":{\"message\":\"evil \\u001b[2J\\u0007\"}}", "evil \\u001b[2J\\u0007"},
        {"{\"error\":{}}", "it does not say why"},
        {"{\"choices\":", "no JSON object: is it a server of OpenAI's API?: {\"choices\":"},
        {"7", "no JSON object"},
        {"\xff\x1b", "no JSON object: is it a server of OpenAI's API?: \xef\xbf\xbd\\u001b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const data[] = {"{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}", rows[i].data,
                                    "{\"choices\":[{\"delta\":{\"content\":\"more\"}}]}", NULL};
        struct chunks chunks;
        struct buf out = {0};
        read_all(&chunks, &out, data);
        assert_non_null(strstr(chunks.error.message, rows[i].message));
        assert_false(chunks.finished || chunks.done);
        assert_int_equal(out.len, 0);
        buf_release(&out);
    }
}

static void members_of_another_type_count_as_missing(void **state)
{
    (void)state;
    static const char *const data[] = {
        "{}",
        "{\"choices\":{}}",
        "{\"choices\":[7]}",
        "{\"choices\":[{\"delta\":[],\"finish_reason\":3}],\"usage\":[],\"timings\":4,\"prompt_progress\":\"x\"}",
        "{\"choices\":[{\"delta\":{\"content\":5,\"reasoning_content\":null,\"reasoning\":{}}}],\"error\":null}",
        "{\"usage\":{\"prompt_tokens\":-4,\"completion_tokens\":1e99,\"prompt_tokens_details\":{\"cached_tokens\":9}}}",
        "{\"timings\":{\"cache_n\":99999999999,\"prompt_n\":\"x\",\"prompt_ms\":-1}}",
        NULL};
    struct chunks chunks;
    struct buf out = {0};
    read_all(&chunks, &out, data);
    assert_int_equal(out.len, 0);
    assert_int_equal(chunks.error.code, HEARTH_OK);
    assert_false(chunks.finished || chunks.done);
    assert_int_equal(chunks.result.cache_n, INT32_MAX);
    assert_int_equal(chunks.result.prompt_n, 0);
    assert_true(chunks.result.prompt_ms < 1);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hearths_chunks_have_progress_and_times), cmocka_unit_test(others_have_usage_alone_or_nothing),
        cmocka_unit_test(an_error_ends_the_reply), cmocka_unit_test(members_of_another_type_count_as_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
