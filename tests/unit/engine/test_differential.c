/* Random conversations against naive oracles: the engine's replies, token for token, what it reuses, and what it holds
 * when it is idle. The fake model's next token is a hash of all cells of a sequence: any wrong reuse is a wrong reply.
 *
 * Most rounds are driven by the engine's own thread, from inside its decode calls and its events: the order of events
 * is then a function of the seed alone. Give the program the seed of a failure to run that round by itself. In the
 * other rounds each client is a thread, and the seed gives only the shape and the words. */
#include "rig.h"
#include "transitions.h"

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core.h"
#include "fakes/long_timeouts.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#define ROUNDS           500
#define FIRST_THREADED   1000000
#define THREADED_ROUNDS  30
#define MAX_REQUESTS     80
#define MAX_TURNS        6
#define MAX_TALKS        12
#define MAX_CLIENTS      4
#define NEVER            INT32_MAX
#define POISON           500  /* no token of a reply: the model never samples it */
#define CALLS_FOR_A_ROW  3    /* more decode calls than this for each token needed: the round makes no progress */
#define LONG_WINDOW      4000 /* holds prompts that are worth waiting for a slot */
#define FIRST_STORED     2000000
#define STORED_ROUNDS    150
#define STORE_STRIDE     16
#define IDLE_CLOCK_READS 100000 /* so many reads of the clock between two decode calls: nothing is computed at all */

static uint64_t only_seed; /* the round to run alone; 0: all */

/* Counters over all rounds: a test that covers nothing proves nothing. */
static struct {
    int64_t conversations, done, cancelled, failed, cached, computed, pending, yielded, shares, queued;
    int64_t preemptions, saved, restored;
    int64_t scored; /* tokens of prompts with logprobs */
    int64_t drafted[DRAFT_SOURCES], accepted[DRAFT_SOURCES];
    int64_t stored, fetched; /* saves, and requests that reused stored cells */
    int64_t leaving, lacking,
        awaiting; /* decode calls while an eviction is pending, while a slot lacks cells, while one awaits a sequence */
} met;

/* The configuration of a round. */
struct round {
    uint64_t seed;
    bool threaded;
    struct store *store; /* NULL: none */
    bool again;          /* it holds what the same round stored before */
};

struct world;

struct request {
    struct client client; /* first */
    struct world *world;
    struct talk *talk;
    bool open;
    uint64_t asked_at, ended_at; /* sequence numbers of the events, as the test saw them */
    int32_t calls_before;
    int32_t cancel_at_token, cancel_at_call; /* of its own tokens or calls; NEVER */
};

/* A conversation: its turns, one after the other. */
struct talk {
    struct request *turns[MAX_TURNS];
    int n_turns, n_planned;
    int32_t due; /* decode calls after which the next turn is submitted */
};

struct world {
    struct clock clock; /* first; advances as `time` does, and counts its reads */
    struct fake_clock time;
    uint64_t seed, random;
    struct engine *engine;
    struct engine_params params;
    bool alone;       /* one request at a time */
    bool undisturbed; /* and nothing is cancelled, poisoned or short of room */
    bool untouched;   /* nothing is cancelled, poisoned or short of room */
    bool cancels, poison, threaded;
    bool preempts; /* requests preempt others, or fail because the server is busy */
    bool scopes;   /* some prompts may share nothing with others, since they are computed under adapters or in another
                      scope */
    bool crowd;    /* all are submitted at once, with much in common */
    bool media;    /* images among the words */
    bool scores;   /* some requests want the logprobs of their prompts */
    struct store *store; /* NULL: none */
    bool again;          /* it holds what the same round stored before */
    int32_t alphabet, n_systems;
    struct tokens systems[3];
    struct talk talks[MAX_TALKS];
    int n_talks;

    pthread_mutex_t mutex; /* guards what follows, where clients are threads */
    pthread_cond_t changed;
    struct request *requests[MAX_REQUESTS];
    size_t n_requests, n_open;
    uint64_t events;
    int32_t calls;
    int64_t needed_rows;
    _Atomic int32_t idle_reads;
    char fault[160]; /* found on the engine's thread; empty: none */
};

/* ---- Random numbers ---- */

/* splitmix64 (https://prng.di.unimi.it/splitmix64.c). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int32_t below(struct world *w, int32_t n)
{
    return n <= 1 ? 0 : (int32_t)(draw(&w->random) % (uint64_t)n);
}

static int32_t between(struct world *w, int32_t least, int32_t most)
{
    return least + below(w, most - least + 1);
}

static bool one_in(struct world *w, int32_t n)
{
    return below(w, n) == 0;
}

#define ONE_OF(w, ...)                                                                                                 \
    ((const int32_t[]){__VA_ARGS__})[below(w, (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))]

/* ---- Failures ---- */

static void say_what_failed(const struct world *w, const char *what)
{
    const struct engine_params *p = &w->params;
    print_error("round %" PRIu64 ": %s\n  slots %d, sequences %d%s, window %d, n_batch %d, cells %d, %s%s%s%s\n",
                w->seed, what, p->n_slots, p->context.n_seq, p->context.unified ? " in one pool" : "",
                p->context.window, p->context.n_batch, fake_llm.n_cells, fake_llm.cuts ? "cuttable" : "not cuttable",
                p->deterministic ? ", deterministic" : "", w->alone ? ", one at a time" : "",
                w->threaded ? ", threads" : "");
}

__attribute__((format(printf, 4, 5))) static void require(const struct world *w, const struct request *r, bool holds,
                                                          const char *format, ...)
{
    if (holds) return;
    char what[256];
    int n = r == NULL ? 0 : snprintf(what, sizeof what, "%s: ", r->client.job.id);
    va_list args;
    va_start(args, format);
    vsnprintf(what + n, sizeof what - (size_t)n, format, args);
    va_end(args);
    say_what_failed(w, what);
    fail();
}

/* A round that makes no progress would never return to where a test can fail. */
static void give_up(const struct world *w, const char *what)
{
    say_what_failed(w, what);
    abort();
}

/* ---- Prompts ---- */

/* Few different ones, which begin alike where one is longer: such a prefix ends within a medium. */
static void add_medium(struct world *w, struct tokens *prompt)
{
    client_add_medium(prompt, (uint8_t)below(w, 3), between(w, 1, w->params.context.window / 10));
}

static void add_words(struct world *w, struct tokens *prompt, int32_t n)
{
    if (w->media && one_in(w, 3)) add_medium(w, prompt);
    for (int32_t i = 0; i < n; i++) tokens_push(prompt, below(w, w->alphabet));
}

