/* Applies a grammar to tokens, byte by byte, as the reply shows them: a special token without text there matches only
 * where the grammar names it as a token. A lazy grammar that still awaits its trigger allows every token but those
 * that contain a trigger and continue after it with what the grammar rejects. */
#include "llm/constraint.h"

#include "base/error.h"
#include "base/memory.h"
#include "grammar/grammar.h"
#include "grammar/patterns.h"
#include "llm/vocab.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct constraint {
    const struct llm_model *model;
    const struct llm_token_texts *texts;
    struct grammar *grammar;
    struct grammar_state now, next, scratch;
    struct grammar_state *states; /* while matching the vocabulary: the state after each byte of a token */
    bool *allowed;
    size_t passes;

    /* For guesses: the last character that is no blank, the blanks behind it, and those that the reply had between two
     * characters. */
    char last;
    struct blanks {
        char v[24];
        size_t len;
    } blanks;
    struct habit {
        char last, next;
        struct blanks between;
    } habits[16];
    size_t n_habits;

    bool awaits_trigger;
    char **words;
    size_t n_words, longest_word;
    struct patterns *patterns; /* NULL: none; else they search the whole reply */
    int32_t *tokens, *shown;
    size_t n_tokens, n_shown;
    struct buf tail,
        seen; /* the reply's end, where a trigger may have begun; and the same with the token in question */
};

/* ---- Texts ---- */

static bool contains(const int32_t *tokens, size_t n, int32_t token)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] == token) return true;
    return false;
}

/* The text that the token adds to the reply. */
static struct llm_token_text text_of(const struct constraint *c, int32_t token)
{
    bool hidden = llm_token_is_hidden(c->texts, token) && !contains(c->shown, c->n_shown, token);
    return hidden ? (struct llm_token_text){.v = ""} : llm_token_text_of(c->texts, token);
}

/* ---- One token ---- */

static void swap_states(struct grammar_state *a, struct grammar_state *b)
{
    struct grammar_state kept = *a;
    *a = *b;
    *b = kept;
}

/* Makes c->next the state of c->now after the bytes. */
static bool match_bytes(struct constraint *c, const char *text, size_t len)
{
    bool good = len > 0;
    grammar_copy(&c->next, &c->now);
    for (size_t i = 0; good && i < len; i++) {
        good = grammar_accept_byte(c->grammar, &c->next, (unsigned char)text[i], &c->scratch);
        swap_states(&c->next, &c->scratch);
    }
    good = good && grammar_can_continue(c->grammar, &c->next);
    if (!good) c->next.len = 0;
    return good;
}

static bool match_token(struct constraint *c, int32_t token, struct llm_token_text text)
{
    if (!match_bytes(c, text.v, text.len)) c->next = (struct grammar_state){.v = c->next.v, .cap = c->next.cap};
    if (c->next.missing == 0) {
        grammar_accept_token(c->grammar, &c->now, token, &c->scratch);
        grammar_merge(&c->next, &c->scratch);
    }
    return c->next.len > 0 && !grammar_over_budget(c->grammar);
}

/* The effect of a token on a lazy grammar that still awaits its trigger. */
enum trigger { NO_TRIGGER, TRIGGERED, MISFIT };

static enum trigger look_for_trigger(struct constraint *c, int32_t token)
{
    struct llm_token_text text = text_of(c, token);
    if (contains(c->tokens, c->n_tokens, token)) return match_token(c, token, text) ? TRIGGERED : MISFIT;
    buf_clear(&c->seen);
    buf_append(&c->seen, c->tail.v, c->tail.len);
    buf_append(&c->seen, text.v, text.len);
    size_t begin = 0;
    bool found = c->patterns != NULL && patterns_find(c->patterns, c->seen.v, c->seen.len, &begin);
    const char *first = found ? c->seen.v + begin : NULL; /* where the grammar begins to hold */
    for (size_t i = 0; !found && i < c->n_words; i++) {
        const char *at = memmem(c->seen.v, c->seen.len, c->words[i], strlen(c->words[i]));
        if (at != NULL && (first == NULL || at < first)) first = at;
    }
    if (first == NULL) return NO_TRIGGER;
    return match_bytes(c, first, (size_t)(c->seen.v + c->seen.len - first)) ? TRIGGERED : MISFIT;
}

static bool allows(struct constraint *c, int32_t token)
{
    if (llm_token_ends_generation(c->model, token)) return c->awaits_trigger || grammar_complete(&c->now);
    if (c->awaits_trigger) return look_for_trigger(c, token) != MISFIT;
    return match_token(c, token, text_of(c, token));
}

bool constraint_allows(struct constraint *c, int32_t token)
{
    grammar_reset_budget(c->grammar);
    return allows(c, token);
}

/* Blanks between two characters of JSON: all that can begin a string, a number or a name is one kind. */
static char kind_of(char c)
{
    return c != '\0' && strchr(":,{[}]\"", c) != NULL ? c : 'x';
}

