/* Replies parsed while they are generated: the deltas, and that the work is linear. */
#include "fakes/cases.h"
#include "support.h"

#include "chat/chat.h"

#include <jansson.h>

/* Qwen3: <think>, <tool_call> with JSON; Qwen3-Coder: arguments as tagged text. */
#define QWEN  "Qwen-Qwen3-0.6B.jinja"
#define CODER "Qwen3-Coder.jinja"
#define PLAIN "Qwen-Qwen2.5-7B-Instruct.jinja" /* no reasoning */

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\",\"properties\":{"    \
    "\"text\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}},{\"type\":\"function\",\"function\":{\"name\":"   \
    "\"write_all\"}}]"

struct heard {
    struct buf reasoning, content, arguments[4];
    char *names[4], *ids[4];
    size_t n_calls, n_deltas;
};

static void hear(void *ud, const hearth_delta *delta)
{
    struct heard *heard = ud;
    struct buf *into[] = {&heard->reasoning, &heard->content, NULL, &heard->arguments[delta->index]};
    heard->n_deltas++;
    if (delta->type == HEARTH_DELTA_CALL) {
        assert_int_equal(delta->index, heard->n_calls);
        heard->names[heard->n_calls] = mem_strdup(delta->name);
        heard->ids[heard->n_calls++] = mem_strdup(delta->id);
    } else {
        buf_append(into[delta->type], delta->text, delta->len);
    }
    if (delta->type == HEARTH_DELTA_ARGUMENTS) {
        assert_string_equal(delta->name, heard->names[delta->index]);
        assert_string_equal(delta->id, heard->ids[delta->index]);
    }
}

static void forget(struct heard *heard)
{
    buf_release(&heard->reasoning);
    buf_release(&heard->content);
    for (size_t i = 0; i < 4; i++) {
        buf_release(&heard->arguments[i]);
        free(heard->names[i]);
        free(heard->ids[i]);
    }
}

/* A template, a format for the reply to one question, a reader and the deltas that it emitted. */
struct rig {
    struct chat_template *template_;
    const struct chat_format *format;
    struct chat_reader *reader;
    struct heard heard;
};

static struct rig open_with(const char *name, struct chat_request request)
{
    struct rig rig = {.template_ = opened_file(name, "<s>", false)};
    hearth_error error = {0};
    if (chat_format_open(rig.template_, &request, NULL, &rig.format, &error) != HEARTH_OK)
        fail_msg("%s: %s", error.param, error.message);
    rig.reader = chat_reader_open(rig.format);
    return rig;
}

static struct rig open_rig(const char *name, const char *tools)
{
    struct chat_request request = asking(USER_SAYS("Hi"));
    request.tools = tree_of(tools);
    return open_with(name, request);
}

static void add(struct rig *rig, const char *text)
{
    chat_reader_add(rig->reader, text, strlen(text), hear, &rig->heard);
}

static void add_in_pieces(struct rig *rig, const char *text, size_t piece)
{
    for (size_t at = 0, len = strlen(text); at < len; at += piece)
        chat_reader_add(rig->reader, text + at, len - at < piece ? len - at : piece, hear, &rig->heard);
}

static void end(struct rig *rig)
{
    chat_reader_end(rig->reader, hear, &rig->heard);
}

static void close_rig(struct rig *rig)
{
    chat_reader_close(rig->reader);
    chat_format_unref(rig->format);
    chat_template_close(rig->template_);
    forget(&rig->heard);
}

static void assert_text(const struct buf *text, const char *expected)
{
    assert_string_equal(text->v == NULL ? "" : text->v, expected);
}

/* ---- Deltas ---- */

static void reasoning_content_and_calls_are_separated(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 40; piece += 4) {
        struct rig rig = open_rig(QWEN, TOOLS);
        add_in_pieces(&rig,
                      "<think>\nHm.\n</think>\n\nWell.\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"n\": 1}}\n"
                      "</tool_call>",
                      piece);
        end(&rig);
        assert_text(&rig.heard.reasoning, "Hm.\n");
        assert_non_null(strstr(rig.heard.content.v, "Well."));
        assert_null(strstr(rig.heard.content.v, "<"));
        assert_int_equal(rig.heard.n_calls, 1);
        assert_string_equal(rig.heard.names[0], "write");
        assert_text(&rig.heard.arguments[0], "{\"n\": 1}");
        assert_memory_equal(rig.heard.ids[0], "call_", 5);
        assert_int_equal(strlen(rig.heard.ids[0]), 29);
        close_rig(&rig);
    }
}

static void content_streams_but_for_what_may_be_a_tag(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, TOOLS);
    add(&rig, "<think>a</think>Hello");
    assert_text(&rig.heard.content, "Hello");
    add(&rig, " <tool");
    assert_null(strstr(rig.heard.content.v, "<"));
    add(&rig, "box>");
    end(&rig);
    assert_text(&rig.heard.content, "Hello <toolbox>");
    close_rig(&rig);
}

