/* hearth cache: prints as text what /cache/lookup of a running server says of a prompt. Main thread. */
#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/args.h"
#include "cli/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "hearth cache explain"

/* ---- The body ---- */

static int read_file(const char *path, struct buf *body, hearth_error *error)
{
    char chunk[65536];
    size_t n;
    bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "re");
    if (file == NULL) return error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, strerror(errno));
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buf_append(body, chunk, n);
    int rc = HEARTH_OK;
    if (ferror(file) != 0) rc = error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, strerror(errno));
    if (!is_input) fclose(file);
    return rc;
}

/* ---- The answer ---- */

static int64_t number(const json_t *found, const char *name)
{
    return json_integer_value(json_object_get(found, name));
}

static const char *text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* "" for one that the server, of another version perhaps, does not tell. */
static const char *words_of(const json_t *object, const char *name)
{
    const char *found = text(object, name);
    return found != NULL ? found : "";
}

static void print_words(const char *label, const char *words)
{
    struct buf visible = {0};
    utf8_put_visible(&visible, words, strlen(words), true);
    printf("  %-18s \"%s\"\n", label, buf_text(&visible));
    buf_release(&visible);
}

/* Why fewer tokens are reused than the two prompts have in common. */
static void print_limit(const char *limit)
{
    static const char *const reasons[][2] = {
        {"cache_min_tokens", "they are fewer than cache_min_tokens"},
        {"checkpoints", "this model's state can be reused at checkpoints only, and none is nearer"},
        {"deterministic", "deterministic: only whole pieces of a prompt are reused"},
        {"unfinished", "the rest of the nearest prompt is still being computed or stored"},
        {"cache_prompt", "the request says cache_prompt: false"},
        {"system_prompt_cache", "system_prompt_cache: only system prompts are cached"},
        {"incremental_cache", "incremental_cache is off: nothing is cached"},
    };
    for (size_t i = 0; limit != NULL && i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(reasons[i][0], limit) == 0) printf("not all of these are reused: %s\n", reasons[i][1]);
}

static void print_next_words(const char *prompt, const char *nearest)
{
    const size_t here = strlen(prompt), there = strlen(nearest), both = here < there ? here : there;
    if (both > 0 && strncmp(prompt, nearest, both) == 0) {
        print_words("both go on", here < there ? prompt : nearest);
        printf("  the same words, in other tokens: the nearest one was tokenised, or sampled, otherwise\n");
        return;
    }
    print_words("this prompt says", prompt);
    if (nearest[0] != '\0')
        print_words("the nearest says", nearest);
    else
        printf("  the nearest one ends there: what follows is new\n");
}

static void print_answer(const json_t *found)
{
    printf("%s: %" PRId64 " tokens, of which %" PRId64 " would be computed\n", text(found, "model"),
           number(found, "prompt_tokens"), number(found, "computed"));
    /* Prints how many leading tokens each tier has. Tiers are the integer members but for the few named here. */
    static const char *const others[] = {"prompt_tokens", "tokens", "computed"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)found, name, value)
    {
        bool is_tier = json_is_integer(value);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) is_tier = is_tier && strcmp(name, others[i]) != 0;
        if (is_tier) printf("  %-18s %8" PRId64 "\n", name, (int64_t)json_integer_value(value));
    }
    const json_t *divergence = json_object_get(found, "divergence");
    int64_t position = number(divergence, "position"), prompt = number(found, "prompt_tokens");
    const char *where = text(divergence, "where"), *nearest = words_of(divergence, "nearest");
    if (where == NULL) {
        printf("nothing that is resident or stored begins like this prompt, under its cache_salt and adapters\n");
        return;
    }
    if (position >= prompt) {
        printf("all of the prompt is there (%s); its last token is always computed\n", where);
    } else {
        printf("after %" PRId64 " tokens", position);
        const json_t *message = json_object_get(divergence, "message");
        if (json_is_integer(message))
            printf(", in message %d (%s),", (int)json_integer_value(message), words_of(divergence, "role"));
        printf(" the prompt diverges from the nearest one (%s)\n", where);
        print_words("both say", words_of(divergence, "common"));
        print_next_words(words_of(divergence, "prompt"), nearest);
    }
    print_limit(text(divergence, "limit"));
}

