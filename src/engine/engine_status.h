/* Reports of the engine: its status, and the log of what was reused. */
#ifndef ENGINE_ENGINE_STATUS_H
#define ENGINE_ENGINE_STATUS_H

#include "engine/reuse_plan.h"

/* Renews the copy of slots and sequences that other threads see. */
void status_publish(struct engine *engine);

/* The short hash that the status shows for a resident sequence: of its conversation's messages, else of its tokens. */
void seq_put_hash(const struct seq *seq, char text[17]);

/* The sequence that an idle slot computed on last, if it is still resident: the slot status reports it as the
 * slot's own. */
const struct seq *slot_last_seq(const struct engine *engine, const struct slot *slot);

/* Logs what was found for a request and what is reused of it, in the words of the source documents.
 * Returns whether a conversation is continued. */
bool reuse_log(const struct engine *engine, const struct job *job, const struct placement *placement);
void reuse_log_built(const struct slot *slot);

#endif
