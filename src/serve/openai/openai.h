/* OpenAI's answers: what chat completions and completions have in common. Each of the two routes is a form, the few
 * pieces in which they differ, around the dialect in openai.c. HTTP thread only. */
#ifndef SERVE_OPENAI_OPENAI_H
#define SERVE_OPENAI_OPENAI_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* How a route writes its choices: the members of a choice after "index". */
struct openai_form {
    const char *id_prefix; /* "chatcmpl-" */
    const char *object;    /* of a whole answer */
    const char *chunk;     /* of a piece of a stream */
    const char *opening;   /* a stream of a choice begins with this; NULL: with its first text */
    const char *empty;     /* a piece without text */
    const char *calls;     /* finish_reason of who calls tools */
    void (*put_delta)(struct buf *out, const hearth_delta *delta);
    void (*put_whole)(struct buf *out, const struct answer *answer);
    /* The value of "logprobs" for some tokens of an answer, which begin at the character `offset` of its text. */
    void (*put_logprobs)(struct buf *out, struct token_logprobs *const *logprobs, size_t n, size_t offset);
};

/* Starts the exchange of a request that was read, and takes it over. */
void openai_answer(struct call *call, const struct openai_form *form, struct fields *fields);

/* The routes. */
void openai_chat(struct call *call);
void openai_completion(struct call *call);

/* For openai_answer() and tests: the dialect and its state. `model` and `id` are copied. */
extern const struct dialect openai_dialect;

struct openai_names {
    const char *model, *id;
    int64_t created; /* unix time, seconds */
};

/* NULL: a field is wrong that only these routes read. */
void *openai_state(const struct openai_form *form, const struct fields *fields, const struct openai_names *names,
                   hearth_error *error);

extern const struct openai_form openai_chat_form, openai_functions_form, openai_completion_form;

#endif
