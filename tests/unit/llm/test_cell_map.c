/* Where cells lie, against what must be so after each operation; and rows that are moved down: the same bytes, and the
 * same next logits as a cold run. For every architecture and layout. */
#include "slicing.h"

#include "llm/cell_map.h"

static bool has_map(const struct rig *rig)
{
    return rig->unified && rig->arch->cuts_anywhere;
}

static struct llm_cell_map map_of(struct rig *rig)
{
    struct llm_cell_map map;
    if (!llm_cells_map(rig->context, &map)) fail_in(rig, "no map of its cells");
    return map;
}

static void expect_map(struct rig *rig, int32_t used, int32_t top)
{
    struct llm_cell_map map = map_of(rig);
    assert_int_equal(map.used, used);
    assert_int_equal(map.top, top);
}

static void only_cells_that_can_be_moved_have_a_map(struct rig *rig)
{
    struct llm_cell_map map = {.used = 1, .top = 1};
    assert_int_equal(llm_cells_map(rig->context, &map), has_map(rig));
    assert_true(map.used == 0 && map.top == 0);
}

static void new_rows_take_the_lowest_free_cells(struct rig *rig)
{
    if (!has_map(rig)) return;
    struct tokens low = random_tokens(rig, 1, HALF), high = random_tokens(rig, 2, PROMPT);
    put(rig, 0, &low, 0);
    put(rig, 1, &high, 0);
    expect_map(rig, HALF + PROMPT, HALF + PROMPT);
    llm_seq_clear(rig->context, 0);
    expect_map(rig, PROMPT, HALF + PROMPT);
    assert_int_equal(llm_cells_above(rig->context, PROMPT), HALF);
    struct llm_positions above = llm_seq_above(rig->context, 1, PROMPT);
    assert_true(above.from == PROMPT - HALF && above.to == PROMPT);
    assert_int_equal(llm_seq_above(rig->context, 0, 0).to, 0);
    put(rig, 2, &low, 0);
    expect_map(rig, HALF + PROMPT, HALF + PROMPT);
    tokens_release(&low);
    tokens_release(&high);
}

static void moved_rows_are_the_same_and_leave_no_hole_below(struct rig *rig)
{
    if (!has_map(rig)) return;
    enum { SHARED = 20 };
    struct tokens low = random_tokens(rig, 3, HALF), high = random_tokens(rig, 4, PROMPT);
    put(rig, 0, &low, 0);
    put(rig, 1, &high, 0);
    assert_true(llm_seq_share(rig->context, 1, 2, SHARED));
    struct saved before = save(rig, 1, 5);
    llm_seq_clear(rig->context, 0);
    struct llm_positions above = llm_seq_above(rig->context, 1, PROMPT);
    int32_t middle = (above.from + above.to) / 2;
    assert_true(llm_rows_move(rig->context, format_of(rig), 1, above.from, middle));
    assert_true(llm_rows_move(rig->context, format_of(rig), 1, middle, above.to));
    expect_map(rig, PROMPT, PROMPT);
    expect_holds(rig, 1, &before);
    if (rig_bound == 0) expect_right(rig, 1, &high, 6); /* sums of 16 bits depend on the order of the cells */
    expect_branch(rig, 2, &high, SHARED, 7);            /* who shares the rest notices nothing */
    release(&before);
    tokens_release(&low);
    tokens_release(&high);
}

/* One token of each of the first n sequences in a call. */
static enum llm_decoded go_on_together(struct rig *rig, const struct tokens *prompts, int32_t n, int32_t pos)
{
    struct llm_batch_token tokens[N_SEQ];
    for (int32_t seq = 0; seq < n; seq++)
        tokens[seq] = (struct llm_batch_token){.token = prompts[seq].v[pos], .pos = pos, .seq = seq, .logits = true};
    return llm_decode(rig->context, tokens, n);
}

