/* Calls that come back: what a model wrote is read, the client sends the call again, and the template prints it. Where
 * these bytes are those that the model wrote, the reply's tokens are found again (instance/requests/reply_book.h);
 * where not, what follows the difference is computed. For every template that comes with llama.cpp: the call as the
 * template itself prints it, which is what its model was trained to write, and the same with its JSON spelled in other
 * ways. */
#include "support.h"

#include "chat/chat.h"

#include <dirent.h>
#include <jansson.h>

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"description\":\"Finds.\",\"parameters\":"               \
    "{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"            \
    "\"also\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"place\",\"days\",\"also\"]}}}]"

/* The arguments in the spellings that a model might use. */
static const char *const spellings[][2] = {
    {"as the template", NULL},
    {"compact", "{\"place\":\"K\xc3\xb6ln, \\\"Dom\\\"\",\"days\":3,\"also\":[\"rain\",\"wind\"]}"},
    {"spaced", "{\"place\": \"K\xc3\xb6ln, \\\"Dom\\\"\", \"days\": 3, \"also\": [\"rain\", \"wind\"]}"},
    {"escaped", "{\"place\": \"K\\u00f6ln, \\\"Dom\\\"\", \"days\": 3, \"also\": [\"rain\", \"wind\"]}"},
    {"other order", "{\"days\": 3, \"also\": [\"rain\", \"wind\"], \"place\": \"K\xc3\xb6ln, \\\"Dom\\\"\"}"},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings, REASONED = SPELLINGS, SILENT, COLUMNS };
static const char *const more_columns[] = {"reasoning sent back", "reasoning left out"};

static const char *column_name(size_t i)
{
    return i < SPELLINGS ? spellings[i][0] : more_columns[i - SPELLINGS];
}

/* ---- Reading ---- */

struct heard {
    struct buf content, reasoning, arguments, name;
    int calls;
};

static void hear(void *ud, const hearth_delta *delta)
{
    struct heard *heard = ud;
    if (delta->type == HEARTH_DELTA_CONTENT) buf_append(&heard->content, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_REASONING) buf_append(&heard->reasoning, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_ARGUMENTS) buf_append(&heard->arguments, delta->text, delta->len);
    if (delta->type == HEARTH_DELTA_CALL) {
        heard->calls++;
        buf_puts(&heard->name, delta->name);
    }
}

static void release(struct heard *heard)
{
    buf_release(&heard->content);
    buf_release(&heard->reasoning);
    buf_release(&heard->arguments);
    buf_release(&heard->name);
}

/* ---- Rendering ---- */

/* The question, and the reply where there is one. free() it. */
static char *render(const struct chat_template *template_, json_t *reply)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "How is the weather?");
    if (reply != NULL) json_array_append(messages, reply);
    char *text = json_dumps(messages, JSON_COMPACT);
    struct chat_request request = asking(text);
    request.tools = tree_of(TOOLS);
    request.n_messages = reply == NULL ? 0 : 2;
    request.add_generation_prompt = reply == NULL;
    hearth_error error;
    char *rendered = chat_render(template_, &request, &error);
    free(text);
    json_decref(messages);
    return rendered;
}

static json_t *reply_of(const char *content, const char *reasoning, const char *arguments)
{
    json_t *reply =
        json_pack("{s:s, s:s?, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role", "assistant", "content", content, "tool_calls",
                  "id", "call00001", "type", "function", "function", "name", "find", "arguments", arguments);
    if (reasoning != NULL) json_object_set_new(reply, "reasoning_content", json_string(reasoning));
    return reply;
}

/* ---- One template ---- */

static struct heard read_reply(const struct chat_template *template_, const char *written)
{
    struct heard heard = {.calls = 0};
    const struct chat_format *format;
    hearth_error error;
    struct chat_request request = asking(USER_SAYS("How is the weather?"));
    request.tools = tree_of(TOOLS);
    if (chat_format_open(template_, &request, NULL, &format, &error) != HEARTH_OK) return heard;
    size_t len = strlen(written);
    for (size_t i = 0; i < format->n_stops; i++) { /* the reply ends before a stop string */
        const char *stop = strstr(written, format->stops[i]);
        if (stop != NULL && (size_t)(stop - written) < len) len = (size_t)(stop - written);
    }
    struct chat_reader *reader = chat_reader_open(format);
    chat_reader_add(reader, written, len, hear, &heard);
    chat_reader_end(reader, hear, &heard);
    chat_reader_close(reader);
    chat_format_unref(format);
    return heard;
}

/* What the template prints behind a reply: the model's end of turn is a token there, and no text of its reply. free()
 * it.
 */
static char *end_of_turn(const struct chat_template *template_)
{
    json_t *reply = json_pack("{s:s, s:s}", "role", "assistant", "content", "It is wet there.");
    char *text = render(template_, reply), *end = NULL;
    json_decref(reply);
    const char *at = text == NULL ? NULL : strstr(text, "It is wet there.");
    if (at != NULL) end = mem_strdup(at + strlen("It is wet there."));
    free(text);
    return end;
}

static void cut_end(char *written, const char *end)
{
    size_t len = strlen(written), n = end == NULL ? 0 : strlen(end);
    if (n > 0 && len > n && strcmp(written + len - n, end) == 0) len -= n;
    while (len > 0 && (written[len - 1] == '\n' || written[len - 1] == ' ')) len--;
    /* Some end a turn otherwise behind a call: <|eom_id|>, <|call|>, </s>. */
    static const char *const ends[] = {"<|eom_id|>", "<|eot_id|>", "<|call|>",
                                       "</s>",       "<|im_end|>", "<|END_OF_TURN_TOKEN|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        n = strlen(ends[i]);
        if (len > n && strncmp(written + len - n, ends[i], n) == 0) len -= n;
    }
    written[len] = '\0';
}