static struct habit *find_habit(struct constraint *c, char last, char next)
{
    for (size_t i = 0; i < c->n_habits; i++)
        if (c->habits[i].last == kind_of(last) && c->habits[i].next == kind_of(next)) return &c->habits[i];
    return NULL;
}

static void note_blanks(struct constraint *c, struct llm_token_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char next = text.v[i];
        if (next == ' ' || next == '\t' || next == '\n' || next == '\r') {
            if (c->blanks.len < sizeof c->blanks.v) c->blanks.v[c->blanks.len++] = next;
            continue;
        }
        struct habit *habit = find_habit(c, c->last, next);
        if (habit == NULL && c->n_habits < sizeof c->habits / sizeof *c->habits) habit = &c->habits[c->n_habits++];
        if (habit != NULL)
            *habit = (struct habit){.last = kind_of(c->last), .next = kind_of(next), .between = c->blanks};
        c->last = next;
        c->blanks.len = 0;
    }
}

bool constraint_accept(struct constraint *c, int32_t token)
{
    grammar_reset_budget(c->grammar);
    if (llm_token_ends_generation(c->model, token)) return allows(c, token);
    enum trigger trigger = c->awaits_trigger ? look_for_trigger(c, token) : allows(c, token) ? TRIGGERED : MISFIT;
    if (trigger == NO_TRIGGER) {
        size_t keep = c->longest_word > 0 ? c->longest_word - 1 : 0;
        buf_clear(&c->tail);
        if (c->patterns != NULL || keep > c->seen.len) keep = c->seen.len;
        buf_append(&c->tail, c->seen.v + (c->seen.len - keep), keep);
    }
    if (trigger == TRIGGERED) {
        note_blanks(c, text_of(c, token));
        swap_states(&c->now, &c->next);
        c->awaits_trigger = false;
    }
    return trigger != MISFIT;
}

/* ---- Guesses ---- */

static bool guess_byte(struct constraint *c, char byte, struct buf *text)
{
    if (!grammar_accept_byte(c->grammar, &c->next, (unsigned char)byte, &c->scratch)) return false;
    swap_states(&c->next, &c->scratch);
    buf_append(text, &byte, 1);
    return true;
}

/* Of an ambiguous grammar each byte takes long: it has no guess. */
#define GUESSED_STACKS 16

/* The blanks that are still to come before the next character, where `came` are there. */
static bool guess_blanks(struct constraint *c, char last, char next, const struct blanks *came, struct buf *text)
{
    static const struct blanks space = {.v = " ", .len = 1}, none = {.len = 0};
    const struct habit *habit = find_habit(c, last, next);
    const struct blanks *all = habit != NULL ? &habit->between : last == ':' || last == ',' ? &space : &none;
    if (came->len > all->len || memcmp(came->v, all->v, came->len) != 0) return came->len > 0;
    bool good = true;
    for (size_t i = came->len; good && i < all->len; i++) good = guess_byte(c, all->v[i], text);
    return good;
}

void constraint_guess(struct constraint *c, struct buf *text, size_t max)
{
    char last = c->last;
    struct blanks came = c->blanks;
    size_t from = text->len;
    if (c->awaits_trigger) return;
    grammar_reset_budget(c->grammar);
    grammar_copy(&c->next, &c->now);
    while (text->len - from < max) {
        uint32_t next = 0;
        enum grammar_next how = grammar_next(c->grammar, &c->next, &next);
        if (how == GRAMMAR_ANY || next >= 0x80 || c->next.len > GUESSED_STACKS) return;
        if (how == GRAMMAR_ONE_OR_BLANK && !guess_blanks(c, last, (char)next, &came, text)) return;
        if (!guess_byte(c, (char)next, text)) return;
        came.len = 0;
        last = (char)next;
    }
}

/* ---- All tokens ---- */

/* Tokens are visited in the order of their bytes, so that the states of a shared prefix are computed once. */
static void match_vocabulary(struct constraint *c)
{
    struct llm_token_order order = llm_token_texts_sorted(c->texts);
    size_t matched = 0; /* bytes of the last token that the grammar accepts */
    grammar_copy(&c->states[0], &c->now);
    for (size_t i = 0; i < order.n; i++) {
        struct llm_token_text text = llm_token_text_of(c->texts, order.tokens[i]);
        c->allowed[order.tokens[i]] = false;
        if (order.shared[i] > matched) continue;
        matched = order.shared[i];
        while (matched < text.len && grammar_accept_byte(c->grammar, &c->states[matched],
                                                         (unsigned char)text.v[matched], &c->states[matched + 1]))
            matched++;
        c->allowed[order.tokens[i]] = matched == text.len && text_of(c, order.tokens[i]).len > 0 &&
                                      grammar_can_continue(c->grammar, &c->states[matched]);
    }
}

