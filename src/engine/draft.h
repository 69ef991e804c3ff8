/* Drafts: guesses at the next tokens of replies, which a decode call computes together with the last token that was
 * sampled. The sampler then goes from row to row as long as each sampled token is the guessed one; the rest is cut. So
 * a call gives several tokens, and the reply is the one that would have come without.
 *
 * A draft belongs to the run, never to seq.tokens: nothing that was not sampled is shared, stored, hashed or reported.
 * It is made anew for each tick. Runs on the engine's thread and waits for nothing. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include "draft/chances.h"
#include "draft/row_times.h"
#include "draft/suffix_index.h"
#include "engine/draft_model.h"

struct adapter_turn;
struct engine;
struct plan_share;
struct seq;
struct slot;

#define DRAFT_PAST 8192 /* tokens of an earlier reply */

/* A reply may take so many times as long as without drafts, because of those of others: on average. */
#define LITTLE_MORE 1.5

/* A source that is not the engine's own: writes up to `max` tokens that may follow these, and returns how many. For
 * tests.
 */
typedef int32_t (*draft_guess_fn)(void *ud, const struct tokens *tokens, int32_t *guess, int32_t max);

struct draft_params {
    bool sources[DRAFT_SOURCES]; /* those that are used; none: there are no drafts */
    int32_t n_max;               /* tokens of a draft at most; 0: DRAFT_MOST */
    struct draft_model_params model;
    draft_guess_fn guess; /* in place of the sources, at any price; NULL: none */
    void *ud;
};

/* Where a state cannot be cut, the copy of it that a wrong draft is taken back to. The slot keeps the memory. */
struct draft_mark {
    void *bytes;
    size_t size, cap;
    int32_t n; /* cells that the sequence had in this tick; 0: there is no copy */
};

/* A guess that was not computed, since drafts had lost too much. The next tokens show what it would have brought. */
struct draft_missed {
    int32_t tokens[DRAFT_MOST];
    int32_t n, right;   /* tokens; 0: there is none. How many of them have come */
    double worth, cost; /* nanoseconds that each right one would have saved, and that its rows would have taken */
};

/* Tokens that may follow those of a run. */
struct draft {
    int32_t tokens[DRAFT_MOST];
    int32_t n, matched;          /* tokens; how many before them match where they come from, or were guessed rightly */
    int8_t evidence[DRAFT_MOST]; /* of a draft model's tokens: chances_evidence() */
    int32_t streak;              /* last tokens that were guessed rightly, one after the other */
    enum draft_source source;
    struct draft_origin {      /* where the next one comes from, for as long as the guesses are right */
        const struct seq *seq; /* NULL: `past` */
        int32_t end;           /* its position there; 0: none */
    } origin;
    struct chances chances; /* of this request */
    struct draft_past {     /* what followed the prompt in an earlier reply to it, with the prompt's end */
        struct tokens tokens;
        struct suffix_index suffixes;
    } past;
    struct draft_missed missed;
    uint64_t serial;               /* of the engine's replies */
    int32_t n_drafted, n_accepted; /* over the whole reply */
    int32_t back_to;               /* cells that a wrong draft has left where the state cannot be cut; 0: others */
};

/* How many drafted tokens pay is learned over all requests. */
struct drafting {
    struct draft_params params;
    struct chances chances;
    struct row_times row_times;
    int32_t n_cells;           /* that the replies had in the last tick whose time was noted */
    int32_t n_cells_now;       /* in this one */
    bool rescales;             /* much more or less: this tick has no drafts, and shows by how much a call is slower */
    int32_t n_rescales;        /* such ticks one after the other */
    struct draft_model *model; /* NULL: there is none */
    uint64_t n_replies;        /* that have begun */
    double model_right;        /* part of its first tokens that were right, of late */
    bool model_lacks;          /* a stream lacked tokens when it was last asked, and is to get them */
    int64_t own_ns;            /* nanoseconds of this tick beside its decode calls: of the draft model, and of copies */
    int32_t accepted;          /* drafted tokens of this tick that were sampled */
    int32_t fewest;            /* tokens of this tick that a reply got at least */
    double owed_ns;   /* what a reply has waited for drafts of others beyond LITTLE_MORE, and is to have back */
    double credit_ns; /* what drafts may still lose; below 0 there are none */
    double missed_ns; /* what drafts would have saved while there was no credit */
    bool has_credit;  /* it was given to begin with */
    double disturbed; /* what ticks without drafts take on average, of what they usually take */
    int64_t tried_at; /* tick of the last trial of a row count that was not known */
    bool dropped;     /* this tick computed less of the drafts than was planned */
    int64_t pause,
        paused_until;        /* ticks without drafts after one whose drafts could not be computed; until which tick */
    bool marks;              /* states cannot be cut: they are copied before a draft, and loaded after a wrong one */
    double mark_ns, back_ns; /* nanoseconds that copying and loading one takes; 0: not known */
};

