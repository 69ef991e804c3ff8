/* The tables of transitions: what they refuse ends the process, and each transition that they allow is made by an
 * engine over the fake model. The random workload of test_differential.c makes most of them; the rare ones have a
 * scenario each here (transitions.h has the list), and so have those of jobs. */
#include "disk.h"
#include "transitions.h"

#include "base/log.h"
#include "engine/admission.h"
#include "fakes/in_child.h"

#include <sched.h>

#define PATIENCE (60 * INT64_C(1000000000)) /* of a test, in real time: nothing here takes a second */

#ifdef NDEBUG
#define NEEDS_ASSERTIONS()                                                                                             \
    do {                                                                                                               \
        print_message("this build has no assertions, which count and refuse transitions\n");                           \
        skip();                                                                                                        \
    } while (0)
#else
#define NEEDS_ASSERTIONS() ((void)0)
#endif

/* ---- What is refused ---- */

static void enter(const void *ud)
{
    const struct transition *t = ud;
    struct slot slot = {.state = (enum slot_state)t->from};
    struct seq seq = {.state = (enum seq_state)t->from};
    struct job job = {0};
    atomic_init(&job.state, (enum job_state)t->from);
    if (t->table == &slot_states) slot_enter(&slot, (enum slot_state)t->to);
    if (t->table == &seq_states) seq_enter(&seq, (enum seq_state)t->to);
    if (t->table == &job_states) job_enter(&job, (enum job_state)t->to);
}

static void expect_end(const struct transition *t)
{
    bool may = state_may_follow(t->table, t->from, t->to);
    struct child_end end = run_in_child(enter, t);
    bool right = may ? child_ended_well(&end) : child_aborted(&end) && strstr(end.said, "state_may_follow") != NULL;
    if (!right) print_transition(may ? "is refused" : "is not refused", t, 0);
    free(end.said);
    assert_true(right);
}

static void only_what_is_in_the_tables_may_follow(void **state)
{
    (void)state;
    NEEDS_ASSERTIONS();
    const struct state_table *const tables[] = {&slot_states, &seq_states, &job_states};
    for (size_t i = 0; i < 3; i++)
        for (int from = 0; from < (int)tables[i]->n; from++)
            for (int to = 0; to < (int)tables[i]->n; to++) expect_end(&(struct transition){tables[i], from, to});
}

/* ---- The picture ---- */

/* The text of all documents about the design. */
static char *read_design(void)
{
    char *command = mem_format("cat '%s'/docs/design.md '%s'/docs/design/*.md 2>/dev/null", getenv("HEARTH_SOURCE"),
                               getenv("HEARTH_SOURCE"));
    struct buf text = {0};
    char chunk[4096];
    size_t n;
    FILE *all = popen(command, "r");
    assert_non_null(all);
    while ((n = fread(chunk, 1, sizeof chunk, all)) > 0) buf_append(&text, chunk, n);
    pclose(all);
    free(command);
    return buf_take(&text);
}

/* What stands between the table's mark and the next end mark. */
static char *picture_of(const struct state_table *table, const char *design)
{
    char *mark = mem_format("<!-- states: %s -->\n", table->of);
    const char *begin = strstr(design, mark), *end = begin == NULL ? NULL : strstr(begin, "<!-- end -->");
    if (end == NULL) fail_msg("no document has the states of a %s", table->of);
    begin += strlen(mark);
    free(mark);
    return mem_format("%.*s", (int)(end - begin), begin);
}

static void the_documents_show_the_tables(void **state)
{
    (void)state;
    const struct state_table *const tables[] = {&slot_states, &seq_states, &job_states};
    char *design = read_design();
    for (size_t i = 0; i < 3; i++) {
        struct buf wanted = {0};
        buf_puts(&wanted, "```mermaid\n");
        state_table_draw(tables[i], &wanted);
        buf_puts(&wanted, "```\n");
        char *picture = picture_of(tables[i], design);
        assert_string_equal(picture, buf_text(&wanted));
        free(picture);
        buf_release(&wanted);
    }
    free(design);
}

/* ---- Which transitions were made ---- */

static uint64_t before[3][SLOT_STATES][SLOT_STATES]; /* how often, when the scenario began */
static bool driven[N_RARE];

static uint64_t *before_of(const struct transition *t)
{
    size_t table = t->table == &slot_states ? 0 : t->table == &seq_states ? 1 : 2;
    return &before[table][t->from][t->to];
}