/* ---- Asking ---- */

/* The arguments of the command line. */
struct question {
    const char *file, *url, *as;
    bool as_json;
};

static int explain_body(const struct remote *remote, const struct question *question, const struct buf *body,
                        hearth_error *error)
{
    struct buf text_of_answer = {0};
    const char *as = question->as;
    char *path = mem_format("/cache/lookup%s%s", as == NULL ? "" : "?as=", as == NULL ? "" : as);
    long status = remote_ask(remote, path, body, &text_of_answer);
    json_t *answer = json_loadb(buf_text(&text_of_answer), text_of_answer.len, 0, NULL);
    int rc = HEARTH_OK;
    if (status == 200 && text(answer, "model") != NULL && json_object_get(answer, "divergence") != NULL) {
        if (question->as_json)
            json_output_print(json_incref(answer));
        else
            print_answer(answer);
    } else if (status == 0) {
        rc = error_at(error, HEARTH_UNAVAILABLE, "server", "no server answers at %s: name it with --server URL",
                      remote->url);
    } else {
        const char *message = text(json_object_get(answer, "error"), "message");
        rc = error_at(error, HEARTH_INVALID, "body", "%s answers with status %ld: %s", remote->url, status,
                      message == NULL ? "is it a hearth server?" : message);
    }
    json_decref(answer);
    buf_release(&text_of_answer);
    free(path);
    return rc;
}

static int run_explain(const struct question *question)
{
    static const char *const apis[] = {"chat", "completion", "messages", "responses", "ollama"};
    hearth_error error;
    struct buf body = {0};
    bool is_known = question->as == NULL;
    for (size_t i = 0; !is_known && i < sizeof apis / sizeof *apis; i++) is_known = strcmp(question->as, apis[i]) == 0;
    if (!is_known) {
        error_at(&error, HEARTH_INVALID, "as", "--as %s: it is chat, completion, messages, responses or ollama",
                 question->as);
        return args_fail(COMMAND, &error, EXIT_USAGE);
    }
    struct remote remote = remote_open(question->url);
    int rc = read_file(question->file, &body, &error);
    if (rc == HEARTH_OK) rc = explain_body(&remote, question, &body, &error);
    remote_close(&remote);
    buf_release(&body);
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(COMMAND, &error, EXIT_FAILED);
}

static int explain(int argc, char **argv)
{
    struct question question = {.url = REMOTE_DEFAULT};
    const struct args_option options[] = {
        {"server", "URL", "the server (" REMOTE_DEFAULT ")", .text = &question.url},
        {"as", "API", "chat, completion, messages, responses or ollama; without it the body's fields decide",
         .text = &question.as, .choices = "chat|completion|messages|responses|ollama"},
        json_output_option(&question.as_json),
    };
    const struct args_spec spec = {
        .command = COMMAND,
        .about =
            "Says how much of a request's prompt a server would not have to compute, where the rest diverges from\n"
            "the nearest prompt that is resident or stored, and the words on both sides. FILE is the request's\n"
            "body in any API's form, - standard input. Nothing is computed. Where the server wants an API key, set\n"
            "HEARTH_API_KEY to one with the grant cache. Prompts with another cache_salt are not considered.",
        ARGS_OPTIONS(options),
        .operand = "FILE",
        .operand_value = &question.file,
        .examples = "  hearth cache explain body.json\n"
                    "  hearth cache explain - --server http://10.0.0.5:8080 < body.json\n",
    };
    int status;
    return args_read(&spec, argc, argv, &status) ? run_explain(&question) : status;
}

int command_cache(int argc, char **argv)
{
    static const struct command commands[] = {{"explain", "why a prompt is not found in the cache", explain}};
    static const struct command_group group = {
        .program = "hearth cache",
        .about = "What a running server has cached of a prompt.",
        .examples = "  hearth cache explain body.json\n",
        ARGS_COMMANDS(commands),
    };
    return command_dispatch(&group, argc, argv);
}
