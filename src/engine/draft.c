/* Guesses at the next tokens of replies, and how many of them pay: see draft.h. */
#include "engine/draft.h"
#include "engine/core.h"

#include "base/media_spans.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INDEXED_A_TICK 8192 /* tokens of a sequence that are indexed in a tick */
#define LONG_MATCH     12   /* a guess from so long a match goes farther than what a grammar leaves no choice in */
#define OTHERS         8    /* other sequences that a guess looks into */
#define OWED_PAYS      1.1  /* times as many tokens, or calls stay short of what they would owe */
#define GAPS_ALONE     4    /* of a stream, that the call of a reply alone may take */
#define FADES          (1 - 1.0 / 4096)
#define TRIED_EVERY    4   /* ticks between trials of row counts whose time is not known */
#define TRIED_CHANCE   0.5 /* that a row of a trial must have */

#define SAME_DEPTH     1.25 /* times as many cells, and some hundred, make no other time */
#define FEW_CELLS      256

/* Beside prompts a drafted token takes a prompt token's place: few, and only such as are likely. */
#define BESIDE_PART   16
#define BESIDE_CHANCE 0.6

bool draft_init(struct drafting *drafting, const struct draft_params *params)
{
    drafting->params = *params;
    if (params->n_max <= 0 || params->n_max > DRAFT_MOST) drafting->params.n_max = DRAFT_MOST;
    chances_init(&drafting->chances);
    drafting->model_right = TRIED_CHANCE;
    drafting->disturbed = 1;
    bool any = params->guess != NULL;
    for (int i = 0; i < DRAFT_SOURCES; i++) any = any || params->sources[i];
    return any;
}

void draft_release(struct draft *draft)
{
    tokens_release(&draft->past.tokens);
    suffix_index_release(&draft->past.suffixes);
}

/* ---- Guesses ---- */

/* A list in which the last tokens of a run were found. */
struct found {
    const struct tokens *tokens;
    const struct seq *seq; /* whose list it is; NULL: the run's past */
    enum draft_source source;
    struct suffix_match match;
};

static void keep_longer(struct found *best, const struct found *other)
{
    if (other->match.len > best->match.len) *best = *other;
}

/* The slot's request may read the tokens of its own sequence, and if it is cached of those of its scope. A sequence
 * that is not cached has a scope of its own. */
static bool may_read(const struct slot *slot, const struct seq *seq)
{
    return seq == slot->seq || (slot->job->cache_prompt && seq->scope == slot->job->scope);
}

/* Where the last guesses were right the draft goes on behind them, though an index may find another place first. */
static void go_on(const struct slot *slot, struct found *best)
{
    const struct draft *draft = &slot->run->draft;
    const struct draft_origin *origin = &draft->origin;
    if (origin->end == 0 || (origin->seq != NULL && !may_read(slot, origin->seq))) return;
    struct found found = {.tokens = origin->seq != NULL ? &origin->seq->tokens : &draft->past.tokens,
                          .seq = origin->seq,
                          .source = origin->seq == slot->seq ? DRAFT_REQUEST : DRAFT_STORE};
    if (origin->end >= (int32_t)found.tokens->len) return;
    found.match =
        (struct suffix_match){.end = origin->end, .len = suffix_common(found.tokens, origin->end, &slot->seq->tokens)};
    if (found.match.len >= SUFFIX_LEAST) keep_longer(best, &found);
}

static void look_into(const struct slot *slot, const struct suffix_index *index, struct found found, struct found *best)
{
    found.match = suffix_index_find(index, found.tokens, &slot->seq->tokens);
    keep_longer(best, &found);
}