static void remember(const struct transition *t, uint64_t n)
{
    *before_of(t) = n;
}

/* From here on transitions are waited for that are made again. */
static void begin_counting(void)
{
    each_transition(&slot_states, remember);
    each_transition(&seq_states, remember);
    each_transition(&job_states, remember);
}

/* Waits until the transition was made since the scenario began to count. */
static void await_transition(struct transition t)
{
    int64_t deadline = clock_now(clock_monotonic()) + PATIENCE;
    while (state_transitions(t.table, t.from, t.to) == *before_of(&t)) {
        if (clock_now(clock_monotonic()) > deadline) {
            print_transition("waits in vain", &t, *before_of(&t));
            fflush(stdout);
            abort(); /* the engine's threads use the test's memory */
        }
        sched_yield();
    }
    size_t i = transition_find(&t, rare_transitions, N_RARE);
    if (i < N_RARE) driven[i] = true;
}

static void await_slot(enum slot_state from, enum slot_state to)
{
    await_transition((struct transition){&slot_states, (int)from, (int)to});
}

static void await_seq(enum seq_state from, enum seq_state to)
{
    await_transition((struct transition){&seq_states, (int)from, (int)to});
}

static void await_job(enum job_state from, enum job_state to)
{
    await_transition((struct transition){&job_states, (int)from, (int)to});
}

/* ---- Requests ---- */

static void hand_in(struct stored *s, struct client *client)
{
    client->engine = s->rig->engine;
    ask(s, client);
    engine_submit(s->rig->engine, &client->job);
}

static void submit(struct stored *s, struct client *client, int32_t first, size_t prompt, int32_t max_tokens)
{
    client_init(client, first, prompt, max_tokens);
    hand_in(s, client);
}

static void cancel(struct client *client)
{
    atomic_store(&client->job.cancelled, true);
    engine_poke(client->engine);
}

static void expect_cancelled(struct client *client)
{
    client_await_end(client);
    assert_true(client->failed);
    assert_int_equal(client->error.code, HEARTH_CANCELLED);
    client_release(client);
}

static void expect_right(struct client *client)
{
    client_await_end(client);
    if (client->failed) fail_msg("%s", client->error.message);
    assert_true(client_got_right_reply(client));
    client_release(client);
}

/* What a client does on the engine's thread once it has so many tokens: to another one. */
static struct {
    size_t tokens;
    struct client *other;
} due;

static void cancel_other(struct client *client)
{
    if (client->got.len == due.tokens) cancel(due.other);
}

static void hold_own_rows(struct client *client)
{
    if (client->got.len == 1) client->media.held = true;
}

static void let_go_of_rows(struct client *client)
{
    client->media.held = false;
    engine_poke(client->engine);
}

/* Words, a medium, words. */
static void init_with_medium(struct client *client, int32_t max_tokens)
{
    client_init(client, 5, 10, max_tokens);
    client_add_medium(&client->job.prompt, 1, 100);
    for (int32_t i = 0; i < 10; i++) tokens_push(&client->job.prompt, i * 7 % 190);
    client_find_media(client);
}

/* ---- Slots that await something, and whose requests leave ---- */

/* What is resident is not stored before the gate opens: a reply of 100 tokens to a prompt of 600. */
static void fill_unsaved(struct stored *s, struct rig *rig, struct shape shape, struct client *client)
{
    start(s, rig, shape);
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(client, 0, 600, 100);
    run(s, client);
    begin_counting();
}

static void end_unsaved(struct stored *s, struct client *client)
{
    gate_open(&gated);
    stop(s);
    client_release(client);
}

static void a_request_that_awaits_a_sequence_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client resident, waits;
    fill_unsaved(&s, *state, (struct shape){.slots = 1, .window = 1000}, &resident);
    submit(&s, &waits, 50, 400, 20);
    await_slot(SLOT_IDLE, SLOT_AWAITS_SEQ);
    cancel(&waits);
    await_slot(SLOT_AWAITS_SEQ, SLOT_IDLE);
    expect_cancelled(&waits);
    end_unsaved(&s, &resident);
}

