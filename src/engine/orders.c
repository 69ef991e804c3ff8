/* Orders about resident conversations, in place of what their price says: keep one in the cells, let it go by its price
 * again, have it leave now. They come through the mailbox; all of it runs on the engine's thread.
 *
 * An order names a sequence and the hash that the status showed for it. Where that sequence has other cells by now, or
 * none, the order is refused: it never meets another conversation.
 *
 * A kept conversation is the last to be evicted (evict.c), and does not leave for what it costs (idle.c). Another
 * prompt that begins alike shares its cells and does not take them over, as long as there is another sequence to take
 * (reuse_plan.c). The order stays with the conversation when its next turn is computed, wherever that has its cells
 * (place.c). The order ends with the cells: a conversation that comes back from the store is kept no more. */
#include "engine/core.h"
#include "engine/engine_status.h"
#include "engine/evict.h"

#include "base/error.h"
#include "base/log.h"

#include <string.h>

/* ---- Kept conversations ---- */

bool orders_continue(const struct job *job, const struct seq *seq, int32_t n)
{
    return n == seq->n_cells || (seq_has_messages_of(seq, &job->conversation) && n >= seq->message_tokens);
}

/* ---- Carrying orders out ---- */

static int order_keep(struct engine *engine, struct seq *seq, hearth_error *error)
{
    (void)error;
    evict_cancel(engine, seq);
    seq->kept = true;
    log_event(LOG_INFO, "imc", "conversation is kept by order", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells));
    return HEARTH_OK;
}

static int order_release(struct engine *engine, struct seq *seq, hearth_error *error)
{
    (void)engine, (void)error;
    seq->kept = false;
    log_event(LOG_INFO, "imc", "conversation is no longer kept", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells));
    return HEARTH_OK;
}

static int order_evict(struct engine *engine, struct seq *seq, hearth_error *error)
{
    log_event(LOG_INFO, "imc", "conversation leaves by order", log_int("seq", seq->id),
              log_int("tokens", seq->n_cells));
    if (!evict_ordered(engine, seq))
        return error_set(error, HEARTH_UNAVAILABLE,
                         "the conversation cannot be stored now, and stays: GET /cache says what its tier lacks");
    seq->kept = false;
    return HEARTH_OK;
}

static struct seq *find_named(const struct engine *engine, const struct engine_order *order)
{
    char hash[17];
    if (order->seq_id < 0 || (size_t)order->seq_id >= engine->n_seqs) return NULL;
    struct seq *seq = &engine->seqs[order->seq_id];
    enum seq_state claim = seq_state_staying(seq->state);
    if (claim != SEQ_IDLE && claim != SEQ_SUSPENDED) return NULL;
    seq_put_hash(seq, hash);
    return strcmp(hash, order->hash) == 0 ? seq : NULL;
}

static int obey(struct engine *engine, struct engine_order *order)
{
    static int (*const actions[])(struct engine * engine, struct seq * seq, hearth_error * error) = {
        [HEARTH_ORDER_KEEP] = order_keep, [HEARTH_ORDER_RELEASE] = order_release, [HEARTH_ORDER_EVICT] = order_evict};
    struct seq *seq = find_named(engine, order);
    bool is_running = order->seq_id >= 0 && (size_t)order->seq_id < engine->n_seqs &&
                      engine->seqs[order->seq_id].state == SEQ_RUNNING;
    if (is_running || (seq != NULL && seq->suspended != NULL))
        return error_at(&order->error, HEARTH_BUSY, "seq_id",
                        "sequence %d is being computed: give the order once it is idle", order->seq_id);
    if (seq == NULL)
        return error_at(&order->error, HEARTH_NOT_FOUND, "hash",
                        "sequence %d does not hold the conversation %s any more: GET /cache shows what it holds",
                        order->seq_id, order->hash);
    return actions[order->order](engine, seq, &order->error);
}

void orders_carry_out(struct engine *engine, struct engine_order *first)
{
    assert_thread(&engine->owner);
    if (first == NULL) return;
    for (struct engine_order *order = first; order != NULL; order = order->next) {
        order->error = (hearth_error){0};
        obey(engine, order);
    }
    status_publish(engine); /* first: those that done() wakes find the order carried out */
    for (struct engine_order *order = first, *next; order != NULL; order = next) {
        next = order->next;
        order->done(order);
    }
}
