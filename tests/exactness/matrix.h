/* The matrix of exactness: every architecture in a layout, every scene, every caching mode. Each cell of it is a test
 * of its own, named by all of these, with an instance that nothing else has used. `make test` plays a quarter of them,
 * so that any two of the four meet in all their values (fakes/cases.h); the idle that leave a pool are a layout here.
 *
 * In each cell every reply, every logit that a token was sampled from, and every byte of the cells is compared: in
 * deterministic mode bit for bit with a cold run; otherwise logits within the bound, and what was reused byte for byte
 * with what the earlier request computed. The result's cache_n says how much was reused.
 *
 * A sliding window that comes back from a snapshot lies in other cells, whose sums have other last bits: deterministic
 * mode uses none of these, and preempts nobody there. It keeps full windows, so that what is in the cells is reused
 * exactly as in a dense model. */
#ifndef EXACTNESS_MATRIX_H
#define EXACTNESS_MATRIX_H

#include "../fakes/cases.h"
#include "caller.h"

/* ---- Tables ---- */

enum mode { SPC, IMC, OFF, N_MODES };

static const struct {
    const char *name;
    const char *keys[5];
} modes[N_MODES] = {
    [SPC] = {"spc", {"system_prompt_cache", "true", "incremental_cache", "false", NULL}},
    [IMC] = {"imc", {"system_prompt_cache", "false", "incremental_cache", "true", NULL}},
    [OFF] = {"off", {"system_prompt_cache", "false", "incremental_cache", "false", NULL}},
};

/* The prompts: chats of the messages of `before`, perhaps its reply, and one more. GROWN has no messages: it continues
 * after the reply, to the token. */
enum prompt { NOTHING, SYSTEM, FIRST, NEXT, EDITED, PARTED, OTHER, GROWN, N_PROMPTS };

static const struct {
    const char *name;
    enum prompt before;
    bool with_reply;
    struct saying say; /* role; words that are fixed, words that are tried; seeds of both */
} prompts[N_PROMPTS] = {
    [SYSTEM] = {"system", NOTHING, false, {"system", 90, 0, 1, 0}},
    [FIRST] = {"first", SYSTEM, false, {"user", 15, 15, 2, 100}},
    [NEXT] = {"next", FIRST, true, {"user", 0, 20, 0, 200}},
    [EDITED] = {"edited", FIRST, true, {"user", 0, 20, 0, 300}},
    [PARTED] = {"parted", SYSTEM, false, {"user", 15, 15, 2, 400}},
    [OTHER] = {"other", SYSTEM, false, {"user", 0, 20, 0, 500}},
    [GROWN] = {"grown", FIRST, true, {NULL, 0, 0, 0, 600}},
};

/* How much of a prompt is cached: up to the end of the system message, of all messages but the last, of the last; or
 * the whole of another request, reply included. UNSURE: that depends on who is faster. RESUMED: the whole of a
 * request that was preempted; where only a checkpoint leads back, that went with its cells. */
enum amount { NONE, UNSURE, THE_SYSTEM, ALL_BUT_LAST, MESSAGES, WHOLE, RESUMED };

enum when { ALONE, WITH_NEXT, PREEMPTED_BY_NEXT };

/* What is asked for, and what of it is reused. With SPC exactly `spc`. With IMC, where cells can be cut at any
 * position, exactly what is common with `like`, an earlier request; where they cannot, at most that and at least
 * `least` of `like`. Deterministic mode reuses whole chunks of that only, and no replies. With both off nothing is
 * reused. */
struct ask {
    enum prompt prompt, like;
    enum amount spc, least;
    enum when when;
};

enum { ASKS = 4, N_SCENES = 7 };

static const struct scene {
    const char *name;
    const char *slots; /* three for two: so that sharing needs no other's */
    struct ask asks[ASKS];
} scenes[N_SCENES] = {
    {"pure hit",
     "2",
     {{FIRST, NOTHING, NONE, NONE, ALONE},
      {FIRST, FIRST, THE_SYSTEM, MESSAGES, ALONE},
      {FIRST, FIRST, THE_SYSTEM, MESSAGES, ALONE}}},
    {"extend",
     "2",
     {{FIRST, NOTHING, NONE, NONE, ALONE},
      {GROWN, FIRST, NONE, WHOLE, ALONE},
      {NEXT, FIRST, THE_SYSTEM, MESSAGES, ALONE}}},
    {"partial", "2", {{FIRST, NOTHING, NONE, NONE, ALONE}, {PARTED, FIRST, THE_SYSTEM, THE_SYSTEM, ALONE}}},
    {"edited",
     "2",
     {{FIRST, NOTHING, NONE, NONE, ALONE},
      {NEXT, FIRST, THE_SYSTEM, MESSAGES, ALONE},
      {EDITED, NEXT, THE_SYSTEM, ALL_BUT_LAST, ALONE}}},
    {"new conversation", "2", {{FIRST, NOTHING, NONE, NONE, ALONE}, {OTHER, FIRST, THE_SYSTEM, THE_SYSTEM, ALONE}}},
    {"preempted and resumed",
     "1",
     {{FIRST, NOTHING, NONE, NONE, PREEMPTED_BY_NEXT},
      {OTHER, FIRST, THE_SYSTEM, UNSURE, ALONE},
      {GROWN, FIRST, NONE, RESUMED, ALONE}}},
    {"two at once",
     "3",
     {{FIRST, OTHER, UNSURE, UNSURE, WITH_NEXT},
      {OTHER, FIRST, UNSURE, UNSURE, ALONE},
      {NEXT, FIRST, THE_SYSTEM, MESSAGES, WITH_NEXT},
      {OTHER, OTHER, THE_SYSTEM, MESSAGES, ALONE}}},
};

