/* What is restored from the store: every architecture, every tier, after an eviction, after an idle conversation has
 * left the cells at the first chance, after a restart and after `kill -9`, in the layout that it was stored in and,
 * where the store allows it, in the other.
 *
 * Each cell of the matrix is a test of its own with a store of its own. The first requests are computed; the next ones
 * find no cells, only what is stored. Replies, logits and the bytes of the cells are compared as in the other
 * matrices. */
#include "../fakes/cases.h"
#include "caller.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- Tables ---- */

enum tier { RAM, RAM_FILE, DISK, N_TIERS };

static const char *const tier_names[N_TIERS] = {"ram", "ram_file", "disk"};

enum loss { EVICTED, LEFT, RESTARTED, KILLED, N_LOSSES };

static const char *const loss_names[N_LOSSES] = {"evicted", "left", "restarted", "killed"};

static const struct {
    enum layout stored, loaded;
} ways[] = {
    {UNIFIED, UNIFIED}, {SPLIT, SPLIT}, {DETERMINISTIC, DETERMINISTIC}, {UNIFIED, SPLIT}, {SPLIT, UNIFIED},
};

enum { N_WAYS = sizeof ways / sizeof *ways };

/* One cell of the matrix. */
struct cell {
    char *name;
    size_t arch, way;
    enum tier tier;
    enum loss loss;
};

/* In memory nothing outlives the process; and an eviction does not change the layout. Idle conversations leave one pool
 * of cells only. Of what is left `make test` plays a quarter. */
static bool is_played(const struct cell *cell)
{
    bool changes = ways[cell->way].stored != ways[cell->way].loaded, few = cell->loss == LEFT || cell->tier == RAM;
    if (!few && !is_in_part(cell->arch + cell->way + cell->tier + cell->loss)) return false;
    if (cell->loss == LEFT) return !changes && ways[cell->way].stored == UNIFIED;
    return cell->loss == EVICTED ? !changes : cell->tier != RAM;
}

/* ---- The stage ---- */

enum { FIRST, GROWN, PARTED, N_TURNS };

static char *folder;
static struct oracle oracle;
static struct turn turns[N_TURNS];
static bool deterministic; /* how the oracle computed them */
static const char *self;   /* this program */

static void close_turns(void)
{
    for (size_t i = 0; i < N_TURNS; i++) turn_release(&turns[i]);
    if (oracle.model != NULL) oracle_close(&oracle);
}

/* Cells come architecture by architecture. One pool and a stream of cells each have the same cold runs. */
static void open_turns(const struct cell *cell)
{
    bool exact = ways[cell->way].loaded == DETERMINISTIC;
    if (oracle.arch == &archs[cell->arch] && deterministic == exact) return;
    close_turns();
    deterministic = exact;
    oracle_open(&oracle, &archs[cell->arch], ways[cell->way].loaded, folder);
    turns[FIRST] = turn_after(&oracle, NULL, 0, 200, 1);
    turns[GROWN] = turn_grown(&oracle, &turns[FIRST], 50);
    turns[PARTED] = turn_after(&oracle, &turns[FIRST], 150, 30, 90);
}

/* The store of a cell is a folder of its own. */
static hearth *start_with_store(enum layout layout, enum tier tier, const char *path, const char *idle)
{
    char *quota = mem_format("cache.tiers.%s.quota_mb", tier_names[tier]);
    char *where = mem_format("cache.tiers.%s.path", tier_names[tier]);
    bool files = tier != RAM;
    const char *keys[] = {"n_seq_max",
                          "1",
                          "idle_conversations",
                          idle,
                          "cache.tiers.disk.quota_mb",
                          "0",
                          "cache.boundary_align_tokens",
                          "64",
                          "cache.save_tier",
                          NULL,
                          quota,
                          "64",
                          files ? where : "n_ubatch",
                          files ? path : "64",
                          NULL};
    keys[9] = tier_names[tier];
    struct oracle as = oracle;
    as.layout = layout;
    hearth *instance = start(&as, keys);
    free(quota);
    free(where);
    return instance;
}

static void ask(struct stage *stage, enum layout layout, int n, const char *what, int32_t least, int32_t most)
{
    struct oracle as = oracle;
    as.layout = layout;
    stage->oracle = &as;
    struct caller caller;
    caller_submit(&caller, stage->instance, &turns[n], what, USUAL);
    judge(stage, &caller, 1);
    expect_reused(&caller, least, most);
}

