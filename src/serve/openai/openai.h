/* OpenAI's chat completions and completions, and transcriptions. One dialect (openai.c) writes the answers of the first
 * two; each route is a form: the pieces in which they differ. HTTP thread only, where nothing else is said. */
#ifndef SERVE_OPENAI_OPENAI_H
#define SERVE_OPENAI_OPENAI_H

#include "serve/core/answer.h"
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
    void (*put_delta)(const struct openai_form *form, struct buf *out, const hearth_delta *delta, bool is_custom);
    /* `custom`: names of the custom tools, a list, or NULL. */
    void (*put_whole)(const struct openai_form *form, struct buf *out, const struct answer *answer,
                      const json_t *custom);
    /* Puts the value of "logprobs" for `n` tokens, which begin at these characters of the answer's text. */
    void (*put_logprobs)(struct pieces *out, struct token_logprobs *const *logprobs, size_t n, const size_t *offsets);
    bool has_functions;  /* calls are in the form of OpenAI's deprecated "functions" */
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

/* ---- Echoes (echo.c) ---- */

/* The beginning of an answer's choices ("echo"). In a completion it is the prompt, with the logprobs of its tokens
 * where "logprobs" asks for them, too. In a chat it is the message that the reply continues. The dialect owns it;
 * answering threads. Of functions that take a struct echo, NULL is fine: nothing is echoed. */
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

/* ---- Transcriptions (transcription.c) ---- */

/* POST /v1/audio/transcriptions: OpenAI's form with a sound, answered with what is said in it.
 *
 * It is a chat of one message, the sound behind a line that asks for its text, so that everything that holds for chats
 * holds here: admission, caching, limits. That line, and what model and language add to it, is llama-server's, so that
 * both give the same reply. */
extern const struct reading_form transcription_create;

#endif