static void a_request_that_awaits_a_prefix_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client computes, waits;
    open_engine(s.rig, (struct shape){.slots = 2, .seqs = 4, .window = 4000});
    fake_llm.held = true;
    submit(&s, &computes, 0, 3000, 5);
    fake_llm_await_call();
    submit(&s, &waits, 0, 3000, 5);
    fake_llm_step(1);
    await_slot(SLOT_AWAITS_SEQ, SLOT_AWAITS_PREFIX);
    cancel(&waits);
    fake_llm_step(1000);
    await_slot(SLOT_AWAITS_PREFIX, SLOT_IDLE);
    expect_cancelled(&waits);
    expect_right(&computes);
}

static void a_request_whose_prompt_awaits_room_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client resident, waits;
    fake_llm.n_cells = 1000;
    fill_unsaved(&s, *state, (struct shape){.slots = 1, .seqs = 4, .window = 1000}, &resident);
    submit(&s, &waits, 50, 900, 20);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROOM);
    cancel(&waits);
    await_slot(SLOT_PREFILL_AWAITS_ROOM, SLOT_IDLE);
    expect_cancelled(&waits);
    end_unsaved(&s, &resident);
}

/* What the request fetches finds no room, since the other request's cells are not stored. */
static void let_a_fetch_await_room(struct stored *s, struct rig *rig, struct client *resident, struct client *waits)
{
    struct shape shape = {.slots = 1, .seqs = 4, .window = 1000};
    struct client fetched;
    fake_llm.n_cells = 1000;
    start(s, rig, shape);
    client_init(&fetched, 50, 900, 10);
    run(s, &fetched);
    settle_down(s);
    engine_close(rig->engine);
    fill_unsaved(s, rig, shape, resident);
    submit(s, waits, 50, 900, 5);
    await_slot(SLOT_FETCHES, SLOT_FETCH_AWAITS_ROOM);
    client_release(&fetched);
}

static void a_fetch_that_awaits_room_goes_on(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client resident, waits;
    let_a_fetch_await_room(&s, *state, &resident, &waits);
    gate_open(&gated);
    await_slot(SLOT_FETCH_AWAITS_ROOM, SLOT_FETCHES);
    expect_right(&waits);
    end_unsaved(&s, &resident);
}

static void a_request_whose_fetch_awaits_room_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client resident, waits;
    let_a_fetch_await_room(&s, *state, &resident, &waits);
    cancel(&waits);
    await_slot(SLOT_FETCH_AWAITS_ROOM, SLOT_PREFILLS);
    expect_cancelled(&waits);
    end_unsaved(&s, &resident);
}

static void a_request_that_awaits_its_mediums_rows_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client waits;
    open_engine(s.rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    init_with_medium(&waits, 10);
    waits.media.held = true;
    hand_in(&s, &waits);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROWS);
    cancel(&waits);
    await_slot(SLOT_PREFILL_AWAITS_ROWS, SLOT_IDLE);
    expect_cancelled(&waits);
}

/* ---- Slots that yield their cells ---- */

/* A prompt waits for its medium's rows, and the reply to another grows until it takes the cells. Then the first request
 * leaves, where it is to. */
static void a_prompt_yields_while_it_awaits_rows_and(void **state, bool leaves)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client yields, grows;
    fake_llm.n_cells = 250;
    open_engine(s.rig, (struct shape){.slots = 2, .seqs = 4, .window = 1000});
    init_with_medium(&yields, 10);
    yields.media.held = true;
    hand_in(&s, &yields);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROWS);
    client_init(&grows, 50, 150, 99);
    due.tokens = 95; /* with the 10 cells of the other's words they are more than 250 */
    due.other = &yields;
    if (leaves) grows.on_text = cancel_other;
    hand_in(&s, &grows);
    await_slot(SLOT_PREFILL_AWAITS_ROWS, SLOT_PREFILL_YIELDED);
    expect_right(&grows);
    if (leaves) {
        await_slot(SLOT_PREFILL_YIELDED, SLOT_IDLE);
        expect_cancelled(&yields);
        return;
    }
    await_slot(SLOT_PREFILL_YIELDED, SLOT_PREFILLS);
    let_go_of_rows(&yields);
    expect_right(&yields);
}

static void a_prompt_yields_while_it_awaits_rows_and_begins_again(void **state)
{
    a_prompt_yields_while_it_awaits_rows_and(state, false);
}

static void a_prompt_yields_while_it_awaits_rows_and_its_request_leaves(void **state)
{
    a_prompt_yields_while_it_awaits_rows_and(state, true);
}

/* Two replies grow until the first has to yield: with an odd number of cells for replies it is the first that finds
 * none. Its medium's rows, once computed, are not to be had at once again. */
