/* Output constraints of chats (instance/requests/output_constraint.h) over all of llama.cpp's vocabularies: each allows
 * what it should, whatever tokens the vocabulary spells it with. */
#include "support.h"

#include "chat/chat.h"
#include "instance/requests/output_constraint.h"
#include "llm/constraint.h"
#include "llm/vocab.h"

#include <dirent.h>

#define TOOL                                                                                                           \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\",\"properties\":{"     \
    "\"at\":{\"type\":\"string\"}},\"required\":[\"at\"]}}}]"
#define SCHEMA                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":4}},"              \
    "\"required\":[\"at\"],\"additionalProperties\":false}"

/* What a reply may be asked to be, replies that are, and how one goes on that is not. */
static const struct kind {
    const char *name;
    const char *json_schema, *grammar, *tools;
    const char *good, *begin, *wrong;
} kinds[] = {
    {"json_object", .json_schema = "{\"type\":\"object\"}", .good = "{\"at\": [1, {\"b\": \"c d\"}]}", .begin = "{",
     .wrong = "x"},
    {"json_schema", .json_schema = SCHEMA, .good = "{\"at\": \"here\"}", .begin = "{\"at\": \"he", .wrong = "\""},
    {"grammar", .grammar = "root ::= \"[\" [a-z]+ (\" \" [a-z]+)* \"]\"", .good = "[one two]", .begin = "[",
     .wrong = "1"},
    {"required tool", .tools = TOOL,
     .good = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"me\"}}\n</tool_call>",
     .begin = "<tool_call>\n", .wrong = "x"},
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- Templates ---- */

static char *file_text(const char *path)
{
    struct buf text = {0};
    char bytes[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) buf_append(&text, bytes, n);
    fclose(file);
    return buf_take(&text);
}

/* A template with the format of replies of each kind; NULL: it cannot do that. */
struct rig {
    char *name;
    struct chat_template *template_;
    const struct chat_format *formats[N_KINDS];
};

static struct rig open_rig(const char *name)
{
    hearth_error error;
    struct rig rig = {.name = mem_strdup(name)};
    char *path = mem_format("%s/source/models/templates/%s", getenv("HEARTH_LLAMA"), name), *source = file_text(path);
    rig.template_ =
        chat_template_open(&(struct chat_template_params){.source = source, .bos = "<s>", .eos = "</s>"}, &error);
    if (rig.template_ == NULL) fail_msg("%s: %s", name, error.message);
    for (size_t i = 0; i < N_KINDS; i++) {
        struct chat_request request = {.messages = tree_of("[{\"role\":\"user\",\"content\":\"Hi\"}]"),
                                       .add_generation_prompt = true,
                                       .json_schema = tree_of(kinds[i].json_schema),
                                       .grammar = kinds[i].grammar,
                                       .tools = tree_of(kinds[i].tools),
                                       .tool_choice =
                                           kinds[i].tools == NULL ? HEARTH_TOOLS_AUTO : HEARTH_TOOLS_REQUIRED};
        int rc = chat_format_open(rig.template_, &request, NULL, &rig.formats[i], &error);
        if (rc != HEARTH_OK && kinds[i].tools == NULL) fail_msg("%s: %s: %s", name, kinds[i].name, error.message);
    }
    free(path);
    free(source);
    return rig;
}

static void close_rig(struct rig *rig)
{
    for (size_t i = 0; i < N_KINDS; i++) chat_format_unref(rig->formats[i]);
    chat_template_close(rig->template_);
    free(rig->name);
}

static size_t open_all_templates(struct rig *rigs, size_t most)
{
    char *list = mem_format("%s/source/models/templates", getenv("HEARTH_LLAMA"));
    DIR *dir = opendir(list);
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && n < most;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end != NULL && strcmp(end, ".jinja") == 0) rigs[n++] = open_rig(entry->d_name);
    }
    closedir(dir);
    free(list);
    return n;
}

/* ---- Vocabularies ---- */

struct vocabulary {
    const char *name;
    struct llm_model *weights;
    const struct llm_token_texts *texts;
    struct tokens spelled[N_KINDS], begun[N_KINDS], wrong[N_KINDS];
};

/* The longest token that the rest of the text begins with. */
static int32_t longest_token(const struct vocabulary *v, const char *text)
{
    size_t longest = 0;
    int32_t found = -1;
    for (int32_t i = 0; i < llm_model_info(v->weights)->n_vocab; i++) {
        struct llm_token_text token = llm_token_text_of(v->texts, i);
        bool plain = !llm_token_is_hidden(v->texts, i) && !llm_token_ends_generation(v->weights, i);
        if (!plain || token.len <= longest || strncmp(text, token.v, token.len) != 0) continue;
        longest = token.len;
        found = i;
    }
    return found;
}

/* Spells the text with tokens that print exactly it, as a model has to. Some vocabularies for embeddings have no token
 * for a new line: there are no tokens then. */
static struct tokens spell(const struct vocabulary *v, const char *text)
{
    struct tokens tokens = {0};
    while (*text != '\0') {
        int32_t token = longest_token(v, text);
        if (token < 0) {
            tokens_release(&tokens);
            return (struct tokens){0};
        }
        tokens_push(&tokens, token);
        text += llm_token_text_of(v->texts, token).len;
    }
    return tokens;
}

static struct vocabulary open_vocabulary(const char *path, const char *name)
{
    hearth_error error;
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    struct vocabulary v = {.name = name, .weights = llm_model_open(&params, &error)};
    if (v.weights == NULL) fail_msg("%s: %s", name, error.message);
    v.texts = llm_model_token_texts(v.weights);
    for (size_t i = 0; i < N_KINDS; i++) {
        v.spelled[i] = spell(&v, kinds[i].good);
        v.begun[i] = spell(&v, kinds[i].begin);
        v.wrong[i] = spell(&v, kinds[i].wrong);
    }
    return v;
}