static void a_call_is_emitted_once_its_name_is_certain(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, TOOLS);
    add(&rig, "<tool_call>\n{\"name\": \"write");
    assert_int_equal(rig.heard.n_calls, 0);
    add(&rig, "_all\", \"arguments\": {");
    add(&rig, "}}\n</tool_call>");
    end(&rig);
    assert_int_equal(rig.heard.n_calls, 1);
    assert_string_equal(rig.heard.names[0], "write_all");
    assert_text(&rig.heard.arguments[0], "{}");
    close_rig(&rig);
}

/* Nobody is to act on a call that the model did not finish. */
static void truncated_arguments_stay_truncated(void **state)
{
    (void)state;
    static const char arguments[] =
        "{\"text\": \"a\\u00e4\\ud83d\\ude00\\n, \", \"n\": -12, \"x\": [1.5e3, true, {\"y\": null}]}";
    static const char begin[] = "<tool_call>\n{\"name\": \"write\", \"arguments\": ";
    for (size_t len = 2; len <= strlen(arguments); len++) {
        struct rig rig = open_rig(QWEN, TOOLS);
        struct buf text = {0};
        buf_puts(&text, begin);
        buf_append(&text, arguments, len);
        add_in_pieces(&rig, text.v, 5);
        end(&rig);
        assert_int_equal(rig.heard.n_calls, 1);
        const struct buf *heard = &rig.heard.arguments[0];
        assert_true(heard->len <= len && heard->len + 8 >= len); /* an escape may have begun */
        assert_memory_equal(heard->v, arguments, heard->len);
        buf_release(&text);
        close_rig(&rig);
    }
}

static void brackets_in_the_content_do_not_keep_calls_from_being_read(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, TOOLS);
    for (int i = 0; i < 400; i++) add(&rig, "[0m text ");
    add(&rig, "<tool_call>\n{\"name\": \"write_all\", \"arguments\": {}}\n</tool_call>");
    end(&rig);
    assert_int_equal(rig.heard.n_calls, 1);
    close_rig(&rig);
}

static void held_back_text_is_emitted_at_the_end(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, TOOLS);
    add(&rig, "<think>a</think>1 <");
    end(&rig);
    assert_text(&rig.heard.content, "1 <");
    close_rig(&rig);
}

static void what_does_not_fit_the_format_is_content(void **state)
{
    (void)state;
    static const char junk[] =
        "<tool_call>\nthis is no call at all, though it looked as if it would become one; and it "
        "goes on for a while.";
    for (size_t piece = 1; piece < 200; piece += 66) {
        struct rig rig = open_rig(QWEN, TOOLS);
        add_in_pieces(&rig, junk, piece);
        add(&rig, " More.");
        end(&rig);
        assert_non_null(strstr(rig.heard.content.v, junk));
        assert_non_null(strstr(rig.heard.content.v, "while. More."));
        assert_int_equal(rig.heard.n_calls, 0);
        close_rig(&rig);
    }
}

/* The prompt's end, which the reply goes on from, is no content, however the reply begins. */
static void a_reply_that_may_begin_with_a_tag_is_read_in_any_pieces(void **state)
{
    (void)state;
    static const char reply[] =
        "<|START_THINKING|.<|END_O hm<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", "
        "\"tool_name\": \"write\", \"parameters\": {\"n\": 1}}]<|END_ACTION|>";
    struct chat_request request = asking(USER_SAYS("Hi"));
    request.tools = tree_of(TOOLS);
    request.tool_choice = HEARTH_TOOLS_REQUIRED;
    for (size_t piece = 1; piece < 20; piece++) {
        struct rig rig = open_with("Cohere2MoE.jinja", request);
        add_in_pieces(&rig, reply, piece);
        end(&rig);
        assert_text(&rig.heard.content, "");
        assert_text(&rig.heard.reasoning, "<|START_THINKING|.<|END_O hm");
        assert_int_equal(rig.heard.n_calls, 1);
        close_rig(&rig);
    }
}

static void endless_nesting_does_not_exhaust_the_stack(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, TOOLS);
    add(&rig, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"x\": ");
    for (int i = 0; i < 100000; i++) add(&rig, "[[");
    end(&rig);
    assert_true(rig.heard.content.len > 150000);
    close_rig(&rig);
}

static void characters_and_invalid_bytes_pass(void **state)
{
    (void)state;
    struct rig rig = open_rig(QWEN, NULL);
    add_in_pieces(&rig, "<think>\n</think>\xf0\x9f\x98\x80 \xc3\xa9", 1);
    add(&rig, "\xe2\x82");
    end(&rig);
    assert_memory_equal(rig.heard.content.v, "\xf0\x9f\x98\x80 \xc3\xa9", 7);
    close_rig(&rig);
}

