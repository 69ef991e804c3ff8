/* The engine's status as other threads see it: a copy of the state of its slots and resident sequences, which its
 * thread renews around each tick. */
#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/save.h"

#include <string.h>

/* Sixteen hexadecimal digits. This is done for every sequence around every tick, for which printf would take half of
 * the engine's time. */
void seq_put_hash(const struct seq *seq, char text[17])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t hash = seq->n_messages > 0 ? seq->message_hash : seq->hash;
    for (int i = 15; i >= 0; i--, hash >>= 4) text[i] = digits[hash & 15];
    text[16] = '\0';
}

/* ---- Slots ---- */

const struct seq *slot_last_seq(const struct engine *engine, const struct slot *slot)
{
    const struct seq *last = NULL;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        if (seq->slot != NULL || seq->n_cells == 0 || seq->last_slot != slot->id) continue;
        if (last == NULL || seq->retired_at > last->retired_at) last = seq;
    }
    return last;
}

static hearth_slot status_of(const struct engine *engine, const struct slot *slot)
{
    hearth_slot s = {.id = slot->id,
                     .seq_id = -1,
                     .model = engine->name,
                     .state = slot_state_shown(slot->state),
                     .n_remaining = -1,
                     .drafts = engine->drafts};
    _Static_assert(sizeof s.request_id == sizeof slot->job->id, "a request's id fits");
    if (slot->job != NULL) memcpy(s.request_id, slot->job->id, sizeof s.request_id);
    if (slot->state != SLOT_IDLE) {
        s.cached_tokens = slot->run->n_cached;
        s.n_prompt = slot->run->n_prompt;
        s.n_predicted = slot->run->n_predicted;
        s.n_remaining = slot->run->max_tokens - slot->run->n_predicted;
        s.n_past = slot->seq == NULL ? 0 : slot->seq->n_cells;
    }
    const struct seq *seq = slot->state == SLOT_IDLE ? slot_last_seq(engine, slot) : slot->seq;
    if (seq == NULL) return s;
    s.seq_id = seq->id;
    s.cached_messages = (int32_t)seq->n_messages;
    if (slot->state != SLOT_IDLE) return s;
    s.cached_tokens = seq->n_cells;
    s.last_used = seq->retired_at_unix_ms;
    s.cost_ms = seq->idle.paid_ns / 1e6;
    s.return_ms = seq->idle.back_ns / 1e6;
    seq_put_hash(seq, s.hash);
    return s;
}

/* ---- Resident sequences ---- */

static hearth_resident resident_of(const struct engine *engine, const struct seq *seq)
{
    hearth_resident r = {.seq_id = seq->id,
                         .slot_id = seq->slot == NULL ? -1 : seq->slot->id,
                         .model = engine->name,
                         .state = seq->state == SEQ_RUNNING      ? HEARTH_RESIDENT_RUNNING
                                  : seq->suspended != NULL       ? HEARTH_RESIDENT_SUSPENDED
                                  : seq_state_leaves(seq->state) ? HEARTH_RESIDENT_LEAVING
                                                                 : HEARTH_RESIDENT_IDLE,
                         .kept = seq->kept,
                         .tokens = seq->n_cells,
                         .own_tokens = seq->idle.cells,
                         .shared_tokens = sharing_most(&engine->sharing, seq->id),
                         .messages = (int32_t)seq->n_messages,
                         .cost_ms = seq->slot == NULL ? seq->idle.paid_ns / 1e6 : 0,
                         .return_ms = seq->slot == NULL ? seq->idle.back_ns / 1e6 : 0,
                         .last_used = seq->slot == NULL ? seq->retired_at_unix_ms : 0};
    if (seq->slot == NULL) seq_put_hash(seq, r.hash);
    for (size_t i = 0; i < seq->media.len && seq->media.v[i].at + seq->media.v[i].n <= seq->n_cells; i++) {
        r.media++;
        r.media_tokens += seq->media.v[i].n;
    }
    return r;
}

/* Of the ones before it in the list, finds that with which it shares most leading cells. */
static void find_branch(const struct engine *engine, hearth_resident *r)
{
    r->branch_of = -1;
    for (size_t i = 0; i < engine->n_residents; i++) {
        int32_t other = engine->residents[i].seq_id, n = sharing_between(&engine->sharing, r->seq_id, other);
        if (n <= r->branch_at) continue;
        r->branch_of = other;
        r->branch_at = n;
    }
}

/* ---- What of them is stored ---- */

static bool is_known(const struct seq *seq)
{
    const struct stored_end *end = &seq->stored;
    return end->known && end->uses == seq->uses && end->ticket == seq->saving.ticket && end->n_cells == seq->n_cells;
}

/* ---- The copy ---- */

void status_publish(struct engine *engine)
{
    assert_thread(&engine->owner);
    idle_count_cells(engine);
    for (size_t i = 0; i < engine->n_seqs && engine->store != NULL; i++) {
        struct seq *seq = &engine->seqs[i];
        /* The store is asked once the sequence's saves have ended, and again after others. */
        if (seq->slot != NULL || seq->n_cells == 0 || is_known(seq) || save_is_under_way(engine, seq)) continue;
        struct store_query query = save_query(engine, seq);
        seq->stored = (struct stored_end){
            .known = true, .uses = seq->uses, .ticket = seq->saving.ticket, .n_cells = seq->n_cells};
        seq->stored.mark.n = store_covered_key(engine->store, &query, &seq->stored.mark.key);
    }
    pthread_mutex_lock(&engine->status_mutex);
    for (size_t i = 0; i < engine->n_slots; i++) engine->status[i] = status_of(engine, &engine->slots[i]);
    engine->n_residents = 0;
    for (size_t i = 0; i < engine->n_seqs; i++) {
        if (engine->seqs[i].n_cells == 0) continue;
        hearth_resident *r = &engine->residents[engine->n_residents];
        *r = resident_of(engine, &engine->seqs[i]);
        find_branch(engine, r);
        engine->n_residents++;
    }
    engine->n_stored = 0;
    for (size_t i = 0; i < engine->n_seqs; i++)
        if (engine->seqs[i].slot == NULL && is_known(&engine->seqs[i]) && engine->seqs[i].stored.mark.n > 0)
            engine->stored[engine->n_stored++] = engine->seqs[i].stored.mark;
    pthread_mutex_unlock(&engine->status_mutex);
}

size_t engine_slots(struct engine *engine, hearth_slot *slots, size_t max)
{
    pthread_mutex_lock(&engine->status_mutex);
    for (size_t i = 0; i < engine->n_slots && i < max; i++) slots[i] = engine->status[i];
    pthread_mutex_unlock(&engine->status_mutex);
    return engine->n_slots;
}

size_t engine_residents(struct engine *engine, hearth_resident *residents, size_t max)
{
    pthread_mutex_lock(&engine->status_mutex);
    size_t n = engine->n_residents;
    for (size_t i = 0; i < n && i < max; i++) residents[i] = engine->residents[i];
    pthread_mutex_unlock(&engine->status_mutex);
    return n;
}

size_t engine_stored(struct engine *engine, struct stored_mark *marks, size_t max)
{
    pthread_mutex_lock(&engine->status_mutex);
    size_t n = engine->n_stored;
    for (size_t i = 0; i < n && i < max; i++) marks[i] = engine->stored[i];
    pthread_mutex_unlock(&engine->status_mutex);
    return n;
}