/* Of a sequence whose later positions have higher cells: from the top, each of its cells adds an earlier position. */
static int32_t count_runs(struct rig *rig, int32_t seq)
{
    int32_t n = 0;
    bool inside = false;
    struct llm_positions above = {0};
    for (int32_t cell = map_of(rig).top - 1; cell >= 0; cell--) {
        struct llm_positions now = llm_seq_above(rig->context, seq, cell);
        bool is_its_own = now.from != above.from || now.to != above.to;
        n += is_its_own && !inside;
        inside = is_its_own;
        above = now;
    }
    return n;
}

/* With patches/0005: blocks of 64 cells, the first of which may have begun within another sequence's prompt. */
static void sequences_that_go_on_together_have_runs_of_cells(struct rig *rig)
{
    struct tokens prompts[N_SEQ];
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        prompts[seq] = random_tokens(rig, (uint32_t)(10 + seq), PROMPT);
        assert_int_equal(decode_range(rig->context, &prompts[seq], seq, 0, 10, CHUNK), LLM_DECODED);
    }
    for (int32_t pos = 10; pos < PROMPT; pos++) assert_int_equal(go_on_together(rig, prompts, N_SEQ, pos), LLM_DECODED);
    for (int32_t seq = 0; seq < N_SEQ && has_map(rig); seq++)
        if (count_runs(rig, seq) > 3) fail_in(rig, "cells lie in turn with those of others");
    /* What is computed one by one and what is computed in chunks differ in the last bits, which quantised cells round
     * to other numbers. */
    bool comparable = strcmp(rig_cells, "q8_0") != 0;
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        if (comparable) expect_branch(rig, seq, &prompts[seq], PROMPT, (uint32_t)(20 + seq));
        tokens_release(&prompts[seq]);
    }
}

/* In slices, as the engine moves them, into what is free below: the ends of blocks, which no one had. */
static void rows_of_such_sequences_come_down(struct rig *rig)
{
    enum { TOGETHER = 2, EACH = 40, SLICE = 16 };
    if (!has_map(rig)) return;
    struct tokens prompts[TOGETHER];
    for (int32_t seq = 0; seq < TOGETHER; seq++) prompts[seq] = random_tokens(rig, (uint32_t)(50 + seq), EACH);
    for (int32_t pos = 0; pos < EACH; pos++) assert_int_equal(go_on_together(rig, prompts, TOGETHER, pos), LLM_DECODED);
    for (int32_t seq = 0, slices = 0; seq < TOGETHER;) {
        struct llm_positions above = llm_seq_above(rig->context, seq, TOGETHER * EACH);
        int32_t to = above.from + SLICE < above.to ? above.from + SLICE : above.to;
        if (above.to == 0) {
            seq++;
            continue;
        }
        if (++slices > TOGETHER * EACH / SLICE) fail_in(rig, "rows that were moved are where they were");
        assert_true(llm_rows_move(rig->context, format_of(rig), seq, above.from, to));
    }
    expect_map(rig, TOGETHER * EACH, TOGETHER * EACH);
    for (int32_t seq = 0; seq < TOGETHER; seq++) tokens_release(&prompts[seq]);
}

/* A call with the next token of both sequences, each with a draft; the draft is wrong. */
static void refuse_drafts(struct rig *rig, const struct tokens *prompts, int32_t n, int32_t pos, int32_t drafted)
{
    struct llm_batch_token tokens[N_SEQ * 8];
    int32_t len = 0;
    for (int32_t seq = 0; seq < n; seq++)
        for (int32_t i = 0; i <= drafted; i++)
            tokens[len++] = (struct llm_batch_token){
                .token = (prompts[seq].v[pos] + i) % rig->n_vocab, .pos = pos + i, .seq = seq, .logits = true};
    assert_int_equal(llm_decode(rig->context, tokens, len), LLM_DECODED);
    for (int32_t seq = 0; seq < n; seq++) {
        if (!llm_seq_cut(rig->context, seq, pos + 1)) fail_in(rig, "a draft cannot be cut");
        assert_int_equal(llm_seq_end(rig->context, seq), pos + 1);
    }
}