static void let_a_reply_yield(struct stored *s, struct client *yields, struct client *grows)
{
    fake_llm.n_cells = 301;
    open_engine(s->rig, (struct shape){.slots = 2, .seqs = 4, .window = 1000});
    init_with_medium(yields, 100);
    yields->on_text = hold_own_rows;
    fake_llm.held = true;
    hand_in(s, yields);
    fake_llm_await_call();
    hand_in(s, grows);
    fake_llm_step(100000000);
    await_slot(SLOT_GENERATES, SLOT_REPLY_YIELDED);
}

static void a_reply_that_yielded_awaits_its_rows_again(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client yields, grows;
    client_init(&grows, 50, 100, 120);
    let_a_reply_yield(&s, &yields, &grows);
    expect_right(&grows);
    await_slot(SLOT_GENERATES, SLOT_REPLY_AWAITS_ROWS);
    let_go_of_rows(&yields);
    await_slot(SLOT_REPLY_AWAITS_ROWS, SLOT_GENERATES);
    expect_right(&yields);
}

static void a_request_whose_reply_awaits_rows_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client yields, grows;
    client_init(&grows, 50, 100, 120);
    let_a_reply_yield(&s, &yields, &grows);
    expect_right(&grows);
    await_slot(SLOT_GENERATES, SLOT_REPLY_AWAITS_ROWS);
    cancel(&yields);
    await_slot(SLOT_REPLY_AWAITS_ROWS, SLOT_IDLE);
    expect_cancelled(&yields);
}

static void a_request_whose_reply_yielded_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client yields, grows;
    client_init(&grows, 50, 100, 120);
    due.tokens = 100; /* of the cells all but 81 are prompts */
    due.other = &yields;
    grows.on_text = cancel_other;
    let_a_reply_yield(&s, &yields, &grows);
    await_slot(SLOT_REPLY_YIELDED, SLOT_IDLE);
    expect_cancelled(&yields);
    expect_right(&grows);
}

/* ---- Suspended requests ---- */

/* `late` takes the slot of `early`, which is in the middle of its reply. */
static void preempt(struct stored *s, struct client *early, struct client *late)
{
    fake_llm.held = true;
    hand_in(s, early);
    fake_llm_step(5);
    client_await_tokens(early, 2);
    hand_in(s, late);
    fake_clock_advance(&s->rig->clock, clock_from_ms(1000));
    fake_llm_step(100000000);
}

static void a_suspended_request_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client early, late;
    open_engine(s.rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000});
    client_init(&early, 0, 600, 100);
    client_init(&late, 60, 300, 20);
    due.tokens = 5;
    due.other = &early;
    late.on_text = cancel_other;
    preempt(&s, &early, &late);
    await_seq(SEQ_SUSPENDED, SEQ_IDLE);
    await_job(JOB_SUSPENDED, JOB_ENDED);
    expect_cancelled(&early);
    expect_right(&late);
}

static void close_gate(struct client *client)
{
    (void)client;
    gate_close(&gated);
}

/* The snapshot of its cells finds no room, since the other request's cells are not stored. */
static void let_a_load_await_room(struct stored *s, struct rig *rig, struct client *early, struct client *late)
{
    fake_llm.n_cells = 1000;
    start(s, rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000});
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    client_init(early, 0, 600, 100);
    client_init(late, 60, 500, 20);
    late->on_text = close_gate;
    preempt(s, early, late);
    await_seq(SEQ_SUSPENDED, SEQ_SUSPENDED_LEAVES);
    expect_right(late);
    await_slot(SLOT_AWAITS_SEQ, SLOT_AWAITS_LOAD);
}

static void a_load_that_awaits_room_is_tried_again(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_a_load_await_room(&s, *state, &early, &late);
    gate_open(&gated);
    await_slot(SLOT_AWAITS_LOAD, SLOT_AWAITS_SEQ);
    expect_right(&early);
    stop(&s);
}

static void a_request_whose_load_awaits_room_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_a_load_await_room(&s, *state, &early, &late);
    cancel(&early);
    await_slot(SLOT_AWAITS_LOAD, SLOT_IDLE);
    expect_cancelled(&early);
    gate_open(&gated);
    stop(&s);
}

/* `late` needs the cells of the suspended request, or its sequence, where there is only one; and the disk stands still.
 */
