/* What the choices of an answer begin with ("echo"): a completion's prompt, with the logprobs of its tokens where
 * "logprobs" asks for them, too; in a chat the message that the reply continues. The dialect owns it; answering
 * threads. Of functions that take a struct echo, NULL is fine: nothing is echoed. */
#ifndef SERVE_OPENAI_ECHO_H
#define SERVE_OPENAI_ECHO_H

#include "serve/core/answer.h"
#include "serve/fields/fields.h"

struct echo;

/* NULL: the request wants none. */
struct echo *echo_open(const struct fields *fields);
void echo_close(struct echo *echo);

/* Whether a stream's choice can be echoed only once its prompt was computed: for the logprobs, or for the text of
 * tokens. */
bool echo_waits(const struct echo *echo, size_t choice);

const struct buf *echo_reasoning(const struct echo *echo, size_t choice); /* of a message; empty: none */

/* Appends the prompt of a choice, or the message's text. */
void echo_put_text(const struct echo *echo, size_t choice, const struct answer *answer, struct buf *out);

/* Tokens of an answer's text, and the character of it that each begins at. */
struct echo_tokens {
    struct token_logprobs **v; /* borrowed, but for `first` */
    size_t *offsets;
    size_t n;
    size_t at;                    /* characters so far */
    struct token_logprobs *first; /* of the prompt, which has no logprob; NULL: there is none */
};

/* Those of the prompt, whose text was put into `text`; none if their logprobs are not wanted. */
struct echo_tokens echo_tokens_of(const struct echo *echo, const struct answer *answer, const struct buf *text);
/* Further ones, of the reply. */
void echo_tokens_add(struct echo_tokens *tokens, struct token_logprobs *const *logprobs, size_t n);
void echo_tokens_release(struct echo_tokens *tokens);

#endif
