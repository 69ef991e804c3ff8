/* Drafts: replies are those without, whatever is guessed and however a reply ends; faults cost a draft and nothing
 * else; what does not pay is not computed; nothing crosses from one scope to another. */
#include "rig.h"

#define END_AT   6 /* the model's end token comes after so many tokens, or the window ends there */
#define PROMPT   20
#define POISONED 500

/* What the test guesses. */
static struct {
    enum guesses_are { RIGHT, WRONG, RIGHT_THEN_WRONG, POISON_AMONG_THEM } how;
    int32_t n, right; /* tokens of a guess; leading right ones of RIGHT_THEN_WRONG */
    int calls;
} guesses;

static int32_t guess(void *ud, const struct tokens *tokens, int32_t *out, int32_t max)
{
    (void)ud;
    guesses.calls++;
    int32_t n = guesses.n < max ? guesses.n : max;
    if (n > 0) fake_llm_reply(tokens->v, tokens->len, out, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        bool right = guesses.how == RIGHT || (guesses.how == RIGHT_THEN_WRONG && i < guesses.right);
        if (!right) out[i] = (out[i] + 1) % (FAKE_VOCAB - 1);
    }
    if (guesses.how == POISON_AMONG_THEM && n > 1) out[n - 1] = POISONED;
    return n;
}

static const struct draft_params guessing = {.n_max = 16, .guess = guess};
static const struct draft_params all_sources = {
    .sources = {[DRAFT_GRAMMAR] = true, [DRAFT_REQUEST] = true, [DRAFT_STORE] = true}};

static void guess_so(enum guesses_are how, int32_t n, int32_t right)
{
    guesses.how = how;
    guesses.n = n;
    guesses.right = right;
    guesses.calls = 0;
}

static int64_t drafted(const struct rig *rig, enum draft_source source)
{
    return metric_get(&engine_stats(rig->engine)->drafted_tokens[source]);
}

static int64_t accepted(const struct rig *rig, enum draft_source source)
{
    return metric_get(&engine_stats(rig->engine)->accepted_tokens[source]);
}

/* ---- Calls ---- */

static void a_right_guess_saves_calls(void **state)
{
    struct rig *rig = *state;
    struct client client;
    guess_so(RIGHT, 7, 0);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&client, 0, PROMPT, 41);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    assert_int_equal(fake_llm.calls, 1 + 5); /* the prompt, then eight tokens a call */
    assert_int_equal(client.result.predicted_n, 41);
    assert_int_equal(client.result.draft_n, 35);
    assert_int_equal(client.result.draft_accepted_n, 35);
    client_release(&client);
}

static void a_wrong_guess_costs_no_call(void **state)
{
    struct rig *rig = *state;
    struct client client;
    guess_so(RIGHT_THEN_WRONG, 7, 2);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&client, 0, PROMPT, 31);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    assert_int_equal(fake_llm.calls, 1 + 10); /* three tokens a call */
    assert_int_equal(client.result.draft_accepted_n, 20);
    client_release(&client);
}

static void the_batch_bounds_the_drafts_of_all_slots(void **state)
{
    struct rig *rig = *state;
    struct client clients[3];
    guess_so(RIGHT, 16, 0);
    open_engine(rig, (struct shape){.slots = 3, .seqs = 8, .window = 400, .n_batch = 7, .draft = guessing});
    for (int32_t i = 0; i < 3; i++) client_init(&clients[i], i * 30, 5, 40);
    for (size_t i = 0; i < 3; i++) engine_submit(rig->engine, &clients[i].job);
    for (size_t i = 0; i < 3; i++) client_await_end(&clients[i]);
    for (size_t i = 0; i < 3; i++) assert_true(client_got_right_reply(&clients[i]));
    assert_true(fake_llm.max_tokens <= 7);
    for (size_t i = 0; i < 3; i++) client_release(&clients[i]);
}

static void a_request_may_have_none(void **state)
{
    struct rig *rig = *state;
    struct client client;
    guess_so(RIGHT, 7, 0);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&client, 0, PROMPT, 20);
    client.job.draft_max = 0;
    run_alone(rig, &client);
    assert_int_equal(client.result.draft_n, 0);
    assert_int_equal(fake_llm.calls, 20);
    client_release(&client);
}