static void let_suspended_cells_leave(struct stored *s, struct rig *rig, int32_t seqs, struct client *early,
                                      struct client *late)
{
    fake_llm.n_cells = 1000;
    start(s, rig, (struct shape){.slots = 1, .seqs = seqs, .window = 1000, .slot_timeout_ms = 1000});
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(early, 0, 600, 100);
    client_init(late, 60, 500, 20);
    preempt(s, early, late);
    await_seq(SEQ_SUSPENDED, SEQ_SUSPENDED_LEAVES);
}

static void a_suspended_request_resumes_on_cells_that_leave(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_suspended_cells_leave(&s, *state, 4, &early, &late);
    cancel(&late);
    await_seq(SEQ_SUSPENDED_LEAVES, SEQ_SUSPENDED);
    expect_cancelled(&late);
    expect_right(&early);
    gate_open(&gated);
    stop(&s);
}

static void a_suspended_request_whose_cells_leave_is_cancelled(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_suspended_cells_leave(&s, *state, 4, &early, &late);
    cancel(&early);
    await_seq(SEQ_SUSPENDED_LEAVES, SEQ_IDLE_LEAVES);
    expect_cancelled(&early);
    gate_open(&gated);
    expect_right(&late);
    stop(&s);
}

static void of_suspended_cells_that_left_in_part_the_rest_is_idle(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_suspended_cells_leave(&s, *state, 4, &early, &late);
    gate_open(&gated);
    await_seq(SEQ_SUSPENDED_LEAVES, SEQ_IDLE);
    expect_right(&late);
    expect_right(&early);
    stop(&s);
}

static void suspended_cells_leave_for_a_request_that_needs_the_sequence(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client early, late;
    let_suspended_cells_leave(&s, *state, 1, &early, &late);
    gate_open(&gated);
    await_seq(SEQ_SUSPENDED_LEAVES, SEQ_FREE);
    expect_right(&late);
    expect_right(&early);
    stop(&s);
}

/* ---- Sequences of ended requests, whose system prompts are still to be copied out ---- */

/* The backlog takes a part of the system prompt, and none is kept in memory. */
static void spend_the_only_sequence(struct stored *s, struct rig *rig, struct client *client)
{
    enum { ONE_BLOCK = 300 }; /* bytes of a block's KV rows, and not of many more */
    s->store = open_store(&gated.files, ONE_BLOCK);
    start(s, rig,
          (struct shape){.slots = 1, .seqs = 1, .window = 1000, .caching = ENGINE_CACHES_SYSTEM, .snapshot_budget = 1});
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    gate_close(&gated);
    client_init(client, 0, 500, 20);
    client->job.conversation.system_end = 300;
    run(s, client);
    await_seq(SEQ_IDLE, SEQ_SPENT);
}

static void a_spent_sequence_serves_the_next_request_of_its_system_prompt(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client first, next;
    spend_the_only_sequence(&s, *state, &first);
    client_init(&next, 0, 400, 20);
    next.job.conversation.system_end = 300;
    hand_in(&s, &next);
    await_seq(SEQ_SPENT, SEQ_RUNNING);
    expect_right(&next);
    gate_open(&gated);
    stop(&s);
    client_release(&first);
}

static void a_spent_sequence_is_free_once_its_system_prompt_is_copied_out(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client first;
    spend_the_only_sequence(&s, *state, &first);
    gate_open(&gated);
    await_seq(SEQ_SPENT, SEQ_FREE);
    stop(&s);
    client_release(&first);
}

static void a_spent_sequence_leaves_for_a_request_that_needs_it(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client first, other;
    spend_the_only_sequence(&s, *state, &first);
    submit(&s, &other, 60, 400, 20);
    await_seq(SEQ_SPENT, SEQ_SPENT_LEAVES);
    gate_open(&gated);
    await_seq(SEQ_SPENT_LEAVES, SEQ_FREE);
    expect_right(&other);
    stop(&s);
    client_release(&first);
}

static void a_spent_sequence_that_leaves_is_wanted_again(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client first, other, next;
    spend_the_only_sequence(&s, *state, &first);
    submit(&s, &other, 60, 400, 20);
    await_seq(SEQ_SPENT, SEQ_SPENT_LEAVES);
    cancel(&other);
    expect_cancelled(&other);
    client_init(&next, 0, 400, 20);
    next.job.conversation.system_end = 300;
    hand_in(&s, &next);
    await_seq(SEQ_SPENT_LEAVES, SEQ_SPENT);
    expect_right(&next);
    gate_open(&gated);
    stop(&s);
    client_release(&first);
}