static struct found find(struct engine *engine, struct slot *slot)
{
    const bool *sources = engine->drafting.params.sources;
    struct draft *draft = &slot->run->draft;
    struct seq *seq = slot->seq;
    struct found best = {0};
    suffix_index_extend(&seq->suffixes, &seq->tokens, INDEXED_A_TICK);
    go_on(slot, &best);
    if (sources[DRAFT_REQUEST] && best.match.len < SUFFIX_MOST)
        look_into(slot, &seq->suffixes, (struct found){.tokens = &seq->tokens, .seq = seq, .source = DRAFT_REQUEST},
                  &best);
    if (!sources[DRAFT_STORE] || best.match.len >= LONG_MATCH) return best;
    if (draft->past.tokens.len > 0)
        look_into(slot, &draft->past.suffixes, (struct found){.tokens = &draft->past.tokens, .source = DRAFT_STORE},
                  &best);
    int n = 0;
    for (size_t i = 0; i < engine->n_seqs && n < OTHERS && best.match.len < SUFFIX_MOST; i++) {
        const struct seq *other = &engine->seqs[i];
        if (other == seq || other->suffixes.len == 0 || !may_read(slot, other)) continue;
        look_into(slot, &other->suffixes, (struct found){.tokens = &other->tokens, .seq = other, .source = DRAFT_STORE},
                  &best);
        n++;
    }
    return best;
}

/* No token that ends the reply, since nothing behind it would be used, and no row of a medium. */
static bool can_be_drafted(const struct engine *engine, int32_t token)
{
    return media_token_is_one(token) ? false : !llm_token_ends_generation(engine->model, token);
}

/* Copies what followed. Where that reaches the run's own end, it repeats itself. */
static void copy_guess(const struct engine *engine, struct draft *draft, const struct found *found)
{
    int32_t all = (int32_t)found->tokens->len;
    bool own = found->source == DRAFT_REQUEST;
    draft->source = found->source;
    draft->matched = found->match.len;
    draft->origin = (struct draft_origin){.seq = found->seq, .end = found->match.end};
    while (draft->n < engine->drafting.params.n_max) {
        int32_t at = found->match.end + draft->n;
        if (at >= all && !own) break;
        int32_t token = at < all ? found->tokens->v[at] : draft->tokens[at - all];
        if (!can_be_drafted(engine, token)) break;
        draft->tokens[draft->n++] = token;
    }
}

static void guess(struct engine *engine, struct slot *slot)
{
    struct draft *draft = &slot->run->draft;
    const struct draft_params *params = &engine->drafting.params;
    draft->n = 0;
    if (params->guess != NULL) {
        draft->n = params->guess(params->ud, &slot->seq->tokens, draft->tokens, params->n_max);
        return;
    }
    struct found found = find(engine, slot);
    /* A grammar whose guesses are mostly wrong is asked now and then. */
    double chance = chances_of(&engine->drafting.chances, &draft->chances, DRAFT_GRAMMAR, draft->streak);
    bool may_ask = engine->drafting.credit_ns >= 0; /* its time is nobody's where nothing is computed */
    may_ask = may_ask && (chance >= TRIED_CHANCE / 2 || metric_get(&engine->stats->ticks) % TRIED_EVERY == 0);
    if (params->sources[DRAFT_GRAMMAR] && found.match.len < LONG_MATCH && may_ask) {
        draft->n = llm_sampler_guess(slot->run->sampler, draft->tokens, params->n_max);
        draft->source = DRAFT_GRAMMAR;
        draft->matched = draft->streak;
        draft->origin.end = 0;
    }
    if (draft->n == 0 && found.match.len > 0) copy_guess(engine, draft, &found);
}

/* ---- How many of them ---- */

/* A slot whose reply is in the tick, and how much of its draft is to be computed. */
struct candidate {
    size_t slot;
    int32_t most, n;
    double chance; /* that the first n + 1 are right; 0: there is no further one */
    double sure;   /* that the first n are */
    double tokens; /* that the reply gets on average */
};

/* Whether one reply is all there is to compute, where the tick has so many. */
static bool is_alone(const struct engine *engine, size_t replies)
{
    return replies == 1 && metric_get(&engine->stats->slots_busy) == 1;
}

static double next_chance(const struct engine *engine, const struct draft *draft, const struct candidate *candidate)
{
    if (candidate->n >= candidate->most) return 0;
    return candidate->chance *
           chances_of(&engine->drafting.chances, &draft->chances, draft->source, draft_evidence(draft, candidate->n));
}