static void a_deterministic_engine_has_none(void **state)
{
    struct rig *rig = *state;
    struct client client;
    guess_so(RIGHT, 7, 0);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .deterministic = true, .draft = guessing});
    client_init(&client, 0, PROMPT, 20);
    run_alone(rig, &client);
    assert_int_equal(guesses.calls, 0);
    assert_int_equal(fake_llm.calls, 20);
    client_release(&client);
}

/* ---- States that cannot be cut ---- */

#define GRID_CALLS 3 /* of a prompt, which stops where checkpoints are */

/* A reply of so many tokens, which is the right one. */
static hearth_result reply_without_cuts(struct rig *rig, int32_t n)
{
    struct client client;
    fake_llm.cuts = false;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&client, 0, PROMPT, n);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    hearth_result result = client.result;
    client_release(&client);
    return result;
}

static void a_wrong_guess_takes_a_state_back_and_computes_again(void **state)
{
    guess_so(RIGHT_THEN_WRONG, 7, 2);
    hearth_result result = reply_without_cuts(*state, 41);
    assert_int_equal(fake_llm.calls, GRID_CALLS + 20); /* three tokens and one, in turn */
    assert_int_equal(fake_llm.rewinds, 10);
    assert_int_equal(result.draft_accepted_n, 20);
}

static void a_right_guess_leaves_a_state_as_it_is(void **state)
{
    guess_so(RIGHT, 7, 0);
    reply_without_cuts(*state, 41);
    assert_int_equal(fake_llm.calls, GRID_CALLS + 5);
    assert_int_equal(fake_llm.rewinds, 0);
}

static void a_state_that_cannot_be_copied_has_no_draft(void **state)
{
    guess_so(WRONG, 7, 0);
    fake_llm.save_fails = true;
    hearth_result result = reply_without_cuts(*state, 20);
    assert_int_equal(result.draft_n, 0);
    assert_int_equal(fake_llm.calls, GRID_CALLS + 19);
}

static void a_state_that_cannot_go_back_is_computed_anew(void **state)
{
    guess_so(RIGHT_THEN_WRONG, 7, 2);
    fake_llm.load_fails = true;
    hearth_result result = reply_without_cuts(*state, 20);
    assert_int_equal(result.draft_n, 7); /* the first one was the last */
}

/* What is submitted in a certain call, where the clock stands meanwhile. */
static struct {
    struct engine *engine;
    struct job *job;
    int call;
} late;

static void submit_late(void *ud)
{
    (void)ud;
    if (fake_llm.calls == late.call) engine_submit(late.engine, late.job);
}

static void submit_in_call(struct rig *rig, struct job *job, int call)
{
    late.engine = rig->engine;
    late.job = job;
    late.call = call;
}

/* A reply that goes back in every other call gives its slot away all the same. */
static void wrong_guesses_put_off_no_preemption(void **state)
{
    struct rig *rig = *state;
    struct client first, second;
    guess_so(RIGHT_THEN_WRONG, 7, 2);
    fake_llm.cuts = false;
    fake_llm.call_ns = 10000000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .slot_timeout_ms = 50, .draft = guessing});
    client_init(&first, 0, PROMPT, 3000);
    client_init(&second, 90, PROMPT, 5);
    submit_in_call(rig, &second.job, 20);
    fake_llm.on_call = submit_late;
    engine_submit(rig->engine, &first.job);
    client_await_end(&second);
    assert_true(second.result.queue_ms < 2000);
    atomic_store(&first.job.cancelled, true);
    engine_poke(rig->engine);
    client_await_end(&first);
    assert_true(client_got_right_reply(&second));
    client_release(&first);
    client_release(&second);
}

/* A copy is of one tick: what a failed call leaves is not loaded into another sequence. */
static void a_failed_call_leaves_no_copy(void **state)
{
    struct rig *rig = *state;
    struct client clients[2];
    guess_so(POISON_AMONG_THEM, 5, 0);
    fake_llm.cuts = false;
    fake_llm.torn_tokens = 1;
    fake_llm.poison = POISONED;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 4, .window = 400, .draft = guessing});
    for (int32_t i = 0; i < 2; i++) client_init(&clients[i], 50 * i, PROMPT, 20);
    for (size_t i = 0; i < 2; i++) engine_submit(rig->engine, &clients[i].job);
    for (size_t i = 0; i < 2; i++) client_await_end(&clients[i]);
    for (size_t i = 0; i < 2; i++) {
        assert_false(clients[i].failed);
        assert_true(client_got_right_reply(&clients[i]));
        client_release(&clients[i]);
    }
}

