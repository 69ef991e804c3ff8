/* What each event saves, to the token; and that an ended request holds nothing. Over the fake model, whose cells can be
 * made to differ from their tokens. */
#include "stored.h"

#include "base/memory.h"
#include "fakes/fake_files.h"
#include "fakes/gated_files.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct shape one_pool = {.slots = 1, .seqs = 8, .window = 4000};

static char folder[64];

static struct store *open_store(struct files *files, uint64_t quota)
{
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_DISK, .backlog = 64 << 20, LONG_TIMEOUTS, .files = files};
    params.tiers[STORE_DISK].quota = quota;
    params.tiers[STORE_DISK].path = folder;
    struct store *store = store_open(&params, NULL);
    assert_true(store_wait_ready(store, CLOCK_NEVER));
    return store;
}

static int set_up_disk(void **state)
{
    snprintf(folder, sizeof folder, "/dev/shm/hearth-test-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    return set_up(state);
}

static int tear_down_disk(void **state)
{
    int rc = tear_down(state);
    char *command = mem_format("rm -r '%s'", folder);
    rc = system(command) == 0 ? rc : -1;
    free(command);
    return rc;
}

/* ---- Keys and cells ---- */

/* A prompt whose first blocks are to be stored while its reply is generated; whether any was. */
static bool stores_with_strays(int32_t strays)
{
    void *state;
    static struct stored s; /* the engine uses these until the program ends */
    static struct client c;
    set_up(&state);
    fake_llm.held = true;
    fake_llm.stray_cells = strays;
    start(&s, state, one_pool);
    client_init(&c, 3, 200, 50);
    ask(&s, &c);
    engine_submit(s.rig->engine, &c.job);
    fake_llm_step(10);
    client_await_tokens(&c, 5);
    await_saves(&s);
    return stored_of(&s, &c) > 0 || saves(&s, SLAB_COLD) > 0 || metric_get(&store_stats(s.store)->saves_dropped) == 0;
}

enum { NOT_STORED = 42, STORED };

/* In a process of its own: builds with assertions abort there, others store nothing of it. */
static int store_with_strays(int32_t strays)
{
    char number[16];
    snprintf(number, sizeof number, "%d", strays);
    pid_t child = fork();
    if (child == 0) {
        if (strays != 0) fclose(stderr); /* where an assertion is to fail */
        execl("/proc/self/exe", "strays", number, (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void cells_that_are_more_or_fewer_than_their_tokens_are_not_stored(void **state)
{
    (void)state;
#ifdef NDEBUG
    const int refused = NOT_STORED;
#else
    const int refused = -SIGABRT;
#endif
    assert_int_equal(store_with_strays(0), STORED);
    assert_int_equal(store_with_strays(1), refused);
    assert_int_equal(store_with_strays(-1), refused);
}

/* ---- The end of a reply ---- */

enum { PROMPT = 100, REPLY = 60, STOPS_AT = 20, STOP_LETTERS = 3 };

static void cancel_early(struct client *client)
{
    if (client->got.len == STOPS_AT) atomic_store(&client->job.cancelled, true);
}

/* The letters of the reply's tokens that end with the STOPS_ATth. */
static void spell_stop(const int32_t *reply, char stop[STOP_LETTERS + 1])
{
    char text[REPLY + 1] = "";
    for (int i = 0; i < REPLY; i++) text[i] = (char)('a' + reply[i] % 26);
    memcpy(stop, text + STOPS_AT - STOP_LETTERS, STOP_LETTERS);
    stop[STOP_LETTERS] = '\0';
    assert_ptr_equal(strstr(text, stop), text + STOPS_AT - STOP_LETTERS); /* it comes only there */
}

/* Leading tokens of what the model says to the prompt that the store has. */
static int32_t stored_of_whole(const struct stored *s, struct client *c, const int32_t *reply)
{
    c->got.len = 0;
    tokens_append(&c->got, reply, REPLY);
    return stored_of(s, c);
}

/* The last token was sampled and never computed, so it has no cell; where the model ends its reply itself, that is the
 * end token. */
static void however_a_reply_ends_it_is_stored_with_its_prompt(void **state)
{
    enum { AT_ITS_LENGTH, BY_THE_MODEL, AT_A_STOP_STRING, BY_THE_CLIENT, WAYS };
    struct rig *rig = *state;
    for (int way = 0; way < WAYS; way++) {
        struct stored s = {0};
        struct client c;
        int32_t reply[REPLY];
        char stop_string[STOP_LETTERS + 1];
        const char *stops[] = {stop_string};
        start(&s, rig, one_pool);
        client_init(&c, 3, PROMPT, way == AT_ITS_LENGTH ? STOPS_AT : REPLY);
        fake_llm_reply(c.job.prompt.v, PROMPT, reply, REPLY);
        spell_stop(reply, stop_string);
        fake_llm.end_after = way == BY_THE_MODEL ? STOPS_AT : 0;
        if (way == BY_THE_CLIENT) c.on_text = cancel_early;
        if (way == AT_A_STOP_STRING) c.job.stop = stops;
        c.job.n_stop = way == AT_A_STOP_STRING;
        ask(&s, &c);
        run_alone(rig, &c);
        assert_int_equal(c.failed, way == BY_THE_CLIENT);
        settle_down(&s);
        int32_t computed = way == BY_THE_MODEL ? STOPS_AT : STOPS_AT - 1;
        assert_int_equal(stored_of_whole(&s, &c, reply), PROMPT + computed);
        assert_int_equal(saves(&s, SLAB_FINISH), 1);
        stop(&s);
        client_release(&c);
    }
}

/* ---- The end of the engine ---- */

/* What could not be stored before: two resident conversations, and one whose reply is being generated. */
static void the_end_stores_conversations_that_rest_and_one_that_runs(void **state)
{
    const struct shape shape = {.slots = 3, .seqs = 8, .window = 4000};
    struct rig *rig = *state;
    struct fake_faults faults;
    struct client c[3];
    fake_faults_init(&faults, files_machine());
    struct stored s = {.store = open_store(&faults.files, 1 << 30)};
    start(&s, rig, shape);
    fake_faults_set(&faults, (struct fake_fault){
                                 .call = FAKE_SYNC, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = ENOSPC});
    for (int i = 0; i < 2; i++) {
        client_init(&c[i], 50 * i, 300, 20);
        run(&s, &c[i]);
    }
    fake_llm.held = true;
    client_init(&c[2], 100, 300, 1000);
    ask(&s, &c[2]);
    engine_submit(rig->engine, &c[2].job);
    fake_llm_step(20);
    client_await_tokens(&c[2], 10);
    await_saves(&s);
    for (int i = 0; i < 3; i++) assert_int_equal(stored_of(&s, &c[i]), 0);
    fake_faults_set(&faults, (struct fake_fault){0}); /* there is room again */
    engine_close(rig->engine);
    rig->engine = NULL;
    client_await_end(&c[2]);
    assert_true(c[2].failed);
    fake_llm.held = false;
    start(&s, rig, shape);
    for (int i = 0; i < 2; i++) assert_int_equal(stored_of(&s, &c[i]), 319);
    assert_int_equal(stored_of(&s, &c[2]), 300 + (int32_t)c[2].got.len - 1);
    stop(&s);
    for (int i = 0; i < 3; i++) client_release(&c[i]);
}

/* ---- Pins ---- */

static struct store_tier_status status_of(const struct stored *s)
{
    struct store_tier_status status;
    store_tier_status(s->store, STORE_DISK, &status);
    return status;
}

/* A conversation is stored, and nothing is in the cells; the tier has room for little more than it. */
static void begin_with_one_stored(struct stored *s, struct rig *rig, struct gated_files *gated, struct client *c)
{
    gated_files_init(gated);
    s->store = open_store(&gated->files, 1 << 30);
    start(s, rig, one_pool);
    client_init(c, 3, 1000, 20);
    run(s, c);
    settle_down(s);
    uint64_t bytes = status_of(s).bytes;
    stop(s);
    s->store = open_store(&gated->files, bytes + bytes / 4);
    start(s, rig, one_pool);
    assert_int_equal(stored_of(s, c), 1019);
}

/* Whether others, which need its room, evict it. It may have been used, so that each of them is, too: read from the
 * store by an engine with empty cells. No request looks it up meanwhile: that would be a use. */
static bool makes_way(struct stored *s, struct client *c)
{
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < 2; k++) {
            struct client other;
            client_init(&other, 10 + 7 * i, 1000, 20);
            run(s, &other);
            settle_down(s);
            restart(s, one_pool);
            client_release(&other);
        }
    return stored_of(s, c) == 0;
}

static void leave(struct engine *engine, struct client *client)
{
    atomic_store(&client->job.cancelled, true);
    engine_poke(engine);
    fake_llm_step(1); /* for a request that computes meanwhile */
    client_await_end(client);
    assert_true(client->failed);
}

static void a_request_that_ends_while_it_is_fetched_holds_nothing(void **state)
{
    struct rig *rig = *state;
    struct stored s = {0};
    struct gated_files gated;
    struct client c, again;
    begin_with_one_stored(&s, rig, &gated, &c);
    gated.reads_too = true;
    gate_close(&gated);
    client_init(&again, 3, 1000, 20);
    ask(&s, &again);
    engine_submit(rig->engine, &again.job);
    gate_await(&gated); /* the first slab is being read */
    leave(rig->engine, &again);
    gate_open(&gated);
    assert_true(makes_way(&s, &c));
    stop(&s);
    client_release(&c);
    client_release(&again);
}

static void a_request_that_ends_while_it_waits_for_a_slot_holds_nothing(void **state)
{
    struct rig *rig = *state;
    struct stored s = {0};
    struct gated_files gated;
    struct client c, busy, again;
    begin_with_one_stored(&s, rig, &gated, &c);
    fake_llm.held = true;
    client_init(&busy, 150, 20, 1000);
    ask(&s, &busy);
    engine_submit(rig->engine, &busy.job);
    fake_llm_await_call();
    client_init(&again, 3, 1000, 20);
    ask(&s, &again);
    engine_submit(rig->engine, &again.job);
    leave(rig->engine, &again);
    leave(rig->engine, &busy);
    fake_llm.held = false;
    assert_true(makes_way(&s, &c));
    stop(&s);
    client_release(&c);
    client_release(&busy);
    client_release(&again);
}

int main(int argc, char **argv)
{
    if (argc == 2) _exit(stores_with_strays((int32_t)strtol(argv[1], NULL, 10)) ? STORED : NOT_STORED);
#define disk_test(name) cmocka_unit_test_setup_teardown(name, set_up_disk, tear_down_disk)
    const struct CMUnitTest tests[] = {
        engine_test(cells_that_are_more_or_fewer_than_their_tokens_are_not_stored),
        engine_test(however_a_reply_ends_it_is_stored_with_its_prompt),
        disk_test(the_end_stores_conversations_that_rest_and_one_that_runs),
        disk_test(a_request_that_ends_while_it_is_fetched_holds_nothing),
        disk_test(a_request_that_ends_while_it_waits_for_a_slot_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