const bool *constraint_allowed(struct constraint *c)
{
    size_t n = llm_token_texts_sorted(c->texts).n;
    c->passes++;
    grammar_reset_budget(c->grammar);
    if (!c->awaits_trigger) match_vocabulary(c);
    bool named = !c->awaits_trigger && grammar_names_tokens(c->grammar, &c->now);
    for (size_t i = 0; named && i < n; i++) {
        grammar_accept_token(c->grammar, &c->now, (int32_t)i, &c->scratch);
        c->allowed[i] = c->allowed[i] || c->scratch.len > 0;
    }
    for (size_t i = 0; i < n; i++)
        if (c->awaits_trigger || llm_token_ends_generation(c->model, (int32_t)i)) c->allowed[i] = allows(c, (int32_t)i);
    return c->allowed;
}

bool constraint_awaits_trigger(const struct constraint *c)
{
    return c->awaits_trigger;
}

size_t constraint_passes(const struct constraint *c)
{
    return c->passes;
}

/* ---- Life ---- */

static int32_t *copy_tokens(const int32_t *tokens, size_t n)
{
    int32_t *copy = mem_alloc((n + 1) * sizeof *copy);
    for (size_t i = 0; i < n; i++) copy[i] = tokens[i];
    return copy;
}

static void copy_triggers(struct constraint *c, const struct llm_grammar *grammar)
{
    c->awaits_trigger = grammar->lazy;
    c->words = mem_alloc((grammar->n_words + 1) * sizeof *c->words);
    c->tokens = copy_tokens(grammar->tokens, grammar->n_tokens);
    c->n_tokens = grammar->n_tokens;
    for (size_t i = 0; i < grammar->n_words; i++) {
        size_t len = strlen(grammar->words[i]);
        if (len > c->longest_word) c->longest_word = len;
        if (len > 0) c->words[c->n_words++] = mem_strdup(grammar->words[i]);
    }
    buf_append(&c->tail, "", 0); /* so that neither is NULL */
    buf_append(&c->seen, "", 0);
}

static int32_t token_of(const void *ud, const char *text, size_t len)
{
    const struct llm_model *model = ud;
    struct tokens tokens = {0};
    llm_tokenize(model, text, len, false, true, &tokens);
    int32_t token = tokens.len == 1 ? tokens.v[0] : -1;
    tokens_release(&tokens);
    return token;
}

struct constraint *constraint_open(const struct llm_model *model, const struct llm_grammar *grammar,
                                   hearth_error *error)
{
    assert(model != NULL && grammar->text != NULL);
    struct grammar *read = grammar_open(grammar->text, &(struct grammar_vocabulary){token_of, model}, error);
    if (read == NULL) return NULL;
    struct constraint *c = mem_alloc(sizeof *c);
    c->model = model;
    c->grammar = read;
    c->texts = llm_model_token_texts(model);
    struct llm_token_order order = llm_token_texts_sorted(c->texts);
    c->states = mem_alloc((order.longest + 1) * sizeof *c->states);
    c->allowed = mem_alloc(order.n * sizeof *c->allowed);
    copy_triggers(c, grammar);
    c->shown = copy_tokens(grammar->shown, grammar->n_shown);
    c->n_shown = grammar->n_shown;
    if (grammar->n_patterns > 0) {
        c->patterns = patterns_open(grammar->patterns, grammar->n_patterns, error);
        if (c->patterns == NULL) {
            constraint_close(c);
            return NULL;
        }
    }
    grammar_start(c->grammar, &c->now);
    /* The reply begins in the middle of what the grammar matches. The prefill is matched as the text it is: as tokens
     * it would begin with a space in many vocabularies. */
    bool good = true;
    for (const char *at = grammar->lazy ? NULL : grammar->prefill; good && at != NULL && *at != '\0'; at++) {
        grammar_reset_budget(c->grammar);
        good = grammar_accept_byte(c->grammar, &c->now, (unsigned char)*at, &c->next);
        swap_states(&c->now, &c->next);
    }
    if (good) return c;
    constraint_close(c);
    error_at(error, HEARTH_INVALID, "grammar",
             "the grammar does not match the prefill, the end of the prompt that the reply continues");
    return NULL;
}

void constraint_close(struct constraint *c)
{
    if (c == NULL) return;
    size_t longest = llm_token_texts_sorted(c->texts).longest;
    for (size_t i = 0; i <= longest; i++) grammar_release(&c->states[i]);
    grammar_release(&c->now);
    grammar_release(&c->next);
    grammar_release(&c->scratch);
    grammar_close(c->grammar);
    patterns_close(c->patterns);
    for (size_t i = 0; i < c->n_words; i++) free(c->words[i]);
    free(c->words);
    free(c->tokens);
    free(c->shown);
    free(c->states);
    free(c->allowed);
    buf_release(&c->tail);
    buf_release(&c->seen);
    free(c);
}