/* False: there are no drafts. */
bool draft_init(struct drafting *drafting, const struct draft_params *params);
void draft_release(struct draft *draft);

/* Guesses for the replies of the set of adapters whose turn it is, and chooses how much of each guess is computed:
 * plan_need.drafted. */
void draft_plan(struct engine *engine, const struct adapter_turn *turn);

/* There is no credit: the first n tokens of the slot's draft are not computed. They would cost so many nanoseconds, and
 * each right one save so many. */
void draft_miss(struct slot *slot, int32_t n, double cost, double worth);

/* The token behind the first i of the slot's draft was sampled. Returns whether it is the drafted one. */
bool draft_note(struct engine *engine, struct slot *slot, int32_t i, int32_t token);

/* Whose cells a stream of the draft model has that is asked about the slot's reply: draft_ask.owner. */
uint64_t draft_owner(const struct engine *engine, const struct slot *slot);

/* The sequence's last token was sampled from the logits of the batch token with that index: an MTP head reads its
 * hidden row. */
void draft_keep_row(struct engine *engine, const struct slot *slot, int32_t batch_index);

/* The slot has sampled a token, and so many before it of those that were computed as drafts. */
void draft_count(struct engine *engine, struct slot *slot, int32_t drafted, int32_t accepted);

/* The call was made with less of the drafts than was planned; `failed`: since it could not be computed with them. */
void draft_dropped(struct engine *engine, bool failed);

/* The slots' states are copied, where they cannot be cut. Those that could not be have no draft in the call. */
void draft_mark(struct engine *engine, struct plan_share *shares, size_t n);

/* Only the first n cells of the slot's sequence are right, those behind them have rows of its draft. Cuts these. Where
 * the state cannot be cut, the sequence has the cells of before the call, and computes the others again. Where even
 * that is not possible it has none, and the request no more drafts. */
void draft_cut(struct engine *engine, struct slot *slot, int32_t n);

/* Replies of the call that have ended, and went back: computes what is left of them, so that they leave all of their
 * cells to the next turn. The call's logits are gone then. */
void draft_complete(struct engine *engine, const struct plan_share *shares, size_t n);

/* Tokens of the reply that the slot has to compute again before the last one. */
int32_t draft_again(const struct slot *slot);

void draft_mark_release(struct draft_mark *mark);

/* The evidence for the token behind the first i of the draft: a match length, or chances_evidence(). */
int32_t draft_evidence(const struct draft *draft, int32_t i);

/* Whether drafts may lose more, where a call takes so many nanoseconds without them, although there is no credit. */
bool draft_may_owe_more(const struct drafting *drafting, double plain);

/* Whether drafts have lost nothing of late, where a call takes so many nanoseconds without them. */
bool draft_credit_is_whole(const struct drafting *drafting, double plain);

/* The tick's calls have taken so long (engine.computed). */
void draft_learn(struct engine *engine);

/* Of so many nanoseconds of a tick, those that it would have taken without drafted tokens. */
int64_t draft_plain_ns(const struct engine *engine, int64_t ns);

/* The sequence is given to the slot, and has its old tokens still. Keeps those that followed the same prompt; else
 * those that the job brings from the store. */
void draft_keep_past(struct engine *engine, struct slot *slot, const struct seq *seq);

#endif
