/* Heads as draft models, an MTP head and an EAGLE-3 head: they read the hidden row that gave each token. The fake's row
 * is a hash of all tokens up to it, so that a row of another token, sequence or call shows as a wrong guess. */
#include "rig.h"

#include "base/memory.h"

enum { GAP_NS = 15000000 };

static enum llm_head head; /* that the tests are run with */

/* ---- The head alone ---- */

/* Tokens of a sequence, and the rows that the model would have for them. */
struct written {
    uint64_t owner;
    struct tokens tokens;
    float row[FAKE_LAYERS * FAKE_ROW];
};

static void row_behind(const struct tokens *tokens, size_t n, float *row)
{
    struct tokens before = {.v = tokens->v, .len = n};
    uint64_t hash = tokens_short_hash(&before);
    for (int i = 0; i < FAKE_LAYERS * FAKE_ROW; i++) {
        row[i] = (float)(hash >> 16 * (i % FAKE_ROW) & 0xffff);
        if (head == LLM_HEAD_EAGLE) row[i] += (float)i;
    }
}

static struct draft_model *open_head(struct rig *rig, int32_t n_slots)
{
    hearth_error error;
    struct draft_model_params params = fake_head(head, n_slots);
    fake_llm_reset(&rig->clock);
    return draft_model_open(&params, GAP_NS, &rig->clock.clock, &error);
}

static void begin(struct written *reply, int32_t first, int32_t n)
{
    static uint64_t owners;
    *reply = (struct written){.owner = ++owners};
    for (int32_t i = 0; i < n; i++) tokens_push(&reply->tokens, (first + i) % 190);
}

/* The model samples n tokens, whose rows the head is told of. */
static void sample_tokens(struct draft_model *model, struct written *reply, int32_t stream, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t token;
        row_behind(&reply->tokens, reply->tokens.len, reply->row);
        fake_llm_reply(reply->tokens.v, reply->tokens.len, &token, 1);
        tokens_push(&reply->tokens, token);
        draft_model_keep_row(model, &(struct draft_row){.stream = stream,
                                                        .owner = reply->owner,
                                                        .index = (int32_t)reply->tokens.len - 1,
                                                        .row = reply->row});
    }
}

/* The head's guess of up to n tokens, once its stream lacks no more. */
static struct draft_ask guess_of(struct draft_model *model, const struct written *reply, int32_t stream, int32_t n)
{
    struct draft_ask ask = {.stream = stream, .owner = reply->owner, .tokens = &reply->tokens};
    while (!ask.over) {
        assert_true(draft_model_next(model, &ask, 1));
        ask.over = ask.n >= n || (ask.over && !ask.lacks);
    }
    return ask;
}

static void expect_right_guess(struct draft_model *model, const struct written *reply, int32_t stream)
{
    enum { N = 6 };
    int32_t right[N];
    struct draft_ask ask = guess_of(model, reply, stream, N);
    fake_llm_reply(reply->tokens.v, reply->tokens.len, right, N);
    assert_int_equal(ask.n, N);
    assert_memory_equal(ask.guess, right, sizeof right);
}

static void each_token_is_read_with_the_row_that_gave_it(void **state)
{
    struct draft_model *model = open_head(*state, 2);
    struct written replies[2];
    for (int32_t i = 0; i < 2; i++) begin(&replies[i], 70 * i, 100 + i);
    for (int32_t k = 0; k < 40; k++) {
        sample_tokens(model, &replies[k % 2], k % 2, 1 + k % 5);
        expect_right_guess(model, &replies[k % 2], k % 2);
    }
    for (int32_t i = 0; i < 2; i++) tokens_release(&replies[i].tokens);
    draft_model_close(model);
}

/* Tokens that were guessed rightly were read with rows of the head. They are read again, with the model's. */
static void what_was_guessed_is_read_again(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written reply;
    begin(&reply, 0, 50);
    sample_tokens(model, &reply, 0, 1);
    guess_of(model, &reply, 0, 5);
    assert_int_equal(fake_llm.draft_tokens, 5);
    sample_tokens(model, &reply, 0, 5);
    guess_of(model, &reply, 0, 1);
    assert_int_equal(fake_llm.draft_tokens, 10);
    tokens_release(&reply.tokens);
    draft_model_close(model);
}

/* Rows are not kept for ever: the stream begins anew with those that are. */
static void a_head_that_was_not_asked_for_long_begins_anew(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written reply;
    begin(&reply, 0, 50);
    sample_tokens(model, &reply, 0, 3);
    expect_right_guess(model, &reply, 0);
    for (int32_t i = 0; i < 20; i++) {
        sample_tokens(model, &reply, 0, 20 * i);
        expect_right_guess(model, &reply, 0);
    }
    tokens_release(&reply.tokens);
    draft_model_close(model);
}

