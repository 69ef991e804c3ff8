/* The snapshots and checkpoints of tests/fakes/fake_llm keep the promises of llm/context.h, as
 * tests/unit/llm/test_seq_state.c shows of the real ones: the tests of the engine build on that. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_llm.h"

#include "base/memory.h"

#include <stdlib.h>

enum { N_SEQ = 4, N = 20, WINDOW = 400 };

static bool never(void *ud)
{
    (void)ud;
    return false;
}

static struct llm_context *open_context(bool unified, bool cuts)
{
    fake_llm_reset(NULL);
    fake_llm.cuts = cuts;
    struct llm_context_params params = {.n_seq = N_SEQ, .window = WINDOW, .unified = unified, .abort = never};
    return llm_context_open(NULL, &params, NULL);
}

/* Appends n tokens, which depend on `seed`. */
static void append(struct llm_context *context, int32_t seq, int32_t seed, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t pos = llm_seq_end(context, seq);
        struct llm_batch_token row = {.token = (seed + pos) % FAKE_VOCAB, .pos = pos, .seq = seq};
        assert_int_equal(llm_decode(context, &row, 1), LLM_DECODED);
    }
}

static void expect_tokens(const struct llm_context *context, int32_t seq, int32_t seed, int32_t n)
{
    const struct tokens *tokens = fake_llm_cells(context, seq);
    assert_int_equal(tokens->len, n);
    for (int32_t i = 0; i < n; i++) assert_int_equal(tokens->v[i], (seed + i) % FAKE_VOCAB);
    assert_true(fake_llm_cells_add_up(context));
}

struct saved {
    void *bytes;
    size_t size;
};

static struct saved save(struct llm_context *context, int32_t seq, enum llm_state what)
{
    struct saved saved = {.size = llm_seq_state_size(context, seq, what)};
    saved.bytes = mem_alloc(saved.size);
    assert_int_not_equal(saved.size, 0);
    assert_int_equal(llm_seq_save(context, seq, what, saved.bytes, saved.size - 1), 0);
    assert_int_equal(llm_seq_save(context, seq, what, saved.bytes, saved.size), saved.size);
    return saved;
}

static void a_snapshot_is_loaded_into_another_sequence(void **unused)
{
    (void)unused;
    struct llm_context *context = open_context(true, true);
    append(context, 0, 1, N);
    append(context, 1, 2, N);
    struct saved saved = save(context, 0, LLM_STATE_SNAPSHOT);
    llm_seq_clear(context, 0);
    assert_int_equal(llm_seq_load(context, 1, saved.bytes, saved.size, N), LLM_LOADED);
    expect_tokens(context, 1, 1, N);
    expect_tokens(context, 0, 1, 0);
    assert_int_equal(fake_llm.saves, 1);
    assert_int_equal(fake_llm.loads, 1);
    assert_true(llm_seq_cut(context, 1, N / 2));
    free(saved.bytes);
    llm_context_close(context);
}

