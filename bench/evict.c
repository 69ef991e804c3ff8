/* hearth_bench_evict: hit rates of eviction policies at several quotas, on traces of coding agents, of chats that are
 * resumed, of documents that are asked about once, and of all of them mixed. hearth's own policy runs in the real
 * index, the others in models. No server, no clock: the figures are always the same. */
#include "base/memory.h"
#include "policies.h"
#include "store/index/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Traces ---- */

static uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*random >> 33) * below) >> 31);
}

static int32_t grow(struct trace *trace, int32_t from, uint32_t blocks)
{
    for (; blocks > 0; blocks--) from = trace_block(trace, from);
    return from;
}

enum { TYPES = 6, SESSIONS = 12, CHATS = 400 };

struct world {
    struct trace *trace;
    uint64_t random;
    int32_t systems[TYPES], chat_system;
    struct session {
        int32_t at, main;
        uint32_t steps;
    } sessions[SESSIONS];
    int32_t chats[CHATS];
    int32_t document;
};

static void begin_session(struct world *w, struct session *session)
{
    int32_t type = (int32_t)draw(&w->random, TYPES);
    session->at = session->main = grow(w->trace, w->systems[type], 1 + draw(&w->random, 8));
    session->steps = 8 + draw(&w->random, 60);
}

/* A step adds a reply and a tool's result; some steps branch off into a side task. */
static void agent(struct world *w)
{
    struct session *session = &w->sessions[draw(&w->random, SESSIONS)];
    if (session->steps == 0) begin_session(w, session);
    session->at = grow(w->trace, session->at, 1 + draw(&w->random, 5));
    trace_request(w->trace, session->at);
    session->steps--;
    if (draw(&w->random, 12) == 0) session->at = session->main;
}

/* The longer ago a chat was used, the less likely it is resumed: most often it is one of the last few. */
static void chat(struct world *w)
{
    uint32_t i = draw(&w->random, 1 + draw(&w->random, 1 + draw(&w->random, CHATS)));
    int32_t at = w->chats[i];
    if (draw(&w->random, 10) == 0) at = w->chat_system;
    at = grow(w->trace, at, 1 + draw(&w->random, 3));
    trace_request(w->trace, at);
    for (; i > 0; i--) w->chats[i] = w->chats[i - 1];
    w->chats[0] = at;
}

/* One document in four is asked about a second time. */
static void document(struct world *w)
{
    if (w->document >= 0 && draw(&w->random, 4) == 0) {
        trace_request(w->trace, grow(w->trace, w->document, 1));
        return;
    }
    w->document = grow(w->trace, -1, 16u << draw(&w->random, 6));
    trace_request(w->trace, grow(w->trace, w->document, 1));
}

struct mix {
    const char *name;
    uint32_t agents, chats, documents; /* of a thousand requests */
};

/* With documents, three prompts of 96 % of the quota and three of twice the quota come among the requests. */
static void play_mix(struct trace *trace, const struct mix *mix, int32_t quota)
{
    enum { REQUESTS = 6000 };
    struct world w = {.trace = trace, .random = 42, .document = -1};
    uint32_t blocks = (uint32_t)quota;
    for (int32_t i = 0; i < TYPES; i++) w.systems[i] = grow(trace, -1, 10 + draw(&w.random, 60));
    w.chat_system = grow(trace, -1, 4);
    for (int32_t i = 0; i < CHATS; i++) w.chats[i] = w.chat_system;
    for (int32_t i = 0; i < REQUESTS; i++) {
        uint32_t dice = draw(&w.random, 1000);
        if (dice < mix->agents)
            agent(&w);
        else if (dice < mix->agents + mix->chats)
            chat(&w);
        else if (dice < mix->agents + mix->chats + mix->documents)
            document(&w);
        if (i % 2000 == 700 && mix->documents > 0) trace_request(trace, grow(trace, -1, blocks / 25 * 24));
        if (i % 2000 == 1400 && mix->documents > 0) trace_request(trace, grow(trace, -1, 2 * blocks));
    }
}