static void a_full_stream_begins_anew(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written reply;
    begin(&reply, 0, 10);
    for (int32_t i = 0; i < 500; i++) {
        sample_tokens(model, &reply, 0, 5);
        expect_right_guess(model, &reply, 0);
    }
    tokens_release(&reply.tokens);
    draft_model_close(model);
}

/* Neither its cells, though it has the same tokens, nor its rows, though they are those before its first token. */
static void another_reply_has_nothing_of_the_one_before(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written first, same, behind;
    begin(&first, 0, 50);
    sample_tokens(model, &first, 0, 10);
    expect_right_guess(model, &first, 0);
    int32_t before = fake_llm.draft_tokens;
    begin(&same, 0, 50);
    sample_tokens(model, &same, 0, 3);
    expect_right_guess(model, &same, 0);
    assert_int_equal(fake_llm.draft_tokens - before, 3 + 5);
    before = fake_llm.draft_tokens;
    begin(&behind, 90, 53);
    sample_tokens(model, &behind, 0, 1);
    expect_right_guess(model, &behind, 0);
    assert_int_equal(fake_llm.draft_tokens - before, 1 + 5);
    tokens_release(&first.tokens);
    tokens_release(&same.tokens);
    tokens_release(&behind.tokens);
    draft_model_close(model);
}

/* As where a reply goes on in another slot, until it has sampled its next token there. */
static void without_the_last_row_it_has_no_guess(void **state)
{
    struct draft_model *model = open_head(*state, 2);
    struct written reply;
    begin(&reply, 0, 50);
    sample_tokens(model, &reply, 0, 10);
    struct draft_ask ask = guess_of(model, &reply, 1, 5);
    assert_true(ask.n == 0 && !ask.lacks);
    assert_int_equal(fake_llm.draft_calls, 0);
    tokens_push(&reply.tokens, 7); /* it was not sampled */
    ask = guess_of(model, &reply, 0, 5);
    assert_int_equal(ask.n, 0);
    for (int32_t stream = 0; stream < 2; stream++) {
        sample_tokens(model, &reply, stream, 1);
        expect_right_guess(model, &reply, stream);
    }
    tokens_release(&reply.tokens);
    draft_model_close(model);
}

/* As where a suspended reply goes on in a slot whose rows end where it does. */
static void rows_of_another_reply_are_not_read(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written reply, other;
    begin(&reply, 0, 50);
    sample_tokens(model, &reply, 0, 10);
    begin(&other, 90, 60);
    struct draft_ask ask = guess_of(model, &other, 0, 5);
    assert_int_equal(ask.n, 0);
    assert_int_equal(fake_llm.draft_calls, 0);
    sample_tokens(model, &other, 0, 1);
    expect_right_guess(model, &other, 0);
    assert_int_equal(fake_llm.draft_tokens, 1 + 5);
    tokens_release(&reply.tokens);
    tokens_release(&other.tokens);
    draft_model_close(model);
}

/* ---- In an engine ---- */

static void open_with_head(struct rig *rig, struct shape shape)
{
    shape.draft = (struct draft_params){.sources = {[DRAFT_MODEL] = true}, .model = fake_head(head, shape.slots)};
    fake_llm_reset(&rig->clock);
    fake_llm.call_ns = 10000000;
    fake_llm.token_ns = 100000;
    fake_llm.draft_ns = 500000;
    open_engine(rig, shape);
}

static struct client run_one(struct rig *rig, int32_t seed, size_t prompt, int32_t reply)
{
    struct client client;
    client_init(&client, seed, prompt, reply);
    run_alone(rig, &client);
    assert_true(client_got_right_reply(&client));
    return client;
}

