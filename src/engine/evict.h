/* Evicting resident sequences: which one is next, how many of its cells go, and when. */
#ifndef ENGINE_EVICT_H
#define ENGINE_EVICT_H

#include "engine/slot.h"

/* ---- Which one ---- */

enum room { ROOM_FOR_CELLS, ROOM_FOR_SEQ };

struct victim {
    struct seq *seq; /* NULL: all are in use, or their eviction is pending. For ROOM_FOR_SEQ it may be free already */
    bool safe;       /* nothing is lost with its cells */
};

struct victim next_victim(const struct engine *engine, enum room room, const struct seq *but_not);

/* The least recently used of the sequences whose eviction is pending. NULL: there is none. */
struct seq *next_pending_victim(const struct engine *engine);

/* Whether a sequence other than this one is free, or can be evicted sooner or later. */
bool can_have_seq(const struct engine *engine, const struct seq *but_not);

/* Whether another sequence shares all its cells, so that a request can reuse them there: evicting it loses nothing, and
 * frees nothing but the sequence. Recurrent and SWA state is not shared with the cells. */
bool seq_is_shared_whole(const struct engine *engine, const struct seq *seq);

/* ---- How many, and when ---- */

/* Finds or makes an empty sequence that nobody uses. NULL: there is none yet; an eviction is pending for each slot that
 * awaits one. */
struct seq *evict_for_seq(struct engine *engine);

/* Whether no sequence is free, and as many evictions are pending as slots await one. */
bool evict_is_pending(const struct engine *engine);

/* The outcome of an eviction that was to free so many cells, or at least some of them. */
enum evict_outcome {
    EVICT_DONE,
    EVICT_PENDING, /* an eviction is pending, and ends when the cells are stored: the slot waits for room */
    EVICT_NOTHING  /* no cells are resident */
};
enum evict_outcome evict_for_cells(struct engine *engine, int32_t n);

/* Evicts for a load of so many KV rows that found no room. True: the load can be tried again now; else `outcome` says
 * why not. */
bool evict_for_load(struct engine *engine, enum llm_loaded loaded, int32_t n, enum evict_outcome *outcome);

/* Evicts for the next tokens of replies, which wait for no disk. False: no cells are resident. */
bool evict_now(struct engine *engine, int32_t n);

/* Evicts a stored sequence whole, although nobody needs the room. */
void evict_stored(struct engine *engine, struct seq *seq);

/* The idle sequence leaves by order, as soon as it is stored. False: that cannot be, and it stays. */
bool evict_ordered(struct engine *engine, struct seq *seq);

/* The sequence (NULL is fine) is wanted again: if its eviction is pending, the eviction is cancelled. */
void evict_cancel(struct engine *engine, struct seq *seq);

/* Carries out the pending evictions that are stored, or past their deadline. */
void evict_step(struct engine *engine);

/* The first deadline of a pending eviction; CLOCK_NEVER. */
int64_t evict_deadline(const struct engine *engine);

#endif