static const struct mix mixes[] = {{"agents", 1000, 0, 0},           {"chats", 0, 1000, 0},
                                   {"documents", 0, 0, 1000},        {"agents, documents", 900, 0, 100},
                                   {"chats, documents", 0, 950, 50}, {"all", 450, 500, 50}};
static const int32_t quotas[] = {500, 1000, 2000, 4000};

/* ---- The index ---- */

static const struct identity identity = {.model = {1}, .quant = 7, .context = {2}};

static void no_user(void *user)
{
    (void)user;
}

static struct slab_key key_of_block(int32_t block)
{
    struct slab_key key = {{0}};
    uint64_t mixed = (uint64_t)block * 0x9e3779b97f4a7c15u;
    memcpy(key.v, &mixed, sizeof mixed);
    memcpy(key.v + sizeof mixed, &block, sizeof block);
    return key;
}

/* A block is a slab with one token, unique to it, and one byte. NULL: the index refuses it. */
static struct entry *store_block(struct index *index, struct entry *parent, int32_t at, int32_t block, int64_t now)
{
    struct reserve what = {.identity = &identity, .kind = SLAB_ROWS, .key = key_of_block(block), .parent = parent};
    struct reservation *reservation;
    struct victim *victims;
    what.tokens = &block;
    what.start = at;
    what.end = at + 1;
    what.size = 1;
    if (index_reserve(index, &what, &reservation, &victims) != RESERVED) return NULL;
    for (struct victim *next; victims != NULL; victims = next) {
        next = victims->next;
        index_deleted(index, victims);
    }
    return index_publish(index, reservation, 1, NULL, now);
}

static int64_t play_to_index(const struct trace *trace, int32_t quota)
{
    struct index *index = index_open(1, (uint64_t)quota, no_user);
    int32_t *tokens = mem_alloc((size_t)trace->n_blocks * sizeof *tokens);
    int64_t found = 0;
    for (int32_t i = 0; i < trace->n_requests; i++) {
        struct index_lookup lookup = {.identity = &identity, .tokens = tokens, .n = trace->depths[trace->requests[i]]};
        for (int32_t b = trace->requests[i], at = lookup.n; b >= 0; b = trace->parents[b]) tokens[--at] = b;
        lookup.now_ms = i + 1;
        struct match match;
        index_find(index, &lookup, &match);
        found += match.n_rows;
        struct entry *last = match.rows;
        if (last != NULL) index_pin(index, last);
        for (int32_t at = match.n_rows; at < lookup.n; at++) {
            struct entry *next = store_block(index, last, at, tokens[at], i + 1);
            if (next == NULL) break;
            if (last != NULL) index_unpin(index, last);
            last = next;
        }
        if (last != NULL) index_unpin(index, last);
        index_release(index, &match);
    }
    free(tokens);
    index_close(index);
    return found;
}

/* ---- The table ---- */

static void put_row(const struct mix *mix, int32_t quota)
{
    struct trace trace = {0};
    int64_t asked = 0;
    play_mix(&trace, mix, quota);
    for (int32_t i = 0; i < trace.n_requests; i++) asked += trace.depths[trace.requests[i]];
    printf("| %s | %d |", mix->name, quota);
    for (int p = 0; p < POLICIES; p++)
        printf(" %.1f |", 100.0 * (double)policy_play((enum policy)p, &trace, quota) / (double)asked);
    printf(" %.1f |\n", 100.0 * (double)play_to_index(&trace, quota) / (double)asked);
    fflush(stdout);
    trace_release(&trace);
}

int main(void)
{
    printf("Percent of the blocks asked for that are found\n\n| trace | quota, blocks |");
    for (int p = 0; p < POLICIES; p++) printf(" %s |", policy_names[p]);
    printf(" hearth |\n| --- | --: |");
    for (int p = 0; p <= POLICIES; p++) printf(" --: |");
    printf("\n");
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++)
        for (size_t q = 0; q < sizeof quotas / sizeof *quotas; q++) put_row(&mixes[m], quotas[q]);
    return 0;
}