/* ---- Ends ---- */

enum how_it_ends { BY_END_TOKEN, BY_STOP_STRING, BY_MAX_TOKENS, BY_WINDOW, WAYS_TO_END };

struct outcome {
    struct tokens got;
    struct buf text;
    hearth_result result, next; /* of the next turn of the conversation */
    int32_t cells;              /* that the sequence kept */
};

static struct outcome run_to_the_end(struct rig *rig, enum how_it_ends how, bool cuts, const struct draft_params *draft)
{
    struct client client, next;
    char stop[2] = "";
    const char *stops[] = {stop};
    int32_t reply[END_AT + 1];
    fake_llm_reset(&rig->clock);
    fake_llm.cuts = cuts;
    if (how == BY_END_TOKEN) fake_llm.end_after = END_AT;
    open_engine(rig, (struct shape){
                         .slots = 1, .seqs = 4, .window = how == BY_WINDOW ? PROMPT + END_AT : 400, .draft = *draft});
    client_init(&client, 7, PROMPT, how == BY_MAX_TOKENS ? END_AT : 100);
    fake_llm_reply(client.job.prompt.v, PROMPT, reply, END_AT + 1);
    stop[0] = (char)('a' + reply[END_AT] % 26);
    if (how == BY_STOP_STRING) client.job.stop = stops;
    client.job.n_stop = how == BY_STOP_STRING;
    run_alone(rig, &client);
    struct outcome outcome = {.result = client.result};
    tokens_append(&outcome.got, client.got.v, client.got.len);
    buf_append(&outcome.text, client.text.v, client.text.len);
    for (size_t i = 0; i < rig->engine->n_seqs; i++)
        if (rig->engine->seqs[i].n_cells > outcome.cells) outcome.cells = rig->engine->seqs[i].n_cells;
    if (how != BY_WINDOW) {
        client_init(&next, 7, PROMPT, 3);
        tokens_append(&next.job.prompt, outcome.got.v, outcome.got.len);
        tokens_push(&next.job.prompt, 1);
        run_alone(rig, &next);
        outcome.next = next.result;
        client_release(&next);
    }
    client_release(&client);
    engine_close(rig->engine);
    rig->engine = NULL;
    return outcome;
}

static void release_outcome(struct outcome *outcome)
{
    tokens_release(&outcome->got);
    buf_release(&outcome->text);
}

/* A state that went back ends where the last call began: what the reply had behind that is computed by the next turn.
 */
static void expect_ends_alike(struct rig *rig, bool cuts)
{
    for (enum how_it_ends how = 0; how < WAYS_TO_END; how++) {
        struct outcome plain = run_to_the_end(rig, how, cuts, &(struct draft_params){0});
        for (int32_t n = 1; n <= 2 * END_AT; n++)
            for (int32_t right = 0; right <= n; right++) {
                guess_so(RIGHT_THEN_WRONG, n, right);
                struct outcome with = run_to_the_end(rig, how, cuts, &guessing);
                assert_int_equal(with.got.len, plain.got.len);
                assert_memory_equal(with.got.v, plain.got.v, plain.got.len * sizeof *plain.got.v);
                assert_int_equal(with.text.len, plain.text.len);
                assert_int_equal(with.result.predicted_n, plain.result.predicted_n);
                assert_int_equal(with.result.finish, plain.result.finish);
                assert_int_equal(with.cells, plain.cells);
                assert_int_equal(fake_llm.beyond, 0);
                assert_int_equal(with.next.cache_n, plain.next.cache_n);
                assert_true(with.result.draft_accepted_n <= with.result.draft_n);
                release_outcome(&with);
            }
        release_outcome(&plain);
    }
}

static void wherever_in_a_draft_a_reply_ends_it_ends_as_without(void **state)
{
    expect_ends_alike(*state, true);
}

