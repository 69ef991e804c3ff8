/* A draft model, which writes guesses ahead of the replies of the large one. It is a small model with the same
 * vocabulary, or a head. This is a layer that reads a token together with the hidden row that gave it, and guesses the
 * next one. The large model's own MTP head reads its last rows, an EAGLE-3 head what it makes of those of three layers.
 *
 * It has a stream of cells for each slot, with the last tokens of the slot's sequence, and nothing else: no prompt is
 * kept for it, none is fetched. Where a slot gets another conversation, its last tokens are computed; a head's stream
 * begins with the first token of the reply, since earlier hidden rows are not kept. So a guess is as good behind
 * a prompt that came from the cache as behind one that was computed. Belongs to the engine's thread. */
#ifndef ENGINE_DRAFT_MODEL_H
#define ENGINE_DRAFT_MODEL_H

#include "base/clock.h"
#include "base/tokens.h"
#include "llm/context.h"

#define DRAFT_MOST     64 /* tokens of a draft */
#define DRAFT_GAP_PART 16 /* of a stream's longest gap, what a draft model may take to come to a reply's end */

struct draft_model;

struct draft_model_params {
    struct llm_model *model;           /* borrowed; NULL: there is none */
    struct llm_context_params context; /* draft_model_context() */
    int32_t n_vocab;                   /* tokens below it mean the same in both models */
    int32_t n_row;                     /* of a head: length of the model's hidden row; 0: it is a model of its own */
    int32_t n_own;                     /* of a head: length of the rows that it reads and gives */
    bool optional;                     /* where it cannot be opened, there is none */
};

/* The parameters of a draft model's context for so many slots: the fields that follow from that alone, and the head
 * that its file is. */
struct llm_context_params draft_model_context(const struct llm_model_info *info, int32_t n_slots);

/* `most_ns`: how long one call may take to compute what a stream lacks. */
struct draft_model *draft_model_open(const struct draft_model_params *params, int64_t most_ns, struct clock *clock,
                                     hearth_error *error);
void draft_model_close(struct draft_model *model);

/* A token of a reply, and the hidden row that gave it. */
struct draft_row {
    int32_t stream; /* the slot's number */
    uint64_t owner;
    int32_t index;    /* of the token, in its sequence */
    const float *row; /* copied */
};

/* Whether draft_model_keep_row() is to be told of the tokens that are sampled: a head reads their rows. */
bool draft_model_reads_rows(const struct draft_model *model);
void draft_model_keep_row(struct draft_model *model, const struct draft_row *row);

/* A reply that is to be guessed at. */
struct draft_ask {
    int32_t stream;              /* the slot's number */
    uint64_t owner;              /* of the tokens: their scope; of a head, whose cells come of rows of one reply, that
                                    reply. A stream of another owner begins anew */
    const struct tokens *tokens; /* of its sequence */
    bool over;                   /* no more tokens are wanted, or there can be none now */
    bool lacks;                  /* its stream lacks tokens still */
    int32_t guess[DRAFT_MOST], n;
    float chance; /* that the draft model gives to the last of them */
};

/* Adds the next token to each guess that is not over, in one call. A stream that lacks much is computed over several
 * calls, at least some tokens in each, and has no guess until then. False: the call failed; its streams begin anew. */
bool draft_model_next(struct draft_model *model, struct draft_ask *asks, size_t n);

/* Nanoseconds that a call for one token takes; 0: not known yet. */
double draft_model_step_ns(const struct draft_model *model);

#endif