static void add_message(struct world *w, struct tokens *prompt)
{
    add_words(w, prompt, between(w, 1, w->params.context.window / 8));
}

static void begin(struct world *w, struct tokens *prompt)
{
    const struct tokens *system = &w->systems[below(w, w->n_systems)];
    tokens_append(prompt, system->v, one_in(w, 6) ? (size_t)below(w, (int32_t)system->len) : system->len);
    add_message(w, prompt);
}

static void add_prompt_of(struct tokens *prompt, const struct request *r)
{
    tokens_append(prompt, r->client.job.prompt.v, r->client.job.prompt.len);
}

static void go_on(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)talk;
    add_prompt_of(prompt, last);
    tokens_append(prompt, last->client.got.v, last->client.got.len);
    if (one_in(w, 2)) tokens_push(prompt, FAKE_END);
    add_message(w, prompt);
}

static void go_on_from_rewritten_reply(struct world *w, struct talk *talk, const struct request *last,
                                       struct tokens *prompt)
{
    go_on(w, talk, last, prompt);
    size_t from = last->client.job.prompt.len, len = last->client.got.len;
    if (len > 0) prompt->v[from + (size_t)below(w, (int32_t)len)] = below(w, w->alphabet);
}

static void go_on_from_cut_reply(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)talk;
    add_prompt_of(prompt, last);
    tokens_append(prompt, last->client.got.v, (size_t)between(w, 0, (int32_t)last->client.got.len));
    add_message(w, prompt);
}

static void edit(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)talk;
    const struct tokens *old = &last->client.job.prompt;
    size_t at = (size_t)below(w, (int32_t)old->len), after = at + (size_t)between(w, 0, 5);
    tokens_append(prompt, old->v, at);
    add_words(w, prompt, between(w, 0, 5));
    if (after < old->len) tokens_append(prompt, old->v + after, old->len - after);
}

static void roll_back(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    go_on_from_cut_reply(w, talk, talk->turns[below(w, talk->n_turns)], prompt);
    if (one_in(w, 3)) tokens_truncate(prompt, last->client.job.prompt.len);
}

static void repeat(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)w;
    (void)talk;
    add_prompt_of(prompt, last);
}

static void shorten(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)talk;
    add_prompt_of(prompt, last);
    tokens_truncate(prompt, (size_t)between(w, 1, (int32_t)prompt->len));
}

static void branch(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    (void)last;
    repeat(w, talk, w->requests[below(w, (int32_t)w->n_requests)], prompt); /* may be running, or still waiting */
    if (!one_in(w, 4)) add_message(w, prompt);
}

static void fill_the_window(struct world *w, struct talk *talk, const struct request *last, struct tokens *prompt)
{
    go_on_from_cut_reply(w, talk, last, prompt);
    add_words(w, prompt, w->params.context.window);
}

static void compose(struct world *w, struct talk *talk, struct tokens *prompt)
{
    static void (*const changes[])(struct world *, struct talk *, const struct request *,
                                   struct tokens *) = {go_on,
                                                       go_on,
                                                       go_on,
                                                       go_on_from_rewritten_reply,
                                                       go_on_from_cut_reply,
                                                       edit,
                                                       edit,
                                                       roll_back,
                                                       repeat,
                                                       shorten,
                                                       branch,
                                                       branch,
                                                       fill_the_window};
    size_t most = (size_t)w->params.context.window - 1;
    if (talk->n_turns > 0)
        changes[below(w, sizeof changes / sizeof *changes)](w, talk, talk->turns[talk->n_turns - 1], prompt);
    else if (w->crowd && w->n_requests > 0 && one_in(w, 2))
        branch(w, talk, NULL, prompt);
    if (prompt->len > most && one_in(w, 2)) tokens_truncate(prompt, 0);
    if (prompt->len == 0) begin(w, prompt);
    tokens_truncate(prompt, most);
    for (size_t i = 0; i < prompt->len; i++)
        if (prompt->v[i] == POISON) prompt->v[i] = 0;
    if (w->poison && one_in(w, 12)) prompt->v[below(w, (int32_t)prompt->len)] = POISON;
}

static void add_checkpoints(struct world *w, struct job *job)
{
    if (w->params.caching == ENGINE_CACHES_SYSTEM) job->conversation.system_end = below(w, (int32_t)job->prompt.len);
    if (!engine_wants_checkpoints(w->engine)) return;
    for (int32_t last = 0; job->n_checkpoints < 2 && last < (int32_t)job->prompt.len; job->n_checkpoints++)
        job->checkpoints[job->n_checkpoints] = last = between(w, last + 1, (int32_t)job->prompt.len);
}

static int32_t some_max_tokens(struct world *w)
{
    int32_t kind = below(w, 20);
    return kind == 0 ? 0 : kind < 3 ? 1 : kind == 3 ? 1000000 : between(w, 2, 24);
}

static void plan_cancel(struct world *w, struct request *r)
{
    r->cancel_at_token = r->cancel_at_call = NEVER;
    if (!w->cancels || !one_in(w, 4)) return;
    if (one_in(w, 2))
        r->cancel_at_token = between(w, 1, 10);
    else
        r->cancel_at_call = between(w, 0, 12);
}

/* A prompt has few media: more than the fake encoder has room for become words. */
static void find_media(struct world *w, struct client *client)
{
    struct tokens *prompt = &client->job.prompt;
    struct media_spans spans = client_spans_of(prompt);
    for (size_t i = sizeof client->media.rows / sizeof *client->media.rows; i < spans.len; i++)
        for (int32_t k = 0; k < spans.v[i].n; k++) prompt->v[spans.v[i].at + k] = 1;
    media_spans_release(&spans);
    client_find_media(client);
    client->engine = w->engine;
    client->media.pending = below(w, 4);
}

/* ---- Expected replies ---- */

struct answer {
    struct tokens tokens;
    struct buf text;
    const char *stop_string;
    bool ended; /* by the model's end token */
};

static bool is_poisoned(const struct request *r)
{
    for (size_t i = 0; i < r->client.job.prompt.len; i++)
        if (r->client.job.prompt.v[i] == POISON) return true;
    return false;
}

/* The stop string that the text has reached; the text is then cut before it. */
static const char *cut_at_stop(const struct job *job, struct buf *text)
{
    const char *found = NULL, *at = NULL;
    for (size_t i = 0; i < job->n_stop; i++) {
        const char *hit = memmem(text->v, text->len, job->stop[i], strlen(job->stop[i]));
        if (hit == NULL || (at != NULL && hit >= at)) continue;
        at = hit;
        found = job->stop[i];
    }
    if (found != NULL) text->len = (size_t)(at - text->v);
    return found;
}