/* ---- Cells that leave, and go another way, while a slot awaits them ---- */

static struct shape spc_pool(void)
{
    return (struct shape){.slots = 1,
                          .seqs = 4,
                          .window = 1000,
                          .caching = ENGINE_CACHES_SYSTEM,
                          .snapshot_budget = 1,
                          .slot_timeout_ms = 1000};
}

static void start_with_small_backlog(struct stored *s, struct rig *rig, int32_t n_cells, struct shape shape)
{
    fake_llm.n_cells = n_cells;
    s->store = open_store(&gated.files, 300);
    start(s, rig, shape);
    assert_true(store_wait_ready(s->store, CLOCK_NEVER));
    gate_close(&gated);
}

static void a_prompt_gets_the_room_of_a_system_prompt_that_was_copied_out(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client first, waits;
    start_with_small_backlog(&s, *state, 700, spc_pool());
    client_init(&first, 0, 500, 20);
    first.job.conversation.system_end = 300;
    run(&s, &first);
    await_seq(SEQ_IDLE, SEQ_SPENT);
    submit(&s, &waits, 60, 400, 20);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROOM);
    gate_open(&gated);
    expect_right(&waits);
    stop(&s);
    client_release(&first);
}

/* Its cells are free at once, and not when the disk moves. */
static void a_prompt_gets_the_room_of_a_suspended_request_that_left(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {0};
    struct client early, late;
    start_with_small_backlog(&s, *state, 1000, spc_pool());
    client_init(&early, 0, 600, 100);
    early.job.conversation.system_end = 500;
    client_init(&late, 60, 500, 20);
    preempt(&s, &early, &late);
    await_seq(SEQ_SUSPENDED, SEQ_SUSPENDED_LEAVES);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROOM);
    cancel(&early);
    expect_cancelled(&early);
    expect_right(&late);
    gate_open(&gated);
    stop(&s);
}

struct leaving {
    struct engine_order order; /* first */
    _Atomic bool obeyed;
};

static void note_obeyed(struct engine_order *order)
{
    atomic_store(&((struct leaving *)order)->obeyed, order->error.code == HEARTH_OK);
}

/* The idle sequence with so many cells, once the status shows it, leaves by order. */
static void order_out(struct stored *s, int32_t cells)
{
    hearth_resident residents[4];
    size_t found = 4;
    while (found == 4) {
        size_t n = engine_residents(s->rig->engine, residents, 4);
        for (size_t i = 0; i < n; i++)
            if (residents[i].tokens == cells && residents[i].state == HEARTH_RESIDENT_IDLE) found = i;
        sched_yield();
    }
    struct leaving leaving = {
        .order = {.seq_id = residents[found].seq_id, .order = HEARTH_ORDER_EVICT, .done = note_obeyed}};
    snprintf(leaving.order.hash, sizeof leaving.order.hash, "%s", residents[found].hash);
    assert_true(engine_give_order(s->rig->engine, &leaving.order));
    while (!atomic_load(&leaving.obeyed)) sched_yield();
}

/* Words, and a medium whose rows are held. */
static void hand_in_with_medium(struct stored *s, struct client *client, size_t own, uint8_t key)
{
    client_init(client, 0, 100, 5);
    for (size_t i = 0; i < own; i++) tokens_push(&client->job.prompt, 7);
    client_add_medium(&client->job.prompt, key, 50);
    client_find_media(client);
    client->media.held = true;
    begin_counting();
    hand_in(s, client);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROWS);
}

/* A sequence leaves by order, and all its cells are another one's as well: it is taken for a request that needs a
 * sequence, while a prompt awaits its room. */
static void a_prompt_tries_again_when_a_request_takes_the_sequence_that_leaves(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.store = open_store_on_disk()};
    struct client leaves, shares, waits, takes;
    fake_llm.n_cells = 330;
    start(&s, *state, (struct shape){.slots = 3, .seqs = 3, .window = 1000, .n_batch = 64});
    assert_true(store_wait_ready(s.store, CLOCK_NEVER));
    gate_close(&gated);
    hand_in_with_medium(&s, &leaves, 0, 1);
    hand_in_with_medium(&s, &shares, 20, 2);
    cancel(&leaves);
    expect_cancelled(&leaves);
    order_out(&s, 100);
    await_seq(SEQ_IDLE, SEQ_IDLE_LEAVES);
    submit(&s, &waits, 60, 300, 5);
    await_slot(SLOT_PREFILLS, SLOT_PREFILL_AWAITS_ROOM);
    submit(&s, &takes, 120, 100, 5);
    expect_right(&takes);
    gate_open(&gated);
    let_go_of_rows(&shares);
    expect_right(&shares);
    expect_right(&waits);
    stop(&s);
}

