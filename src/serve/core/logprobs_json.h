/* The logprobs of a reply's tokens, copied out of the library's events, and their JSON in the forms of the APIs.
 * Pure functions; any thread. */
#ifndef SERVE_CORE_LOGPROBS_JSON_H
#define SERVE_CORE_LOGPROBS_JSON_H

#include "base/buf.h"
#include "hearth.h"

/* The logprobs of one token of a reply. One block of memory: free() it. */
struct token_logprobs {
    size_t n; /* v[0]: the sampled token; then the likeliest ones */
    hearth_logprob v[];
};

struct token_logprobs *token_logprobs_copy(const hearth_logprobs *logprobs);

/* An element of OpenAI's "logprobs":{"content":[…]}: {"token","logprob","bytes","top_logprobs":[…]}. Bytes that are
 * not UTF-8 become U+FFFD in "token". */
void token_logprobs_put_openai(struct buf *out, const struct token_logprobs *logprobs);

/* Append a token's bytes as a JSON string, and as a JSON list of numbers. */
void logprob_put_text(struct buf *out, const hearth_logprob *logprob);
void logprob_put_bytes(struct buf *out, const hearth_logprob *logprob);

/* A logprob that JSON can hold: -INFINITY and NaN become -9999, as OpenAI writes it. */
double logprob_finite(double log);

#endif