static struct answer right_answer(const struct world *w, const struct request *r)
{
    const struct job *job = &r->client.job;
    int32_t room = w->params.context.window - (int32_t)job->prompt.len;
    size_t most = (size_t)(job->max_tokens < room ? job->max_tokens : room);
    int32_t *all = malloc((most + 1) * sizeof *all);
    fake_llm_reply_under(fake_llm_adapted(job->scales, CLIENT_ADAPTERS), job->prompt.v, job->prompt.len, all, most);
    struct answer a = {0};
    while (a.tokens.len < most && a.stop_string == NULL && !a.ended) {
        if (fake_llm.end_after > 0 && a.tokens.len == (size_t)fake_llm.end_after) {
            a.ended = true;
        } else {
            int32_t token = all[a.tokens.len];
            tokens_push(&a.tokens, token);
            buf_append(&a.text, (char[]){(char)('a' + token % 26)}, 1);
            a.stop_string = cut_at_stop(job, &a.text);
        }
    }
    free(all);
    return a;
}

static void release_answer(struct answer *a)
{
    tokens_release(&a->tokens);
    buf_release(&a->text);
}

/* ---- Submitting ---- */

static void cancel(struct request *r)
{
    atomic_store(&r->client.job.cancelled, true);
    engine_poke(r->world->engine);
}

static void on_text(struct client *client)
{
    struct request *r = (struct request *)client;
    if ((int64_t)client->got.len >= r->cancel_at_token) cancel(r);
}

static void submit_due(struct world *w);

static void on_end(struct job *job)
{
    struct request *r = (struct request *)job;
    struct world *w = r->world;
    pthread_mutex_lock(&w->mutex);
    r->open = false;
    r->ended_at = ++w->events;
    w->n_open--;
    r->talk->due = w->calls + below(w, 10);
    if (!w->threaded) submit_due(w);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* A salt, and three sets of adapters: replies differ under each, but for the first two. */
#define N_SCOPES 5
static const double *const scopes[N_SCOPES] = {NULL, NULL, (const double[]){1, 0}, (const double[]){0, 1},
                                               (const double[]){0.5, 1}};

/* Queries the store, as src/instance does before it submits a job to the engine. */
static void ask_store(struct world *w, struct job *job)
{
    const struct store_user *user = engine_store_user(w->engine);
    char salt[2] = {(char)('0' + job->scope), '\0'};
    if (user != NULL) job->identity = identity_salted(&user->identity, job->scope == 0 ? NULL : salt);
    if (user == NULL || !job->cache_prompt || job->prompt_logprobs >= 0) return;
    bool system = w->params.caching == ENGINE_CACHES_SYSTEM;
    struct store_query query = {.user = user,
                                .identity = &job->identity,
                                .tokens = job->prompt.v,
                                .n = system ? job->conversation.system_end : (int32_t)job->prompt.len - 1};
    job->hit = store_find(w->store, &query);
}

static struct request *new_request(struct world *w, struct talk *talk)
{
    static const char *const stops[] = {"qe", "xy", "a", "tom", "mo", "q"};
    if (w->n_requests == MAX_REQUESTS) give_up(w, "more requests than the test has room for");
    struct request *r = calloc(1, sizeof *r);
    struct job *job = &r->client.job;
    client_init(&r->client, (int32_t)w->n_requests, 0, some_max_tokens(w));
    compose(w, talk, &job->prompt);
    if (w->media) find_media(w, &r->client);
    add_checkpoints(w, job);
    job->cache_prompt = !one_in(w, 12);
    job->scope = w->scopes ? (uint64_t)below(w, N_SCOPES) : 0;
    job->scales = scopes[job->scope];
    if (w->scores && w->n_requests % 3 == 1) job->prompt_logprobs = 2;
    ask_store(w, job);
    if (one_in(w, 4)) {
        job->n_stop = (size_t)between(w, 1, 3);
        job->stop = stops + below(w, 4);
    }
    job->on_end = on_end;
    r->client.on_text = on_text;
    r->world = w;
    r->talk = talk;
    plan_cancel(w, r);
    r->open = true;
    r->asked_at = ++w->events;
    r->calls_before = w->calls;
    struct answer a = right_answer(w, r);
    w->needed_rows += (int64_t)(job->prompt.len + a.tokens.len);
    release_answer(&a);
    talk->turns[talk->n_turns++] = r;
    w->requests[w->n_requests++] = r;
    w->n_open++;
    return r;
}

static bool has_more(const struct talk *talk)
{
    return talk->n_turns < talk->n_planned && (talk->n_turns == 0 || !talk->turns[talk->n_turns - 1]->open);
}

static struct talk *next_due(struct world *w)
{
    struct talk *next = NULL;
    for (int i = 0; i < w->n_talks; i++)
        if (has_more(&w->talks[i]) && (next == NULL || w->talks[i].due < next->due)) next = &w->talks[i];
    return next;
}

/* Submits what is due. When nothing runs the next one is due whatever the calls, but only that one: else the threads
 * would decide how many of them the engine sees at once. */
static void submit_due(struct world *w)
{
    struct talk *talk;
    while ((talk = next_due(w)) != NULL) {
        if (w->n_open > 0 && (w->alone || talk->due > w->calls)) return;
        bool first = w->n_open == 0;
        struct request *r = new_request(w, talk);
        engine_submit(w->engine, &r->client.job);
        if (first) return;
    }
}

/* ---- Invariants while it runs ---- */

/* Cells that were computed under adapters hold their tokens and the same beside each. */
static bool holds(const struct tokens *cells, const struct tokens *tokens, size_t n)
{
    int64_t beside = n == 0 ? 0 : (int64_t)cells->v[0] - tokens->v[0];
    for (size_t i = 0; i < n; i++)
        if ((int64_t)cells->v[i] - tokens->v[i] != beside || beside % 1000 != 0) return false;
    return true;
}

/* Compares what the engine believes of its cells with what the model has in them. NULL, or what is wrong. */
static const char *fault_in_cells(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) {
        const struct seq *seq = &engine->seqs[i];
        const struct tokens *cells = fake_llm_cells(engine->context, seq->id);
        size_t n = (size_t)seq->n_cells;
        bool half =
            seq->slot != NULL && slot_is_fetching(seq->slot) && n == 0; /* KV rows whose checkpoint is still to come */
        if (half && cells->len <= seq->tokens.len) continue;
        if (cells->len != n) return "a sequence has more or fewer cells than the engine believes";
        if (seq->tokens.len < n || !holds(cells, &seq->tokens, n))
            return "a sequence's cells hold other tokens than the engine believes";
        if (seq->slot == NULL && seq->tokens.len != n) return "a resident sequence claims tokens without cells";
        if (seq->slot != NULL && seq->slot->seq != seq) return "a sequence belongs to a slot that has another";
        if (seq->n_exact > seq->n_cells) return "more cells are exact than are there";
        if (seq_state_leaves(seq->state) && seq->n_cells <= seq->eviction.keep)
            return "a sequence leaves that has left";
    }
    return NULL;
}