static void a_state_that_went_back_is_whole_at_the_end(void **state)
{
    expect_ends_alike(*state, false);
}

/* ---- Faults ---- */

static void a_draft_gives_way_where_cells_are_missing(void **state)
{
    struct rig *rig = *state;
    struct client client;
    guess_so(WRONG, 7, 0);
    fake_llm.n_cells = PROMPT + 14; /* the reply ends where these do, long before its limit */
    fake_llm.end_after = 12;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&client, 0, PROMPT, 100);
    run_alone(rig, &client);
    assert_false(client.failed);
    assert_int_equal(client.got.len, 12);
    assert_true(fake_llm.no_room > 0);
    client_release(&client);
}

/* Nothing that is resident leaves for a guess. */
static void a_draft_evicts_nobody(void **state)
{
    struct rig *rig = *state;
    struct client idle, client, again;
    guess_so(RIGHT_THEN_WRONG, 16, 0);
    fake_llm.n_cells = 100 + PROMPT + 14;
    fake_llm.end_after = 12;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .draft = guessing});
    client_init(&idle, 100, 99, 2);
    run_alone(rig, &idle);
    client_init(&client, 0, PROMPT, 100);
    run_alone(rig, &client);
    assert_int_equal(client.got.len, 12);
    assert_true(fake_llm.no_room > 0);
    client_init(&again, 100, 99, 2);
    run_alone(rig, &again);
    assert_int_equal(again.result.cache_n, 98);
    client_release(&idle);
    client_release(&client);
    client_release(&again);
}

static void a_draft_that_cannot_be_computed_fails_nobody(void **state)
{
    struct rig *rig = *state;
    struct client clients[2];
    guess_so(POISON_AMONG_THEM, 5, 0);
    fake_llm.poison = POISONED;
    open_engine(rig, (struct shape){.slots = 2, .seqs = 4, .window = 400, .draft = guessing});
    for (int32_t i = 0; i < 2; i++) client_init(&clients[i], 50 * i, PROMPT, 20);
    for (size_t i = 0; i < 2; i++) engine_submit(rig->engine, &clients[i].job);
    for (size_t i = 0; i < 2; i++) client_await_end(&clients[i]);
    for (size_t i = 0; i < 2; i++) {
        assert_false(clients[i].failed);
        assert_true(client_got_right_reply(&clients[i]));
        client_release(&clients[i]);
    }
}

/* ---- Prices ---- */

/* A machine on which a call takes 10 ms, or so long, each row so much more, and so does a copy of a state that cannot
 * be cut. */
struct machine {
    double row_ms, state_ms;
    bool cuts;
    double call_ms;
};

/* More, for each of the first 8 rows, and for a call of 32; 0 unless a test says so. */
static double few_ms, copy_ms;

static void be_machine(struct rig *rig, const struct machine *machine)
{
    fake_llm_reset(&rig->clock);
    fake_llm.call_ns = machine->call_ms > 0 ? (int64_t)(machine->call_ms * 1e6) : 10000000;
    fake_llm.token_ns = (int64_t)(machine->row_ms * 1e6);
    fake_llm.few_ns = (int64_t)(few_ms * 1e6);
    fake_llm.copies_from = copy_ms > 0 ? 32 : 0;
    fake_llm.copy_ns = (int64_t)(copy_ms * 1e6);
    fake_llm.state_ns = (int64_t)(machine->state_ms * 1e6);
    fake_llm.cuts = machine->cuts;
}

/* Milliseconds that a reply takes. */
static double milliseconds(struct rig *rig, const struct draft_params *draft, const struct machine *machine,
                           int32_t alphabet)
{
    struct client client;
    be_machine(rig, machine);
    fake_llm.alphabet = alphabet;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .draft = *draft});
    client_init(&client, 0, 0, 1000);
    for (int32_t i = 0; i < 600; i++) tokens_push(&client.job.prompt, (i * i / 7) % alphabet);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    double ms = client.result.predicted_ms;
    client_release(&client);
    engine_close(rig->engine);
    rig->engine = NULL;
    return ms;
}