static void close_vocabulary(struct vocabulary *v)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        tokens_release(&v->spelled[i]);
        tokens_release(&v->begun[i]);
        tokens_release(&v->wrong[i]);
    }
    llm_model_close(v->weights);
}

/* ---- The matrix ---- */

static struct constraint *open_constraint(const struct vocabulary *v, const struct chat_format *format,
                                          hearth_error *error)
{
    struct output_constraint of = {0};
    struct tokens shown = {0};
    hearth_params params = {0};
    assert_int_equal(output_constraint_open(&of, v->weights, &params, format, error), HEARTH_OK);
    output_shown_tokens(v->weights, format, &shown);
    of.grammar.shown = shown.v;
    of.grammar.n_shown = shown.len;
    struct constraint *constraint = constraint_open(v->weights, &of.grammar, error);
    output_constraint_close(&of);
    tokens_release(&shown);
    return constraint;
}

static bool accept_all(struct constraint *constraint, const struct tokens *tokens)
{
    bool good = true;
    for (size_t i = 0; good && i < tokens->len; i++) good = constraint_accept(constraint, tokens->v[i]);
    return good;
}

/* Replies in these begin with what was asked for; in others something else may come first. */
static bool is_spelled(const struct rig *rig, size_t kind)
{
    static const char *const plain[] = {"Qwen-Qwen2.5-7B-Instruct.jinja", "google-gemma-2-2b-it.jinja",
                                        "microsoft-Phi-3.5-mini-instruct.jinja"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(rig->name, plain[i]) == 0) return i == 0 || kinds[kind].tools == NULL;
    return false;
}

/* What a reply does not show would count as text that is not there. */
static bool allows_hidden(const struct vocabulary *v, struct constraint *constraint)
{
    for (int32_t i = 0; i < llm_model_info(v->weights)->n_vocab; i++)
        if (llm_token_is_hidden(v->texts, i) && constraint_allows(constraint, i)) return true;
    return false;
}

static const char *spelling_fault(const struct vocabulary *v, const struct rig *rig, size_t kind,
                                  struct constraint *whole)
{
    hearth_error error;
    struct constraint *begun = open_constraint(v, rig->formats[kind], &error);
    const char *fault = NULL;
    if (!accept_all(whole, &v->spelled[kind]))
        fault = "what fits is refused";
    else if (!accept_all(begun, &v->begun[kind]) || accept_all(begun, &v->wrong[kind]))
        fault = "what does not fit is allowed";
    else if (allows_hidden(v, begun))
        fault = "a token that the reply does not show is allowed";
    constraint_close(begun);
    return fault;
}

/* NULL: none. */
static const char *fault_of(const struct vocabulary *v, const struct rig *rig, size_t kind, hearth_error *error)
{
    if (rig->formats[kind]->grammar == NULL) return "there is no grammar";
    if (rig->formats[kind]->grammar_lazy) return "the grammar does not hold from the beginning";
    struct constraint *whole = open_constraint(v, rig->formats[kind], error);
    if (whole == NULL) return error->message;
    bool spelled = is_spelled(rig, kind) && v->spelled[kind].len > 0;
    const char *fault = spelled ? spelling_fault(v, rig, kind, whole) : NULL;
    constraint_close(whole);
    return fault;
}

/* Each vocabulary meets a fifth of the templates, and those whose replies are spelled out. */
static bool is_due(const struct rig *rig, size_t template_, size_t vocabulary)
{
    return is_spelled(rig, 0) || template_ % 5 == vocabulary % 5;
}

static void every_vocabulary_can_be_constrained_with_every_template(void **state)
{
    (void)state;
    struct rig rigs[100];
    size_t n_rigs = open_all_templates(rigs, 100), n_vocabularies = 0, n_cells = 0, n_faults = 0;
    char *list = mem_format("%s/source/models", getenv("HEARTH_LLAMA"));
    DIR *dir = opendir(list);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name, *end = strrchr(name, '.');
        if (strncmp(name, "ggml-vocab-", 11) != 0 || strcmp(end, ".gguf") != 0) continue;
        char *path = mem_format("%s/%s", list, name);
        struct vocabulary v = open_vocabulary(path, name);
        n_vocabularies++;
        for (size_t i = 0; i < n_rigs * N_KINDS; i++) {
            hearth_error error = {0};
            const struct rig *rig = &rigs[i / N_KINDS];
            if (rig->formats[i % N_KINDS] == NULL || !is_due(rig, i / N_KINDS, n_vocabularies)) continue;
            const char *fault = fault_of(&v, rig, i % N_KINDS, &error);
            n_cells++;
            if (fault == NULL) continue;
            if (n_faults++ < 20) print_message("%s, %s, %s: %s\n", name, rig->name, kinds[i % N_KINDS].name, fault);
        }
        close_vocabulary(&v);
        free(path);
    }
    closedir(dir);
    print_message("%zu vocabularies, %zu templates, %zu cells\n", n_vocabularies, n_rigs, n_cells);
    assert_int_equal(n_faults, 0);
    assert_true(n_vocabularies >= 19 && n_rigs >= 60);
    for (size_t i = 0; i < n_rigs; i++) close_rig(&rigs[i]);
    free(list);
}

static int set_up(void **state)
{
    (void)state;
    llm_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vocabulary_can_be_constrained_with_every_template),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
