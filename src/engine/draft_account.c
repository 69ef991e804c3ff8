/* The account of drafts: how often guesses were right, how long calls took, and how much drafts may lose. See
 * draft.h. */
#include "engine/core.h"
#include "engine/draft.h"

#include <string.h>

#define PAUSE        16 /* ticks without drafts after a call with some that failed; more each time */
#define PAUSE_MOST   4096
#define MODEL_WEIGHT 16 /* of the last guesses of a draft model, how many count */

/* Drafts may lose a part of the time without them, saved up to so many calls. One tick counts as so many at most, since
 * a longer one was disturbed. */
#define CREDIT_PART 0.015
#define CREDIT      4
#define WORST_TICK  4
#define DEBT        16 /* calls without drafts: there is no more to make good */
#define KEPT        64 /* ticks that an average is of */
#define MISSED      2  /* times as much as was lost would have been saved: drafts are made again */

int32_t draft_evidence(const struct draft *draft, int32_t i)
{
    return draft->source != DRAFT_MODEL ? draft->matched + i : i < draft->n ? draft->evidence[i] : 0;
}

bool draft_may_owe_more(const struct drafting *drafting, double plain)
{
    return drafting->credit_ns > -DEBT * plain;
}

bool draft_credit_is_whole(const struct drafting *drafting, double plain)
{
    return drafting->credit_ns >= CREDIT * plain;
}

void draft_miss(struct slot *slot, int32_t n, double cost, double worth)
{
    struct draft *draft = &slot->run->draft;
    struct draft_missed *missed = &draft->missed;
    if (missed->n > 0 || n == 0) return; /* the one before it shows first */
    *missed = (struct draft_missed){.n = n, .cost = cost, .worth = worth};
    memcpy(missed->tokens, draft->tokens, (size_t)n * sizeof *missed->tokens);
}

static void end_missed(struct drafting *drafting, struct draft_missed *missed)
{
    if (missed->n > 0) drafting->missed_ns += missed->right * missed->worth - missed->cost;
    missed->n = 0;
}

static void note_missed(struct drafting *drafting, struct draft_missed *missed, int32_t token)
{
    if (missed->n == 0) return;
    bool right = missed->tokens[missed->right] == token;
    missed->right += right;
    if (!right || missed->right == missed->n) end_missed(drafting, missed);
}

bool draft_note(struct engine *engine, struct slot *slot, int32_t i, int32_t token)
{
    struct draft *draft = &slot->run->draft;
    note_missed(&engine->drafting, &draft->missed, token);
    bool right = i < draft->n && draft->tokens[i] == token;
    draft->streak = right ? draft->streak + 1 : 0;
    if (i >= draft->n) return false;
    chances_note(&engine->drafting.chances, &draft->chances, draft->source, draft_evidence(draft, i), right);
    if (draft->source == DRAFT_MODEL && i == 0)
        engine->drafting.model_right += (right - engine->drafting.model_right) / MODEL_WEIGHT;
    draft->origin.end = right && draft->origin.end > 0 ? draft->origin.end + 1 : 0;
    return right;
}

uint64_t draft_owner(const struct engine *engine, const struct slot *slot)
{
    return draft_model_reads_rows(engine->drafting.model) ? slot->run->draft.serial : slot->job->scope;
}

void draft_keep_row(struct engine *engine, const struct slot *slot, int32_t batch_index)
{
    struct draft_model *model = engine->drafting.model;
    if (model == NULL || !draft_model_reads_rows(model)) return;
    struct draft_row row = {.stream = slot->id,
                            .owner = draft_owner(engine, slot),
                            .index = (int32_t)slot->seq->tokens.len - 1,
                            .row = llm_hidden_row(engine->context, batch_index)};
    draft_model_keep_row(model, &row);
}

void draft_count(struct engine *engine, struct slot *slot, int32_t drafted, int32_t accepted)
{
    struct draft *draft = &slot->run->draft;
    struct drafting *drafting = &engine->drafting;
    drafting->accepted += accepted;
    if (slot->run->ending.how != GOES_ON) end_missed(drafting, &draft->missed);
    if (accepted + 1 < drafting->fewest) drafting->fewest = accepted + 1;
    draft->n_drafted += drafted;
    draft->n_accepted += accepted;
    metric_add(&engine->stats->drafted_tokens[draft->source], drafted);
    metric_add(&engine->stats->accepted_tokens[draft->source], accepted);
}

