/* The tokens that a call brings a reply: sampled, sent, and what ends it. Runs on the engine's thread, behind a decode
 * call that succeeded. */
#ifndef ENGINE_SAMPLE_H
#define ENGINE_SAMPLE_H

#include "engine/slot.h"

/* Samples the next token from the logits of the call's token with that index. All tokens of the sequence are in cells,
 * and none was drafted. */
void sample_one(struct engine *engine, struct slot *slot, int32_t batch_index);

/* As many of the reply's draft are in cells, with logits of their own, behind the token with that index. Samples from
 * row to row until a sampled token is not the drafted one, or ends the reply. The rest of the draft leaves the cells at
 * once, before anything is saved. */
void sample_drafted(struct engine *engine, struct slot *slot, int32_t drafted, int32_t batch_index);

/* Ends the slot's request, unless the reply goes on: run.ending says so since the last token. */
void end_reply(struct engine *engine, struct slot *slot);

#endif