/* If a slot lacks cells, some eviction must be pending. */
static const char *fault_in_leaving(const struct engine *engine)
{
    bool leaving = evict_deadline(engine) != CLOCK_NEVER;
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        if (slot_awaits_room(slot) && !leaving) return "a slot waits for cells that nobody gives up";
    }
    return NULL;
}

/* If a slot waits for a prefix that is being computed, the two must have it in common. */
static const char *fault_in_waiting(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_slots; i++) {
        const struct slot *slot = &engine->slots[i];
        if (slot->state != SLOT_AWAITS_PREFIX || slot->awaited->slot == NULL) continue;
        size_t n = tokens_common_prefix(&slot->awaited->tokens, &slot->job->prompt);
        if (n < (size_t)slot->awaited_cells) return "a slot waits for cells that nobody computes";
    }
    return NULL;
}

static void note_what_is_met(const struct engine *engine)
{
    for (size_t i = 0; i < engine->n_seqs; i++) met.leaving += seq_state_leaves(engine->seqs[i].state);
    for (size_t i = 0; i < engine->n_slots; i++) {
        met.pending += slot_state_shown(engine->slots[i].state) == HEARTH_SLOT_PENDING;
        met.yielded += slot_has_yielded(&engine->slots[i]);
        met.queued += engine->slots[i].queue.first != NULL;
        met.lacking += slot_awaits_room(&engine->slots[i]);
        met.awaiting += engine->slots[i].state == SLOT_AWAITS_SEQ;
    }
}

/* Slots that wait must continue when the one they wait for ends. */
static void cancel_who_is_waited_for(struct world *w)
{
    for (size_t i = 0; i < w->engine->n_slots; i++) {
        const struct slot *slot = &w->engine->slots[i];
        bool waits = slot->state == SLOT_AWAITS_PREFIX && slot->awaited->slot != NULL;
        if (waits && one_in(w, 12)) cancel((struct request *)slot->awaited->slot->job);
    }
}

static void on_call(void *ud)
{
    struct world *w = ud;
    atomic_store(&w->idle_reads, 0);
    pthread_mutex_lock(&w->mutex);
    w->calls++;
    if (w->calls > CALLS_FOR_A_ROW * w->needed_rows + 100) give_up(w, "decode calls without end");
    for (size_t i = 0; i < w->n_requests; i++) {
        struct request *r = w->requests[i];
        if (r->open && w->calls - r->calls_before > r->cancel_at_call) cancel(r);
    }
    if (w->cancels) cancel_who_is_waited_for(w);
    if (!w->threaded) submit_due(w);
    pthread_mutex_unlock(&w->mutex);
    note_what_is_met(w->engine);
    const char *fault = fault_in_cells(w->engine);
    if (fault == NULL) fault = fault_in_waiting(w->engine);
    if (fault == NULL) fault = fault_in_leaving(w->engine);
    if (fault != NULL && w->fault[0] == '\0') snprintf(w->fault, sizeof w->fault, "call %d: %s", w->calls, fault);
}

static int64_t now(struct clock *clock)
{
    struct world *w = (struct world *)clock;
    if (atomic_fetch_add(&w->idle_reads, 1) > IDLE_CLOCK_READS) give_up(w, "ticks that compute nothing, without end");
    return clock_now(&w->time.clock);
}

static void wait_on_clock(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    struct world *w = (struct world *)clock;
    w->time.clock.wait(&w->time.clock, cond, mutex, deadline);
}

/* ---- Oracles ---- */

static int32_t common(const struct tokens *a, const struct tokens *prompt)
{
    int32_t n = (int32_t)tokens_common_prefix(a, prompt);
    return n < (int32_t)prompt->len ? n : n - 1; /* the last token of a prompt is always computed */
}

/* The longest part of a list's first n tokens that may be reused: whole media that are told from others, and in
 * deterministic mode whole chunks. */
static int32_t whole_of(const struct world *w, const struct tokens *list, int32_t n)
{
    struct media_spans spans = client_spans_of(list);
    for (size_t i = 0; i < spans.len; i++)
        if (spans.v[i].n < MEDIA_TOLD_ROWS && spans.v[i].at < n) n = spans.v[i].at;
    int32_t whole = media_spans_whole(&spans, w->params.deterministic ? prefill_chunk_end(&spans, n) : n);
    media_spans_release(&spans);
    return whole;
}

static void append_all(struct tokens *all, const struct request *r)
{
    add_prompt_of(all, r);
    tokens_append(all, r->client.got.v, r->client.got.len);
}

/* Upper bound of what other requests may have reused. Deterministic: whole chunks, and of the prompt alone, unless a
 * failure made the reply be computed again like a prompt. */
static void append_reusable(const struct world *w, struct tokens *all, const struct request *r)
{
    append_all(all, r);
    if (!w->params.deterministic) return;
    if (w->untouched) tokens_truncate(all, r->client.job.prompt.len);
    tokens_truncate(all, (size_t)whole_of(w, all, (int32_t)all->len));
}

/* A request that does not cache shares its cells with nobody, not even while it runs. */
static bool may_have_left_something(const struct request *other, const struct request *r)
{
    return other != r && other->asked_at < r->ended_at && other->client.job.cache_prompt &&
           other->client.job.scope == r->client.job.scope;
}

/* No request reuses more than what was ever computed. */
static void verify_that_nothing_is_made_up(const struct world *w, const struct request *r)
{
    int32_t most = 0, cached = r->client.result.cache_n;
    for (size_t i = 0; i < w->n_requests && r->client.job.cache_prompt; i++) {
        struct tokens all = {0};
        if (!may_have_left_something(w->requests[i], r)) continue;
        append_reusable(w, &all, w->requests[i]);
        int32_t n = common(&all, &r->client.job.prompt);
        tokens_release(&all);
        if (n > most) most = n;
    }
    most = whole_of(w, &r->client.job.prompt, most);
    require(w, r, cached <= most, "reuses %d tokens, only %d can be there", cached, most);
    require(w, r, whole_of(w, &r->client.job.prompt, cached) == cached, "reuses %d tokens, no whole pieces", cached);
}

