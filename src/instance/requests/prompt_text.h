/* The text of a prompt, and tokens that spell a part of it in another way than the tokenizer would.
 *
 * Such tokens were sampled, or are in cells or in the store. They may stand for the text where they have its bytes and
 * mean the same: see text_match(). Any thread; nothing is kept. */
#ifndef INSTANCE_REQUESTS_PROMPT_TEXT_H
#define INSTANCE_REQUESTS_PROMPT_TEXT_H

#include "base/tokens.h"
#include "llm/model.h"

#include <stdbool.h>
#include <stddef.h>

/* A prompt's text, and how a range of its bytes is tokenised, with BOS before its begin and EOS behind its end. */
struct prompt_text {
    const struct llm_model *weights;
    const char *v;
    size_t len;
    void (*tokenise)(const void *ud, size_t from, size_t to, struct tokens *out);
    const void *ud;
};

/* The first n tokens of a list, which spell so many bytes of a text. */
struct text_match {
    size_t n, n_bytes;
};

/* How many of the tokens may stand for the text from a byte on. They have its bytes, and end with a whole word where
 * the text leaves them. Their control tokens are those that the tokenizer would make of these bytes, at the same
 * places. */
struct text_match text_match(const struct prompt_text *text, const int32_t *tokens, size_t n, size_t from);

/* Leaves out what is spelled oddly: where, over some words, the tokens of the match are many more than those that the
 * tokenizer makes of the same bytes. */
void text_keep_usual(const struct prompt_text *text, const int32_t *tokens, size_t from, struct text_match *match);

/* Appends the tokens of the bytes [from, to) behind those of the bytes before. Some vocabularies put a blank before
 * whatever they tokenise, and behind each control token: false where they have put one that the text has not. */
bool text_tokenise_on(const struct prompt_text *text, size_t from, size_t to, struct tokens *more);

/* A boundary of tokens in a text: the first n_tokens of its tokens spell its first n_bytes bytes. */
struct text_seam {
    size_t n_tokens, n_bytes;
};

/* Goes back from the end of the text, token by token, to the last seam at or before `n_tokens` or `n_bytes`, whichever
 * comes first. False: the tokens do not spell the text. */
bool text_seam_before(const struct prompt_text *text, const struct tokens *tokens, const struct text_seam *least,
                      struct text_seam *seam);

#endif
