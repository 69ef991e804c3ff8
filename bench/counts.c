/* hearth_bench_counts: what the engine does in a fixed scenario, in counts that are the same on every machine: tokens
 * computed, decode calls, cells shared and copied, bytes written. Prints them as JSON, for bench/check.mjs.
 *
 * The model is the tests' fake, whose time passes on a clock of its own, so that nothing depends on the machine's
 * speed; engine and store are the real ones. Requests that are to meet each other are sent while a decode call waits.
 */
#include "unit/engine/stored.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TURNS = 8,
    AGENTS = 12,
    SHARED = 600, /* tokens */
    OWN = 300,
    ADDED = 40,
    REPLY = 20,
    LONG_PROMPT = 6000,
    STREAMS = 3,
    MANY_CALLS = 1000000
};

static const struct shape shape = {.slots = 4, .seqs = 16, .window = 9000, .cache_min_tokens = 100};

/* ---- Printing ---- */

static const char *separator = "";

static void print_count(const char *scene, const char *what, int64_t n)
{
    printf("%s\n  \"%s: %s\": %lld", separator, scene, what, (long long)n);
    separator = ",";
}

/* What an engine and its store have done since they were opened. */
static void print_counts(const char *scene, const struct stored *s)
{
    const struct engine_stats *stats = engine_stats(s->rig->engine);
    const struct store_stats *stored = store_stats(s->store);
    print_count(scene, "prompt tokens computed", metric_get(&stats->prompt_tokens));
    print_count(scene, "prompt tokens cached", metric_get(&stats->cached_tokens));
    print_count(scene, "tokens generated", metric_get(&stats->generated_tokens));
    print_count(scene, "decode calls", metric_get(&stats->decode_calls));
    print_count(scene, "prefixes shared", fake_llm.shares);
    print_count(scene, "rows copied out", fake_llm.rows_saved);
    print_count(scene, "rows copied in", fake_llm.rows_loaded);
    print_count(scene, "states copied out", fake_llm.saves);
    print_count(scene, "states copied in", fake_llm.loads + fake_llm.rewinds);
    print_count(scene, "bytes written", metric_get(&stored->written_bytes));
}

/* ---- Scenes ---- */

static void begin(struct stored *s, struct rig *rig)
{
    fake_clock_init(&rig->clock);
    fake_llm_reset(&rig->clock);
    fake_llm.token_ns = 1000000;
    fake_llm.call_ns = 2000000;
    *s = (struct stored){0};
}

static void end(const char *scene, struct stored *s)
{
    settle_down(s);
    print_counts(scene, s);
    stop(s);
    fake_clock_release(&s->rig->clock);
}

/* What is written must not depend on how fast a saver is: a turn is stored before the next one. */
static void take_turn(struct stored *s, struct client *client)
{
    run(s, client);
    await_saves(s);
}

static void converse(struct stored *s, struct client *turns, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0) next_turn(&turns[i], &turns[i - 1], ADDED, REPLY);
        take_turn(s, &turns[i]);
    }
}

static void release(struct client *clients, int n)
{
    for (int i = 0; i < n; i++) client_release(&clients[i]);
}

/* A conversation, which another engine on the same store continues. */
static void a_conversation(void)
{
    struct rig rig;
    struct stored s;
    struct client turns[TURNS];
    begin(&s, &rig);
    start(&s, &rig, shape);
    client_init(&turns[0], 3, SHARED, REPLY);
    converse(&s, turns, TURNS - 1);
    settle_down(&s);
    print_counts("conversation", &s);
    restart(&s, shape);
    next_turn(&turns[TURNS - 1], &turns[TURNS - 2], ADDED, REPLY);
    take_turn(&s, &turns[TURNS - 1]);
    end("conversation, restarted", &s);
    release(turns, TURNS);
}

/* An agent's first prompt: what all share, and what is its own. */
static void brief(struct client *client, int32_t number)
{
    client_init(client, 3, SHARED, REPLY);
    for (int32_t i = 0; i < OWN; i++) tokens_push(&client->job.prompt, (number * 31 + i * 11) % 190);
}

/* Twelve agents in turn, with cells for all or for half of them. */
static void agents(const char *scene, int32_t cells)
{
    struct rig rig;
    struct stored s;
    struct client turns[AGENTS][TURNS];
    begin(&s, &rig);
    if (cells > 0) fake_llm.n_cells = cells;
    start(&s, &rig, shape);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int32_t i = 0; i < AGENTS; i++) {
            if (turn == 0)
                brief(&turns[i][0], i);
            else
                next_turn(&turns[i][turn], &turns[i][turn - 1], ADDED, REPLY);
            take_turn(&s, &turns[i][turn]);
        }
    }
    end(scene, &s);
    for (int i = 0; i < AGENTS; i++) release(turns[i], TURNS);
}

/* Streams beside a long prompt. All are sent while the first one's first decode call waits, so that the engine finds
 * them together. */
static void a_long_prompt_beside_streams(void)
{
    struct rig rig;
    struct stored s;
    struct client clients[STREAMS + 1];
    begin(&s, &rig);
    start(&s, &rig, shape);
    fake_llm.held = true;
    for (int32_t i = 0; i <= STREAMS; i++) {
        client_init(&clients[i], 50 * i, i == STREAMS ? LONG_PROMPT : OWN, 10 * REPLY);
        ask(&s, &clients[i]);
        engine_submit(rig.engine, &clients[i].job);
        if (i == 0) fake_llm_await_call();
    }
    fake_llm_step(MANY_CALLS);
    for (int i = 0; i <= STREAMS; i++) client_await_end(&clients[i]);
    end("a long prompt beside streams", &s);
    release(clients, STREAMS + 1);
}

/* States that cannot be cut: a conversation, and others that share its beginning. */
static void a_hybrid(void)
{
    struct rig rig;
    struct stored s;
    struct client turns[TURNS], others[AGENTS];
    begin(&s, &rig);
    fake_llm.cuts = false;
    start(&s, &rig, shape);
    brief(&turns[0], AGENTS);
    converse(&s, turns, TURNS);
    for (int32_t i = 0; i < AGENTS; i++) {
        brief(&others[i], i);
        take_turn(&s, &others[i]);
    }
    end("states that cannot be cut", &s);
    release(turns, TURNS);
    release(others, AGENTS);
}

int main(void)
{
    hearth_error error;
    log_open(NULL, "error", "text", &error);
    printf("{");
    a_conversation();
    agents("agents", 0);
    agents("agents, few cells", SHARED + AGENTS / 2 * (OWN + TURNS * (ADDED + REPLY)));
    a_long_prompt_beside_streams();
    a_hybrid();
    printf("\n}\n");
    return EXIT_SUCCESS;
}