static void its_guesses_save_calls(void **state)
{
    struct rig *rig = *state;
    open_with_head(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client client = run_one(rig, 0, 300, 400);
    assert_true(client.result.draft_accepted_n > 300);
    assert_int_equal(client.result.draft_accepted_n, client.result.draft_n);
    assert_true(fake_llm.calls < 100);
    client_release(&client);
}

static void behind_a_cached_prompt_it_guesses_as_behind_a_computed_one(void **state)
{
    struct rig *rig = *state;
    struct client again;
    open_with_head(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    struct client first = run_one(rig, 0, 300, 200), other = run_one(rig, 90, 80, 60);
    client_init(&again, 0, 300, 200);
    tokens_append(&again.job.prompt, first.got.v, first.got.len);
    run_alone(rig, &again);
    assert_true(client_got_right_reply(&again));
    assert_true(again.result.cache_n >= 499);
    assert_true(again.result.draft_accepted_n > 150);
    assert_int_equal(again.result.draft_accepted_n, again.result.draft_n);
    client_release(&first);
    client_release(&other);
    client_release(&again);
}

/* States that cannot be cut go back to a copy, and compute again what was right: its rows are known. */
static void all_kinds_of_states_have_right_guesses(void **state)
{
    struct rig *rig = *state;
    for (int kind = 0; kind < 3; kind++) {
        struct client clients[3];
        open_with_head(rig, (struct shape){.slots = 3, .seqs = kind == 2 ? 0 : 6, .window = 4000});
        fake_llm.cuts = kind != 1;
        fake_llm.draft_wrong = false;
        int32_t drafted = 0, accepted = 0;
        for (int32_t i = 0; i < 3; i++) client_init(&clients[i], 60 * i, 30, 300);
        for (size_t i = 0; i < 3; i++) engine_submit(rig->engine, &clients[i].job);
        for (size_t i = 0; i < 3; i++) {
            client_await_end(&clients[i]);
            assert_true(client_got_right_reply(&clients[i]));
            drafted += clients[i].result.draft_n;
            accepted += clients[i].result.draft_accepted_n;
            client_release(&clients[i]);
        }
        print_message("kind %d: %d of %d\n", kind, accepted, drafted);
        assert_true(drafted > 100);
        assert_int_equal(accepted, drafted);
        engine_close(rig->engine);
        rig->engine = NULL;
    }
}

static void wrong_guesses_change_no_reply(void **state)
{
    struct rig *rig = *state;
    open_with_head(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    fake_llm.draft_wrong = true;
    struct client client = run_one(rig, 0, 100, 300);
    assert_int_equal(client.result.draft_accepted_n, 0);
    client_release(&client);
}

static void where_rows_cannot_be_made_the_reply_is_the_same(void **state)
{
    struct rig *rig = *state;
    open_with_head(rig, (struct shape){.slots = 1, .seqs = 4, .window = 4000});
    fake_llm.encode_fails = true;
    struct client client = run_one(rig, 0, 100, 100);
    assert_int_equal(client.result.draft_n == 0, head == LLM_HEAD_EAGLE);
    assert_int_equal(fake_llm.encoded_rows > 0, head == LLM_HEAD_EAGLE);
    client_release(&client);
}

/* More tokens than one call of an EAGLE-3 head takes: the streams have their guesses one after the other. */
static void streams_that_lack_much_take_turns(void **state)
{
    enum { STREAMS = 5, LACKS = 50 };
    struct draft_model *model = open_head(*state, STREAMS);
    struct written replies[STREAMS];
    struct draft_ask asks[STREAMS];
    for (int32_t i = 0; i < STREAMS; i++) {
        begin(&replies[i], 30 * i, 40);
        sample_tokens(model, &replies[i], i, LACKS);
    }
    bool lacks = true;
    for (int32_t calls = 0; lacks; calls++) {
        for (int32_t i = 0; i < STREAMS; i++)
            asks[i] = (struct draft_ask){.stream = i, .owner = replies[i].owner, .tokens = &replies[i].tokens};
        assert_true(calls < 20 && draft_model_next(model, asks, STREAMS));
        lacks = false;
        for (int32_t i = 0; i < STREAMS; i++) lacks = lacks || asks[i].lacks;
    }
    for (int32_t i = 0; i < STREAMS; i++) {
        expect_right_guess(model, &replies[i], i);
        tokens_release(&replies[i].tokens);
    }
    draft_model_close(model);
}

/* What is guessed at is read with rows that need no making. */
static void rows_are_made_where_they_are_read(void **state)
{
    struct draft_model *model = open_head(*state, 1);
    struct written reply;
    begin(&reply, 0, 40);
    sample_tokens(model, &reply, 0, 30);
    assert_int_equal(fake_llm.encoded_rows, 0);
    expect_right_guess(model, &reply, 0);
    assert_int_equal(fake_llm.encoded_rows, head == LLM_HEAD_EAGLE ? 30 : 0);
    tokens_release(&reply.tokens);
    draft_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(each_token_is_read_with_the_row_that_gave_it),
        engine_test(what_was_guessed_is_read_again),
        engine_test(a_head_that_was_not_asked_for_long_begins_anew),
        engine_test(a_full_stream_begins_anew),
        engine_test(another_reply_has_nothing_of_the_one_before),
        engine_test(without_the_last_row_it_has_no_guess),
        engine_test(rows_of_another_reply_are_not_read),
        engine_test(its_guesses_save_calls),
        engine_test(behind_a_cached_prompt_it_guesses_as_behind_a_computed_one),
        engine_test(all_kinds_of_states_have_right_guesses),
        engine_test(wrong_guesses_change_no_reply),
        engine_test(where_rows_cannot_be_made_the_reply_is_the_same),
        engine_test(streams_that_lack_much_take_turns),
        engine_test(rows_are_made_where_they_are_read),
    };
    int failed = 0;
    for (head = LLM_HEAD_MTP; head <= LLM_HEAD_EAGLE; head++) failed += cmocka_run_group_tests(tests, NULL, NULL);
    return failed;
}
