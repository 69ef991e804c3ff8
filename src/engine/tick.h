/* A tick: one batch with the tokens of all slots, with media and with the logprobs of prompts; and what is sampled. */
#ifndef ENGINE_TICK_H
#define ENGINE_TICK_H

#include "engine/plan.h"
#include "engine/slot.h"

/* Plans and computes one batch. */
void tick(struct engine *engine);

/* ---- The tokens that a call brings a reply: sample.c ---- */

/* Samples the next token from the logits of the call's token with that index. All tokens of the sequence are in cells,
 * and none was drafted. */
void sample_one(struct engine *engine, struct slot *slot, int32_t batch_index);

/* As many of the reply's draft are in cells, with logits of their own, behind the token with that index. Samples from
 * row to row until a sampled token is not the drafted one, or ends the reply. The rest of the draft leaves the cells at
 * once, before anything is saved. */
void sample_drafted(struct engine *engine, struct slot *slot, int32_t drafted, int32_t batch_index);

/* Ends the slot's request, unless the reply goes on: run.ending says so since the last token. */
void end_reply(struct engine *engine, struct slot *slot);

/* ---- Media in prompts: media.c ---- */

/* Looks which slots have to wait for the rows of their next medium, and has those of the one after encoded as well. */
void media_step(struct engine *engine);

/* The slot's next need, where that is a medium's rows. False: it is text, which ends before *to, where the next medium
 * begins. */
bool media_need(const struct slot *slot, struct plan_need *need, int32_t *to);

/* Computes a share of a medium's rows: a decode call of its own. */
enum llm_decoded media_decode(struct engine *engine, const struct plan_share *share);

/* The slot's sequence has grown by a share: media that are whole now need their rows no more. */
void media_computed(const struct slot *slot, const struct plan_share *share);

/* ---- Logprobs of prompts: score.c ---- */

/* Whether the logits at the position are to give the logprob of the prompt's token behind it. */
bool score_wants(const struct job *job, int32_t position);

/* Whether some of what the slot needs next is scored. */
bool score_needs(const struct job *job, const struct plan_need *need);

/* How many of n leading tokens may be reused: those that have no logits to give any more. */
int32_t score_reusable(const struct job *job, int32_t n);

/* How many rows of logits become logprobs in a tick of `ns` nanoseconds at most, beside streams. */
int32_t score_rows(const struct engine *engine, double ns);

/* The share was computed, its first token with this index in the call: emits the logprobs. */
void score_share(struct engine *engine, struct slot *slot, const struct plan_share *share, int32_t first_token);

#endif
