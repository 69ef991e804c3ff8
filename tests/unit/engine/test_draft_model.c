/* Draft models: what they guess is computed where it pays, behind a cached prompt as behind a computed one; what they
 * cost is bounded, and their faults cost nobody's reply. */
#include "rig.h"

static const struct draft_params its_guesses_alone = {.sources = {[DRAFT_MODEL] = true}};

static struct engine *open_with_model(struct rig *rig, struct shape shape)
{
    shape.draft = its_guesses_alone;
    shape.draft.model = fake_draft_model(shape.slots);
    return open_engine(rig, shape);
}

/* A call takes 10 ms, one of the draft model so many, a row next to nothing. */
static void be_machine(struct rig *rig, double draft_ms)
{
    fake_llm_reset(&rig->clock);
    fake_llm.call_ns = 10000000;
    fake_llm.token_ns = 100000;
    fake_llm.draft_ns = (int64_t)(draft_ms * 1e6);
}

static struct client run_one(struct rig *rig, int32_t seed, size_t prompt, int32_t reply)
{
    struct client client;
    client_init(&client, seed, prompt, reply);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    return client;
}

static void its_right_guesses_save_calls(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 0.5);
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client client = run_one(rig, 0, 100, 400);
    assert_true(client.result.draft_accepted_n > 300);
    assert_int_equal(client.result.draft_accepted_n, client.result.draft_n);
    assert_true(fake_llm.calls < 100);
    client_release(&client);
}

/* Milliseconds of a reply. */
static double milliseconds(struct rig *rig, double draft_ms, bool wrong, bool with_model)
{
    be_machine(rig, draft_ms);
    fake_llm.draft_wrong = wrong;
    struct shape shape = {.slots = 1, .seqs = 4, .window = 4000};
    if (with_model)
        open_with_model(rig, shape);
    else
        open_engine(rig, shape);
    struct client client = run_one(rig, 0, 100, 700); /* what fits a stream */
    double ms = client.result.predicted_ms;
    client_release(&client);
    engine_close(rig->engine);
    rig->engine = NULL;
    return ms;
}

static void it_is_asked_as_far_as_it_pays(void **state)
{
    struct rig *rig = *state;
    const struct {
        double draft_ms, least; /* the least speedup */
        bool wrong;
    } rows[] = {{0.5, 5, false},   {2, 2.2, false},   {5, 1.2, false},
                {30, 0.95, false}, {0.5, 0.98, true}, {5, 0.97, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double without = milliseconds(rig, rows[i].draft_ms, rows[i].wrong, false),
               with = milliseconds(rig, rows[i].draft_ms, rows[i].wrong, true);
        print_message("a call of the draft model takes %g ms, its guesses are %s: %.2f times as fast\n",
                      rows[i].draft_ms, rows[i].wrong ? "wrong" : "right", without / with);
        assert_true(without / with > rows[i].least);
    }
}

/* It costs more than drafts may lose until its stream has the prompt's tail: it is asked until then, and not only after
 * the thousands of calls in which that is made good. */
static void a_stream_gets_all_of_its_tail_at_once(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 12);
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client client = run_one(rig, 0, 500, 100);
    assert_true(fake_llm.draft_calls > 2);
    assert_true(fake_llm.draft_tokens > 250);
    client_release(&client);
}

/* One that is far too dear is given up before that, and not asked again while the debt is made good. */
static void a_debt_ends_what_was_begun(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 50);
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client client = run_one(rig, 0, 500, 300);
    assert_true(fake_llm.draft_calls > 2 && fake_llm.draft_calls <= 8);
    assert_true(client.result.predicted_ms < 300 * 10.2 + 8 * 50);
    client_release(&client);
}

static void a_call_is_for_all_slots(void **state)
{
    struct rig *rig = *state;
    struct client clients[4];
    be_machine(rig, 0.5);
    fake_llm.held = true; /* until all are there: the fake's clock does not wait for this thread */
    open_with_model(rig, (struct shape){.slots = 4, .seqs = 8, .window = 4000});
    for (int32_t i = 0; i < 4; i++) client_init(&clients[i], 50 * i, 30, 300);
    for (size_t i = 0; i < 4; i++) engine_submit(rig->engine, &clients[i].job);
    fake_llm_step(1 << 20);
    int32_t drafted = 0;
    for (size_t i = 0; i < 4; i++) {
        client_await_end(&clients[i]);
        assert_true(client_got_right_reply(&clients[i]));
        drafted += clients[i].result.draft_n;
        client_release(&clients[i]);
    }
    print_message("%d drafted in %d calls of the draft model, %d of the model\n", drafted, fake_llm.draft_calls,
                  fake_llm.calls);
    assert_true(drafted > 600);
    assert_true(fake_llm.draft_calls < drafted / 2);
}

