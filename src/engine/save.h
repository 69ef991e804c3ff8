/* Saving cells to the store: when, and copying them out. All of it does nothing where there is no store. */
#ifndef ENGINE_SAVE_H
#define ENGINE_SAVE_H

#include "engine/slot.h"
#include "llm/state_slices.h"

/* How often a save is tried: cells whose save was damaged or failed are copied out once more. */
#define SAVE_ATTEMPTS 2

/* A request begins on the sequence. */
void save_begin(struct engine *engine, struct seq *seq, const struct job *job);

/* The sequence shares the first n cells of `from`, and with them what was copied out of those. */
void save_inherit(struct seq *seq, const struct seq *from, int32_t n);

/* The sequence was cut back to n cells. */
void save_cut(struct seq *seq, int32_t n);

/* Tokens were computed; `at_checkpoint`: the sequence has reached a checkpoint position of the prompt. */
void save_progress(struct engine *engine, struct slot *slot, bool at_checkpoint);

/* The request ends; its cells stay. */
void save_finished(struct engine *engine, struct seq *seq);

/* The tokens that an eviction of the resident sequence would lose. */
enum save_status {
    SAVE_COMPLETE, /* nothing: it is in the store, or nothing of it is to be stored */
    SAVE_PENDING,  /* nothing once its save jobs are done: it is being copied out or written, and the store wakes the
                      engine afterwards */
    SAVE_MISSING   /* something: its save jobs have ended, and the store does not have it */
};
enum save_status save_status(const struct engine *engine, const struct seq *seq);

/* Asks the store about the tokens in the sequence's cells. */
struct store_query save_query(const struct engine *engine, const struct seq *seq);

/* Whether saves of it are copied out or written: the store wakes the engine afterwards. Compares no tokens. */
bool save_is_under_way(const struct engine *engine, const struct seq *seq);

/* The sequence is to be evicted: queues what the store lacks to be copied out. */
void save_before_eviction(struct engine *engine, struct seq *seq);

/* The sequence is evicted now: copies out what is queued, as far as the backlog takes it. False: some is left. */
bool save_flush(struct engine *engine, struct seq *seq);

/* The engine ends: the only time its thread waits for the store, for evict_timeout_ns at most. */
void save_all(struct engine *engine);
void save_release(struct seq *seq);

/* Copies out a bounded number of bytes of what is queued. False: nothing could be copied. */
bool save_step(struct engine *engine);

/* How the store splits and joins states of this format. */
struct store_codec codec_of(const struct llm_state_format *format);

#endif
