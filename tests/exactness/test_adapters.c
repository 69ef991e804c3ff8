/* Requests under adapters, in between requests under others and under none: each gets what it would have got from a
 * process that saw nothing else, and reuses what was computed under the very same set, wherever that is: in cells, in
 * snapshots in memory, or in the store, also after a restart.
 *
 * All sets get the same prompts, so that anything reused from another set would show in the first logit. The oracle
 * computes under each set by itself. Replies, logits and bytes of cells are compared, as in the other matrices. Half of
 * the matrix is played by `make test` (fakes/cases.h). */
#include "../fakes/cases.h"
#include "caller.h"

#include "llm/adapter.h"

/* ---- Tables ---- */

enum set { BASE, X, Y, BOTH, N_SETS };

static const double scales_of[N_SETS][2] = {[X] = {1, 0}, [Y] = {0, 1}, [BOTH] = {0.5, -1}};

/* As requests write them; `again` in another order, and with entries that have no effect. The configured scales are
 * 0. */
static const struct {
    const hearth_lora *first, *again;
    size_t n_first, n_again;
} wishes[N_SETS] = {
    [BASE] = {NULL, (const hearth_lora[]){{1, 0}}, 0, 1},
    [X] = {(const hearth_lora[]){{0, 1}}, (const hearth_lora[]){{1, 0}, {0, 1}}, 1, 2},
    [Y] = {(const hearth_lora[]){{1, 1}}, (const hearth_lora[]){{1, 1}, {0, 0}}, 1, 2},
    [BOTH] = {(const hearth_lora[]){{0, 0.5}, {1, -1}}, (const hearth_lora[]){{1, -1}, {0, 0.5}}, 2, 2},
};

enum place { CELLS, RAM, DISK, N_PLACES };

static const char *const place_names[N_PLACES] = {"in cells", "stored in memory", "stored on disk, restarted"};

static const char *const played_archs[] = {"llama", "gemma3", "qwen35", "mamba2"};

enum { N_PLAYED = sizeof played_archs / sizeof *played_archs, N_CELLS = N_PLAYED * N_LAYOUTS * N_PLACES * 2 };

/* One cell of the matrix. */
struct cell {
    char *name;
    size_t arch;
    enum layout layout;
    enum place place;
    bool four_slots; /* else one */
};

/* ---- The stage ---- */

static char *folder;
static struct oracle oracle;
static struct llm_adapter *adapters[2];
static char *paths[2];
static bool deterministic; /* how the oracle computed them */

/* The same prompt for all sets; what continues each set's own reply; a chat, and another with its system message. */
static struct turn firsts[N_SETS], growns[N_SETS], chats[N_SETS], others[N_SETS];

static void adapt_oracle(enum set set)
{
    llm_adapt(oracle.context, &(struct llm_adapters){adapters, set == BASE ? NULL : scales_of[set], 2});
}

static const struct arch *arch_named(const char *name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strcmp(archs[i].name, name) == 0) return &archs[i];
    fail_msg("no architecture %s", name);
    return NULL;
}