/* The tokens that some finished request left, of which so many may be reused. */
struct left {
    struct tokens tokens;
    int32_t exact;
};

static int32_t offered(const struct world *w, const struct left *left, const struct tokens *prompt)
{
    int32_t n = common(&left->tokens, prompt);
    if (n > left->exact) n = left->exact;
    n = whole_of(w, prompt, whole_of(w, &left->tokens, n));
    return fake_llm.cuts || n == (int32_t)left->tokens.len ? n : 0;
}

static void leave(struct left *left, const struct tokens *tokens, size_t n, int32_t exact)
{
    tokens_append(&left->tokens, tokens->v, n);
    left->exact = exact;
}

/* Prompt and reply but for the last token; where the model's end token follows, that last one is there too. */
static void leave_all(const struct world *w, struct left *left, const struct request *r)
{
    const hearth_result *result = &r->client.result;
    int32_t prompt = (int32_t)r->client.job.prompt.len;
    struct tokens all = {0};
    append_all(&all, r);
    bool whole = r->client.got.len == 0 || (result->finish == HEARTH_FINISH_STOP && result->stop_string == NULL);
    size_t n = whole ? all.len : all.len - 1;
    leave(left, &all, n, w->params.deterministic ? whole_of(w, &r->client.job.prompt, prompt) : (int32_t)n);
    tokens_release(&all);
}

/* With enough sequences and cells, and one request at a time, everything stays: no request computes what is there. */
static void verify_that_nothing_is_computed_twice(const struct world *w)
{
    static struct left lefts[MAX_REQUESTS * (JOB_CHECKPOINTS + 1)];
    size_t n_lefts = 0;
    for (size_t i = 0; i < w->n_requests; i++) {
        const struct request *r = w->requests[i];
        const struct job *job = &r->client.job;
        if (!job->cache_prompt) continue;
        int32_t best = 0, cached = r->client.result.cache_n;
        for (size_t k = 0; k < n_lefts && job->prompt_logprobs < 0; k++) {
            int32_t n = offered(w, &lefts[k], &job->prompt);
            if (n > best) best = n;
        }
        require(w, r, cached >= best, "reuses %d tokens, %d were resident", cached, best);
        for (size_t k = 0; k < job->n_checkpoints; k++)
            if (job->checkpoints[k] > cached)
                leave(&lefts[n_lefts++], &job->prompt, (size_t)job->checkpoints[k], job->checkpoints[k]);
        leave_all(w, &lefts[n_lefts++], r);
    }
    for (size_t k = 0; k < n_lefts; k++) tokens_release(&lefts[k].tokens);
    memset(lefts, 0, sizeof lefts);
}

/* ---- Verdicts ---- */

static void verify_failure(const struct world *w, const struct request *r, const struct answer *right)
{
    const struct client *c = &r->client;
    size_t cells = c->job.prompt.len + right->tokens.len;
    switch (c->error.code) {
    case HEARTH_CANCELLED:
        require(w, r, job_is_cancelled(&c->job), "was cancelled by nobody");
        break;
    case HEARTH_TOO_LONG:
        require(w, r, cells > (size_t)fake_llm.n_cells, "found no room, but its %zu tokens fit", cells);
        break;
    case HEARTH_BUSY:
        require(w, r, w->preempts, "the server was too busy");
        break;
    default:
        require(w, r, is_poisoned(r) && c->error.code == HEARTH_INTERNAL, "failed: %s", c->error.message);
    }
}

static void verify_success(const struct world *w, const struct request *r, const struct answer *right)
{
    const struct client *c = &r->client;
    const hearth_result *got = &c->result;
    bool stopped = right->ended || right->stop_string != NULL;
    require(w, r, !is_poisoned(r), "is poisoned and was computed");
    require(w, r, c->got.len == right->tokens.len, "%zu tokens of %zu", c->got.len, right->tokens.len);
    require(w, r, got->predicted_n == (int32_t)c->got.len + right->ended, "counts %d tokens", got->predicted_n);
    require(w, r, got->stop_string == right->stop_string, "ended by another stop string");
    require(w, r, got->finish == (stopped ? HEARTH_FINISH_STOP : HEARTH_FINISH_LENGTH), "says another reason");
    require(w, r, c->text.len == right->text.len, "%zu bytes of text, not %zu", c->text.len, right->text.len);
    require(w, r, c->text.len == 0 || memcmp(c->text.v, right->text.v, c->text.len) == 0, "another text");
    require(w, r, got->cache_n + got->prompt_n == (int32_t)c->job.prompt.len, "%d reused and %d computed of %zu",
            got->cache_n, got->prompt_n, c->job.prompt.len);
    require(w, r, got->cache_n >= 0 && got->prompt_n >= 1, "nothing of its prompt was computed");
    require(w, r, !w->alone || c->start.cache_n == got->cache_n, "began with %d reused tokens and ended with %d",
            c->start.cache_n, got->cache_n);
    int32_t most = w->params.caching == ENGINE_CACHES_NOTHING  ? 0
                   : w->params.caching == ENGINE_CACHES_SYSTEM ? c->job.conversation.system_end
                                                               : got->cache_n;
    if (c->job.prompt_logprobs >= 0) most = 0;
    require(w, r, got->cache_n <= most, "reuses %d tokens of %d that are cached", got->cache_n, most);
    require(w, r, got->cache_n == 0 || got->cache_n >= w->params.cache_min_tokens, "reuses %d tokens", got->cache_n);
    if (!w->again) verify_that_nothing_is_made_up(w, r);
}

static void verify_scores(const struct world *w, const struct request *r)
{
    const struct client *c = &r->client;
    size_t wanted = c->job.prompt_logprobs < 0 ? 0 : c->job.prompt.len - 1;
    require(w, r, client_got_right_scores(c), "a logprob of its prompt is wrong, missing or there twice");
    require(w, r, c->n_scores == wanted || (c->failed && c->n_scores < wanted), "%zu logprobs of its prompt",
            c->n_scores);
    met.scored += (int64_t)c->n_scores;
}