/* Everything that was queued is stored; nothing more is asked of this instance. */
static void await_saved(hearth *instance)
{
    engine_drain(instance->entries[0].model->engine, CLOCK_NEVER);
    assert_true(store_wait(instance->store, UINT64_MAX, clock_now(clock_monotonic()) + clock_from_ms(60000)));
}

/* ---- What is lost ---- */

static int64_t hits(const struct stage *stage)
{
    const struct store_stats *stats = store_stats(stage->instance->store);
    return metric_get(&stats->hits_exact) + metric_get(&stats->hits_longest_prefix);
}

/* Submits without looking at the result. */
static void ask_unseen(hearth *instance, struct turn *turn, enum how how, struct buf *after)
{
    struct caller caller;
    size_t n_vocab = (size_t)llm_model_info(instance->entries[0].model->weights)->n_vocab;
    turn->logits = mem_alloc(REPLY * n_vocab * sizeof(float));
    caller_submit(&caller, instance, turn, "unseen", how);
    caller_await(&caller);
    assert_false(caller.failed);
    if (after != NULL) buf_append(after, caller.after.v, caller.after.len);
    caller_release(&caller);
}

/* Evicts all cells, by requests that fill the window. */
static void drive_out(struct stage *stage)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct turn filler = {0};
        uint32_t random = 1000 + i;
        for (int n = 0; n < 500; n++)
            tokens_push(&filler.prompt, (int32_t)(next_random(&random) % (uint32_t)oracle.n_vocab));
        ask_unseen(stage->instance, &filler, USUAL, NULL);
        turn_release(&filler);
    }
}

/* Computes something small that is not kept, again and again until what is idle was stored before it, and left. */
static void drive_away(struct stage *stage)
{
    const struct engine_stats *stats = &stage->instance->entries[0].engine_stats;
    int64_t before = metric_get(&stats->idle_evictions);
    for (uint32_t i = 0; metric_get(&stats->idle_evictions) == before; i++) {
        struct turn filler = {0};
        uint32_t random = 2000 + i;
        assert_true(i < 1000);
        tokens_push(&filler.prompt, (int32_t)(next_random(&random) % (uint32_t)oracle.n_vocab));
        ask_unseen(stage->instance, &filler, UNCACHED, NULL);
        turn_release(&filler);
    }
}

/* In a process of its own, which then dies by SIGKILL. */
static void be_killed(const char *model, const char *arch, const char *layout, const char *tier, const char *path)
{
    size_t a = 0;
    while (strcmp(archs[a].name, arch) != 0) a++;
    oracle.arch = &archs[a];
    oracle.path = mem_strdup(model);
    hearth_log_open(NULL, "error", "text", NULL);
    struct turn turn = {0};
    int32_t token;
    while (fread(&token, sizeof token, 1, stdin) == 1) tokens_push(&turn.prompt, token);
    hearth *instance = start_with_store((enum layout)atoi(layout), (enum tier)atoi(tier), path, "stay");
    struct buf after = {0};
    ask_unseen(instance, &turn, USUAL, &after);
    char *seen = mem_format("%s.seen", path);
    FILE *file = fopen(seen, "w");
    fwrite(after.v, 1, after.len, file);
    fclose(file);
    await_saved(instance);
    raise(SIGKILL);
}

/* The cells of the process that died, as it saw them. */
static void bear_witness(struct stage *stage, const char *path)
{
    struct witness *witness = &stage->witnesses[stage->n_witnesses++];
    struct buf after = {0};
    char *seen = mem_format("%s.seen", path), chunk[4096];
    FILE *file = fopen(seen, "r");
    assert_non_null(file);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) buf_append(&after, chunk, n);
    fclose(file);
    free(seen);
    witness->turn = &turns[FIRST];
    image_of_state(&witness->after, oracle.arch->sections, oracle.arch->coordinates, &after);
    buf_release(&after);
}

