/* What the grammar of a call lets through is what the parser takes: for every template that comes with llama.cpp random
 * replies are drawn from the grammar of a required call, byte by byte, and read. Each is a call with arguments that are
 * JSON, whole, and nothing else but text before it. Where a schema stands beside the tools, each is such a call, or
 * JSON of the schema alone. HEARTH_SEED= chooses other replies, HEARTH_REPLIES= more of them, HEARTH_TEMPLATE= one
 * file. */
#include "fakes/cases.h"

#include "base/json_text.h"
#include "grammar/grammar.h"
#include "support.h"

#include <dirent.h>

/* ---- Drawing ---- */

enum { LONGEST = 1000, PATIENCE = 100 };

static uint64_t drawn;

static unsigned draw(unsigned n)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return (unsigned)(drawn >> 11) % n;
}

/* White space, quotes, tags and ends are what grammars and parsers see differently. A long reply hurries to its end. */
static int prefer(const int *allowed, int n, size_t len)
{
    static const char *const biases[] = {"", " \n\t", "\"\\", "<|[", ">]}/", "aA,"};
    const char *wanted = len > PATIENCE ? "\"]}<>/|)\n" : biases[drawn / 64 % 6];
    if (len <= PATIENCE && draw(3) == 0) wanted = "";
    for (; *wanted != '\0'; wanted++)
        for (int i = 0; i < n; i++)
            if (allowed[i] == *wanted) return allowed[i];
    return allowed[draw((unsigned)n)];
}

static int next_byte(struct grammar *grammar, const struct grammar_state *state, size_t len)
{
    struct grammar_state next = {0};
    int allowed[256], n = 0;
    grammar_reset_budget(grammar);
    for (int byte = 1; byte < 0x80; byte++)
        if (grammar_accept_byte(grammar, state, (unsigned char)byte, &next)) allowed[n++] = byte;
    grammar_release(&next);
    return n == 0 ? -1 : prefer(allowed, n, len);
}

/* Appends a random reply to what the grammar has matched so far; false: it does not come to an end. */
static bool draw_reply(struct grammar *grammar, struct grammar_state *state, struct buf *reply)
{
    while (reply->len < LONGEST) {
        if (grammar_complete(state) && (reply->len > PATIENCE || draw(3) == 0)) return true;
        int byte = next_byte(grammar, state, reply->len);
        if (byte < 0) return grammar_complete(state);
        struct grammar_state next = {0};
        grammar_accept_byte(grammar, state, (unsigned char)byte, &next);
        grammar_release(state);
        *state = next;
        buf_append(reply, &(char){(char)byte}, 1);
    }
    return false;
}

/* ---- Reading ---- */

struct seen {
    struct buf text, arguments[8];
    size_t n_calls;
};

static void see(void *ud, const hearth_delta *delta)
{
    struct seen *seen = ud;
    if (delta->type == HEARTH_DELTA_CONTENT) buf_append(&seen->text, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_CALL && delta->index < 8) seen->n_calls = delta->index + 1;
    if (delta->type == HEARTH_DELTA_ARGUMENTS && delta->index < 8)
        buf_append(&seen->arguments[delta->index], delta->text, delta->len);
}

/* What is not {"ok":…,"share":…} with true or false, and a number from 0 to 1. */
static const char *fault_of_text(const struct seen *seen)
{
    json_t *json = json_text_read(buf_text((struct buf *)&seen->text), seen->text.len, NULL);
    json_t *share = json_object_get(json, "share");
    double value = json_is_number(share) ? json_number_value(share) : -1;
    bool fits = json_object_size(json) == 2 && json_is_boolean(json_object_get(json, "ok")) && value >= 0 && value <= 1;
    json_decref(json);
    return fits ? NULL : "its text is not of the schema";
}

static int n_calls, n_texts;

static const char *fault_of(const struct chat_format *format, const struct buf *reply, bool either)
{
    struct seen seen = {0};
    const char *fault = NULL;
    struct chat_reader *reader = chat_reader_open(format);
    chat_reader_add(reader, reply->v, reply->len, see, &seen);
    chat_reader_end(reader, see, &seen);
    if (seen.n_calls == 0) fault = either ? fault_of_text(&seen) : "it is no call";
    if (seen.n_calls > 0 && either && buf_text(&seen.text)[strspn(buf_text(&seen.text), " \t\n")] != '\0')
        fault = "it is a call and text";
    n_calls += seen.n_calls > 0;
    n_texts += seen.n_calls == 0;
    for (size_t i = 0; i < seen.n_calls; i++) {
        json_t *arguments = json_text_read(buf_text(&seen.arguments[i]), seen.arguments[i].len, NULL);
        if (!json_is_object(arguments)) fault = "its arguments are no JSON";
        json_decref(arguments);
        buf_release(&seen.arguments[i]);
    }
    if (fault == NULL && !chat_reader_is_whole(reader)) fault = "it is cut off";
    chat_reader_close(reader);
    buf_release(&seen.text);
    return fault;
}

/* ---- Cases ---- */

#define TOOL(name, parameters)                                                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"

