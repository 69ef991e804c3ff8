/* Writes random replies that keep to their constraint, for tests/e2e/constrained_replies.test.js: one line of JSON a
 * case on the standard input, one reply each on the output. What a model would sample is drawn here, under several
 * biases; template, format, grammar, vocabulary and the reading of the reply are those of a server.
 *
 * usage: constrained-replies VOCABULARY.gguf TEMPLATES-FOLDER */
#include "base/buf.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "instance/requests/output_constraint.h"
#include "json_trees.h"
#include "llm/constraint.h"
#include "llm/vocab.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Chance ---- */

static uint64_t chance;

static uint32_t next_random(void)
{
    chance = chance * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(chance >> 33);
}

static bool happens(double probability)
{
    return next_random() % 100000 < probability * 100000;
}

/* ---- Templates ---- */

struct known_template {
    char *name;
    struct chat_template *template_;
};

static struct known_template templates[200];
static size_t n_templates;

static char *file_text(const char *folder, const char *name)
{
    struct buf text = {0};
    char bytes[4096], *path = mem_format("%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    for (size_t n; file != NULL && (n = fread(bytes, 1, sizeof bytes, file)) > 0;) buf_append(&text, bytes, n);
    if (file != NULL) fclose(file);
    free(path);
    buf_append(&text, "", 0);
    return buf_take(&text);
}

static struct chat_template *template_of(const char *folder, const char *name, hearth_error *error)
{
    for (size_t i = 0; i < n_templates; i++)
        if (strcmp(templates[i].name, name) == 0) return templates[i].template_;
    char *source = file_text(folder, name);
    struct chat_template_params params = {.source = source, .bos = "<s>", .eos = "</s>"};
    struct chat_template *opened = chat_template_open(&params, error);
    free(source);
    if (opened != NULL && n_templates < sizeof templates / sizeof *templates)
        templates[n_templates++] = (struct known_template){mem_strdup(name), opened};
    return opened;
}

/* ---- The words of a grammar ---- */

/* The literals of a grammar: what a model that knows the format would write, and how it comes to an end. */
struct words {
    char **v;
    size_t n;
};

static void add_word(struct words *words, struct buf *word)
{
    buf_append(word, "", 0);
    for (size_t i = 0; i < words->n; i++)
        if (strcmp(words->v[i], word->v) == 0) return;
    words->v = mem_grow(words->v, words->n + 1, sizeof *words->v);
    words->v[words->n++] = mem_strdup(word->v);
}

/* The text after the literal, or class, that begins there. */
static const char *read_quoted(const char *at, char end, struct buf *word)
{
    buf_clear(word);
    for (at++; *at != '\0' && *at != end; at++) {
        const char *known = "nrt\"\\", *is = "\n\r\t\"\\", *escape = *at == '\\' ? strchr(known, at[1]) : NULL;
        if (*at == '\\') at++;
        buf_append(word, escape != NULL && *escape != '\0' ? is + (escape - known) : at, 1);
    }
    return *at == '\0' ? at : at + 1;
}

static struct words words_of(const char *grammar)
{
    struct words words = {0};
    struct buf word = {0};
    for (const char *at = grammar; *at != '\0';) {
        if (*at == '[') {
            at = read_quoted(at, ']', &word);
        } else if (*at == '"') {
            at = read_quoted(at, '"', &word);
            if (word.len > 0) add_word(&words, &word);
        } else {
            at++;
        }
    }
    buf_release(&word);
    return words;
}

static void free_words(struct words *words)
{
    for (size_t i = 0; i < words->n; i++) free(words->v[i]);
    free(words->v);
}

/* ---- One reply ---- */

enum { MAX_CALLS = 8 };

struct heard {
    struct buf reasoning, content, arguments[MAX_CALLS];
    char *names[MAX_CALLS];
    size_t n_calls;
};

struct writing {
    const struct llm_model *weights;
    const struct llm_token_texts *texts;
    const struct chat_format *format;
    struct constraint *constraint;
    struct words words;
    struct tokens shown;
    struct buf text;
    struct tokens ends;
    double keeps_words, begins_words, ends_soon; /* the biases */
    struct heard heard;
    const char *end; /* how the reply ended */
};

static void hear(void *ud, const hearth_delta *delta)
{
    struct heard *heard = ud;
    if (delta->index >= MAX_CALLS) return;
    struct buf *into[] = {&heard->reasoning, &heard->content, NULL, &heard->arguments[delta->index]};
    if (delta->type != HEARTH_DELTA_CALL)
        buf_append(into[delta->type], delta->text, delta->len);
    else
        heard->names[heard->n_calls++] = mem_strdup(delta->name);
}

/* The longest beginning of the word that the text ends with. */
static size_t begun(const struct buf *text, const char *word)
{
    size_t len = strlen(word) - 1;
    if (len > text->len) len = text->len;
    while (len > 0 && memcmp(text->v + text->len - len, word, len) != 0) len--;
    return len;
}

static struct llm_token_text shown_text(const struct writing *w, int32_t token)
{
    bool hidden = llm_token_is_hidden(w->texts, token);
    for (size_t i = 0; hidden && i < w->shown.len; i++) hidden = w->shown.v[i] != token;
    return hidden ? (struct llm_token_text){.v = ""} : llm_token_text_of(w->texts, token);
}

/* An allowed token that the rest of a word begins with; -1: none was found. */
static int32_t token_for(const struct writing *w, const char *rest)
{
    int32_t found = -1;
    uint32_t n = 0;
    size_t len = strlen(rest);
    for (int32_t i = 0; i < llm_model_info(w->weights)->n_vocab; i++) {
        struct llm_token_text text = llm_token_text_of(w->texts, i);
        bool fits = text.len > 0 && text.v[0] == rest[0] && text.len <= len && memcmp(text.v, rest, text.len) == 0;
        if (fits && next_random() % (n + 1) == 0 && constraint_allows(w->constraint, i)) found = i;
        n += fits;
    }
    return found;
}

static int32_t token_of_word(const struct writing *w, bool goes_on)
{
    for (size_t tries = 0; tries < (goes_on ? 2 * w->words.n : 8) && w->words.n > 0; tries++) {
        const char *word = w->words.v[next_random() % w->words.n];
        size_t len = begun(&w->text, word);
        if ((len > 0) != goes_on) continue;
        int32_t token = token_for(w, word + len);
        if (token >= 0) return token;
    }
    return -1;
}

static int32_t end_token(const struct writing *w)
{
    for (size_t i = 0; i < w->ends.len; i++)
        if (constraint_allows(w->constraint, w->ends.v[i])) return w->ends.v[i];
    return -1;
}

/* The mask takes longer than a few guesses. */
static int32_t any_token(const struct writing *w)
{
    enum { GUESSES = 24 };
    uint32_t n_vocab = (uint32_t)llm_model_info(w->weights)->n_vocab, n = 0;
    int32_t found = -1;
    for (int i = 0; i < GUESSES; i++) {
        int32_t token = (int32_t)(next_random() % n_vocab);
        if (!llm_token_ends_generation(w->weights, token) && constraint_allows(w->constraint, token)) return token;
    }
    const bool *allowed = constraint_allowed(w->constraint);
    for (int32_t i = 0; i < (int32_t)n_vocab; i++)
        if (allowed[i] && !llm_token_ends_generation(w->weights, i) && next_random() % ++n == 0) found = i;
    return found;
}

static int32_t sample(const struct writing *w)
{
    int32_t token = happens(w->ends_soon) ? end_token(w) : -1;
    if (token < 0 && happens(w->keeps_words)) token = token_of_word(w, true);
    if (token < 0 && happens(w->begins_words)) token = token_of_word(w, false);
    if (token < 0) token = any_token(w);
    return token >= 0 ? token : end_token(w);
}

static bool has_stop(const struct writing *w)
{
    for (size_t i = 0; i < w->format->n_stops && w->format->grammar_lazy; i++)
        if (memmem(w->text.v, w->text.len, w->format->stops[i], strlen(w->format->stops[i])) != NULL) return true;
    return false;
}

/* Draws the reply, token by token. */
static void write_reply(struct writing *w, size_t limit)
{
    struct chat_reader *reader = chat_reader_open(w->format);
    w->end = "length";
    for (size_t n = 0; n < limit; n++) {
        int32_t token = sample(w);
        if (token < 0 || !constraint_accept(w->constraint, token)) {
            w->end = "stuck";
            break;
        }
        if (llm_token_ends_generation(w->weights, token)) {
            w->end = "stop";
            break;
        }
        struct llm_token_text text = shown_text(w, token);
        buf_append(&w->text, text.v, text.len);
        chat_reader_add(reader, text.v, text.len, hear, &w->heard);
        if (has_stop(w)) {
            w->end = "stop string";
            break;
        }
    }
    chat_reader_end(reader, hear, &w->heard);
    chat_reader_close(reader);
}

/* ---- One case ---- */

static const char *string_of(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

static char *dumped(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
}

static struct constraint *open_constraint(struct writing *w, hearth_error *error)
{
    struct output_constraint of = {0};
    hearth_params params = {0};
    if (output_constraint_open(&of, w->weights, &params, w->format, error) != HEARTH_OK) return NULL;
    output_shown_tokens(w->weights, w->format, &w->shown);
    of.grammar.shown = w->shown.v;
    of.grammar.n_shown = w->shown.len;
    struct constraint *constraint = constraint_open(w->weights, &of.grammar, error);
    output_constraint_close(&of);
    return constraint;
}

static json_t *text_of(const struct buf *text)
{
    json_t *string = json_stringn(text->v == NULL ? "" : text->v, text->len);
    return string != NULL ? string : json_string("(no UTF-8)");
}

static json_t *answer_of(const struct writing *w)
{
    json_t *calls = json_array();
    for (size_t i = 0; i < w->heard.n_calls; i++)
        json_array_append_new(
            calls, json_pack("{ss so}", "name", w->heard.names[i], "arguments", text_of(&w->heard.arguments[i])));
    return json_pack("{ss so so so so}", "end", w->end, "content", text_of(&w->heard.content), "reasoning",
                     text_of(&w->heard.reasoning), "text", text_of(&w->text), "calls", calls);
}

static json_t *refused(const hearth_error *error)
{
    return json_pack("{ss ss}", "refused", error->message, "param", error->param);
}

static void forget(struct writing *w)
{
    for (size_t i = 0; i < MAX_CALLS; i++) {
        buf_release(&w->heard.arguments[i]);
        free(w->heard.names[i]);
    }
    buf_release(&w->heard.content);
    buf_release(&w->heard.reasoning);
    buf_release(&w->text);
    tokens_release(&w->shown);
    tokens_release(&w->ends);
    free_words(&w->words);
    constraint_close(w->constraint);
    chat_format_unref(w->format);
}

static json_t *answer(const struct llm_model *weights, const char *folder, const json_t *asked)
{
    hearth_error error = {0};
    char *tools = dumped(asked, "tools"), *schema = dumped(asked, "schema");
    bool required = string_of(asked, "choice") != NULL && strcmp(string_of(asked, "choice"), "required") == 0;
    struct chat_request request = {.messages = tree_of("[{\"role\":\"user\",\"content\":\"Hi\"}]"),
                                   .add_generation_prompt = true,
                                   .tools = tree_of(tools),
                                   .json_schema = tree_of(schema),
                                   .tool_choice = required ? HEARTH_TOOLS_REQUIRED : HEARTH_TOOLS_AUTO,
                                   .parallel_tool_calls = json_is_true(json_object_get(asked, "parallel"))};
    struct writing w = {.weights = weights, .texts = llm_model_token_texts(weights)};
    struct chat_template *template_ = template_of(folder, string_of(asked, "template"), &error);
    json_t *result = NULL;
    chance = (uint64_t)json_integer_value(json_object_get(asked, "seed")) * 0x9E3779B97F4A7C15U + 1;
    if (template_ == NULL || chat_format_open(template_, &request, NULL, &w.format, &error) != HEARTH_OK) {
        result = refused(&error);
    } else if (w.format->grammar == NULL) {
        result = json_pack("{ss}", "end", "free");
    } else if ((w.constraint = open_constraint(&w, &error)) == NULL) {
        result = refused(&error);
    } else {
        w.words = words_of(w.format->grammar);
        w.keeps_words = json_number_value(json_object_get(asked, "keeps_words"));
        w.begins_words = json_number_value(json_object_get(asked, "begins_words"));
        w.ends_soon = json_number_value(json_object_get(asked, "ends"));
        for (int32_t i = 0; i < llm_model_info(weights)->n_vocab; i++)
            if (llm_token_ends_generation(weights, i)) tokens_push(&w.ends, i);
        write_reply(&w, (size_t)json_integer_value(json_object_get(asked, "limit")));
        result = answer_of(&w);
    }
    forget(&w);
    free(tools);
    free(schema);
    return result;
}

int main(int argc, char **argv)
{
    hearth_error error;
    char *line = NULL;
    size_t room = 0;
    if (argc != 3) return 2;
    llm_init();
    struct llm_model *weights =
        llm_model_open(&(struct llm_model_params){.path = argv[1], .split_mode = "layer"}, &error);
    if (weights == NULL) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    while (getline(&line, &room, stdin) > 0) {
        json_t *asked = json_loads(line, 0, NULL), *result = answer(weights, argv[2], asked);
        char *text = json_dumps(result, JSON_COMPACT);
        puts(text);
        free(text);
        json_decref(asked);
        json_decref(result);
    }
    for (size_t i = 0; i < n_templates; i++) {
        chat_template_close(templates[i].template_);
        free(templates[i].name);
    }
    free(line);
    llm_model_close(weights);
    return 0;
}