static void guesses_that_are_wrong_cost_next_to_nothing(void **state)
{
    struct rig *rig = *state;
    const struct machine machines[] = {{0.1, 0, true, 0},  {2, 0, true, 0},    {10, 0, true, 0},
                                       {0.1, 1, false, 0}, {0.1, 5, false, 0}, {2, 20, false, 0}};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        double without = milliseconds(rig, &(struct draft_params){0}, &machines[i], 3);
        double with = milliseconds(rig, &all_sources, &machines[i], 3); /* such a prompt has matches for everything */
        if (with > 1.02 * without)
            print_error("a row of %g ms, a copy of %g ms: %g ms, %g without drafts\n", machines[i].row_ms,
                        machines[i].state_ms, with, without);
        assert_true(with <= 1.02 * without);
    }
}

/* The same prompt again: its reply is known. */
static double speedup_of_a_repeated_request(struct rig *rig, const struct machine *machine)
{
    struct client first, second;
    be_machine(rig, machine);
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .draft = all_sources});
    client_init(&first, 0, 100, 1000);
    client_init(&second, 0, 100, 1000);
    run_alone(rig, &first);
    run_alone(rig, &second);
    assert_true(client_got_right_reply(&second));
    double speedup = first.result.predicted_ms / second.result.predicted_ms;
    client_release(&first);
    client_release(&second);
    engine_close(rig->engine);
    rig->engine = NULL;
    return speedup;
}

static void a_repeated_reply_is_as_fast_as_rows_are_cheap(void **state)
{
    struct rig *rig = *state;
    const struct {
        struct machine machine;
        double least;
    } rows[] = {{{0.1, 0, true, 0}, 10}, {{2, 0, true, 0}, 2.5},   {{1000, 0, true, 0}, 0.98},
                {{0.1, 1, false, 0}, 8}, {{0.1, 20, false, 0}, 5}, {{2, 200, false, 0}, 0.97}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double speedup = speedup_of_a_repeated_request(rig, &rows[i].machine);
        print_message("a repeated reply, a row of %g ms, a copy of %g ms: %.2f times as fast\n", rows[i].machine.row_ms,
                      rows[i].machine.state_ms, speedup);
        assert_true(speedup > rows[i].least);
    }
}

/* Alone it may take calls that are longer than the gap of a stream, here 225 ms: 14 rows would take 312 ms, and make it
 * 9 times as fast. */
static void a_reply_alone_may_take_longer_than_a_gap(void **state)
{
    double speedup =
        speedup_of_a_repeated_request(*state, &(struct machine){.row_ms = 8, .cuts = true, .call_ms = 200});
    print_message("a repeated reply, a row of 8 ms in a call of 200: %.2f times as fast\n", speedup);
    assert_true(speedup > 12);
}

/* A call takes `call_ms` behind such a prompt. Drafted tokens of its reply that were right. */
static int32_t accepted_behind(struct rig *rig, int32_t seed, size_t prompt, double call_ms)
{
    struct client client;
    fake_llm.call_ns = (int64_t)(call_ms * 1e6);
    client_init(&client, seed, prompt, 200);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    int32_t n = client.result.draft_accepted_n;
    client_release(&client);
    return n;
}

/* That is no loss of drafts, which would end them for long. */
static void behind_another_prompt_calls_may_take_longer(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, &(struct machine){.row_ms = 4, .cuts = true});
    open_engine(rig, (struct shape){.slots = 1, .seqs = 6, .window = 9000, .draft = all_sources});
    accepted_behind(rig, 0, 2500, 320); /* the replies are known from now on */
    accepted_behind(rig, 90, 50, 10);
    for (int i = 0; i < 3; i++) {
        assert_true(accepted_behind(rig, 90, 50, 10) > 100);
        assert_true(accepted_behind(rig, 0, 2500, 320) > 100);
    }
}

/* Drafts have lost so much that they would be left out for 800 calls. But these guesses, which are not computed, are
 * right, and would have saved more. */
