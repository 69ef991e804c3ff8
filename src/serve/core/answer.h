/* What one choice of a request came to, as far as it has come: grown from the events of hearth, read by the dialects.
 * HTTP thread only. */
#ifndef SERVE_CORE_ANSWER_H
#define SERVE_CORE_ANSWER_H

#include "base/buf.h"
#include "base/tokens.h"
#include "hearth.h"
#include "serve/core/logprobs_json.h"

/* A tool call. */
struct answer_call {
    char *id, *name;
    struct buf arguments; /* JSON text */
};

/* A run of one kind in the order in which it came: reasoning, content, a call with its arguments. */
struct answer_part {
    hearth_delta_type type; /* REASONING, CONTENT, CALL */
    size_t call;            /* its index */
    size_t start, len;      /* in the reasoning, in the text */
    size_t first_logprobs;  /* the first of its tokens' */
};

struct answer {
    struct buf text, reasoning; /* text: of a chat its content */
    struct answer_call *calls;
    size_t n_calls;
    struct answer_part *parts;
    size_t n_parts;
    struct token_logprobs **logprobs; /* of its tokens, in order; none where nobody asked */
    size_t n_logprobs;
    struct tokens tokens; /* none where nobody asked */
    int32_t reasoning_n;  /* tokens that were told while the reasoning lasted */
    hearth_result result; /* how it stands; its stop_string is the exchange's */
    /* The request's, from when it has started: */
    const hearth_sampling *sampling;
    hearth_prompt prompt;         /* empty where nobody asked */
    hearth_divergence divergence; /* of a lookup */
    bool started, done;
};

void answer_add(struct answer *answer, const hearth_delta *delta);
void answer_add_token(struct answer *answer);                                     /* after what it added */
void answer_add_logprobs(struct answer *answer, struct token_logprobs *logprobs); /* which it takes over */
void answer_release(struct answer *answer);

/* A call's arguments as an object: {} where they broke off, and are no JSON. */
void answer_put_arguments(struct buf *out, const struct answer_call *call);

#endif