static void reasoning_stays_in_the_text_where_asked(void **state)
{
    (void)state;
    struct chat_request request = asking(USER_SAYS("Hi"));
    request.reasoning_in_text = true;
    struct rig rig = open_with(QWEN, request);
    add(&rig, "<think>\nHm.\n</think>\n\nWell.");
    end(&rig);
    assert_text(&rig.heard.content, "<think>\nHm.\n</think>\n\nWell.");
    assert_text(&rig.heard.reasoning, "");
    close_rig(&rig);
}

static void a_continued_message_is_not_repeated(void **state)
{
    (void)state;
    struct chat_request request = asking("[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
                                         "\"content\":\"It is <\"}]");
    struct rig rig = open_with(QWEN, request);
    add(&rig, "3 and");
    add(&rig, " more.");
    end(&rig);
    assert_text(&rig.heard.content, "3 and more.");
    close_rig(&rig);
}

/* ---- JSON ---- */

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 16;
}

/* Appends a random value whose objects and arrays are up to that deep. */
static void put_json(struct buf *json, unsigned *seed, int depth)
{
    static const char *const scalars[] = {"true", "-12.5e3", "\"a }{ ][ \\\"quoted\\\" \\\\\"", "\"```\\n\"", "null"};
    bool is_object = next_random(seed) % 2 == 0;
    size_t n = next_random(seed) % 5;
    if (depth == 0 || next_random(seed) % 4 == 0) {
        buf_puts(json, scalars[next_random(seed) % 5]);
        return;
    }
    buf_puts(json, is_object ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(json, ",");
        buf_puts(json, "\n");
        for (int k = 0; k < 8 - depth; k++) buf_puts(json, "  ");
        if (is_object) buf_printf(json, "\"a_name_%zu\": ", i);
        put_json(json, seed, depth - 1);
    }
    buf_puts(json, is_object ? "\n}" : "]");
}

static struct buf random_object(unsigned *seed)
{
    struct buf json = {0};
    buf_puts(&json, "{\"all\": [");
    for (int i = 0; json.len < 1500; i++) {
        if (i > 0) buf_puts(&json, ", ");
        put_json(&json, seed, 6);
    }
    buf_puts(&json, "]}");
    return json;
}

/* llama.cpp's format for a schema lets the model put a fence around its JSON; the client gets what is within. */
static void long_json_is_what_the_model_wrote_without_the_fence(void **state)
{
    (void)state;
    struct chat_request request = asking(USER_SAYS("Hi"));
    request.json_schema = tree_of("{\"type\": \"object\"}");
    static const struct {
        const char *before, *after;
    } fences[] = {{"", ""}, {"```json\n", "\n```"}};
    for (unsigned seed = 0; seed < (unsigned)cases(30, 10); seed++) {
        unsigned random = seed;
        struct rig rig = open_with(PLAIN, request);
        struct buf json = random_object(&random);
        add(&rig, fences[seed % 2].before);
        add_in_pieces(&rig, json.v, 1 + seed % 7);
        add(&rig, fences[seed % 2].after);
        end(&rig);
        if (strcmp(rig.heard.content.v, json.v) != 0)
            fail_msg("seed %u: instead of\n%s\nit is\n%s", seed, json.v, rig.heard.content.v);
        buf_release(&json);
        close_rig(&rig);
    }
}

/* The handler looks for the end of the turn in the content, which may spell it. */
static void json_may_spell_the_tags_of_the_format(void **state)
{
    static const char *const values[] = {
        "{\"a\": \"b</think><|role_end|>\"}",
        "{\"<|role_end|>\": [\"<|role_end|>\", {\"c\": \"<think>}]<|role_end|>\\\"<|role_end|>\"}], \"d\": 1.5e+3}",
        "\"<|role_end|>\"",
        "[1, \"<tool_call><|role_end|>\", 2]",
    };
    (void)state;
    struct chat_request request = asking(USER_SAYS("Hi"));
    request.json_schema = tree_of("{}");
    for (size_t i = 0; i < 4 * 20; i++) {
        struct rig rig = open_with("inclusionai-ling-3.0-flash.jinja", request);
        add(&rig, "Hm</think>");
        add_in_pieces(&rig, values[i % 4], 1 + i / 4);
        add(&rig, i / 4 % 2 == 0 ? "\n<|role_end|>" : "<|role_end|>");
        end(&rig);
        assert_text(&rig.heard.reasoning, "Hm");
        assert_text(&rig.heard.content, values[i % 4]);
        close_rig(&rig);
    }
}

/* ---- Work ---- */