static void run_and_kill(const struct cell *cell, const char *path)
{
    char *command = mem_format("'%s' '%s' %s %d %d '%s'", self, oracle.path, oracle.arch->name,
                               (int)ways[cell->way].stored, (int)cell->tier, path);
    FILE *child = popen(command, "w");
    assert_non_null(child);
    fwrite(turns[FIRST].prompt.v, sizeof(int32_t), turns[FIRST].prompt.len, child);
    int status = pclose(child);
    free(command);
    /* the shell in between reports a signal as 128 plus its number */
    bool killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                  (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    if (!killed) fail_msg("the process ended with status %d", status);
}

static void lose(const struct cell *cell, struct stage *stage, const char *path)
{
    if (cell->loss == KILLED) {
        run_and_kill(cell, path);
        bear_witness(stage, path);
    } else {
        const char *idle = cell->loss == LEFT ? "leave" : "stay";
        stage->instance = start_with_store(ways[cell->way].stored, cell->tier, path, idle);
        ask(stage, ways[cell->way].stored, FIRST, "first", 0, 0);
    }
    if (cell->loss == EVICTED || cell->loss == LEFT) {
        cell->loss == LEFT ? drive_away(stage) : drive_out(stage);
        return;
    }
    if (stage->instance != NULL) hearth_close(stage->instance);
    stage->instance = start_with_store(ways[cell->way].loaded, cell->tier, path, "stay");
}

/* ---- Playing ---- */

/* Windows in deterministic mode, whose snapshots are right but not to the last bit, are not stored. */
static bool is_stored(const struct cell *cell)
{
    return ways[cell->way].stored != DETERMINISTIC || !is_sliding(oracle.arch);
}

static void play_cell(void **state)
{
    static struct stage stage;
    const struct cell *cell = *state;
    open_turns(cell);
    stage = (struct stage){0};
    enum layout layout = ways[cell->way].loaded;
    char *path = mem_format("%s/store-XXXXXX", folder);
    assert_non_null(mkdtemp(path));
    lose(cell, &stage, path);
    int32_t prompt = (int32_t)turns[FIRST].prompt.len, whole = prompt + REPLY - 1;
    bool exact = layout == DETERMINISTIC, cuts = cuts_anywhere(oracle.arch), stored = is_stored(cell);
    /* Deterministic: whole chunks of the prompt. What cannot be cut: at a checkpoint 16 tokens before the end of the
     * prompt, and at the end of the reply. */
    int32_t grown = !stored ? 0 : exact ? prompt / PIECE * PIECE : whole;
    int32_t grown_least = exact && !cuts ? 0 : grown;
    ask(&stage, layout, GROWN, "grown", grown_least, grown);
    if (cell->loss == EVICTED) drive_out(&stage);
    if (cell->loss == LEFT) drive_away(&stage);
    /* Where nothing was stored, what was just computed is still in the cells, if nobody drove it out. */
    bool there = stored || (cell->loss != EVICTED && cell->loss != LEFT);
    int32_t parted = !there ? 0 : exact ? 150 / PIECE * PIECE : 150;
    ask(&stage, layout, PARTED, "parted", cuts || !stored ? parted : 64, parted);
    if (cell->loss == LEFT) assert_int_equal(hits(&stage), 2); /* and not from the cells */
    hearth_close(stage.instance);
    free(path);
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

int main(int argc, char **argv)
{
    enum { N = N_ARCHS * N_WAYS * N_TIERS * N_LOSSES };
    static struct cell cells[N];
    static struct CMUnitTest tests[N];
    size_t n = 0;
    self = argv[0];
    if (argc == 6) be_killed(argv[1], argv[2], argv[3], argv[4], argv[5]);
    for (size_t i = 0; i < N; i++) {
        struct cell cell = {.arch = i / (N_WAYS * N_TIERS * N_LOSSES),
                            .way = i / (N_TIERS * N_LOSSES) % N_WAYS,
                            .tier = (enum tier)(i / N_LOSSES % N_TIERS),
                            .loss = (enum loss)(i % N_LOSSES)};
        if (!is_played(&cell)) continue;
        cell.name = mem_format("%s, %s to %s, %s, %s", archs[cell.arch].name, layout_names[ways[cell.way].stored],
                               layout_names[ways[cell.way].loaded], tier_names[cell.tier], loss_names[cell.loss]);
        cells[n] = cell;
        tests[n] = (struct CMUnitTest){.name = cell.name, .test_func = play_cell, .initial_state = &cells[n]};
        n++;
    }
    int failed = _cmocka_run_group_tests("store", tests, n, set_up, tear_down);
    for (size_t i = 0; i < n; i++) free(cells[i].name);
    return failed;
}
