/* Terms of a reply: see output_constraint.h. */
#include "lib/requests/output_constraint.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* The token that the text is; -1 where it is none, or several. */
static int32_t single_token(const struct llm_model *weights, const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(weights, text, strlen(text), false, true, &tokens);
    int32_t token = tokens.len == 1 ? tokens.v[0] : -1;
    tokens_release(&tokens);
    return token;
}

void terms_shown(const struct llm_model *weights, const struct chat_format *format, struct tokens *shown)
{
    for (size_t i = 0; format != NULL && i < format->n_preserved; i++) {
        int32_t token = single_token(weights, format->preserved[i]);
        if (token >= 0) tokens_push(shown, token);
    }
}

/* ---- Triggers ---- */

static char *pattern_of_whole(const char *pattern)
{
    size_t len = strlen(pattern);
    bool begins = len > 0 && pattern[0] == '^', ends = len > 0 && pattern[len - 1] == '$';
    return mem_format("%s%s%s", begins ? "" : "^", pattern, ends ? "" : "$");
}

static void add(char ***list, size_t *n, char *text)
{
    *list = mem_grow(*list, *n + 1, sizeof **list);
    (*list)[(*n)++] = text;
}

static void add_trigger(struct terms *terms, const struct llm_model *weights, const struct chat_trigger *trigger)
{
    int32_t token = trigger->how == CHAT_TRIGGER_WORD ? single_token(weights, trigger->text) : -1;
    if (token >= 0)
        tokens_push(&terms->tokens, token);
    else if (trigger->how == CHAT_TRIGGER_WORD)
        add(&terms->words, &terms->n_words, mem_strdup(trigger->text));
    else if (trigger->how == CHAT_TRIGGER_WHOLE)
        add(&terms->patterns, &terms->n_patterns, pattern_of_whole(trigger->text));
    else
        add(&terms->patterns, &terms->n_patterns, mem_strdup(trigger->text));
}

/* ---- The whole ---- */

static void open_chat(struct terms *terms, const struct llm_model *weights, const struct chat_format *format)
{
    for (size_t i = 0; i < format->n_triggers; i++) add_trigger(terms, weights, &format->triggers[i]);
    terms->grammar = (struct llm_grammar){.text = format->grammar,
                                          .prefill = format->grammar_prefilled ? format->prefill : NULL,
                                          .lazy = format->grammar_lazy,
                                          .words = (const char *const *)terms->words,
                                          .n_words = terms->n_words,
                                          .patterns = (const char *const *)terms->patterns,
                                          .n_patterns = terms->n_patterns,
                                          .tokens = terms->tokens.v,
                                          .n_tokens = terms->tokens.len};
    terms->thinking.start = format->thinking_start;
    terms->thinking.ends = format->thinking_ends;
    terms->thinking.n_ends = format->n_thinking_ends;
    terms->thinking.prefill = format->prefill;
}

static int open_completion(struct terms *terms, const hearth_params *params, hearth_error *error)
{
    terms->grammar.text = params->grammar;
    if (params->json_schema == NULL) return HEARTH_OK;
    terms->schema_grammar = chat_schema_grammar(params->json_schema, error);
    terms->grammar.text = terms->schema_grammar;
    return terms->schema_grammar == NULL ? (int)error->code : HEARTH_OK;
}

int terms_open(struct terms *terms, const struct llm_model *weights, const hearth_params *params,
               const struct chat_format *format, hearth_error *error)
{
    *terms = (struct terms){.thinking = {.budget = params->thinking_tokens, .message = params->thinking_end}};
    if (format == NULL) return open_completion(terms, params, error);
    open_chat(terms, weights, format);
    return HEARTH_OK;
}

static void free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++) free(list[i]);
    free(list);
}

void terms_close(struct terms *terms)
{
    free_list(terms->words, terms->n_words);
    free_list(terms->patterns, terms->n_patterns);
    free(terms->schema_grammar);
    tokens_release(&terms->tokens);
}