/* Drafts that the engine decides on, in the order in which they were chosen. */
struct choice {
    struct candidate *v;
    size_t n;
    int32_t order[ROW_TIMES]; /* the candidate of each row */
    int32_t n_rows, n_again;  /* rows of drafts; those that are computed again */
    bool even;                /* each row is one of all candidates: unequal numbers of rows would be computed apart */
};

static void advance(struct engine *engine, struct candidate *candidate)
{
    candidate->n++;
    candidate->sure = candidate->chance;
    candidate->tokens += candidate->chance;
    candidate->chance = next_chance(engine, &engine->slots[candidate->slot].run->draft, candidate);
}

/* Whether `most` rows have room for the next one, or for one of each candidate. */
static bool has_room(const struct choice *choice, int32_t most)
{
    return choice->n_rows + (choice->even ? (int32_t)choice->n : 1) <= most;
}

/* Adds the next row, or one of each candidate. Returns the tokens that it will bring on average; 0: there is no row. */
static double add_row(struct engine *engine, struct choice *choice, double least)
{
    double gain = 0;
    if (!choice->even) {
        struct candidate *best = &choice->v[0];
        for (size_t i = 1; i < choice->n; i++)
            if (choice->v[i].chance > best->chance) best = &choice->v[i];
        if (best->chance <= least) return 0;
        gain = best->chance;
        choice->order[choice->n_rows++] = (int32_t)(best - choice->v);
        advance(engine, best);
        return gain;
    }
    for (size_t i = 0; i < choice->n; i++)
        if (choice->v[i].chance <= least) return 0;
    for (size_t i = 0; i < choice->n; i++) {
        gain += choice->v[i].chance;
        choice->order[choice->n_rows++] = (int32_t)i;
        advance(engine, &choice->v[i]);
    }
    return gain;
}

/* Nanoseconds that the tokens of the reply that gets fewest would take without drafts. */
static double as_without(const struct choice *choice, double plain)
{
    double fewest = choice->v[0].tokens;
    for (size_t i = 1; i < choice->n; i++)
        if (choice->v[i].tokens < fewest) fewest = choice->v[i].tokens;
    return fewest * plain;
}

/* The longest that the call may take, of what it takes without drafts and as_without(): the turn's part of a stream's
 * gap. Where a call takes longer than that anyway, it does so by not much, and only for replies that all get more
 * tokens. Where one reply is all there is to compute, only a request that comes meanwhile waits for it, and it may take
 * some such gaps. While others are owed time, none waits longer than without. */
static double longest_call(const struct engine *engine, const struct choice *choice, const struct adapter_turn *turn,
                           double plain, double without)
{
    if (is_alone(engine, choice->n)) return turn->ns * GAPS_ALONE;
    double least = without < plain * LITTLE_MORE ? without : plain * LITTLE_MORE;
    double most = turn->ns > least ? turn->ns : least;
    return engine->drafting.owed_ns > 0 && most > without ? without : most;
}

/* Calls without drafts that follow one that took so long, until the reply that got fewest tokens has had its time back.
 * See draft_account.c. */
static double calls_owed(const struct engine *engine, const struct choice *choice, double took, double plain,
                         double without)
{
    double owed = took - without * LITTLE_MORE;
    return owed <= 0 || is_alone(engine, choice->n) ? 0 : owed / (plain * (LITTLE_MORE - 1));
}

/* How long a call of so many rows may take, and how much of that the copies of states take. */
struct bounds {
    double longest, marks;
    bool is_bold; /* it may take longer than that, as far as is known, and others would wait for it */
};

/* Now and then more rows than are known to be best, whose time is not known for certain. 0: not now. */
static int32_t trial(struct engine *engine, int32_t least, int32_t most, int32_t replies, const struct bounds *bounds)
{
    struct drafting *drafting = &engine->drafting;
    int64_t ticks = metric_get(&engine->stats->ticks);
    if (ticks - drafting->tried_at < TRIED_EVERY || drafting->credit_ns <= 0) return 0;
    int32_t rows = row_times_to_try(&drafting->row_times, least, most);
    if (rows == 0) return 0;
    double longest = bounds[rows].longest, marks = bounds[rows].marks;
    bool is_long = rows > 2 * replies && row_times_of(&drafting->row_times, rows) + marks > longest;
    if (marks > longest / 2 || is_long || bounds[rows].is_bold) return 0;
    drafting->tried_at = ticks;
    return rows;
}

