/* Prompts. That of a chat: renders the template, tokenises the text, and finds at which tokens messages end. Beside it
 * fill-in-the-middle, and the system prompt that is assumed.
 *
 * Weights and template are constant, the tokenizer cache is for any thread, all else belongs to the caller: several
 * preparing threads may work at once. */
#ifndef INSTANCE_REQUESTS_PREPARE_H
#define INSTANCE_REQUESTS_PREPARE_H

#include "chat/chat.h"
#include "engine/job.h"
#include "hearth.h"
#include "instance/media/prompt_media.h"
#include "instance/requests/reply_book.h"
#include "llm/model.h"

#include <jansson.h>

struct prepare_chat {
    const struct llm_model *weights;
    const struct chat_template *template_;
    struct chat_request request; /* add_generation_prompt: for the whole prompt; parts of it never have one */
    /* Called with the rendered text before it is tokenised; an error ends the preparation. NULL: every text is fine. */
    int (*check)(const void *ud, const char *text, size_t len, hearth_error *error);
    const void *ud;
    struct prompt_media *media; /* that was read, and whose markers the request has; NULL: none */
    struct llm_tokenising how;  /* once how.stop is set, prepare_prompt() ends with HEARTH_CANCELLED */
    struct reply_book *book;    /* for replies that the prompt holds, where there are no media; NULL: none */
    uint64_t scope;             /* of the request, in the book */
    struct stored_lists stored; /* where replies are looked for that the book has not */
    /* Filled in by prepare_prompt(), used by what follows; request.parsed as well. */
    struct chat_parsed *parsed;
    struct chat_prompt text;
    struct reply_place place; /* of the reply to it */
    bool by_parts;            /* the template's text and the request's are tokenised separately */
};

/* Parses the request, renders all messages, by default with the generation prompt, and appends their tokens to
 * `prompt`. On failure nothing is appended and there is nothing to release. */
int prepare_prompt(struct prepare_chat *chat, struct tokens *prompt, hearth_error *error);
void prepare_release(struct prepare_chat *chat);

/* Which ends of messages are wanted. Each costs one rendering and tokenising of a part of the conversation; the same
 * end wanted twice is computed once. */
struct prepare_wishes {
    bool system_end, stable_end; /* of the system message; of all but the last message */
    bool checkpoints;            /* where checkpoints are wanted: includes both, and the end of all messages */
};

/* The message, from 0, that the prompt's token at `position` belongs to, in its own text or in the template's around
 * it. Negative: none, or it is uncertain, since the template renders a part of the conversation otherwise than the
 * whole, or tools may precede the first message. `prompt` comes from prepare_prompt(). Renders the conversation about
 * log2(n) times. */
int32_t prepare_message_at(const struct prepare_chat *chat, const struct tokens *prompt, size_t n_messages,
                           int32_t position);

/* Fills in job->conversation (hashes of the messages, ends in tokens) and job->checkpoints (tokens); job->prompt comes
 * from prepare_prompt(). Without a wish they stay empty. An end is 0 where the template refuses a part of the messages.
 * The caller frees the hashes. */
void prepare_conversation(const struct prepare_chat *chat, const struct prepare_wishes *wishes, struct job *job);

/* ---- Fill-in-the-middle ----
 * Prompts of prefix, suffix and snippets of an editor, with the model's special tokens between them in the order that
 * such models were trained on. */

/* The model and the number of tokens that prefix, suffix and snippets may take. */
struct infill_model {
    const struct llm_model *weights;
    const char *name;
    int32_t window;  /* tokens that prompt and reply may have */
    int32_t n_batch; /* tokens: the prefix keeps its last 3/4 of it, the suffix its first 1/4 */
};

/* Turns the tokens of the prefix into the whole prompt, with the parameters' `typed`, `suffix` and `snippets`.
 * HEARTH_UNSUPPORTED where the vocabulary has no fill-in-the-middle tokens. */
int infill_prompt(const struct infill_model *model, const hearth_params *params, struct tokens *prompt,
                  hearth_error *error);

/* ---- The assumed system prompt ----
 * With system_prompt_assumed, the one system message that requests of a model have is put before the messages of
 * requests without one. It is for clients that send it with the first turn alone.
 *
 * A client's text may so reach another client: it is assumed only while every request had the same one, and never again
 * once a second one was seen. Any thread. */

struct system_prompt;

struct system_prompt *system_prompt_open(void);
void system_prompt_close(struct system_prompt *prompt);

/* Records the system message that these messages begin with, if they have one. */
void system_prompt_learn(struct system_prompt *prompt, const json_t *messages);

/* A list of a system message of this text and these messages; json_decref() it. NULL: they have one. */
json_t *system_prompt_put(const char *text, const json_t *messages);

/* The same with the recorded system message. NULL: they have one, or not exactly one is recorded. */
json_t *system_prompt_assume(struct system_prompt *prompt, const json_t *messages);

#endif