/* ---- The stage ---- */

/* One cell of the matrix. */
struct cell {
    char *name;
    size_t arch;
    enum layout layout;
    enum mode mode;
    const struct scene *scene;
};

static char *folder;
static struct oracle oracle;
static struct turn turns[N_PROMPTS];

static void close_turns(void)
{
    for (size_t i = 0; i < N_PROMPTS; i++) turn_release(&turns[i]);
    if (oracle.model != NULL) oracle_close(&oracle);
}

/* The cells come architecture by architecture: each model is opened once. */
static void open_turns(const struct cell *cell)
{
    if (oracle.arch == &archs[cell->arch]) return;
    close_turns();
    oracle_open(&oracle, &archs[cell->arch], cell->layout, folder);
    for (enum prompt p = SYSTEM; p < GROWN; p++)
        turns[p] = chat_after(&oracle, &turns[prompts[p].before], prompts[p].with_reply, prompts[p].say);
    turns[GROWN] = turn_grown(&oracle, &turns[prompts[GROWN].before], prompts[GROWN].say.seed);
}

/* Whether idle conversations leave the cells for a store in memory as soon as they can; how many have. */
static bool leaves;
static double n_left;

static hearth *start_cell(const struct cell *cell)
{
    static const char *const eager[] = {"idle_conversations",
                                        "leave",
                                        "cache.tiers.ram.quota_mb",
                                        "256",
                                        "cache.save_tier",
                                        "ram",
                                        "cache.boundary_align_tokens",
                                        "64",
                                        NULL};
    const char *keys[16] = {"n_seq_max", cell->scene->slots};
    size_t n = 2;
    for (const char *const *key = modes[cell->mode].keys; *key != NULL; key++) keys[n++] = *key;
    for (const char *const *key = eager; leaves && *key != NULL; key++) keys[n++] = *key;
    return start(&oracle, keys);
}

/* ---- What is reused ---- */

struct range {
    int32_t least, most;
};

static int32_t pieces(const struct cell *cell, int32_t n)
{
    return cell->layout == DETERMINISTIC ? n / PIECE * PIECE : n;
}

/* Tokens of the prompt that the cells of `like` begin with. The last token of a prompt is always computed, and that of
 * a reply never was. */
static int32_t common(const struct cell *cell, const struct turn *turn, const struct turn *like)
{
    struct tokens held = {0};
    tokens_append(&held, like->prompt.v, like->prompt.len);
    if (cell->layout != DETERMINISTIC) tokens_append(&held, like->reply.v, REPLY - 1);
    int32_t n = (int32_t)tokens_common_prefix(&held, &turn->prompt);
    tokens_release(&held);
    if (n == (int32_t)turn->prompt.len) n--;
    int32_t exact = pieces(cell, (int32_t)like->prompt.len);
    return cell->layout == DETERMINISTIC && n > exact ? exact : pieces(cell, n);
}

static int32_t amount_of(const struct cell *cell, enum amount amount, const struct turn *turn)
{
    switch (amount) {
    case NONE:
    case UNSURE:
        return 0;
    case THE_SYSTEM:
        return pieces(cell, bound_of(&oracle, turn, 1));
    case ALL_BUT_LAST:
        return pieces(cell, bound_of(&oracle, turn, turn->n_messages - 1));
    case RESUMED:
        if (cell->layout == DETERMINISTIC) return 0;
        return (int32_t)turn->prompt.len + REPLY - 1;
    case WHOLE:
        if (cell->layout != DETERMINISTIC) return (int32_t)turn->prompt.len + REPLY - 1;
        break;
    case MESSAGES:
        break;
    }
    return pieces(cell, bound_of(&oracle, turn, turn->n_messages));
}

static bool uses_states(const struct cell *cell)
{
    return cell->layout != DETERMINISTIC || !is_sliding(oracle.arch);
}