static void bytes_that_are_no_snapshot_leave_the_sequence_empty(void **unused)
{
    (void)unused;
    struct llm_context *context = open_context(true, false);
    append(context, 0, 1, N);
    struct saved snapshot = save(context, 0, LLM_STATE_SNAPSHOT), checkpoint = save(context, 0, LLM_STATE_CHECKPOINT);
    const struct {
        struct saved state;
        size_t size;
        int32_t n;
        bool load, fails;
    } cases[] = {
        {snapshot, snapshot.size, N, true, true},           {snapshot, snapshot.size - 1, N, true, false},
        {snapshot, snapshot.size, N - 1, true, false},      {checkpoint, checkpoint.size, N, true, false},
        {checkpoint, checkpoint.size, N, false, true},      {checkpoint, checkpoint.size - 1, N, false, false},
        {checkpoint, checkpoint.size, N - 1, false, false}, {snapshot, snapshot.size, N, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        append(context, 1, 1, N);
        fake_llm.load_fails = cases[i].fails;
        enum llm_loaded (*take)(struct llm_context *, int32_t, const void *, size_t, int32_t) =
            cases[i].load ? llm_seq_load : llm_seq_rewind;
        assert_int_equal(take(context, 1, cases[i].state.bytes, cases[i].size, cases[i].n), LLM_BAD_STATE);
        expect_tokens(context, 1, 1, 0);
    }
    expect_tokens(context, 0, 1, N);
    assert_int_equal(fake_llm.loads + fake_llm.rewinds, 0);
    free(snapshot.bytes);
    free(checkpoint.bytes);
    llm_context_close(context);
}

static void a_snapshot_that_finds_no_cells_is_refused(void **unused)
{
    (void)unused;
    struct llm_context *context = open_context(true, true);
    append(context, 0, 1, N);
    struct saved saved = save(context, 0, LLM_STATE_SNAPSHOT);
    fake_llm.n_cells = 2 * N - 1;
    assert_int_equal(llm_seq_load(context, 1, saved.bytes, saved.size, N), LLM_NO_ROOM);
    expect_tokens(context, 1, 1, 0);
    assert_int_equal(llm_seq_load(context, 0, saved.bytes, saved.size, N), LLM_LOADED); /* over itself */
    expect_tokens(context, 0, 1, N);
    free(saved.bytes);
    llm_context_close(context);
}

static void only_what_cannot_be_cut_has_a_checkpoint(void **unused)
{
    (void)unused;
    for (int cuts = 0; cuts < 2; cuts++) {
        struct llm_context *context = open_context(true, cuts == 1);
        assert_int_equal(llm_seq_state_size(context, 0, LLM_STATE_SNAPSHOT), 0);
        assert_int_equal(llm_seq_state_size(context, 0, LLM_STATE_CHECKPOINT), 0);
        append(context, 0, 1, N);
        assert_int_equal(llm_seq_state_size(context, 0, LLM_STATE_CHECKPOINT) > 0, cuts == 0);
        llm_context_close(context);
    }
}

static void a_sequence_goes_back_while_its_first_cells_are_there(void **unused)
{
    (void)unused;
    struct llm_context *context = open_context(true, false);
    append(context, 0, 1, N);
    struct saved saved = save(context, 0, LLM_STATE_CHECKPOINT);
    for (int i = 0; i < 2; i++) {
        append(context, 0, 50, 10);
        assert_int_equal(llm_seq_rewind(context, 0, saved.bytes, saved.size, N), LLM_LOADED);
        expect_tokens(context, 0, 1, N);
    }
    assert_int_equal(fake_llm.rewinds, 2);
    llm_seq_clear(context, 0);
    append(context, 0, 1, N - 1);
    assert_int_equal(llm_seq_rewind(context, 0, saved.bytes, saved.size, N), LLM_BAD_STATE);
    expect_tokens(context, 0, 1, 0);
    free(saved.bytes);
    llm_context_close(context);
}

static void nothing_can_be_cut_from_a_window_that_was_loaded(void **unused)
{
    (void)unused;
    enum { BACK = 5 };
    struct llm_context *context = open_context(true, false);
    fake_llm.cuts_back = BACK;
    append(context, 0, 1, N);
    struct saved snapshot = save(context, 0, LLM_STATE_SNAPSHOT), checkpoint = save(context, 0, LLM_STATE_CHECKPOINT);
    for (int i = 0; i < 2; i++) {
        assert_true(llm_seq_can_cut(context, 0, N - 1));
        enum llm_loaded loaded = i == 0 ? llm_seq_load(context, 0, snapshot.bytes, snapshot.size, N)
                                        : llm_seq_rewind(context, 0, checkpoint.bytes, checkpoint.size, N);
        assert_int_equal(loaded, LLM_LOADED);
        assert_false(llm_seq_can_cut(context, 0, N - 1));
        append(context, 0, 1, 2 * BACK);
        assert_false(llm_seq_can_cut(context, 0, N + BACK - 1));
        assert_true(llm_seq_cut(context, 0, N + BACK));
        llm_seq_clear(context, 0);
        append(context, 0, 1, N);
    }
    free(snapshot.bytes);
    free(checkpoint.bytes);
    llm_context_close(context);
}

static void a_copy_between_streams_is_neither_saved_nor_loaded_over_before_a_decode(void **unused)
{
    (void)unused;
    struct llm_context *context = open_context(false, true);
    for (int32_t end = 0; end < 2; end++) {
        append(context, 0, 1, N - llm_seq_end(context, 0));
        assert_true(llm_seq_share(context, 0, 1, N));
        assert_int_equal(llm_seq_state_size(context, 1, LLM_STATE_SNAPSHOT), 0);
        struct saved saved = save(context, 0, LLM_STATE_SNAPSHOT);
        assert_int_equal(llm_seq_load(context, end, saved.bytes, saved.size, N), LLM_BAD_STATE);
        append(context, 2, 9, 1);
        assert_true(llm_seq_state_size(context, 1 - end, LLM_STATE_SNAPSHOT) > 0);
        assert_int_equal(llm_seq_load(context, end, saved.bytes, saved.size, N), LLM_LOADED);
        expect_tokens(context, 0, 1, N);
        expect_tokens(context, 1, 1, N);
        free(saved.bytes);
    }
    llm_context_close(context);
    context = open_context(true, true);
    append(context, 0, 1, N);
    assert_true(llm_seq_share(context, 0, 1, N));
    assert_true(llm_seq_state_size(context, 1, LLM_STATE_SNAPSHOT) > 0); /* in one pool nothing is copied */
    llm_context_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_loaded_into_another_sequence),
        cmocka_unit_test(bytes_that_are_no_snapshot_leave_the_sequence_empty),
        cmocka_unit_test(a_snapshot_that_finds_no_cells_is_refused),
        cmocka_unit_test(only_what_cannot_be_cut_has_a_checkpoint),
        cmocka_unit_test(a_sequence_goes_back_while_its_first_cells_are_there),
        cmocka_unit_test(nothing_can_be_cut_from_a_window_that_was_loaded),
        cmocka_unit_test(a_copy_between_streams_is_neither_saved_nor_loaded_over_before_a_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