void draft_dropped(struct engine *engine, bool failed)
{
    struct drafting *drafting = &engine->drafting;
    drafting->dropped = true;
    if (!failed) return;
    drafting->pause = drafting->pause > 0 && drafting->pause < PAUSE_MOST ? 2 * drafting->pause : PAUSE;
    drafting->paused_until = metric_get(&engine->stats->ticks) + drafting->pause;
}

/* Now and then a machine has other things to do, and not because of drafts: the usual time of a tick without them is
 * less than the average. Ticks with drafts do not tell, and make it fade. */
static void note_disturbances(struct drafting *drafting, double part)
{
    if (part > WORST_TICK) part = WORST_TICK;
    drafting->disturbed += (part - drafting->disturbed) / KEPT;
}

/* A reply that got fewer tokens than others has waited for their drafts. The time beyond LITTLE_MORE is owed to it,
 * and paid back by calls in which it waits less. Meanwhile none takes longer than the tokens of each reply would
 * without drafts. */
static void note_waiting(struct drafting *drafting, double took, double plain)
{
    drafting->owed_ns += took - LITTLE_MORE * plain * drafting->fewest;
    if (drafting->owed_ns < 0) drafting->owed_ns = 0;
}

/* A loss is forgiven once drafts would have saved more in its place, as where a reply begins to copy a text. */
static void forgive(struct drafting *drafting, double plain)
{
    if (drafting->missed_ns < -CREDIT * plain) drafting->missed_ns = -CREDIT * plain;
    bool pays = drafting->missed_ns >= -MISSED * drafting->credit_ns;
    if (drafting->credit_ns < 0 && pays) drafting->credit_ns = 0;
    if (drafting->credit_ns >= 0) drafting->missed_ns = 0;
}

/* The tick computed replies alone, and all that was planned: compares what it took with what its tokens would have
 * taken without drafts. */
static void keep_account(struct engine *engine)
{
    struct drafting *drafting = &engine->drafting;
    int32_t replies = engine->plan.n_tokens - engine->plan.n_drafted;
    double plain = row_times_of(&drafting->row_times, replies), tokens = replies + drafting->accepted;
    double took = (double)(engine->computed.ns + drafting->own_ns);
    if (plain <= 0) return;
    note_waiting(drafting, took, plain);
    if (engine->plan.n_drafted > 0 || drafting->own_ns > 0) {
        double loss = took - plain * drafting->disturbed * tokens / replies;
        drafting->credit_ns -= loss > WORST_TICK * plain ? WORST_TICK * plain : loss;
        note_disturbances(drafting, 1);
    } else {
        note_disturbances(drafting, took / plain);
    }
    drafting->credit_ns += CREDIT_PART * plain;
    if (drafting->credit_ns > CREDIT * plain || !drafting->has_credit) drafting->credit_ns = CREDIT * plain;
    if (drafting->credit_ns < -DEBT * plain) drafting->credit_ns = -DEBT * plain;
    drafting->has_credit = true;
    forgive(drafting, plain);
}

void draft_learn(struct engine *engine)
{
    const struct plan *plan = &engine->plan;
    bool whole = engine->computed.n_tokens == plan->n_tokens && plan->n_calls == 1 && plan->n_prompt_tokens == 0;
    if (whole && engine->drafting.pause > 0 && plan->n_drafted > 0) engine->drafting.pause--;
    whole = whole && !engine->drafting.dropped && !thread_scaling_tries(&engine->scaling, plan->n_tokens);
    if (!engine->drafts || !whole) return;
    engine->drafting.n_cells = engine->drafting.n_cells_now;
    if (engine->drafting.rescales)
        row_times_rescale(&engine->drafting.row_times, plan->n_tokens, engine->computed.ns);
    else
        row_times_note(&engine->drafting.row_times, plan->n_tokens, engine->computed.ns);
    if (plan->n_tokens > 0 && plan->n_tokens <= ROW_TIMES) keep_account(engine);
}

int64_t draft_plain_ns(const struct engine *engine, int64_t ns)
{
    const struct plan *plan = &engine->plan;
    const struct row_times *times = &engine->drafting.row_times;
    if (plan->n_drafted == 0 || plan->n_tokens > ROW_TIMES) return ns;
    double with = row_times_of(times, plan->n_tokens), without = row_times_of(times, plan->n_tokens - plan->n_drafted);
    return with > 0 && without < with ? (int64_t)((double)ns * without / with) : ns;
}