/* Nanoseconds that the states of the candidates take: to be copied now, and to be loaded and computed again by the
 * chance that a draft is wrong. */
static double marks_ns(const struct engine *engine, const struct choice *choice, double plain)
{
    const struct drafting *drafting = &engine->drafting;
    double ns = 0;
    for (size_t i = 0; drafting->marks && i < choice->n; i++) {
        const struct candidate *c = &choice->v[i];
        double again = row_times_of(&drafting->row_times, (int32_t)choice->n + c->n) - plain;
        if (c->n > 0) ns += drafting->mark_ns + (1 - c->sure) * (drafting->back_ns + (again > 0 ? again : 0));
    }
    return ns;
}

/* The number of drafted rows with the most tokens a second, with the calls that it owes the others. A number that was
 * never seen is taken if the credit bears the longest time that it can take. */
static int32_t choose_rows(struct engine *engine, struct choice *choice, const struct adapter_turn *turn, int32_t most,
                           double credit)
{
    const struct row_times *times = &engine->drafting.row_times;
    int32_t replies = (int32_t)choice->n + choice->n_again, best = 0;
    double plain = row_times_of(times, replies);
    if (plain <= 0) return 0; /* a tick without drafts comes first */
    double tokens = (double)choice->n, rate = tokens / plain, least = rate;
    struct bounds bounds[ROW_TIMES + 1];
    int32_t likely = 0;
    while (has_room(choice, most)) {
        double gain = add_row(engine, choice, 0);
        int32_t rows = replies + choice->n_rows;
        if (gain == 0) break;
        if (gain >= TRIED_CHANCE * (choice->even ? (double)choice->n : 1)) likely = rows;
        tokens += gain;
        double marks = marks_ns(engine, choice, plain), took = row_times_of(times, rows) + marks;
        double without = as_without(choice, plain), longest = longest_call(engine, choice, turn, plain, without);
        double owed = calls_owed(engine, choice, took, plain, without);
        double with = (tokens + owed * (double)choice->n) / (took + owed * plain);
        double most_ns = row_times_most(times, rows) + marks;
        bool is_bold = !is_alone(engine, choice->n) && most_ns > turn->ns && most_ns > without * LITTLE_MORE;
        bounds[rows] = (struct bounds){longest, marks, is_bold};
        double loss = most_ns - plain * tokens / (double)choice->n;
        took += (double)engine->drafting.own_ns; /* it is spent, but the streams wait for it */
        if (took > longest || is_bold || with <= rate || loss > credit) continue;
        if (owed > 0 && with <= least * OWED_PAYS) continue;
        rate = with;
        if (owed == 0) least = rate;
        best = choice->n_rows;
    }
    if (likely <= replies + best || choice->even) return best;
    int32_t tried = trial(engine, replies + best + 1, likely, replies, bounds);
    return tried > 0 ? tried - replies : best;
}

/* All rows of more than this chance, as far as there is room. */
static int32_t choose_likely(struct engine *engine, struct choice *choice, int32_t most, double least)
{
    while (has_room(choice, most) && add_row(engine, choice, least) > 0)
        ;
    return choice->n_rows;
}

/* Whether the tick has prompts to compute, under the set. */
static bool has_prompts(const struct engine *engine, size_t set)
{
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct plan_need *need = &engine->needs[i];
        if (need->set == set && !need->generating && need->from < need->to) return true;
    }
    return false;
}