/* The text with one part of it replaced. NULL: it does not have that part. */
static char *replaced(const char *text, const char *part, const char *by)
{
    const char *at = strstr(text, part);
    return at == NULL ? NULL : mem_format("%.*s%s%s", (int)(at - text), text, by, at + strlen(part));
}

static bool same_json(const char *a, const char *b)
{
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    bool same = x != NULL && y != NULL && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

enum outcome { SAME, DIFFERS, NO_CALL, NOT_SO };
static const char *const outcomes[] = {[SAME] = "same", [DIFFERS] = "differs", [NO_CALL] = "not read", [NOT_SO] = ""};

/* What the model wrote, printed again from what was read of it. The whole reply must be the same, as far as the model
 * writes it: up to its last byte that is no blank. */
static enum outcome print_again(const struct chat_template *template_, const char *before, const char *written,
                                bool keeps_reasoning)
{
    struct heard heard = read_reply(template_, written);
    enum outcome outcome = NO_CALL;
    if (heard.calls == 1 && same_json(buf_text(&heard.arguments), spellings[1][1])) {
        const char *content = heard.content.len == 0 ? NULL : buf_text(&heard.content);
        const char *reasoning = keeps_reasoning && heard.reasoning.len > 0 ? buf_text(&heard.reasoning) : NULL;
        json_t *reply = reply_of(content, reasoning, buf_text(&heard.arguments));
        char *again = render(template_, reply);
        size_t n = strlen(before);
        bool same =
            again != NULL && strncmp(again, before, n) == 0 && strncmp(again + n, written, strlen(written)) == 0;
        outcome = same ? SAME : DIFFERS;
        free(again);
        json_decref(reply);
    }
    release(&heard);
    return outcome;
}

/* What the template prints for the reply behind the generation prompt; NULL: its models cannot write that. */
static char *written_by(const struct chat_template *template_, const char *before, const char *reasoning,
                        const char *arguments)
{
    char *end = end_of_turn(template_);
    json_t *reply = reply_of(NULL, reasoning, arguments);
    char *text = render(template_, reply), *written = NULL;
    json_decref(reply);
    if (text != NULL && strncmp(text, before, strlen(before)) == 0 && strlen(text) > strlen(before))
        written = mem_strdup(text + strlen(before));
    if (written != NULL) cut_end(written, end);
    free(end);
    free(text);
    return written;
}

/* The template's own spelling of the arguments: that of which it prints all. */
static const char *own_spelling(const char *written)
{
    for (size_t i = 1; i < SPELLINGS; i++)
        if (strstr(written, spellings[i][1]) != NULL) return spellings[i][1];
    return NULL;
}

static size_t counts[COLUMNS][4], n_templates;

static void note(size_t column, enum outcome outcome, struct buf *row)
{
    counts[column][outcome]++;
    buf_printf(row, " %s |", outcomes[outcome]);
}

static void try_template(const char *name)
{
    struct chat_template *template_ = opened_file(name, "<s>", false);
    char *before = render(template_, NULL), *written = NULL;
    struct buf row = {0};
    if (before != NULL) written = written_by(template_, before, NULL, spellings[2][1]);
    buf_printf(&row, "| %.*s |", (int)(strlen(name) - strlen(".jinja")), name);
    const char *own = written == NULL ? NULL : own_spelling(written);
    for (size_t i = 0; i < SPELLINGS; i++) {
        char *other = written == NULL ? NULL
                      : i == 0        ? mem_strdup(written)
                      : own == NULL   ? NULL
                                      : replaced(written, own, spellings[i][1]);
        note(i, other == NULL ? NOT_SO : print_again(template_, before, other, true), &row);
        free(other);
    }
    char *reasoned = before == NULL ? NULL : written_by(template_, before, "It is asked for.", spellings[2][1]);
    bool reasons = reasoned != NULL && strstr(reasoned, "It is asked for.") != NULL;
    note(REASONED, reasons ? print_again(template_, before, reasoned, true) : NOT_SO, &row);
    note(SILENT, reasons ? print_again(template_, before, reasoned, false) : NOT_SO, &row);
    n_templates++;
    printf("%s\n", buf_text(&row));
    buf_release(&row);
    free(reasoned);
    free(before);
    free(written);
    chat_template_close(template_);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void every_template_prints_calls_as_its_model_wrote_them_or_is_counted(void **state)
{
    (void)state;
    char *path = templates_path(""), *names[200];
    size_t n = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strstr(entry->d_name, ".jinja") != NULL) names[n++] = mem_strdup(entry->d_name);
    closedir(folder);
    free(path);
    qsort(names, n, sizeof *names, by_name);
    printf("| template |");
    for (size_t i = 0; i < COLUMNS; i++) printf(" %s |", column_name(i));
    printf("\n");
    for (size_t i = 0; i < n; i++) {
        try_template(names[i]);
        free(names[i]);
    }
    for (size_t i = 0; i < COLUMNS; i++)
        printf("%-20s same %zu, differs %zu, not read %zu\n", column_name(i), counts[i][SAME], counts[i][DIFFERS],
               counts[i][NO_CALL]);
    /* What a model was trained to write comes back as it was written, but for one template, which prints the end of the
     * call otherwise. So does another order; other blanks and escapes are lost, since templates print JSON anew. */
    assert_true(counts[0][SAME] >= 41 && counts[0][DIFFERS] <= 1);
    assert_true(counts[4][SAME] >= 26 && counts[4][DIFFERS] <= 1);
    assert_true(counts[1][DIFFERS] <= 26 && counts[3][DIFFERS] <= 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_prints_calls_as_its_model_wrote_them_or_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