static struct range expected(const struct cell *cell, const struct ask *ask)
{
    const struct turn *turn = &turns[ask->prompt], *like = &turns[ask->like];
    if (cell->mode == OFF) return (struct range){0, 0};
    if (cell->mode == SPC) {
        int32_t n = amount_of(cell, ask->spc, turn);
        if (ask->spc == UNSURE) return (struct range){0, amount_of(cell, THE_SYSTEM, turn)};
        return (struct range){uses_states(cell) ? n : 0, n};
    }
    if (ask->like == NOTHING) return (struct range){0, 0};
    int32_t most = common(cell, turn, like);
    bool cuts = cuts_anywhere(oracle.arch) || !uses_states(cell), resumes = ask->least == RESUMED && !uses_states(cell);
    if (cuts && ask->least != UNSURE && !resumes) return (struct range){most, most};
    return (struct range){uses_states(cell) ? amount_of(cell, ask->least, like) : 0, most};
}

/* ---- Playing ---- */

/* The request was really preempted, and nothing of it was computed twice. */
static void expect_preempted(const struct cell *cell, const hearth *instance, int32_t computed)
{
    double preemptions = metric(instance, "hearth_preemptions_total");
    double prompt_tokens = metric(instance, "hearth_prompt_tokens_total");
    if ((preemptions > 0) != uses_states(cell)) fail_msg("%g requests were preempted", preemptions);
    if ((int32_t)prompt_tokens != computed)
        fail_msg("%g prompt tokens were computed where %d were asked for", prompt_tokens, computed);
}

/* Submits, from the n-th on, the requests that come together. Returns the index after them. */
static size_t play_together(const struct cell *cell, struct stage *stage, struct caller *callers, size_t n)
{
    const struct ask *asks = cell->scene->asks;
    size_t first = n, next;
    do {
        static const enum how hows[] = {[ALONE] = USUAL, [WITH_NEXT] = AT_ONCE, [PREEMPTED_BY_NEXT] = STALLING};
        next = n++;
        const struct ask *a = &asks[next];
        caller_submit(&callers[next], stage->instance, &turns[a->prompt], prompts[a->prompt].name, hows[a->when]);
        caller_await_start(&callers[next]);
    } while (asks[next].when != ALONE);
    judge(stage, &callers[first], n - first);
    for (size_t i = first; i < n; i++) {
        struct range reused = expected(cell, &asks[i]);
        expect_reused(&callers[i], reused.least, reused.most);
    }
    return n;
}

static void play_cell(void **state)
{
    static struct stage stage;
    const struct cell *cell = *state;
    struct caller callers[ASKS];
    open_turns(cell);
    stage = (struct stage){.oracle = &oracle, .instance = start_cell(cell), .mixes = leaves};
    int32_t computed = 0;
    for (size_t n = 0; n < ASKS && cell->scene->asks[n].prompt != NOTHING;) {
        size_t first = n;
        n = play_together(cell, &stage, callers, n);
        for (size_t i = first; i < n; i++) computed += callers[i].result.prompt_n;
    }
    if (cell->scene->asks[0].when == PREEMPTED_BY_NEXT) expect_preempted(cell, stage.instance, computed);
    n_left += metric(stage.instance, "hearth_idle_evictions_total");
    hearth_close(stage.instance);
}

/* ---- All cells of a layout ---- */

static int set_up(void **state)
{
    (void)state;
    folder = folder_open();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_turns();
    folder_remove(folder);
    return 0;
}

/* Where only conversations are cached, replies come back in them. */
static int play_matrix(enum layout layout)
{
    enum { N = N_ARCHS * N_MODES * N_SCENES };
    static struct cell cells[N];
    static struct CMUnitTest tests[N];
    memset(tests, 0, sizeof tests);
    for (size_t i = 0; i < N; i++) {
        struct cell *cell = &cells[i];
        *cell = (struct cell){NULL, i / (N_MODES * N_SCENES), layout, (enum mode)(i / N_SCENES % N_MODES),
                              &scenes[i % N_SCENES]};
        size_t played = leaves ? N_LAYOUTS : layout;
        bool is_played = samples ? cell->mode == IMC : is_in_part(cell->arch + cell->mode + i % N_SCENES + played);
        if (!is_played) continue; /* cmocka passes over what has no function */
        cell->name = mem_format("%s, %s, %s, %s", archs[cell->arch].name, layout_names[layout], modes[cell->mode].name,
                                cell->scene->name);
        tests[i] = (struct CMUnitTest){.name = cell->name, .test_func = play_cell, .initial_state = cell};
    }
    int failed = cmocka_run_group_tests_name(layout_names[layout], tests, set_up, tear_down);
    for (size_t i = 0; i < N; i++) free(cells[i].name);
    return failed;
}

#endif
