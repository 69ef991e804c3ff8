/* A fake of src/llm's embedders: the vector of an input is its tokens' sum and count. A test can hold calls at a gate,
 * make them fail, and read which inputs each call packed. One pool at a time; any thread. */
#ifndef FAKES_FAKE_EMBEDDER_H
#define FAKES_FAKE_EMBEDDER_H

#include "llm/embedder.h"

#define FAKE_EMBEDDER_WIDTH 2
#define FAKE_POISON         666 /* a call with this token fails */
#define FAKE_NOT_A_NUMBER   667 /* its input gets a vector of NAN */

void fake_embedder_reset(int32_t rows, int32_t inputs); /* largest call of every embedder opened from now on */
void fake_embedder_hold(bool hold);  /* calls wait at the gate until they are let through, or aborted */
void fake_embedder_wait_held(int n); /* waits until so many calls wait */
int fake_embedder_calls(void);
int fake_embedder_call_inputs(int call); /* inputs of that call, counted from 0 */
int fake_embedder_open(void);            /* embedders not closed */

#endif