/* ---- Jobs ---- */

static void expect_verdict(struct admission *admission, enum admission_verdict verdict, struct job *wanted)
{
    struct job *job;
    assert_int_equal(admission_next(admission, &job), verdict);
    assert_ptr_equal(job, wanted);
}

static void in_admission_a_job_waits_is_postponed_and_decided_on(void **state)
{
    NEEDS_ASSERTIONS();
    struct rig *rig = *state;
    struct admission *admission = admission_open(&rig->clock.clock, 8, clock_from_ms(1000));
    struct job jobs[5] = {0};
    for (int i = 0; i < 5; i++) jobs[i].submitted_at = clock_now(&rig->clock.clock);
    atomic_store(&jobs[0].cancelled, true);
    assert_true(admission_enter(admission, &jobs[0]));
    await_job(JOB_OUTSIDE, JOB_DECIDED);
    expect_verdict(admission, ADMISSION_CANCELLED, &jobs[0]);
    await_job(JOB_DECIDED, JOB_OUTSIDE);
    assert_true(admission_enter(admission, &jobs[1]));
    await_job(JOB_OUTSIDE, JOB_WAITING);
    atomic_store(&jobs[1].cancelled, true);
    admission_cancel(admission, &jobs[1]);
    await_job(JOB_WAITING, JOB_DECIDED);
    expect_verdict(admission, ADMISSION_CANCELLED, &jobs[1]);
    for (int i = 2; i < 4; i++) {
        assert_true(admission_enter(admission, &jobs[i]));
        expect_verdict(admission, ADMISSION_ADMITTED, &jobs[i]);
        await_job(JOB_WAITING, JOB_OUTSIDE);
        assert_true(admission_postpone(admission, &jobs[i], CLOCK_NEVER, admission_wakes(admission)));
        await_job(JOB_OUTSIDE, JOB_POSTPONED);
        if (i == 3) break;
        admission_wake(admission);
        await_job(JOB_POSTPONED, JOB_DECIDED);
        expect_verdict(admission, ADMISSION_DUE, &jobs[i]);
    }
    assert_int_equal(admission_close(admission).len, 1);
    await_job(JOB_POSTPONED, JOB_OUTSIDE);
    admission_leave(admission, &jobs[2]);
    admission_leave(admission, &jobs[3]);
    admission_release(admission);
}

/* On the engine's thread, whose job it is no more. */
static void count_answer(struct job *job, const hearth_result *result)
{
    atomic_fetch_add((_Atomic int *)job->ud, result->lookup.prompt == 100);
}

static void a_lookup_ends_in_the_engine_or_comes_back_from_it(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client ends, comes_back;
    _Atomic int answers = 0;
    open_engine(s.rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    client_init(&ends, 0, 100, 1);
    ends.job.only_lookup = true;
    run_alone(s.rig, &ends);
    await_job(JOB_SUBMITTED, JOB_ENDED);
    client_init(&comes_back, 0, 100, 1);
    comes_back.job.only_lookup = true;
    comes_back.job.on_looked_up = count_answer;
    comes_back.job.ud = &answers;
    engine_submit(s.rig->engine, &comes_back.job);
    await_job(JOB_SUBMITTED, JOB_OUTSIDE);
    while (atomic_load(&answers) == 0) sched_yield();
    client_release(&ends);
    client_release(&comes_back);
}

static void a_job_is_queued_runs_and_ends(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client first, early, late, refused;
    open_engine(s.rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000, .slot_timeout_ms = 1000});
    client_init(&early, 0, 600, 100);
    client_init(&late, 60, 300, 20);
    submit(&s, &first, 120, 100, 20);
    expect_right(&first);
    await_job(JOB_OUTSIDE, JOB_SUBMITTED);
    await_job(JOB_SUBMITTED, JOB_QUEUED);
    await_job(JOB_QUEUED, JOB_RUNNING);
    await_job(JOB_RUNNING, JOB_ENDED);
    preempt(&s, &early, &late);
    await_job(JOB_RUNNING, JOB_SUSPENDED);
    await_job(JOB_SUSPENDED, JOB_RUNNING);
    expect_right(&late);
    expect_right(&early);
    engine_drain(s.rig->engine, CLOCK_NEVER);
    submit(&s, &refused, 120, 100, 20);
    await_job(JOB_OUTSIDE, JOB_ENDED);
    client_release(&refused);
}

