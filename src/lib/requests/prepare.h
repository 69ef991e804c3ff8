/* Chats made ready for the engine: their prompt, and where in it messages end.
 *
 * Weights and template are constant, all else is the caller's: several threads may prepare at once. */
#ifndef LIB_REQUESTS_PREPARE_H
#define LIB_REQUESTS_PREPARE_H

#include "chat/chat.h"
#include "engine/job.h"
#include "llm/model.h"

struct prepare_chat {
    const struct llm_model *weights;
    const struct chat_template *template_;
    struct chat_request request; /* add_generation_prompt: as the whole prompt is to have it */
    /* Whether the text can be tokenised; asked once it is rendered. NULL: always. */
    int (*check)(const void *ud, const char *text, size_t len, hearth_error *error);
    const void *ud;
    const atomic_bool *cancelled; /* prepare_prompt() then leaves off, with HEARTH_CANCELLED */
    /* Filled in by prepare_prompt(), used by prepare_conversation(): */
    struct chat_prompt text;
    bool by_parts; /* the template's words and the request's are tokenised apart */
};

/* Renders all messages with the words that make the assistant speak, and appends their tokens to `prompt`. On failure
 * nothing is appended and there is nothing to release. */
int prepare_prompt(struct prepare_chat *chat, struct tokens *prompt, hearth_error *error);
void prepare_release(struct prepare_chat *chat);

/* Which ends of messages somebody asks for: each costs a rendering, made once where several want the same. */
struct prepare_wishes {
    bool system_end, stable_end;
    bool checkpoints; /* of all kinds: this includes the others */
};

/* Which of the messages the prompt's token at `position` belongs to, be it one of its words or of the template's beside
 * them; negative: to none, or that cannot be told for certain, since the template shows a part of the conversation
 * otherwise than the whole, or tools stand before the first. `prompt` is what prepare_prompt() made. Renders the
 * conversation some log2(n) times. */
int32_t prepare_message_at(const struct prepare_chat *chat, const struct tokens *prompt, size_t n_messages,
                           int32_t position);

/* Tells the messages' identity, and the ends wished for, in job->conversation and job->checkpoints; job->prompt is what
 * prepare_prompt() made. Without a wish they stay empty. An end is 0 where the template does not render a part of the
 * messages. The hashes are the caller's to free. */
void prepare_conversation(const struct prepare_chat *chat, const struct prepare_wishes *wishes, struct job *job);

#endif