static void verify_request(const struct world *w, const struct request *r)
{
    const struct client *c = &r->client;
    verify_scores(w, r);
    struct answer right = right_answer(w, r);
    require(w, r, c->n_last_events == 1, "%d last events", c->n_last_events);
    require(w, r, c->got.len <= right.tokens.len, "%zu tokens, at most %zu are right", c->got.len, right.tokens.len);
    for (size_t i = 0; i < c->got.len; i++)
        require(w, r, c->got.v[i] == right.tokens.v[i], "token %zu of the reply to %zu tokens is wrong", i,
                c->job.prompt.len);
    if (c->failed)
        verify_failure(w, r, &right);
    else
        verify_success(w, r, &right);
    release_answer(&right);
}

/* The engine's own counters; in an undisturbed round they equal those of the replies. */
static void verify_counts(const struct world *w)
{
    const struct engine_stats *stats = engine_stats(w->engine);
    int64_t computed = 0, cached = 0,
            ended = metric_get(&stats->requests_done) + metric_get(&stats->requests_failed) +
                    metric_get(&stats->requests_cancelled);
    require(w, NULL, ended == (int64_t)w->n_requests, "%" PRId64 " of %zu requests are counted", ended, w->n_requests);
    for (size_t i = 0; i < w->n_requests && w->untouched; i++) {
        computed += w->requests[i]->client.result.prompt_n;
        cached += w->requests[i]->client.result.cache_n;
    }
    if (!w->untouched) return;
    require(w, NULL, metric_get(&stats->prompt_tokens) == computed, "computed %" PRId64 " prompt tokens for %" PRId64,
            metric_get(&stats->prompt_tokens), computed);
    require(w, NULL, metric_get(&stats->cached_tokens) == cached, "the count of reused tokens is wrong");
}

/* Holds the engine where it sleeps: after the drain it still wakes up when the store has saved something. */
static void hold_asleep(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    while (engine->busy) pthread_cond_wait(&engine->drained, &engine->mutex);
}