static size_t find_candidates(struct engine *engine, size_t set, struct candidate *candidates, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_slots; i++) {
        if (!engine->needs[i].generating || engine->needs[i].set != set) continue;
        if (n == max) return 0; /* so many replies leave no room for drafts */
        struct slot *slot = &engine->slots[i];
        struct run *run = slot->run;
        int32_t most = engine->drafting.params.n_max, rest = run->max_tokens - run->n_predicted - 1;
        if (slot->job->draft_max >= 0 && slot->job->draft_max < most) most = slot->job->draft_max;
        if (rest < most) most = rest; /* the tokens that the reply may still have behind the next one */
        run->draft.n = 0;
        /* The state is that of before a wrong draft; the slot is about to be taken, and must not go back again. */
        if (draft_again(slot) > 0 || engine->preemption.victim == slot) most = 0;
        if (engine->drafting.credit_ns >= 0) run->draft.missed.n = 0;
        if (most > 0) guess(engine, slot);
        candidates[n++] = (struct candidate){.slot = i, .most = most, .sure = 1, .tokens = 1};
    }
    return n;
}

/* ---- The draft model's part ---- */

/* At most, of a call with drafts. */
static int32_t rows_of_call(const struct engine *engine)
{
    return engine->n_ubatch < ROW_TIMES ? engine->n_ubatch : ROW_TIMES;
}

/* A reply that it is asked about. */
struct asked {
    struct candidate *candidate;
    double chance; /* that the guess is right as a whole */
    double first;  /* that its first token is */
    double other;  /* that the first token of what another source has guessed is; 0: there is none */
};

/* As far as the model is asked. */
struct reach {
    double worth;  /* nanoseconds that one more token saves, of all replies that are asked about together */
    int32_t most;  /* tokens of a guess */
    int64_t until; /* the call with the guesses has to begin then, so that no stream waits too long */
};

/* The guess has a token more: whether it is one, and whether the next one is worth a call. */
static void judge(struct engine *engine, struct draft_ask *ask, struct asked *asked, const struct reach *reach)
{
    struct draft *draft = &engine->slots[asked->candidate->slot].run->draft;
    if (ask->n == 0 || !can_be_drafted(engine, ask->guess[ask->n - 1])) {
        ask->n -= ask->n > 0;
        ask->over = true;
        return;
    }
    int32_t evidence = chances_evidence(ask->chance);
    draft->evidence[ask->n - 1] = (int8_t)evidence;
    asked->chance *= chances_of(&engine->drafting.chances, &draft->chances, DRAFT_MODEL, evidence);
    if (ask->n == 1) asked->first = asked->chance;
    ask->over = ask->n >= asked->candidate->most || ask->n >= reach->most || clock_now(engine->clock) > reach->until ||
                asked->chance * reach->worth < draft_model_step_ns(engine->drafting.model);
}

/* All replies that are asked about have their next token from one call. False: such a call has failed. */
static bool write_ahead(struct engine *engine, struct draft_ask *asks, struct asked *asked, size_t n,
                        const struct reach *reach)
{
    for (bool any = true; any;) {
        any = false;
        metric_add(&engine->stats->draft_model_calls, 1);
        if (!draft_model_next(engine->drafting.model, asks, n)) return false;
        for (size_t i = 0; i < n; i++) {
            if (!asks[i].over) judge(engine, &asks[i], &asked[i], reach);
            any = any || !asks[i].over;
        }
    }
    return true;
}

/* The guess of the likelier first token is taken. */
static void take_guess(struct draft *draft, const struct draft_ask *ask, const struct asked *asked)
{
    if (ask->n == 0 || asked->first <= asked->other) return;
    memcpy(draft->tokens, ask->guess, (size_t)ask->n * sizeof *ask->guess);
    draft->n = ask->n;
    draft->source = DRAFT_MODEL;
    draft->matched = 0;
    draft->origin.end = 0;
}

