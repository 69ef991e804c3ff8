/* OpenAI's chat completions and completions. One dialect (openai.c) writes the answers of both; each route is a
 * form: the pieces in which they differ. HTTP thread only. */
#ifndef SERVE_OPENAI_OPENAI_H
#define SERVE_OPENAI_OPENAI_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* How a route writes its choices: the members of a choice after "index". A delta is_custom where it is of a call of a
 * custom tool: its begin, or its whole input. */
struct openai_form {
    const char *id_prefix; /* "chatcmpl-" */
    const char *object;    /* "object" of a whole answer */
    const char *chunk;     /* "object" of a chunk of a stream */
    const char *opening;   /* first chunk of a choice's stream; NULL: none */
    const char *empty;     /* members of a chunk without text */
    const char *calls;     /* finish_reason of an answer with tool calls */
    void (*put_delta)(struct buf *out, const hearth_delta *delta, bool is_custom);
    /* `custom`: names of the custom tools, a list, or NULL. */
    void (*put_whole)(struct buf *out, const struct answer *answer, const json_t *custom);
    /* Puts the value of "logprobs" for `n` tokens, which begin at these characters of the answer's text. */
    void (*put_logprobs)(struct pieces *out, struct token_logprobs *const *logprobs, size_t n, const size_t *offsets);
    bool scores_choices; /* "prompt_logprobs" are a member of each choice, else of the answer */
};

/* Starts the exchange of a parsed request, which it takes over. */
void openai_answer(struct call *call, const struct openai_form *form, struct fields *fields);

/* The routes. */
extern const struct reading_form openai_chat;
extern const struct reading_form openai_completion;

/* For openai_answer() and tests: the dialect and its state. The names are copied. */
extern const struct dialect openai_dialect;

struct openai_names {
    const char *model, *id;
    int64_t created; /* unix time, seconds */
};

/* NULL with the error: a field that only these routes read is invalid. */
void *openai_state(const struct openai_form *form, const struct fields *fields, const struct openai_names *names,
                   hearth_error *error);

extern const struct openai_form openai_chat_form, openai_functions_form, openai_completion_form;

#endif
