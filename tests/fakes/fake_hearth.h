/* A fake libhearth, for the tests of its clients: it computes nothing, and emits the events that a test wants.
 *
 * A test either sets a script beforehand, which the fake's own thread plays for every request, or plays each request
 * itself: fake_wait() for it, then fake_started(), fake_text(), …, which emit events on the calling thread. A cancelled
 * request fails with HEARTH_CANCELLED on the fake's thread, unless it ended before. One instance at a time; any thread.
 */
#ifndef FAKES_FAKE_HEARTH_H
#define FAKES_FAKE_HEARTH_H

#include "hearth.h"

/* Resets requests, script, settings and faults, and declares one model named "demo". No instance may be open. */
void fake_reset(void);

/* ---- Configuration, loading, faults ---- */

void fake_set(const char *key, const char *value); /* hearth_config_get(); both are borrowed */
void fake_take_sounds(bool take);                  /* whether the model has a projector for sound; not at first */
void fake_hold_load(bool hold);                    /* hearth_load() waits until fake_hold_load(false) */
void fake_load_progress(float fraction);           /* the held load calls its progress function with it, once */
void fake_fail_load(hearth_code code, const char *message);
void fake_fail_submit(size_t nth, hearth_code code, const char *param, const char *message); /* 0: the first */
void fake_wait_log_reopened(void); /* hearth_log_reopen() was called */
void fake_wait_drained(void);      /* hearth_drain() was called */

/* ---- What is shown of the cache: one slot, one resident sequence of 40 tokens at first ---- */

void fake_set_residents(size_t n, int32_t tokens); /* all alike */
void fake_set_restless(bool restless);             /* the slot has generated more each time it is asked about */
size_t fake_reports(void);                         /* calls of hearth_cache_status() */
void fake_wait_reports(size_t n);                  /* waits until there were so many */

/* ---- Cache events: those that the test gives ---- */

void fake_give_block_events(const hearth_block_event *events, size_t n); /* borrowed; the follower is woken */
size_t fake_resends(void);   /* calls of hearth_resend_blocks(): each gives the events once more */
void fake_fail_follow(void); /* hearth_follow_blocks() fails: nothing is stored */

/* ---- Orders: carried out at once, unless they are held ---- */

void fake_set_stored(size_t n); /* conversations that hearth_stored_list() has */
void fake_hold_orders(void);
const char *fake_wait_order(void); /* waits for one; the last one: "ORDER SEQ_ID HASH", "ORDER TIER KEY" */
void fake_end_order(void);         /* the one that is held was carried out */

/* ---- Scripts: the events of every request from now on ---- */

struct fake_script {
    const char *const *texts; /* the reply in pieces */
    size_t n_texts;
    hearth_result result;
    hearth_code fail; /* not HEARTH_OK: FAILED in place of DONE */
    bool fail_before_started;
    const char *message;
};

/* NULL: requests are played by the test. The script is borrowed. */
void fake_play(const struct fake_script *script);

/* ---- Requests, by the order of their submission ---- */

/* Waits until request `i` was submitted and returns a copy of its parameters, which the fake keeps. */
const hearth_params *fake_wait(size_t i);
size_t fake_submitted(void);
void fake_wait_ended(size_t i); /* waits until DONE or FAILED was emitted */
bool fake_cancelled(size_t i);
void fake_wait_cancelled(size_t i);
size_t fake_unreleased(void); /* handles that were not released */
size_t fake_unloads(void);    /* models that were unloaded */

/* A request with only_prompt gets the script's texts as its tokens 1, 2, 3 … Texts of chats: "~r…" is reasoning,
 * "~cNAME" a tool call, "~a…" its arguments, all else content. With top_logprobs each text is one token with the
 * logprob -0.5, which is also its only alternative. */
/* ---- Embeddings and scores: answered at once, unless they are held ---- */

#define FAKE_SCORES                                                                                                    \
    {                                                                                                                  \
        0.25f, 0.75f, 0.5f, 0.75f                                                                                      \
    } /* of the documents, again from the first after the last */

void fake_hold_embeddings(bool hold);
#define FAKE_LONGEST_INPUT 1000                           /* bytes; longer ones are refused */
const hearth_embed_params *fake_wait_embedding(size_t i); /* what it points to may be gone */
void fake_wait_embedding_cancelled(size_t i);

/* Emit an event. False, without one, if the request has ended already. */
bool fake_started(size_t i);
bool fake_started_with(size_t i, const hearth_result *result);
bool fake_text(size_t i, const char *text);
bool fake_text_bytes(size_t i, const char *text, size_t len);
bool fake_done(size_t i, const hearth_result *result);
bool fake_failed(size_t i, hearth_code code, const char *message);

#endif