static void what_was_lost_is_forgiven_where_guesses_are_right(void **state)
{
    struct rig *rig = *state;
    struct client clients[3]; /* the second one's drafts show what rows cost */
    be_machine(rig, &(struct machine){.row_ms = 0.1, .cuts = true});
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .draft = all_sources});
    for (int i = 0; i < 3; i++) {
        client_init(&clients[i], 0, 100, 1000);
        if (i == 2) rig->engine->drafting.credit_ns = -120e6;
        run_alone(rig, &clients[i]);
        assert_true(client_got_right_reply(&clients[i]));
    }
    double speedup = clients[0].result.predicted_ms / clients[2].result.predicted_ms;
    print_message("a repeated reply, behind a debt of 12 calls: %.2f times as fast\n", speedup);
    assert_true(speedup > 6);
    for (int i = 0; i < 3; i++) client_release(&clients[i]);
    engine_close(rig->engine);
    rig->engine = NULL;
}

/* The machine has something else to do in one call. */
static int disturbed_call;

static void disturb(void *ud)
{
    (void)ud;
    fake_llm.call_ns = fake_llm.calls == disturbed_call ? 120000000 : 10000000;
}

/* A row count that was seen in that call alone is tried again, though fewer rows pay. */
static void a_disturbed_call_hides_no_better_number(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 12; i++) {
        struct client first, second;
        be_machine(rig, &(struct machine){.row_ms = 2, .cuts = true});
        open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .draft = all_sources});
        client_init(&first, 0, 100, 400);
        client_init(&second, 0, 100, 400);
        run_alone(rig, &first);
        disturbed_call = fake_llm.calls + i;
        fake_llm.on_call = disturb;
        run_alone(rig, &second);
        assert_true(first.result.predicted_ms / second.result.predicted_ms > 4);
        client_release(&first);
        client_release(&second);
        engine_close(rig->engine);
        rig->engine = NULL;
    }
}

/* ---- Others ---- */

/* The longest time from one call to the next, which a stream waits for its next token, once both are there. */
static struct {
    struct fake_clock *clock;
    int64_t at, longest;
    int64_t longest_then; /* when the first of them ended */
    int32_t accepted;     /* drafts of the other one */
} calls;

static void keep_longest(struct client *client)
{
    (void)client;
    if (calls.longest_then == 0) calls.longest_then = calls.longest;
}

static void note_call(void *ud)
{
    submit_late(ud);
    int64_t now = clock_now(&calls.clock->clock);
    bool both = fake_llm.calls > late.call + 1;
    if (both && calls.at > 0 && now - calls.at > calls.longest) calls.longest = now - calls.at;
    calls.at = now;
}

/* A request whose reply is known, beside another one: the latter's result, and the longest gap of its stream. */
static hearth_result run_beside_a_known_reply(struct rig *rig, const struct machine *machine, bool drafts,
                                              size_t prompt, int32_t reply, double *gap_ms)
{
    struct client first, known, other;
    be_machine(rig, machine);
    open_engine(rig, (struct shape){.slots = 2, .seqs = 6, .window = 9000, .draft = all_sources});
    client_init(&first, 0, 100, 3000);
    client_init(&known, 0, 100, 3000);
    client_init(&other, 77, prompt, reply);
    known.job.draft_max = drafts ? -1 : 0;
    other.on_done = keep_longest;
    run_alone(rig, &first);
    calls.clock = &rig->clock;
    calls.at = calls.longest = calls.longest_then = 0;
    submit_in_call(rig, &other.job, fake_llm.calls + 3);
    fake_llm.on_call = note_call;
    int64_t before = drafted(rig, DRAFT_STORE), accepted_before = accepted(rig, DRAFT_STORE);
    engine_submit(rig->engine, &known.job);
    client_await_end(&other);
    *gap_ms = clock_to_ms(calls.longest_then);
    atomic_store(&known.job.cancelled, true);
    engine_poke(rig->engine);
    client_await_end(&known);
    calls.accepted = (int32_t)(accepted(rig, DRAFT_STORE) - accepted_before);
    assert_true(client_got_right_reply(&other));
    assert_true((drafted(rig, DRAFT_STORE) > before) == drafts);
    hearth_result result = other.result;
    client_release(&first);
    client_release(&known);
    client_release(&other);
    engine_close(rig->engine);
    rig->engine = NULL;
    return result;
}

