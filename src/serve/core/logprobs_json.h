/* How likely a token of a reply was, copied out of an event, and the ways in which APIs write it. Pure functions; any
 * thread. */
#ifndef SERVE_CORE_LOGPROBS_JSON_H
#define SERVE_CORE_LOGPROBS_JSON_H

#include "base/buf.h"
#include "hearth.h"

/* One block of memory: free() it. */
struct token_logprobs {
    size_t n; /* the chosen token, then the likeliest */
    hearth_logprob v[];
};

struct token_logprobs *token_logprobs_copy(const hearth_logprobs *logprobs);

/* An element of OpenAI's "logprobs":{"content":[…]}: {"token","logprob","bytes","top_logprobs":[…]}. Of bytes that are
 * no text the token shows U+FFFD. */
void token_logprobs_put_openai(struct buf *out, const struct token_logprobs *logprobs);

/* The JSON string, and the JSON list of numbers, for a token's bytes. */
void logprob_put_text(struct buf *out, const hearth_logprob *logprob);
void logprob_put_bytes(struct buf *out, const hearth_logprob *logprob);

/* A logarithm that JSON can hold: -INFINITY becomes -9999, as OpenAI writes it. */
double logprob_finite(double log);

#endif