/* Asks about the replies for which nothing better is known. */
static void guess_with_model(struct engine *engine, struct candidate *candidates, size_t n,
                             const struct adapter_turn *turn)
{
    struct drafting *drafting = &engine->drafting;
    double plain = row_times_of(&drafting->row_times, (int32_t)n);
    /* One more token of a reply saves its part of the call, without its row. */
    double worth = plain / (double)n - row_times_least(&drafting->row_times, (int32_t)n);
    double longest = is_alone(engine, n) ? turn->ns * GAPS_ALONE : turn->ns; /* as longest_call() has it */
    int32_t rows = rows_of_call(engine);
    struct draft_ask *asks = mem_alloc((n + 1) * sizeof *asks);
    struct asked *asked = mem_alloc((n + 1) * sizeof *asked);
    size_t n_asks = 0;
    bool guessed = false, lacks = false;
    for (size_t i = 0; i < n; i++) {
        const struct slot *slot = &engine->slots[candidates[i].slot];
        const struct draft *draft = &slot->run->draft;
        double other = 0;
        if (draft->n > 0)
            other = chances_of(&drafting->chances, &draft->chances, draft->source, draft_evidence(draft, 0));
        if (candidates[i].most <= 0 || other >= drafting->model_right) continue;
        asks[n_asks] =
            (struct draft_ask){.stream = slot->id, .owner = draft_owner(engine, slot), .tokens = &slot->seq->tokens};
        asked[n_asks++] = (struct asked){.candidate = &candidates[i], .chance = 1, .other = other};
    }
    int64_t began_at = clock_now(engine->clock);
    struct reach reach = {
        .worth = worth * (double)n_asks,
        .most = n_asks > 0 ? (rows - (int32_t)n) / (int32_t)n_asks : 0,
        .until = began_at + (int64_t)((longest - plain) / 2),
    };
    /* Where it does not pay it is tried when the credit is whole. A stream that lacks tokens is brought to a guess,
     * since those that were computed would be spent for nothing. */
    double step = draft_model_step_ns(drafting->model);
    bool pays = step > 0 && drafting->model_right * reach.worth > step;
    bool asks_it = worth > 0 && reach.most > 0 && longest > plain &&
                   (pays || drafting->model_lacks || draft_credit_is_whole(drafting, plain));
    drafting->model_lacks = false;
    if (asks_it) {
        if (!write_ahead(engine, asks, asked, n_asks, &reach)) drafting->model_right = 0; /* its calls fail */
        for (size_t i = 0; i < n_asks; i++) {
            take_guess(&engine->slots[asked[i].candidate->slot].run->draft, &asks[i], &asked[i]);
            guessed = guessed || asks[i].n > 0;
            lacks = lacks || asks[i].lacks;
        }
        drafting->model_lacks = !guessed && lacks && draft_may_owe_more(drafting, plain);
        drafting->own_ns += clock_now(engine->clock) - began_at;
    }
    free(asks);
    free(asked);
}

/* ---- The plan ---- */

/* Whether a call takes another time behind the cells of the tick's replies. Twice at most, since it may not be seen. */
static bool depth_changes(struct engine *engine, size_t set)
{
    struct drafting *drafting = &engine->drafting;
    int32_t n = 0, last = drafting->n_cells;
    for (size_t i = 0; i < engine->n_slots; i++)
        if (engine->needs[i].generating && engine->needs[i].set == set) n += engine->slots[i].seq->n_cells;
    drafting->n_cells_now = n > 0 ? n : last;
    bool changes = n > 0 && (n > last * SAME_DEPTH + FEW_CELLS || last > n * SAME_DEPTH + FEW_CELLS);
    changes = changes && drafting->n_rescales < 2 && !has_prompts(engine, set);
    drafting->n_rescales = changes ? drafting->n_rescales + 1 : 0;
    return changes;
}

/* These rows are not computed, for lack of credit. They count as dear as they can be. */
static void miss(struct engine *engine, const struct choice *choice, int32_t n_rows)
{
    const struct drafting *drafting = &engine->drafting;
    int32_t replies = (int32_t)choice->n + choice->n_again;
    double plain = row_times_of(&drafting->row_times, replies);
    double row_ns = (row_times_most(&drafting->row_times, replies + n_rows) - plain) / n_rows;
    double again = row_times_most(&drafting->row_times, replies + n_rows); /* where it is wrong, as marks_ns() has it */
    double copies = drafting->marks ? drafting->mark_ns + drafting->back_ns + again : 0;
    for (size_t i = 0; i < choice->n && n_rows > 0; i++) {
        int32_t n = 0;
        for (int32_t k = 0; k < n_rows; k++) n += choice->order[k] == (int32_t)i;
        draft_miss(&engine->slots[choice->v[i].slot], n, n * row_ns + copies, plain / (double)choice->n);
    }
}

