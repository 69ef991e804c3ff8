/* The accumulated response of one choice of a request: its text, reasoning, tool calls, tokens and logprobs so far.
 * The exchange adds what each event of the library brings; the dialects read it. Answering threads; it belongs to
 * whoever has the exchange. */
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

/* A part of the response, in the order of generation: a run of reasoning, a run of content, or a tool call with its
 * arguments. */
struct answer_part {
    hearth_delta_type type; /* REASONING, CONTENT, CALL */
    size_t call;            /* CALL: its index in `calls` */
    size_t start, len;      /* bytes of `reasoning` or of `text` */
    size_t first_logprobs;  /* index of its first token's logprobs */
};

struct answer {
    struct buf text, reasoning; /* text: a chat's content, a completion's text */
    struct answer_call *calls;
    size_t n_calls;
    struct answer_part *parts;
    size_t n_parts;
    struct token_logprobs **logprobs; /* one for each token, in order; none if the request does not ask for logprobs */
    size_t n_logprobs;
    struct token_logprobs **prompt_logprobs; /* of the prompt's tokens from the second on; likewise */
    size_t n_prompt_logprobs;
    struct tokens tokens; /* empty if the request does not ask for token ids */
    int32_t reasoning_n;  /* tokens of reasoning */
    hearth_result result; /* counts, times and finish reason so far; the exchange owns its stop_string */
    /* Borrowed from the library's request once it has started: */
    const hearth_sampling *sampling;
    hearth_prompt prompt;         /* empty if the request does not ask for its prompt */
    hearth_divergence divergence; /* of a cache lookup */
    size_t n_left_out;            /* fields of the request that the model does not see: X-Hearth-Left-Out */
    bool started, done;
};

void answer_add(struct answer *answer, const hearth_delta *delta);
void answer_add_token(struct answer *answer); /* counts a token, after its deltas were added */
void answer_add_logprobs(struct answer *answer, struct token_logprobs *logprobs);        /* takes them over */
void answer_add_prompt_logprobs(struct answer *answer, struct token_logprobs *logprobs); /* likewise */
void answer_release(struct answer *answer);

/* Appends a call's arguments as a JSON object; {} if generation broke off within them, so that they are not valid
 * JSON. */
void answer_put_arguments(struct buf *out, const struct answer_call *call);

/* Appends the member of a "usage" that says how much of the request the model did not see, with a comma before it:
 * nothing where it saw all. */
void answer_put_left_out(struct buf *out, const struct answer *answer);

/* Times and token counts in llama-server's form: ,"timings":{…} */
void timings_put(struct buf *out, const hearth_result *result);

/* ,"prompt_progress":{…}: cached tokens count as processed. */
void timings_put_progress(struct buf *out, const hearth_result *result);

#endif