static void behind_a_cached_prompt_it_guesses_as_behind_a_computed_one(void **state)
{
    struct rig *rig = *state;
    struct client again;
    be_machine(rig, 0.5);
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client first = run_one(rig, 0, 100, 60), other = run_one(rig, 90, 80, 60);
    client_init(&again, 0, 100, 60);
    tokens_append(&again.job.prompt, first.got.v, first.got.len);
    run_alone(rig, &again);
    assert_true(client_got_right_reply(&again));
    assert_true(again.result.cache_n >= 159);
    assert_true(again.result.draft_accepted_n > 40);
    client_release(&first);
    client_release(&other);
    client_release(&again);
}

/* Of a long prompt the last tokens are computed, and of a long reply all, once or, where the stream is full, twice. */
static void a_long_conversation_costs_it_its_end(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 0.5);
    fake_llm.draft_wrong = true;
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 9000});
    struct client client = run_one(rig, 0, 5000, 3000);
    assert_true(fake_llm.draft_tokens > 0 && fake_llm.draft_tokens <= 256 + 2 * 3000);
    client_release(&client);
}

static void calls_that_fail_cost_no_reply(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 0.5);
    fake_llm.draft_fails = true;
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client client = run_one(rig, 0, 100, 200);
    assert_int_equal(client.result.draft_n, 0);
    client_release(&client);
}

/* It lacks the last tokens of the vocabulary. What it is asked about, and answers, is what both know. */
static void tokens_that_it_lacks_end_no_guess_of_others(void **state)
{
    struct rig *rig = *state;
    struct client clients[2];
    be_machine(rig, 0.5);
    fake_llm.draft_vocab = 120;
    struct shape shape = {.slots = 2, .seqs = 4, .window = 4000, .draft = its_guesses_alone};
    shape.draft.model = fake_draft_model(shape.slots);
    shape.draft.model.n_vocab = fake_llm.draft_vocab;
    open_engine(rig, shape);
    for (int32_t i = 0; i < 2; i++) client_init(&clients[i], 100 + 40 * i, 60, 300);
    for (size_t i = 0; i < 2; i++) engine_submit(rig->engine, &clients[i].job);
    for (size_t i = 0; i < 2; i++) client_await_end(&clients[i]);
    for (size_t i = 0; i < 2; i++) assert_true(client_got_right_reply(&clients[i]));
    assert_true(fake_llm.draft_calls > 0);
    for (size_t i = 0; i < 2; i++) client_release(&clients[i]);
}

/* A stream that has another request's tokens in common begins anew under another scope, as fast and as slow. */
static void a_stream_of_another_scope_begins_anew(void **state)
{
    struct rig *rig = *state;
    int32_t computed[2];
    for (int i = 0; i < 2; i++) {
        struct client other;
        be_machine(rig, 0.5);
        open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
        struct client first = run_one(rig, 0, 100, 60);
        computed[i] = fake_llm.draft_tokens;
        client_init(&other, 0, 100, 60);
        other.job.scope = i == 0 ? first.job.scope : first.job.scope + 1;
        run_alone(rig, &other);
        assert_true(client_got_right_reply(&other));
        computed[i] = fake_llm.draft_tokens - computed[i];
        client_release(&first);
        client_release(&other);
        engine_close(rig->engine);
        rig->engine = NULL;
    }
    assert_true(computed[1] >= computed[0] + 90);
}

static void a_deterministic_engine_opens_none(void **state)
{
    struct rig *rig = *state;
    be_machine(rig, 0.5);
    open_with_model(rig, (struct shape){.slots = 1, .seqs = 4, .window = 400, .deterministic = true});
    assert_int_equal(fake_llm.contexts, 1);
    struct client client = run_one(rig, 0, 100, 50);
    assert_int_equal(fake_llm.draft_calls, 0);
    client_release(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(its_right_guesses_save_calls),
        engine_test(it_is_asked_as_far_as_it_pays),
        engine_test(a_stream_gets_all_of_its_tail_at_once),
        engine_test(a_debt_ends_what_was_begun),
        engine_test(a_call_is_for_all_slots),
        engine_test(behind_a_cached_prompt_it_guesses_as_behind_a_computed_one),
        engine_test(a_long_conversation_costs_it_its_end),
        engine_test(calls_that_fail_cost_no_reply),
        engine_test(tokens_that_it_lacks_end_no_guess_of_others),
        engine_test(a_stream_of_another_scope_begins_anew),
        engine_test(a_deterministic_engine_opens_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