/* The limit of a gap is 225 ms here. Its tokens take no more than half as long again as without, on average. */
static void a_stream_beside_a_drafting_one_keeps_two_thirds_of_its_rate(void **state)
{
    const struct {
        struct machine machine;
        double gap, slower; /* at most; how much slower the stream is */
    } rows[] = {{{0.5, 0, true, 10}, 225, 1.6},
                {{2, 0, true, 130}, 225, 1.6},
                {{2, 0, true, 215}, 226, 1.05},
                {{20, 0, true, 300}, 401, 1.05}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double gap_without, gap_with;
        double without = run_beside_a_known_reply(*state, &rows[i].machine, false, 2, 300, &gap_without).predicted_ms,
               with = run_beside_a_known_reply(*state, &rows[i].machine, true, 2, 300, &gap_with).predicted_ms;
        print_message(
            "a call of %g ms and %g a row, beside a stream with drafts: %.2f times as long, a gap of %.1f ms, "
            "%.1f without\n",
            rows[i].machine.call_ms, rows[i].machine.row_ms, with / without, gap_with, gap_without);
        assert_true(gap_with <= rows[i].gap && with <= rows[i].slower * without);
    }
}

/* Where the first rows are dear, calls that are half as long again would have two or three tokens of a draft. */
static void long_drafts_and_calls_without_take_the_place_of_short_ones(void **state)
{
    const struct machine machine = {.row_ms = 2, .cuts = true, .call_ms = 17};
    few_ms = 5;
    double gap, without = run_beside_a_known_reply(*state, &machine, false, 2, 300, &gap).predicted_ms,
                with = run_beside_a_known_reply(*state, &machine, true, 2, 300, &gap).predicted_ms;
    print_message("first rows are dear: the stream takes %.2f times as long, and %d tokens of the other's drafts come "
                  "meanwhile; a gap of %.0f ms\n",
                  with / without, (int)calls.accepted, gap);
    few_ms = 0;
    assert_true(with <= 1.6 * without && gap <= 225 && calls.accepted >= 1800);
}

/* Two replies that are known, side by side: a call keeps to the gap, or to what its tokens would take without. */
static void replies_beside_each_other_keep_to_the_gap(void **state)
{
    struct rig *rig = *state;
    struct client clients[4];
    be_machine(rig, &(struct machine){.row_ms = 8, .cuts = true, .call_ms = 200});
    open_engine(rig, (struct shape){.slots = 2, .seqs = 6, .window = 4000, .draft = all_sources});
    for (int32_t i = 0; i < 4; i++) client_init(&clients[i], i % 2 * 90, 2, 600);
    run_alone(rig, &clients[0]);
    run_alone(rig, &clients[1]);
    calls.clock = &rig->clock;
    calls.at = calls.longest = calls.longest_then = 0;
    clients[2].on_done = clients[3].on_done = keep_longest;
    submit_in_call(rig, &clients[3].job, fake_llm.calls + 1);
    fake_llm.on_call = note_call;
    engine_submit(rig->engine, &clients[2].job);
    client_await_end(&clients[2]);
    client_await_end(&clients[3]);
    print_message("two replies, a row of 8 ms in a call of 200: the longest call takes %.0f ms\n",
                  clock_to_ms(calls.longest_then));
    assert_true(clients[2].result.draft_accepted_n > 300 && clients[3].result.draft_accepted_n > 300);
    assert_true(clock_to_ms(calls.longest_then) <= 330);
    for (int i = 0; i < 4; i++) client_release(&clients[i]);
    engine_close(rig->engine);
    rig->engine = NULL;
}

static void a_prompt_beside_a_drafting_stream_is_as_fast(void **state)
{
    double gap_without, gap_with;
    const struct machine machine = {.row_ms = 0.5, .cuts = true};
    double without = run_beside_a_known_reply(*state, &machine, false, 2500, 2, &gap_without).prompt_ms,
           with = run_beside_a_known_reply(*state, &machine, true, 2500, 2, &gap_with).prompt_ms;
    print_message("a prompt of 2,500 tokens: %.0f ms beside a stream with drafts, %.0f without; gaps %.0f, %.0f\n",
                  with, without, gap_with, gap_without);
    assert_true(with <= 1.1 * without && gap_with <= 1.1 * gap_without);
}

/* ---- Scopes ---- */

struct asked {
    uint64_t scope;
    bool uncached;
};