static const char *const tools[] = {
    "[" TOOL("act", "{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"boolean\"}},\"required\":[\"p\"]}") "]",
    "[" TOOL("act", "{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\"},\"q\":{\"type\":\"integer\"}},"
                    "\"required\":[\"p\"]}") "]",
    "[" TOOL("act", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"null\"},\"c\":{"
                    "\"type\":\"array\",\"items\":{\"enum\":[1,2]}}}}") "]",
    "[" TOOL("act",
             "{\"type\":\"object\",\"properties\":{\"o\":{\"type\":\"object\",\"properties\":{\"x\":{\"enum\":[1]}}},"
             "\"s\":{\"enum\":[\"a\",\"b\"]}},\"required\":[\"s\",\"o\"]}") "," TOOL("rest",
                                                                                     "{\"type\":\"object\"}") "]",
};

#define OK_SCHEMA                                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"},\"share\":{\"type\":\"number\",\"minimum\":0," \
    "\"maximum\":1}},\"required\":[\"ok\",\"share\"],\"additionalProperties\":false}"

static int n_replies;

static bool draw_one(const struct chat_format *format, const char *name, size_t which, bool either, struct buf *faults)
{
    hearth_error error = {0};
    struct grammar_state state = {0}, next = {0};
    struct buf reply = {0};
    struct grammar *grammar = grammar_open(format->grammar, NULL, &error);
    if (grammar == NULL) fail_msg("%s: %s", name, error.message);
    grammar_start(grammar, &state);
    for (const char *at = format->grammar_prefilled ? format->prefill : ""; *at != '\0'; at++) {
        assert_true(grammar_accept_byte(grammar, &state, (unsigned char)*at, &next));
        grammar_copy(&state, &next);
    }
    uint64_t from = drawn;
    bool ends = draw_reply(grammar, &state, &reply);
    const char *fault = ends ? fault_of(format, &reply, either) : NULL;
    n_replies += ends;
    if (fault != NULL)
        buf_printf(faults, "%s, tools %zu, at %llu: %s: %s\n", name, which, (unsigned long long)from, fault,
                   buf_text(&reply));
    grammar_release(&state);
    grammar_release(&next);
    grammar_close(grammar);
    buf_release(&reply);
    return fault == NULL;
}

/* Of the tools two of four, with the next template the others (fakes/cases.h). */
static void draw_from(const char *name, size_t turn, int times, bool either, struct buf *faults)
{
    struct chat_template *template_ = opened_file(name, "", false);
    for (size_t which = 0; which < sizeof tools / sizeof *tools; which++) {
        if (!is_in_part(turn + which) && !is_in_part(turn + which + 2)) continue;
        hearth_error error = {0};
        struct chat_request request = asking(USER_SAYS("Hi"));
        const struct chat_format *format;
        request.tools = tree_of(tools[which]);
        request.tool_choice = either ? HEARTH_TOOLS_AUTO : HEARTH_TOOLS_REQUIRED;
        request.json_schema = tree_of(either ? OK_SCHEMA : NULL);
        request.parallel_tool_calls = -1;
        if (chat_format_open(template_, &request, NULL, &format, &error) != HEARTH_OK) {
            if (strstr(error.message, "recursion") == NULL) /* as the template does in Jinja2, too */
                buf_printf(faults, "%s, tools %zu: %s\n", name, which, error.message);
            continue;
        }
        if (format->grammar == NULL || format->grammar_lazy) buf_printf(faults, "%s: nothing binds the reply\n", name);
        for (int i = 0; format->grammar != NULL && i < times; i++)
            if (!draw_one(format, name, which, either, faults)) break;
        chat_format_unref(format);
    }
    chat_template_close(template_);
}

static void draw_from_all(bool either)
{
    const char *seed = getenv("HEARTH_SEED"), *times = getenv("HEARTH_REPLIES"), *only = getenv("HEARTH_TEMPLATE");
    struct buf faults = {0};
    char *folder = templates_path("");
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort); /* the draws follow the order */
    drawn = seed == NULL ? 20261128 : strtoull(seed, NULL, 10);
    print_message("seed %llu\n", (unsigned long long)drawn);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (strstr(name, ".jinja") != NULL && (only == NULL || strcmp(only, name) == 0))
            draw_from(name, (size_t)i, times == NULL ? 2 : atoi(times), either, &faults);
        free(entries[i]);
    }
    free(entries);
    free(folder);
    print_message("%d replies: %d of calls, %d of text\n", n_replies, n_calls, n_texts);
    fputs(buf_text(&faults), stderr);
    assert_int_equal(faults.len, 0);
    assert_true(only != NULL || n_replies > 100);
    buf_release(&faults);
}

static void what_the_grammar_of_a_call_lets_through_is_read_as_a_call(void **state)
{
    (void)state;
    draw_from_all(false);
}

static void beside_a_schema_a_reply_is_a_call_or_text_of_the_schema(void **state)
{
    (void)state;
    n_calls = n_texts = 0;
    draw_from_all(true);
    assert_true(n_texts > n_calls / 10 && n_calls > n_texts / 10);
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(what_the_grammar_of_a_call_lets_through_is_read_as_a_call),
        cmocka_unit_test(beside_a_schema_a_reply_is_a_call_or_text_of_the_schema),
    };
    return cmocka_run_group_tests(tests_, NULL, NULL);
}