/* It waits for the only slot. */
static void a_job_leaves_while_it_is_queued(void **state)
{
    NEEDS_ASSERTIONS();
    struct stored s = {.rig = *state};
    struct client runs, waits;
    open_engine(s.rig, (struct shape){.slots = 1, .seqs = 4, .window = 1000});
    fake_llm.held = true;
    submit(&s, &runs, 0, 100, 20);
    fake_llm_await_call();
    submit(&s, &waits, 60, 100, 20);
    cancel(&waits);
    fake_llm_step(1000);
    await_job(JOB_QUEUED, JOB_ENDED);
    expect_cancelled(&waits);
    expect_right(&runs);
}

/* ---- All of them ---- */

static int n_never_made;

static void expect_made(const struct transition *t, uint64_t n)
{
    if (n > 0) return;
    print_transition("never made", t, n);
    n_never_made++;
}

static void every_rare_transition_and_every_one_of_jobs_was_made(void **state)
{
    (void)state;
    NEEDS_ASSERTIONS();
    for (size_t i = 0; i < N_RARE; i++) {
        if (!driven[i]) print_transition("no scenario makes", &rare_transitions[i], 0);
        assert_true(driven[i]);
    }
    n_never_made = 0;
    each_transition(&job_states, expect_made);
    assert_int_equal(n_never_made, 0);
}

static int set_up_scenario(void **state)
{
    begin_counting();
    return set_up_disk(state);
}

#define scenario(name) cmocka_unit_test_setup_teardown(name, set_up_scenario, tear_down_disk)

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_in_the_tables_may_follow),
        cmocka_unit_test(the_documents_show_the_tables),
        scenario(a_request_that_awaits_a_sequence_leaves),
        scenario(a_request_that_awaits_a_prefix_leaves),
        scenario(a_request_whose_prompt_awaits_room_leaves),
        scenario(a_fetch_that_awaits_room_goes_on),
        scenario(a_request_whose_fetch_awaits_room_leaves),
        scenario(a_request_that_awaits_its_mediums_rows_leaves),
        scenario(a_prompt_yields_while_it_awaits_rows_and_begins_again),
        scenario(a_prompt_yields_while_it_awaits_rows_and_its_request_leaves),
        scenario(a_reply_that_yielded_awaits_its_rows_again),
        scenario(a_request_whose_reply_awaits_rows_leaves),
        scenario(a_request_whose_reply_yielded_leaves),
        scenario(a_suspended_request_leaves),
        scenario(a_load_that_awaits_room_is_tried_again),
        scenario(a_request_whose_load_awaits_room_leaves),
        scenario(a_suspended_request_resumes_on_cells_that_leave),
        scenario(a_suspended_request_whose_cells_leave_is_cancelled),
        scenario(of_suspended_cells_that_left_in_part_the_rest_is_idle),
        scenario(suspended_cells_leave_for_a_request_that_needs_the_sequence),
        scenario(a_spent_sequence_serves_the_next_request_of_its_system_prompt),
        scenario(a_spent_sequence_is_free_once_its_system_prompt_is_copied_out),
        scenario(a_spent_sequence_leaves_for_a_request_that_needs_it),
        scenario(a_spent_sequence_that_leaves_is_wanted_again),
        scenario(a_prompt_gets_the_room_of_a_system_prompt_that_was_copied_out),
        scenario(a_prompt_gets_the_room_of_a_suspended_request_that_left),
        scenario(a_prompt_tries_again_when_a_request_takes_the_sequence_that_leaves),
        scenario(in_admission_a_job_waits_is_postponed_and_decided_on),
        scenario(a_lookup_ends_in_the_engine_or_comes_back_from_it),
        scenario(a_job_is_queued_runs_and_ends),
        scenario(a_job_leaves_while_it_is_queued),
        cmocka_unit_test(every_rare_transition_and_every_one_of_jobs_was_made),
    };
    log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