static void close_turns(void)
{
    for (size_t i = 0; i < N_SETS; i++) {
        turn_release(&firsts[i]);
        turn_release(&growns[i]);
        turn_release(&chats[i]);
        turn_release(&others[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        llm_adapter_close(adapters[i]);
        adapters[i] = NULL;
        free(paths[i]);
        paths[i] = NULL;
    }
    if (oracle.model != NULL) oracle_close(&oracle);
}

static void open_adapters(void)
{
    hearth_error error;
    for (int i = 0; i < 2; i++) {
        paths[i] = mem_format("%s/%s-%d.gguf", folder, oracle.arch->name, i);
        run_command(mem_format("'%s/bin/hearth-mkmodel' --lora-for '%s' --seed %d -o '%s' >/dev/null",
                               env("HEARTH_BUILD"), oracle.path, i + 5, paths[i]));
        adapters[i] = llm_adapter_open(oracle.model, paths[i], &error);
        if (adapters[i] == NULL) fail_msg("%s", error.message);
    }
}

/* False: under some set the reply is not clear. */
static bool run_under_all(uint32_t seed)
{
    for (int set = 0; set < N_SETS; set++) {
        uint32_t random = seed * 7919;
        struct turn *turn = &firsts[set];
        tokens_truncate(&turn->prompt, 0);
        for (int i = 0; i < 200; i++)
            tokens_push(&turn->prompt, (int32_t)(next_random(&random) % (uint32_t)oracle.n_vocab));
        adapt_oracle((enum set)set);
        if (!cold_run(&oracle, turn)) return false;
    }
    return true;
}

static void wish(struct turn *turn, enum set set, bool again)
{
    turn->lora = again ? wishes[set].again : wishes[set].first;
    turn->n_lora = again ? wishes[set].n_again : wishes[set].n_first;
}

static void open_turns(const struct cell *cell)
{
    bool exact = cell->layout == DETERMINISTIC;
    const struct arch *arch = arch_named(played_archs[cell->arch]);
    if (oracle.arch == arch && deterministic == exact) return;
    close_turns();
    deterministic = exact;
    oracle_open(&oracle, arch, cell->layout, folder);
    open_adapters();
    uint32_t seed = 1;
    while (!run_under_all(seed))
        if (seed++ == TRIES) fail_msg("%s: no clear replies are found", arch->name);
    for (int set = 0; set < N_SETS; set++) {
        struct saying rules = {"system", 60, 0, 7, 0}, asks = {"user", 0, 12, 0, 30}, asks_more = {"user", 0, 9, 0, 60};
        adapt_oracle((enum set)set);
        growns[set] = turn_grown(&oracle, &firsts[set], 50);
        struct turn system = chat_after(&oracle, &(struct turn){0}, false, rules);
        chats[set] = chat_after(&oracle, &system, false, asks);
        others[set] = chat_after(&oracle, &system, false, asks_more);
        turn_release(&system);
        wish(&firsts[set], (enum set)set, false);
        wish(&growns[set], (enum set)set, true);
        wish(&chats[set], (enum set)set, false);
        wish(&others[set], (enum set)set, true);
    }
}

static hearth *open_instance(const struct cell *cell, const char *store, bool system_prompts)
{
    char *lora = mem_format("[{path: '%s', scale: 0}, {path: '%s', scale: 0}]", paths[0], paths[1]);
    const char *keys[] = {"lora",
                          lora,
                          "n_seq_max",
                          cell->four_slots ? "4" : "1",
                          "context_window", /* in one pool, room for all sets */
                          cell->four_slots ? "1024" : "2048",
                          "incremental_cache",
                          system_prompts ? "false" : "true",
                          "system_prompt_cache",
                          system_prompts ? "true" : "false",
                          "cache.boundary_align_tokens",
                          "64",
                          "cache.save_tier",
                          cell->place == RAM ? "ram" : "disk",
                          "cache.tiers.disk.path",
                          store,
                          "cache.tiers.disk.quota_mb",
                          cell->place == DISK ? "64" : "0",
                          NULL};
    struct oracle as = oracle;
    as.layout = cell->layout;
    hearth *instance = start(&as, keys);
    free(lora);
    return instance;
}

/* ---- Playing ---- */

/* A play: an instance, and where its store is. */
struct play {
    const struct cell *cell;
    struct stage stage;
    struct oracle as;
    char *store;
    bool system_prompts;
};

static void raise_curtain(struct play *play, const struct cell *cell, bool system_prompts)
{
    open_turns(cell);
    *play = (struct play){.cell = cell, .as = oracle, .system_prompts = system_prompts};
    play->as.layout = cell->layout;
    play->store = mem_format("%s/store-XXXXXX", folder);
    assert_non_null(mkdtemp(play->store));
    play->stage = (struct stage){.oracle = &play->as, .instance = open_instance(cell, play->store, system_prompts)};
}

static void between_the_acts(struct play *play)
{
    if (play->cell->place != DISK) return;
    hearth *instance = play->stage.instance;
    engine_drain(instance->entries[0].model->engine, CLOCK_NEVER);
    assert_true(store_wait(instance->store, UINT64_MAX, clock_now(clock_monotonic()) + clock_from_ms(60000)));
    hearth_close(instance);
    play->stage.instance = open_instance(play->cell, play->store, play->system_prompts);
}

static void let_fall(struct play *play)
{
    hearth_close(play->stage.instance);
    free(play->store);
}

/* One after the other, or all at once. Returns the prompt tokens that were reused by all together. */
static int32_t ask_all(struct play *play, struct turn turns[N_SETS], const char *what, int32_t least, int32_t most)
{
    struct caller callers[N_SETS];
    bool at_once = play->cell->four_slots;
    int32_t reused = 0;
    for (int set = 0; set < N_SETS; set++) {
        caller_submit(&callers[set], play->stage.instance, &turns[set], what,
                      at_once && set < N_SETS - 1 ? AT_ONCE : USUAL);
        if (at_once)
            caller_await_start(&callers[set]);
        else
            judge(&play->stage, &callers[set], 1);
    }
    if (at_once) judge(&play->stage, callers, N_SETS);
    for (int set = 0; set < N_SETS; set++) {
        expect_reused(&callers[set], least, most);
        reused += callers[set].result.cache_n;
    }
    return reused;
}

static bool uses_states(const struct cell *cell)
{
    return cell->layout != DETERMINISTIC || !is_sliding(oracle.arch);
}

/* A stream of cells each, fewer of them than sets, and no store: what was there has been evicted. */
static bool has_room(const struct cell *cell)
{
    return cell->layout == UNIFIED || cell->four_slots || cell->place != CELLS;
}

static void play_conversations(void **state)
{
    static struct play play;
    const struct cell *cell = *state;
    raise_curtain(&play, cell, false);
    assert_int_equal(ask_all(&play, firsts, "first", 0, 0), 0);
    between_the_acts(&play);
    int32_t prompt = (int32_t)firsts[0].prompt.len;
    int32_t most = cell->layout == DETERMINISTIC ? prompt / PIECE * PIECE : prompt + REPLY - 1;
    bool exact = cuts_anywhere(oracle.arch) && has_room(cell);
    int32_t reused = ask_all(&play, growns, "grown", exact ? most : 0, most);
    if (has_room(cell) && uses_states(cell)) assert_true(reused > 0);
    let_fall(&play);
}

/* The system message is the same for all sets, and reused by nobody but requests of the same set. */
static void play_system_prompts(void **state)
{
    static struct play play;
    const struct cell *cell = *state;
    raise_curtain(&play, cell, true);
    int32_t system = bound_of(&oracle, &chats[0], 1);
    if (cell->layout == DETERMINISTIC) system = system / PIECE * PIECE;
    ask_all(&play, chats, "chat", 0, 0);
    between_the_acts(&play);
    bool there = uses_states(cell) && system > 0;
    ask_all(&play, others, "other", there ? system : 0, there ? system : 0);
    let_fall(&play);
}

/* X's request has begun when another comes, which takes its slot and has the same prompt. It resumes where it was. With
 * one slot: of four none is preempted. */
static void play_preemption(void **state)
{
    static struct play play;
    const struct cell *cell = *state;
    struct caller callers[2];
    raise_curtain(&play, cell, false);
    caller_submit(&callers[0], play.stage.instance, &firsts[X], "parked", STALLING);
    caller_await_start(&callers[0]);
    caller_submit(&callers[1], play.stage.instance, &firsts[Y], "in between", USUAL);
    judge(&play.stage, callers, 2);
    expect_reused(&callers[1], 0, 0);
    if (uses_states(cell)) assert_true(metric(play.stage.instance, "hearth_preemptions_total") > 0);
    let_fall(&play);
}

/* ---- All cells ---- */

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

static const struct {
    const char *name;
    void (*play)(void **state);
} scenes[] = {
    {"conversations", play_conversations}, {"system prompts", play_system_prompts}, {"preemption", play_preemption}};

enum { N_SCENES = sizeof scenes / sizeof *scenes };

int main(void)
{
    static struct cell cells[N_CELLS * N_SCENES];
    static struct CMUnitTest tests[N_CELLS * N_SCENES];
    size_t n = 0;
    for (size_t i = 0; i < N_CELLS * N_SCENES; i++) {
        size_t scene = i % N_SCENES, at = i / N_SCENES;
        /* Those of one cold run come together: deterministic ones last. */
        struct cell cell = {.arch = at / (N_LAYOUTS * N_PLACES * 2),
                            .layout = (enum layout)(at / (N_PLACES * 2) % N_LAYOUTS),
                            .place = (enum place)(at / 2 % N_PLACES),
                            .four_slots = at % 2 == 1};
        if (cell.four_slots && scenes[scene].play == play_preemption) continue;
        if (!is_in_part(cell.arch + cell.layout + cell.place + cell.four_slots + scene)) continue;
        cell.name =
            mem_format("%s, %s, %s, %s, %s", played_archs[cell.arch], layout_names[cell.layout],
                       place_names[cell.place], cell.four_slots ? "four slots" : "one slot", scenes[scene].name);
        cells[n] = cell;
        tests[n] = (struct CMUnitTest){.name = cell.name, .test_func = scenes[scene].play, .initial_state = &cells[n]};
        n++;
    }
    int failed = _cmocka_run_group_tests("adapters", tests, n, set_up, tear_down);
    for (size_t i = 0; i < n; i++) free(cells[i].name);
    return failed;
}