void draft_plan(struct engine *engine, const struct adapter_turn *turn)
{
    struct drafting *drafting = &engine->drafting;
    size_t set = turn->set;
    drafting->dropped = false;
    drafting->mark_ns *= FADES; /* what was dear once is tried again */
    drafting->rescales = depth_changes(engine, set);
    if (drafting->rescales && drafting->params.guess == NULL) return;
    if (!engine->drafts || metric_get(&engine->stats->ticks) < drafting->paused_until) return;
    bool prompts = has_prompts(engine, set), lacks = drafting->model_lacks && !prompts;
    bool owes = drafting->credit_ns < 0 && drafting->params.guess == NULL && !lacks;
    if (owes && prompts) return;
    /* In a call of several micro-batches a window would lose what it needs once the draft is cut. */
    if (!engine->policy.cuts_anywhere && prompts) return;
    struct candidate candidates[ROW_TIMES / 2];
    struct choice choice = {.v = candidates, .even = false};
    choice.n = find_candidates(engine, set, candidates, sizeof candidates / sizeof *candidates);
    if (drafting->model != NULL && choice.n > 0 && !prompts && !owes)
        guess_with_model(engine, candidates, choice.n, turn);
    drafting->model_lacks = drafting->model_lacks && choice.n > 0;
    choice.even = choice.n > 1 && !engine->policy.one_pool;
    for (size_t i = 0; i < choice.n; i++) {
        struct candidate *c = &candidates[i];
        const struct slot *slot = &engine->slots[c->slot];
        if (slot->run->draft.n < c->most) c->most = slot->run->draft.n; /* no more rows than tokens were guessed */
        c->chance = 1;
        c->chance = next_chance(engine, &slot->run->draft, c);
        choice.n_again += draft_again(slot);
    }
    int32_t most = rows_of_call(engine) - (int32_t)choice.n - choice.n_again;
    if (choice.n == 0 || most <= 0) return;
    int32_t part = engine->tick_budget.last / BESIDE_PART; /* of the prompts' tokens */
    int32_t n_rows = drafting->params.guess != NULL ? choose_likely(engine, &choice, most, 0)
                     : prompts ? choose_likely(engine, &choice, part < most ? part : most, BESIDE_CHANCE)
                               : choose_rows(engine, &choice, turn, most, owes ? HUGE_VAL : drafting->credit_ns);
    if (owes) {
        miss(engine, &choice, n_rows);
        return;
    }
    for (int32_t i = 0; i < n_rows; i++) engine->needs[candidates[choice.order[i]].slot].drafted++;
}

/* ---- Earlier replies ---- */

bool engine_drafts_from_store(const struct engine *engine)
{
    return engine->drafts && engine->drafting.params.sources[DRAFT_STORE];
}

void draft_keep_past(struct engine *engine, struct slot *slot, const struct seq *seq)
{
    struct job *job = slot->job;
    struct draft_past *past = &slot->run->draft.past;
    if (past->tokens.len > 0 || slot->run->n_predicted > 0 || !engine_drafts_from_store(engine)) return;
    size_t n = job->wanted->len, from = n > SUFFIX_MOST ? n - SUFFIX_MOST : 0, len = seq->tokens.len - from;
    if (may_read(slot, seq) && seq->tokens.len > n && tokens_common_prefix(&seq->tokens, job->wanted) == n)
        tokens_append(&past->tokens, seq->tokens.v + from, len < DRAFT_PAST ? len : DRAFT_PAST);
    if (past->tokens.len == 0) {
        past->tokens = job->past;
        job->past = (struct tokens){0};
    }
    if (past->tokens.len > 0) suffix_index_extend(&past->suffixes, &past->tokens, INT32_MAX);
}