static void verify_idle(const struct world *w)
{
    struct engine *engine = w->engine;
    hearth_slot slots[8];
    hold_asleep(engine);
    size_t n = engine_slots(w->engine, slots, 8);
    for (size_t i = 0; i < n; i++) {
        require(w, NULL, slots[i].state == HEARTH_SLOT_IDLE, "slot %zu is %s", i,
                hearth_slot_state_name(slots[i].state));
        require(w, NULL, engine->slots[i].job == NULL && engine->slots[i].seq == NULL && engine->slots[i].run == NULL,
                "slot %zu holds something", i);
        require(w, NULL, engine->slots[i].queue.first == NULL, "somebody waits for slot %zu", i);
    }
    require(w, NULL, metric_get(&engine->stats->slots_busy) == 0, "slots are counted as busy");
    require(w, NULL, engine->waiting.first == NULL && engine->inbox.first == NULL, "jobs wait");
    for (size_t i = 0; i < engine->n_seqs; i++) require(w, NULL, engine->seqs[i].slot == NULL, "sequence %zu runs", i);
    const char *fault = fault_in_cells(engine);
    require(w, NULL, fault == NULL, "%s", fault);
    require(w, NULL, fake_llm_cells_add_up(engine->context), "cells are used that no sequence holds");
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- A round ---- */

static void choose_cells(struct world *w, bool may_be_short)
{
    int32_t window = w->params.context.window, kind = may_be_short ? below(w, 8) : 0;
    if (kind >= 1 && kind <= 3) fake_llm.n_cells = between(w, window, window * (w->params.n_slots + 1));
    if (kind == 4) fake_llm.n_cells = between(w, window / 2, window);
    fake_llm.cuts = !one_in(w, 3);
    if (!fake_llm.cuts && one_in(w, 3)) fake_llm.cuts_back = between(w, 1, 40);
}

static void choose_shape(struct world *w)
{
    bool spare = w->undisturbed || !one_in(w, 3);
    int32_t slots = between(w, 1, 4);
    int32_t seqs = w->undisturbed ? MAX_REQUESTS * 3 : spare ? slots + below(w, 24) : slots;
    int32_t window = !spare && one_in(w, 2) ? LONG_WINDOW : ONE_OF(w, 60, 200, 400, 400, 900);
    int32_t batch = ONE_OF(w, 64, 80, 200, 512), small = ONE_OF(w, 4, 7, 16, 33);
    w->params = (struct engine_params){.name = "fake",
                                       .n_adapters = CLIENT_ADAPTERS,
                                       .n_slots = slots,
                                       .max_token_gap_ns = ONE_OF(w, 1000, 100000, 250000000),
                                       .deterministic = one_in(w, 5),
                                       .caching = ENGINE_CACHES_CONVERSATIONS,
                                       .slot_timeout_ns = INT64_MAX,
                                       .snapshot_budget = (uint64_t)ONE_OF(w, 0, 200, 100000, 100000),
                                       .clock = &w->clock};
    w->params.context = (struct llm_context_params){.window = window,
                                                    .n_seq = seqs,
                                                    .unified = spare,
                                                    .n_batch = w->params.deterministic || one_in(w, 2) ? batch : small,
                                                    .n_ubatch = 512};
    choose_cells(w, spare && !w->undisturbed);
    if (w->undisturbed && !fake_llm.cuts) w->params.deterministic = false;
    if (w->undisturbed) fake_llm.cuts_back = 0;
}

static void choose_policy(struct world *w)
{
    if (w->undisturbed) {
        w->params.snapshot_budget = 1000000000;
        return;
    }
    w->params.caching =
        (enum engine_caching)ONE_OF(w, ENGINE_CACHES_CONVERSATIONS, ENGINE_CACHES_CONVERSATIONS,
                                    ENGINE_CACHES_CONVERSATIONS, ENGINE_CACHES_SYSTEM, ENGINE_CACHES_NOTHING);
    w->params.cache_min_tokens = ONE_OF(w, 0, 0, 1, 30);
    w->scopes = one_in(w, 3);
    w->preempts = one_in(w, 3);
    if (!w->preempts) return;
    w->params.slot_timeout_ns = ONE_OF(w, 0, 20000, 1000000, 10000000);
    w->params.preempt_fails = one_in(w, 4);
}

static void choose_circumstances(struct world *w)
{
    w->cancels = !w->undisturbed && one_in(w, 2);
    w->poison = !w->undisturbed && one_in(w, 4);
    w->untouched = !w->cancels && !w->poison && !w->preempts && fake_llm.n_cells == INT32_MAX;
    w->crowd = one_in(w, 3);
    w->media = w->seed % 3 == 1;
    w->scores = !w->media && w->seed % 4 == 0;
    w->alphabet = ONE_OF(w, 2, 5, 190);
    w->n_systems = between(w, 1, 3);
    for (int32_t i = 0; i < w->n_systems; i++)
        add_words(w, &w->systems[i], between(w, 1, w->params.context.window / 2));
    w->n_talks = between(w, 8, MAX_TALKS);
    for (int i = 0; i < w->n_talks; i++) {
        w->talks[i].n_planned = between(w, 1, MAX_TURNS);
        w->talks[i].due = below(w, w->crowd ? 4 : 40);
    }
    fake_llm.poison = POISON;
    fake_llm.end_after = one_in(w, 3) ? between(w, 1, 20) : 0;
    fake_llm.torn_tokens = ONE_OF(w, 0, 1, 30);
    fake_llm.call_ns = ONE_OF(w, 0, 1000, 100000);
    fake_llm.token_ns = ONE_OF(w, 0, 10, 5000);
}

/* Guesses for drafts: right ones, wrong ones, and some of either. Rounds keep their shapes, whatever these are. */
struct guesser {
    enum { NO_GUESSES, OWN_SOURCES, RIGHT, WRONG, MIXED, GUESSERS } how;
    uint64_t random;
};

static struct guesser guesser;

static int32_t guess(void *ud, const struct tokens *tokens, int32_t *out, int32_t max)
{
    struct guesser *g = ud;
    int32_t n = (int32_t)(draw(&g->random) % (uint64_t)(max + 1));
    if (n > 0) fake_llm_reply(tokens->v, tokens->len, out, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        if (g->how == WRONG || (g->how == MIXED && draw(&g->random) % 4 == 0))
            out[i] = (int32_t)(draw(&g->random) % (FAKE_VOCAB - 1));
    return n;
}

static void choose_drafts(struct world *w)
{
    guesser.random = w->seed * 31;
    guesser.how = draw(&guesser.random) % GUESSERS;
    w->params.draft.n_max = (int32_t)(draw(&guesser.random) % 20);
    w->params.draft.ud = &guesser;
    if (guesser.how > OWN_SOURCES) w->params.draft.guess = guess;
    for (int i = 0; i < DRAFT_SOURCES; i++) w->params.draft.sources[i] = guesser.how != NO_GUESSES;
    if (guesser.how != OWN_SOURCES || draw(&guesser.random) % 2 == 0) return;
    w->params.draft.model = fake_draft_model(w->params.n_slots);
    fake_llm.draft_wrong = draw(&guesser.random) % 3 == 0;
    fake_llm.draft_fails = draw(&guesser.random) % 8 == 0;
}

static void choose_store(struct world *w)
{
    uint64_t random = w->seed;
    w->params.store = w->store;
    w->params.stride = STORE_STRIDE;
    w->params.continued_interval = draw(&random) % 2 == 0 ? 5 : 60;
    w->params.evict_timeout_ns = draw(&random) % 3 == 0 ? 200000 : 60000000000;
}

static void open_world(struct world *w, const struct round *round)
{
    uint64_t seed = round->seed;
    bool threaded = round->threaded;
    *w = (struct world){.clock = {.now = now, .wait = wait_on_clock},
                        .seed = seed,
                        .random = seed,
                        .threaded = threaded,
                        .store = round->store,
                        .again = round->again};
    fake_clock_init(&w->time);
    fake_llm_reset(&w->time);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->undisturbed = !threaded && one_in(w, 3);
    w->alone = w->undisturbed || (!threaded && one_in(w, 6));
    choose_shape(w);
    choose_policy(w);
    choose_circumstances(w);
    choose_store(w);
    choose_drafts(w);
    fake_llm.on_call = on_call;
    fake_llm.ud = w;
    hearth_error error;
    w->engine = engine_open(&w->params, &error);
}

static void close_world(struct world *w)
{
    engine_close(w->engine);
    for (size_t i = 0; i < w->n_requests; i++) {
        client_release(&w->requests[i]->client);
        free(w->requests[i]);
    }
    for (int32_t i = 0; i < w->n_systems; i++) tokens_release(&w->systems[i]);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
    fake_clock_release(&w->time);
}

static void *be_a_client(void *ud)
{
    struct world *w = ud;
    struct talk *talk;
    pthread_mutex_lock(&w->mutex);
    while ((talk = next_due(w)) != NULL) {
        struct request *r = new_request(w, talk);
        pthread_mutex_unlock(&w->mutex);
        engine_submit(w->engine, &r->client.job);
        pthread_mutex_lock(&w->mutex);
        while (r->open) pthread_cond_wait(&w->changed, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void run_with_threads(struct world *w)
{
    pthread_t clients[MAX_CLIENTS];
    for (int i = 0; i < MAX_CLIENTS; i++) pthread_create(&clients[i], NULL, be_a_client, w);
    for (int i = 0; i < MAX_CLIENTS; i++) pthread_join(clients[i], NULL);
}

static void run_driven(struct world *w)
{
    pthread_mutex_lock(&w->mutex);
    submit_due(w);
    while (w->n_open > 0) pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

static void add_up(const struct world *w)
{
    const struct engine_stats *stats = engine_stats(w->engine);
    met.conversations += w->n_talks;
    met.done += metric_get(&stats->requests_done);
    met.cancelled += metric_get(&stats->requests_cancelled);
    met.failed += metric_get(&stats->requests_failed);
    met.cached += metric_get(&stats->cached_tokens);
    met.computed += metric_get(&stats->prompt_tokens);
    met.shares += fake_llm.shares;
    met.preemptions += metric_get(&stats->preemptions);
    met.saved += metric_get(&stats->snapshots_saved);
    met.restored += metric_get(&stats->snapshots_restored);
    for (int i = 0; i < DRAFT_SOURCES; i++) met.drafted[i] += metric_get(&stats->drafted_tokens[i]);
    for (int i = 0; i < DRAFT_SOURCES; i++) met.accepted[i] += metric_get(&stats->accepted_tokens[i]);
}

/* Returns a hash of all that happened. */
static uint64_t run_round(const struct round *round)
{
    struct world w;
    open_world(&w, round);
    if (w.threaded)
        run_with_threads(&w);
    else
        run_driven(&w);
    engine_drain(w.engine, CLOCK_NEVER);
    require(&w, NULL, w.fault[0] == '\0', "%s", w.fault);
    for (size_t i = 0; i < w.n_requests; i++) verify_request(&w, w.requests[i]);
    if (w.undisturbed) verify_that_nothing_is_computed_twice(&w);
    verify_counts(&w);
    verify_idle(&w);
    add_up(&w);
    uint64_t digest = w.random ^ (uint64_t)w.calls;
    for (size_t i = 0; i < w.n_requests; i++) digest = digest * 31 + (uint64_t)w.requests[i]->client.result.cache_n;
    close_world(&w);
    return digest;
}

static void random_conversations_get_right_replies_and_compute_nothing_twice(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        if (only_seed == 0 || seed == only_seed) run_round(&(struct round){.seed = seed});
    if (only_seed != 0) return;
    print_message("%" PRId64 " conversations; requests: %" PRId64 " done, %" PRId64 " cancelled, %" PRId64 " failed; "
                  "prompt tokens: %" PRId64 " computed, %" PRId64 " reused; %" PRId64 " prefixes shared\n",
                  met.conversations, met.done, met.cancelled, met.failed, met.computed, met.cached, met.shares);
    assert_true(met.conversations >= 2000);
    assert_true(met.done > 2000 && met.cancelled > 200 && met.failed > 50);
    assert_true(met.cached > met.computed / 3 && met.shares > 500);
    print_message("%" PRId64 " preempted, %" PRId64 " snapshots saved, %" PRId64 " restored, %" PRId64
                  " calls with somebody in a slot's list\n",
                  met.preemptions, met.saved, met.restored, met.queued);
    assert_true(met.pending > 50 && met.yielded > 50 && met.queued > 1000);
    assert_true(met.scored > 5000);
    for (int i = 0; i < DRAFT_SOURCES; i++)
        print_message("source %d: %" PRId64 " tokens drafted, %" PRId64 " accepted\n", i, met.drafted[i],
                      met.accepted[i]);
    assert_true(met.accepted[0] > 5000 && met.drafted[0] > met.accepted[0] + 5000);
    assert_true(met.preemptions > 200 && met.saved > 100 && met.restored > 100);
}

static void clients_on_threads_of_their_own_get_right_replies(void **state)
{
    (void)state;
    for (uint64_t seed = FIRST_THREADED; seed < FIRST_THREADED + THREADED_ROUNDS; seed++)
        if (only_seed == 0 || seed == only_seed) run_round(&(struct round){.seed = seed, .threaded = true});
}

/* A disk that stands still for a while, now and then. */
static int sync_slowly(struct files *files, int fd)
{
    static _Atomic uint64_t random;
    uint64_t seed = atomic_fetch_add(&random, 1);
    int32_t turns = draw(&seed) % 8 == 0 ? 3000 : (int32_t)(draw(&seed) % 30);
    for (int32_t i = 0; i < turns; i++) sched_yield();
    return files_machine()->sync(files, fd);
}

static char folder[64];
static struct files slow_files;

/* Quotas from far too little to plenty; half of the tiers in memory, whose slabs are what they are in files, and with a
 * small backlog. */
static struct store *open_store(uint64_t seed)
{
    static const uint64_t quotas[] = {3000, 30000, 1 << 30};
    enum store_tier tier = seed % 2 == 0 ? STORE_RAM : STORE_DISK;
    struct store_params params = {.stride = STORE_STRIDE,
                                  .save_tier = tier,
                                  .backlog = seed % 4 < 2 ? 1 << 20 : 2000,
                                  LONG_TIMEOUTS,
                                  .files = &slow_files};
    slow_files = *files_machine();
    slow_files.sync = sync_slowly;
    params.tiers[tier].quota = quotas[seed % 3];
    if (tier == STORE_DISK) {
        snprintf(folder, sizeof folder, "/dev/shm/hearth-test-XXXXXX");
        params.tiers[tier].path = mkdtemp(folder);
    }
    return store_open(&params, NULL);
}

static void close_store(struct store *store)
{
    store_close(store, CLOCK_NEVER);
    if (folder[0] == '\0') return;
    char *command = mem_format("rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    free(command);
    folder[0] = '\0';
}

static void with_a_store_replies_are_right_and_right_again_after_a_restart(void **state)
{
    (void)state;
    for (uint64_t seed = FIRST_STORED; seed < FIRST_STORED + STORED_ROUNDS; seed++) {
        if (only_seed != 0 && seed != only_seed) continue;
        struct round round = {.seed = seed, .threaded = seed % 5 == 0, .store = open_store(seed)};
        run_round(&round);
        round.again = true;
        run_round(&round);
        const struct store_stats *stats = store_stats(round.store);
        for (int i = SLAB_COLD; i <= SLAB_FINISH; i++) met.stored += metric_get(&stats->saves[i]);
        met.fetched += metric_get(&stats->hits_exact) + metric_get(&stats->hits_longest_prefix);
        close_store(round.store);
    }
    if (only_seed != 0) return;
    print_message("%" PRId64 " saves, %" PRId64 " requests went on from the store; calls with %" PRId64
                  " sequences leaving, %" PRId64 " slots without cells, %" PRId64 " without a sequence\n",
                  met.stored, met.fetched, met.leaving, met.lacking, met.awaiting);
    assert_true(met.stored > 1000 && met.fetched > 500);
    assert_true(met.leaving > 1000 && met.lacking > 50 && met.awaiting > 1000);
}

static void a_round_repeats_itself(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t first = run_round(&(struct round){.seed = seed}), second = run_round(&(struct round){.seed = seed});
        assert_int_equal(first, second);
    }
}

/* ---- States ---- */

static int n_never_made;

static void expect_made(const struct transition *t, uint64_t n)
{
    if (n > 0 || transition_is_rare(t)) return;
    print_transition("never made", t, n);
    n_never_made++;
}

/* Those of jobs are all in test_states.c. */
static void all_but_the_rare_transitions_were_made(void **state)
{
    (void)state;
#ifdef NDEBUG
    print_message("transitions are counted in builds with assertions only\n");
    skip();
#endif
    if (only_seed != 0) return;
    n_never_made = 0;
    each_transition(&slot_states, expect_made);
    each_transition(&seq_states, expect_made);
    assert_int_equal(n_never_made, 0);
}

int main(int argc, char **argv)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_conversations_get_right_replies_and_compute_nothing_twice),
        cmocka_unit_test(clients_on_threads_of_their_own_get_right_replies),
        cmocka_unit_test(with_a_store_replies_are_right_and_right_again_after_a_restart),
        cmocka_unit_test(a_round_repeats_itself),
        cmocka_unit_test(all_but_the_rare_transitions_were_made),
    };
    log_open(NULL, "error", "text", &error);
    if (argc > 1) only_seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
