/* The logprobs of a reply's tokens, copied out of the library's events, and their JSON in the forms of the APIs.
 * Pure functions; any thread. */
#ifndef SERVE_CORE_LOGPROBS_JSON_H
#define SERVE_CORE_LOGPROBS_JSON_H

#include "base/buf.h"
#include "hearth.h"
#include "serve/core/pieces.h"

/* The logprobs of one token of a reply or a prompt. One block of memory: free() it. */
struct token_logprobs {
    bool none;    /* it has none: a prompt's first token */
    int32_t rank; /* as in hearth_logprobs */
    size_t n;     /* v[0]: the token; then the likeliest ones */
    hearth_logprob v[];
};

struct token_logprobs *token_logprobs_copy(const hearth_logprobs *logprobs);

/* Bytes of memory that it takes, about. */
size_t token_logprobs_bytes(const struct token_logprobs *logprobs);

/* Of a token that has none. */
struct token_logprobs *token_logprobs_without(int32_t token, const char *bytes, size_t n_bytes);

/* An element of OpenAI's "logprobs":{"content":[…]}: {"token","logprob","bytes","top_logprobs":[…]}. Bytes that are
 * not UTF-8 become U+FFFD in "token". */
void token_logprobs_put_openai(struct buf *out, const struct token_logprobs *logprobs);

/* Puts the list of elements of `n` tokens, with its brackets. */
void token_logprobs_put_list(struct pieces *out, struct token_logprobs *const *logprobs, size_t n);

/* Puts the value of vLLM's "prompt_logprobs" of a prompt whose tokens from the second on have these. It is a list of
 * null, and of an object for each token, {"17":{"logprob","rank","decoded_token"},…}: the token itself, then the
 * likeliest. */
void prompt_logprobs_put(struct pieces *out, struct token_logprobs *const *logprobs, size_t n);

/* Append a token's bytes as a JSON string, and as a JSON list of numbers. */
void logprob_put_text(struct buf *out, const hearth_logprob *logprob);
void logprob_put_bytes(struct buf *out, const hearth_logprob *logprob);

/* A logprob that JSON can hold: -INFINITY and NaN become -9999, as OpenAI writes it. */
double logprob_finite(double log);

#endif
