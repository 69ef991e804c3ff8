/* Reading cells from the store. */
#ifndef ENGINE_FETCH_H
#define ENGINE_FETCH_H

#include "engine/slot.h"

/* The store reads the bytes into memory while the job waits for a slot. */
void fetch_ahead(struct engine *engine, struct job *job);

/* The slot's sequence, which is empty, gets its first n tokens from the store. */
void fetch_begin(struct engine *engine, struct slot *slot, int32_t n);

/* Ends the fetch: the slot computes what has not come. */
void fetch_stop(struct engine *engine, struct slot *slot);

/* Copies a bounded number of bytes of what has come into the cells. False: no slot got anything. */
bool fetch_step(struct engine *engine);

/* The request needs the store no more. */
void fetch_release(struct job *job);

#endif
