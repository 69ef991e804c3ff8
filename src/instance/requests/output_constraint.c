/* Builds the output constraint of a request: see output_constraint.h. */
#include "instance/requests/output_constraint.h"

#include "base/json_text.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* The one token that the text tokenises to; -1: none, or several. */
static int32_t single_token(const struct llm_model *weights, const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(weights, text, strlen(text), false, true, &tokens);
    int32_t token = tokens.len == 1 ? tokens.v[0] : -1;
    tokens_release(&tokens);
    return token;
}

static void add_shown(const struct llm_model *weights, const char *text, struct tokens *shown)
{
    int32_t token = single_token(weights, text);
    if (token >= 0) tokens_push(shown, token);
}

void output_shown_tokens(const struct llm_model *weights, const struct chat_format *format, struct tokens *shown)
{
    if (format == NULL) return;
    for (size_t i = 0; i < format->n_preserved; i++) add_shown(weights, format->preserved[i], shown);
    for (size_t i = 0; i < format->n_triggers; i++)
        if (format->triggers[i].how == CHAT_TRIGGER_WORD) add_shown(weights, format->triggers[i].text, shown);
}

/* ---- Triggers ---- */

static void add(char ***list, size_t *n, char *text)
{
    *list = mem_grow(*list, *n + 1, sizeof **list);
    (*list)[(*n)++] = text;
}

static void add_trigger(struct output_constraint *constraint, const struct llm_model *weights,
                        const struct chat_trigger *trigger)
{
    const char *text = trigger->text;
    size_t len = strlen(text);
    bool part = trigger->how != CHAT_TRIGGER_WHOLE; /* else the pattern is one of a whole text */
    bool begins = part || (len > 0 && text[0] == '^'), ends = part || (len > 0 && text[len - 1] == '$');
    int32_t token = trigger->how == CHAT_TRIGGER_WORD ? single_token(weights, text) : -1;
    if (token >= 0)
        tokens_push(&constraint->tokens, token);
    else if (trigger->how == CHAT_TRIGGER_WORD)
        add(&constraint->words, &constraint->n_words, mem_strdup(text));
    else
        add(&constraint->patterns, &constraint->n_patterns,
            mem_format("%s%s%s", begins ? "" : "^", text, ends ? "" : "$"));
}

/* ---- Regular expressions ---- */

char *hearth_regex_grammar(const char *regex, hearth_error *error)
{
    return chat_pattern_grammar(regex, error);
}

/* ---- Opening ---- */

static void open_chat_constraint(struct output_constraint *constraint, const struct llm_model *weights,
                                 const struct chat_format *format)
{
    for (size_t i = 0; i < format->n_triggers; i++) add_trigger(constraint, weights, &format->triggers[i]);
    constraint->grammar = (struct llm_grammar){.text = format->grammar,
                                               .prefill = format->grammar_prefilled ? format->prefill : NULL,
                                               .lazy = format->grammar_lazy,
                                               .words = (const char *const *)constraint->words,
                                               .n_words = constraint->n_words,
                                               .patterns = (const char *const *)constraint->patterns,
                                               .n_patterns = constraint->n_patterns,
                                               .tokens = constraint->tokens.v,
                                               .n_tokens = constraint->tokens.len};
    constraint->thinking.start = format->thinking_start;
    constraint->thinking.ends = format->thinking_ends;
    constraint->thinking.n_ends = format->n_thinking_ends;
    constraint->thinking.prefill = format->prefill;
}

int output_constraint_open(struct output_constraint *constraint, const struct llm_model *weights,
                           const hearth_params *params, const struct chat_format *format, hearth_error *error)
{
    *constraint =
        (struct output_constraint){.thinking = {.budget = params->thinking_tokens, .message = params->thinking_end}};
    if (format != NULL) {
        open_chat_constraint(constraint, weights, format);
        return HEARTH_OK;
    }
    constraint->grammar.text = params->grammar;
    if (params->json_schema == NULL) return HEARTH_OK;
    constraint->schema_grammar =
        chat_schema_grammar(json_text_tree(params->json_schema), &constraint->unenforced, error);
    constraint->grammar.text = constraint->schema_grammar;
    return constraint->schema_grammar == NULL ? (int)error->code : HEARTH_OK;
}

static void free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++) free(list[i]);
    free(list);
}

void output_constraint_close(struct output_constraint *constraint)
{
    free_list(constraint->words, constraint->n_words);
    free_list(constraint->patterns, constraint->n_patterns);
    free(constraint->schema_grammar);
    free(constraint->unenforced);
    tokens_release(&constraint->tokens);
}