/* Drafted tokens of a request after another one with the same prompt. */
static int64_t drafted_after(struct rig *rig, struct asked first, struct asked second)
{
    struct client a, b;
    fake_llm_reset(&rig->clock);
    fake_llm.call_ns = 10000000;
    open_engine(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000, .draft = all_sources});
    client_init(&a, 0, 100, 200);
    client_init(&b, 0, 100, 200);
    a.job.scope = first.scope;
    b.job.scope = second.scope;
    a.job.cache_prompt = !first.uncached;
    b.job.cache_prompt = !second.uncached;
    run_alone(rig, &a);
    int64_t before = drafted(rig, DRAFT_STORE);
    run_alone(rig, &b);
    assert_true(client_got_right_reply(&b));
    int64_t n = drafted(rig, DRAFT_STORE) - before;
    assert_true(accepted(rig, DRAFT_STORE) <= drafted(rig, DRAFT_STORE));
    client_release(&a);
    client_release(&b);
    engine_close(rig->engine);
    rig->engine = NULL;
    return n;
}

/* Copies of weights for each call of 32 tokens and more take a second. Prompts that were computed alone have shown it.
 */
static void copies_of_weights_beside_a_stream_are_made_once(void **state)
{
    double gap;
    copy_ms = 1000;
    double ms =
        run_beside_a_known_reply(*state, &(struct machine){.row_ms = 1, .cuts = true}, false, 2500, 2, &gap).prompt_ms;
    copy_ms = 0;
    print_message("a prompt of 2,500 tokens beside a stream, copies of a second: %.0f ms, a gap of %.0f\n", ms, gap);
    assert_true(gap <= 1100 && ms <= 5000);
}

static void no_token_crosses_from_one_scope_to_another(void **state)
{
    struct rig *rig = *state;
    const struct asked one = {.scope = 1}, other = {.scope = 2}, uncached = {.scope = 1, .uncached = true};
    assert_true(drafted_after(rig, one, one) > 100);
    assert_int_equal(drafted_after(rig, one, other), 0);
    assert_int_equal(drafted_after(rig, uncached, one), 0);
    assert_int_equal(drafted_after(rig, one, uncached), 0);
    assert_int_equal(drafted_after(rig, uncached, uncached), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(a_right_guess_saves_calls),
        engine_test(a_wrong_guess_costs_no_call),
        engine_test(the_batch_bounds_the_drafts_of_all_slots),
        engine_test(a_request_may_have_none),
        engine_test(a_deterministic_engine_has_none),
        engine_test(a_wrong_guess_takes_a_state_back_and_computes_again),
        engine_test(a_right_guess_leaves_a_state_as_it_is),
        engine_test(a_state_that_cannot_be_copied_has_no_draft),
        engine_test(a_state_that_cannot_go_back_is_computed_anew),
        engine_test(wrong_guesses_put_off_no_preemption),
        engine_test(a_failed_call_leaves_no_copy),
        engine_test(wherever_in_a_draft_a_reply_ends_it_ends_as_without),
        engine_test(a_state_that_went_back_is_whole_at_the_end),
        engine_test(a_draft_gives_way_where_cells_are_missing),
        engine_test(a_draft_evicts_nobody),
        engine_test(a_draft_that_cannot_be_computed_fails_nobody),
        engine_test(guesses_that_are_wrong_cost_next_to_nothing),
        engine_test(a_repeated_reply_is_as_fast_as_rows_are_cheap),
        engine_test(a_reply_alone_may_take_longer_than_a_gap),
        engine_test(behind_another_prompt_calls_may_take_longer),
        engine_test(what_was_lost_is_forgiven_where_guesses_are_right),
        engine_test(a_disturbed_call_hides_no_better_number),
        engine_test(a_stream_beside_a_drafting_one_keeps_two_thirds_of_its_rate),
        engine_test(long_drafts_and_calls_without_take_the_place_of_short_ones),
        engine_test(replies_beside_each_other_keep_to_the_gap),
        engine_test(a_prompt_beside_a_drafting_stream_is_as_fast),
        engine_test(copies_of_weights_beside_a_stream_are_made_once),
        engine_test(no_token_crosses_from_one_scope_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