/* With patches/0005 the next token goes behind the last one that is left, and begins no other block. */
static void refused_drafts_leave_no_trace(struct rig *rig)
{
    enum { TOGETHER = 2, BEGUN = 10, DRAFTED = 4, BLOCK = 64 };
    struct tokens prompts[TOGETHER];
    if (!llm_cuts_after_call(rig->context)) return;
    for (int32_t seq = 0; seq < TOGETHER; seq++) {
        prompts[seq] = random_tokens(rig, (uint32_t)(70 + seq), PROMPT);
        assert_int_equal(decode_range(rig->context, &prompts[seq], seq, 0, BEGUN, CHUNK), LLM_DECODED);
    }
    for (int32_t pos = BEGUN; pos < PROMPT; pos++) refuse_drafts(rig, prompts, TOGETHER, pos, DRAFTED);
    if (has_map(rig) && map_of(rig).top > TOGETHER * (PROMPT + BLOCK)) fail_in(rig, "refused drafts began blocks");
    bool comparable = strcmp(rig_cells, "q8_0") != 0; /* as above */
    for (int32_t seq = 0; seq < TOGETHER; seq++) {
        if (comparable) expect_branch(rig, seq, &prompts[seq], PROMPT, (uint32_t)(80 + seq));
        tokens_release(&prompts[seq]);
    }
}

static void sequences_that_go_on_together_find_every_free_cell(struct rig *rig)
{
    if (!has_map(rig)) return;
    struct tokens prompts[N_SEQ];
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        prompts[seq] = random_tokens(rig, (uint32_t)(30 + seq), WINDOW);
        assert_int_equal(decode_range(rig->context, &prompts[seq], seq, 0, 30, CHUNK), LLM_DECODED);
    }
    llm_seq_clear(rig->context, 3); /* a hole of less than a block */
    assert_int_equal(decode_range(rig->context, &prompts[3], 3, 0, 30, CHUNK), LLM_DECODED);
    for (int32_t pos = 30; pos < WINDOW; pos++) assert_int_equal(go_on_together(rig, prompts, N_SEQ, pos), LLM_DECODED);
    expect_map(rig, N_SEQ * WINDOW, N_SEQ * WINDOW);
    for (int32_t seq = 0; seq < N_SEQ; seq++) tokens_release(&prompts[seq]);
}

static void what_cannot_be_moved_stays(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 8, PROMPT);
    put(rig, 0, &prompt, 0);
    int32_t end = llm_seq_end(rig->context, 0);
    assert_false(llm_rows_move(rig->context, format_of(rig), 0, PROMPT, PROMPT + 1));
    assert_false(llm_rows_move(rig->context, format_of(rig), 0, 8, 8));
    if (!llm_state_format_appends(format_of(rig)))
        assert_false(llm_rows_move(rig->context, format_of(rig), 0, 8, PROMPT));
    assert_int_equal(llm_seq_end(rig->context, 0), end);
    expect_right(rig, 0, &prompt, 9);
    tokens_release(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(only_cells_that_can_be_moved_have_a_map),
        RIG_TEST(new_rows_take_the_lowest_free_cells),
        RIG_TEST(moved_rows_are_the_same_and_leave_no_hole_below),
        RIG_TEST(sequences_that_go_on_together_have_runs_of_cells),
        RIG_TEST(rows_of_such_sequences_come_down),
        RIG_TEST(refused_drafts_leave_no_trace),
        RIG_TEST(sequences_that_go_on_together_find_every_free_cell),
        RIG_TEST(what_cannot_be_moved_stays),
    };
    int failed = 0;
    RUN_IN_EVERY_VARIANT(tests, failed)
    return failed;
}