/* Feeds a reply of about that many bytes, token by token; returns the bytes parsed for it. */
static size_t work_of(const char *name, const char *tools, const char *before, const char *unit, const char *after,
                      size_t bytes, struct buf *content, struct buf *arguments)
{
    struct rig rig = open_rig(name, tools);
    add(&rig, before);
    for (size_t done = 0; done < bytes; done += strlen(unit)) add_in_pieces(&rig, unit, 4);
    add(&rig, after);
    end(&rig);
    size_t work = chat_reader_work(rig.reader);
    if (content != NULL) buf_append(content, rig.heard.content.v, rig.heard.content.len);
    if (arguments != NULL) buf_append(arguments, rig.heard.arguments[0].v, rig.heard.arguments[0].len);
    close_rig(&rig);
    return work;
}

static const struct {
    const char *name, *tools, *before, *unit, *after;
} long_replies[] = {
    {QWEN, NULL, "<think>\n", "so it is, or is it not? ", "\n</think>\n\nYes."},
    {QWEN, NULL, "<think>\n</think>\n\n", "a < b, \"c\" {d} [e]\n\n", ""},
    {QWEN, TOOLS, "Look:\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"",
     "int main(void)\\n{ \\\"x\\\" }\\n\\n", "\"}}\n</tool_call>"},
    {CODER, TOOLS, "<tool_call>\n<function=write>\n<parameter=text>\n", "int main(void)\n{ \"x\" \\n }\n\n",
     "\n</parameter>\n</function>\n</tool_call>"},
    {QWEN, TOOLS, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"list\": [0", ", {\"a\": 1, \"b\": \"c\"}",
     "]}}\n</tool_call>"},
    {QWEN, TOOLS, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"", "\\\\\\\\\\\\\\\\\\\\\\\\",
     "\"}}\n</tool_call>"},
};

static void the_work_is_linear_in_the_replys_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof long_replies / sizeof *long_replies; i++) {
        size_t work[2];
        for (size_t k = 0; k < 2; k++)
            work[k] = work_of(long_replies[i].name, long_replies[i].tools, long_replies[i].before, long_replies[i].unit,
                              long_replies[i].after, k == 0 ? 20000 : 200000, NULL, NULL);
        print_message("reply %zu: %zu bytes parsed for 20 KB, %zu for 200 KB\n", i, work[0], work[1]);
        assert_true(work[1] < 12 * work[0]);
        assert_true(work[1] < 150 * (size_t)200000);
    }
}

static void repeat(struct buf *text, const char *unit)
{
    for (size_t done = 0; done < 20000; done += strlen(unit)) buf_puts(text, unit);
}

static void nothing_of_a_long_reply_is_missing(void **state)
{
    (void)state;
    struct buf content = {0}, json = {0}, tagged = {0}, expected = {0}, quoted = {0}, plain = {0};
    repeat(&expected, long_replies[1].unit);
    work_of(QWEN, NULL, long_replies[1].before, long_replies[1].unit, "", 20000, &content, NULL);
    assert_string_equal(content.v, expected.v);

    buf_puts(&quoted, "{\"text\": \"");
    repeat(&quoted, long_replies[2].unit);
    buf_puts(&quoted, "\"}");
    work_of(QWEN, TOOLS, long_replies[2].before, long_replies[2].unit, long_replies[2].after, 20000, NULL, &json);
    assert_string_equal(json.v, quoted.v);

    repeat(&plain, long_replies[3].unit);
    work_of(CODER, TOOLS, long_replies[3].before, long_replies[3].unit, long_replies[3].after, 20000, NULL, &tagged);
    json_t *value = json_loads(tagged.v, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(value, "text")), plain.v);
    json_decref(value);
    struct buf *all[] = {&content, &json, &tagged, &expected, &quoted, &plain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_release(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_content_and_calls_are_separated),
        cmocka_unit_test(content_streams_but_for_what_may_be_a_tag),
        cmocka_unit_test(a_call_is_emitted_once_its_name_is_certain),
        cmocka_unit_test(truncated_arguments_stay_truncated),
        cmocka_unit_test(brackets_in_the_content_do_not_keep_calls_from_being_read),
        cmocka_unit_test(held_back_text_is_emitted_at_the_end),
        cmocka_unit_test(what_does_not_fit_the_format_is_content),
        cmocka_unit_test(a_reply_that_may_begin_with_a_tag_is_read_in_any_pieces),
        cmocka_unit_test(endless_nesting_does_not_exhaust_the_stack),
        cmocka_unit_test(characters_and_invalid_bytes_pass),
        cmocka_unit_test(reasoning_stays_in_the_text_where_asked),
        cmocka_unit_test(a_continued_message_is_not_repeated),
        cmocka_unit_test(long_json_is_what_the_model_wrote_without_the_fence),
        cmocka_unit_test(json_may_spell_the_tags_of_the_format),
        cmocka_unit_test(the_work_is_linear_in_the_replys_length),
        cmocka_unit_test(nothing_of_a_long_reply_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
