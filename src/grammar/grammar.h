/* Matches text against a GBNF grammar, byte by byte or token by token.
 *
 * llama.cpp's own grammars are not used. They throw and abort where a token does not fit, which C cannot catch.
 * Grammars of a few lines make them expand without end, on the thread that computes for all requests. Here every step
 * has a bound; a grammar that exceeds it says so (grammar_over_budget()).
 *
 * A grammar is made on any thread and then belongs to one thread at a time; states belong to the caller. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;

/* The state of a text that is matched: the parse stacks of all its parses. {0} is an empty one. */
struct grammar_state {
    uint32_t *v; /* the parse stacks; 0: a complete parse */
    size_t len, cap;
    uint32_t value; /* bits of a UTF-8 character whose last bytes are missing */
    int missing;    /* bytes of it that are missing */
};

/* Finds the single token that a text is; -1: there is none. */
struct grammar_vocabulary {
    int32_t (*token_of)(const void *ud, const char *text, size_t len);
    const void *ud;
};

/* NULL: HEARTH_INVALID, param "grammar", and what is wrong in which line. The vocabulary is asked for tokens written by
 * their text ("<think>"); NULL: such a grammar is refused. */
struct grammar *grammar_open(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error);
void grammar_close(struct grammar *grammar);

void grammar_start(struct grammar *grammar, struct grammar_state *state);

/* Makes `to` the state after one more byte of text. False: no parse allows it. */
bool grammar_accept_byte(struct grammar *grammar, const struct grammar_state *from, unsigned char byte,
                         struct grammar_state *to);

/* Makes `to` the state after a token that the grammar names as a token (<think>, <[17]>); without parses if no parse
 * allows it. */
void grammar_accept_token(struct grammar *grammar, const struct grammar_state *from, int32_t token,
                          struct grammar_state *to);

/* Whether some parse can continue with a token that the grammar names as a token. */
bool grammar_names_tokens(const struct grammar *grammar, const struct grammar_state *state);

/* Adds the parses of another state. */
void grammar_merge(struct grammar_state *state, const struct grammar_state *more);

/* Whether a token may end here: some parse is left, and an incomplete UTF-8 character can still become one that the
 * grammar allows. */
bool grammar_can_continue(const struct grammar *grammar, const struct grammar_state *state);

/* How far the parses agree on the next character. */
enum grammar_next {
    GRAMMAR_ANY,         /* there is a choice, or the end of the text */
    GRAMMAR_ONE,         /* this character alone */
    GRAMMAR_ONE_OR_BLANK /* this character, or blanks before it */
};
enum grammar_next grammar_next(const struct grammar *grammar, const struct grammar_state *state, uint32_t *c);

/* Whether the text matches the whole grammar. */
bool grammar_complete(const struct grammar_state *state);

/* Whether the budget of steps was exceeded since the last grammar_reset_budget(): results since then are void. */
bool grammar_over_budget(const struct grammar *grammar);
void grammar_reset_budget(struct grammar *grammar);

void grammar_copy(struct grammar_state *to, const struct grammar_state *from);
void grammar_release(struct grammar_state *state);

#endif
