/* Grammars in GBNF, and what a text that is to match one can go on with.
 *
 * llama.cpp's own grammars are not used: they throw and abort where a token does not fit (C cannot catch that), and
 * grammars of a few lines make them expand without end, on the thread that computes for everybody. Here every step has
 * a bound; a grammar that goes beyond it has failed (grammar_failed()) and says so.
 *
 * A grammar is made on any thread and then belongs to one thread at a time; states belong to whoever holds them. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;

/* Where a text stands: all ways in which it can be read. {0} is an empty one. */
struct grammar_state {
    uint32_t *v; /* one for each reading; 0: it is complete */
    size_t len, cap;
    uint32_t value; /* of a character whose last bytes are missing */
    int missing;    /* so many */
};

/* Finds the one token whose text this is; -1: there is none. */
struct grammar_vocabulary {
    int32_t (*token_of)(const void *ud, const char *text, size_t len);
    const void *ud;
};

/* NULL: HEARTH_INVALID, param "grammar", and what is wrong in which line. The vocabulary is asked for tokens written by
 * their text ("<think>"); NULL: such a grammar is refused. */
struct grammar *grammar_open(const char *text, const struct grammar_vocabulary *vocabulary, hearth_error *error);
void grammar_close(struct grammar *grammar);

void grammar_start(struct grammar *grammar, struct grammar_state *state);

/* Goes on by a byte of text. False: no reading allows it. */
bool grammar_eat(struct grammar *grammar, const struct grammar_state *from, unsigned char byte,
                 struct grammar_state *to);

/* Goes on by a token that the grammar names as such: `to` gets the readings in which it does, none if there are none.
 */
void grammar_eat_token(struct grammar *grammar, const struct grammar_state *from, int32_t token,
                       struct grammar_state *to);

/* Whether some reading goes on with a token that is named as such. */
bool grammar_names_tokens(const struct grammar *grammar, const struct grammar_state *state);

/* Adds the readings of another state. */
void grammar_join(struct grammar_state *state, const struct grammar_state *more);

/* Whether a text may be broken off here to go on with another token: a half character can still become one that fits.
 */
bool grammar_goes_on(const struct grammar *grammar, const struct grammar_state *state);

/* Whether the text matches as it is. */
bool grammar_complete(const struct grammar_state *state);

/* The bound was reached since the last call of grammar_rest(): what was found out since does not count. */
bool grammar_failed(const struct grammar *grammar);
void grammar_rest(struct grammar *grammar);

void grammar_copy(struct grammar_state *to, const struct grammar_state *from);
void grammar_release(struct grammar_state *state);

#endif
