/* Cells that sequences share: the contract of llm_seq_share(), for every architecture with a decoder and in both
 * layouts. The oracle is a cold run. */
#include "rigs.h"

enum { LONGEST = 120 };

/* Lengths to share of PROMPT cells: sequences that cannot be cut anywhere are shared whole. */
static size_t lengths(const struct rig *rig, int32_t out[5])
{
    static const int32_t all[] = {PROMPT, 1, CHUNK, 50, PROMPT - 1};
    memcpy(out, all, sizeof all);
    return rig->arch->cuts_anywhere ? 5 : 1;
}

/* ---- The bound ---- */

static void one_wrong_token_changes_logits_by_more_than_ten_times_the_bound(struct rig *rig)
{
    struct tokens right = random_tokens(rig, 1, PROMPT), wrong = random_tokens(rig, 1, PROMPT);
    wrong.v[PROMPT - OWN] = (wrong.v[PROMPT - OWN] + 1) % rig->n_vocab;
    put(rig, 0, &wrong, 0);
    float most = difference(rig, llm_logits(rig->context, CHUNK - 1), cold_logits(rig, &right, CHUNK));
    if (!(most > 10 * rig->arch->bound))
        fail_msg("%s: one wrong token changes logits by %g only", rig->arch->name, (double)most);
    tokens_release(&right);
    tokens_release(&wrong);
}

static void what_can_be_cut_anywhere_is_known(struct rig *rig)
{
    assert_int_equal(llm_cuts_anywhere(rig->context), rig->arch->cuts_anywhere);
}

/* ---- Continuing from shared cells ---- */

static void a_sequence_continues_from_shared_cells_as_from_its_own(struct rig *rig)
{
    int32_t n[5];
    size_t count = lengths(rig, n);
    for (size_t i = 0; i < count; i++) {
        clear_all(rig);
        struct tokens prompt = random_tokens(rig, 2, PROMPT);
        put(rig, 0, &prompt, 0);
        put(rig, 1, &prompt, 0); /* what the sharer held is gone */
        assert_true(llm_seq_share(rig->context, 0, 1, n[i]));
        expect_branch(rig, 1, &prompt, n[i], 3);
        expect_branch(rig, 0, &prompt, PROMPT, 4);
        tokens_release(&prompt);
    }
}

/* With a stream each, the cells of the copy have the indices of a cold run. */
static void a_copy_in_a_stream_of_its_own_gives_the_bits_of_a_cold_run(struct rig *rig)
{
    if (rig->unified) return;
    struct tokens prompt = random_tokens(rig, 5, PROMPT), branch = branch_of(rig, &prompt, PROMPT, 6);
    put(rig, 0, &prompt, 0);
    assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    put(rig, 1, &branch, PROMPT);
    const float *warm = llm_logits(rig->context, (OWN - 1) % CHUNK);
    if (memcmp(warm, cold_logits(rig, &branch, CHUNK), (size_t)rig->n_vocab * sizeof *warm) != 0)
        fail_msg("%s: not the bits of a cold run", rig->arch->name);
    tokens_release(&branch);
    tokens_release(&prompt);
}

static void cells_that_lie_among_those_of_others_can_be_shared(struct rig *rig)
{
    struct tokens tokens[3];
    for (int32_t seq = 0; seq < 3; seq++) tokens[seq] = random_tokens(rig, 10 + (uint32_t)seq, PROMPT);
    for (int32_t pos = 0; pos < PROMPT; pos += 8) {
        struct llm_batch_token batch[24];
        for (int32_t i = 0; i < 24; i++)
            batch[i] =
                (struct llm_batch_token){.token = tokens[i % 3].v[pos + i / 3], .pos = pos + i / 3, .seq = i % 3};
        batch[23].logits = true;
        assert_int_equal(llm_decode(rig->context, batch, 24), LLM_DECODED);
    }
    int32_t n[5];
    size_t count = lengths(rig, n);
    for (size_t i = 0; i < count; i++) {
        assert_true(llm_seq_share(rig->context, 1, 3, n[i]));
        expect_branch(rig, 3, &tokens[1], n[i], 13);
    }
    for (int32_t seq = 0; seq < 3; seq++) {
        expect_branch(rig, seq, &tokens[seq], PROMPT, 14);
        tokens_release(&tokens[seq]);
    }
}

static void what_was_shared_can_be_shared_again(struct rig *rig)
{
    bool part = rig->arch->cuts_anywhere;
    struct tokens a = random_tokens(rig, 20, PROMPT);
    put(rig, 0, &a, 0);
    int32_t first = part ? PROMPT - 21 : PROMPT;
    struct tokens b = branch_of(rig, &a, first, 21);
    assert_true(llm_seq_share(rig->context, 0, 1, first));
    expect_goes_on(rig, 1, &b, first);
    int32_t second = part ? first + OWN / 2 : first + OWN;
    assert_true(llm_seq_share(rig->context, 1, 2, second));
    assert_true(llm_seq_share(rig->context, 2, 3, second)); /* at once: nothing was computed in between */
    llm_seq_clear(rig->context, 1);
    expect_branch(rig, 3, &b, second, 22);
    expect_branch(rig, 0, &a, PROMPT, 23);
    llm_seq_clear(rig->context, 0);
    expect_branch(rig, 2, &b, second, 24);
    tokens_release(&a);
    tokens_release(&b);
}

/* ---- The source ---- */

/* The logits of the source after some tokens one by one; it was shared before them, or not. */
static float *source_logits(struct rig *rig, bool share, bool sharer_goes_on)
{
    clear_all(rig);
    struct tokens prompt = random_tokens(rig, 30, PROMPT), branch = branch_of(rig, &prompt, PROMPT, 31);
    put(rig, 0, &prompt, 0);
    if (share) assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    if (sharer_goes_on) expect_branch(rig, 1, &prompt, PROMPT, 32);
    float *logits = logits_after(rig->context, rig->model, &branch, 0, PROMPT, (int32_t)branch.len, 1);
    expect_close(rig, logits, cold_logits(rig, &branch, CHUNK));
    tokens_release(&prompt);
    tokens_release(&branch);
    return logits;
}

/* In a unified KV cache the sharer's own cells move those that the source computes later to other indices. */
static void the_source_is_undisturbed_to_the_last_bit(struct rig *rig)
{
    float *alone = source_logits(rig, false, false);
    float *shared = source_logits(rig, true, false);
    float *both = source_logits(rig, true, true);
    size_t size = (size_t)rig->n_vocab * sizeof *alone;
    if (memcmp(alone, shared, size) != 0 || (!rig->unified && memcmp(alone, both, size) != 0))
        fail_msg("%s, %s: the source was disturbed", rig->arch->name, rig->unified ? "unified" : "split");
    free(alone);
    free(shared);
    free(both);
}

/* ---- Cutting and clearing ---- */

static void clearing_one_leaves_the_other_whole(struct rig *rig)
{
    for (int32_t gone = 0; gone < 2; gone++) {
        clear_all(rig);
        struct tokens prompt = random_tokens(rig, 40, PROMPT);
        put(rig, 0, &prompt, 0);
        assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
        llm_seq_clear(rig->context, gone);
        expect_branch(rig, gone, &(struct tokens){0}, 0, 41);
        expect_branch(rig, 1 - gone, &prompt, PROMPT, 42);
        tokens_release(&prompt);
    }
}

static void cutting_one_leaves_the_other_whole(struct rig *rig)
{
    for (int32_t cut = 0; cut < 2 && rig->arch->cuts_anywhere; cut++) {
        clear_all(rig);
        struct tokens prompt = random_tokens(rig, 50, PROMPT);
        put(rig, 0, &prompt, 0);
        assert_true(llm_seq_share(rig->context, 0, 1, PROMPT - 10));
        assert_true(llm_seq_cut(rig->context, cut, 20));
        expect_branch(rig, cut, &prompt, 20, 51);
        expect_branch(rig, 1 - cut, &prompt, cut == 0 ? PROMPT - 10 : PROMPT, 52);
        tokens_release(&prompt);
    }
}

static void a_sharer_is_right_when_the_source_is_cleared_and_its_cells_are_reused(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 60, PROMPT), branch = branch_of(rig, &prompt, PROMPT, 61);
    put(rig, 0, &prompt, 0);
    assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    put(rig, 0, &branch, PROMPT);
    llm_seq_clear(rig->context, 0);
    for (int32_t seq = 2; seq < N_SEQ; seq++) {
        struct tokens other = random_tokens(rig, 60 + (uint32_t)seq, WINDOW);
        put(rig, seq, &other, 0);
        tokens_release(&other);
    }
    expect_branch(rig, 1, &prompt, PROMPT, 69);
    tokens_release(&prompt);
    tokens_release(&branch);
}

/* ---- What cannot be shared ---- */

static void expect_refused(struct rig *rig, const struct tokens *prompt, int32_t n)
{
    struct tokens other = random_tokens(rig, 70, 30);
    put(rig, 1, &other, llm_seq_end(rig->context, 1));
    if (llm_seq_share(rig->context, 0, 1, n) || llm_seq_end(rig->context, 1) != 0)
        fail_msg("%s, %s: sharing %d of %zu cells is not refused, or leaves %d of them", rig->arch->name,
                 rig->unified ? "unified" : "split", n, prompt->len, llm_seq_end(rig->context, 1));
    tokens_release(&other);
}

static void a_part_of_what_cannot_be_cut_is_refused_and_leaves_nothing(struct rig *rig)
{
    if (rig->arch->cuts_anywhere) return;
    struct tokens prompt = random_tokens(rig, 71, PROMPT);
    put(rig, 0, &prompt, 0);
    static const int32_t parts[] = {1, 10, PROMPT / 2, PROMPT - 1};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect_refused(rig, &prompt, parts[i]);
    expect_branch(rig, 1, &(struct tokens){0}, 0, 72);
    expect_branch(rig, 0, &prompt, PROMPT, 73);
    tokens_release(&prompt);
}

static void nothing_and_more_than_there_is_are_refused_and_leave_nothing(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 74, PROMPT);
    put(rig, 0, &prompt, 0);
    expect_refused(rig, &prompt, 0);
    expect_refused(rig, &prompt, PROMPT + 1);
    expect_branch(rig, 1, &(struct tokens){0}, 0, 75);
    expect_branch(rig, 0, &prompt, PROMPT, 76);
    tokens_release(&prompt);
}

/* ---- Anything in any order ---- */

/* Tokens for one to three sequences in one batch; each is compared with a cold run of its own. */
static void random_decode(struct rig *rig, struct tokens held[N_SEQ], uint32_t *random)
{
    struct llm_batch_token batch[3 * 24];
    /* llama.cpp v0.5.0 may lose cells of a window in a unified KV cache when it computes a batch in several
     * micro-batches, as it does with several sequences of a hybrid. */
    int32_t most = rig->arch->window > 0 ? 1 : 3;
    int32_t n_tokens = 0, count = 1 + below(random, most), first = below(random, N_SEQ), last_token[3];
    for (int32_t i = 0; i < count; i++) {
        struct tokens *tokens = &held[(first + i) % N_SEQ];
        int32_t pos = (int32_t)tokens->len, n = 1 + below(random, 24);
        if (n > LONGEST - pos) n = LONGEST - pos;
        add_random(rig, tokens, next_random(random), n);
        for (int32_t k = 0; k < n; k++, pos++)
            batch[n_tokens++] =
                (struct llm_batch_token){.token = tokens->v[pos], .pos = pos, .seq = (first + i) % N_SEQ};
        if (n > 0) batch[n_tokens - 1].logits = true;
        last_token[i] = n > 0 ? n_tokens - 1 : -1;
    }
    if (n_tokens == 0) return;
    assert_int_equal(llm_decode(rig->context, batch, n_tokens), LLM_DECODED);
    for (int32_t i = 0; i < count; i++)
        if (last_token[i] >= 0)
            expect_close(rig, llm_logits(rig->context, last_token[i]),
                         cold_logits(rig, &held[(first + i) % N_SEQ], LONGEST));
}

static void random_cut(struct rig *rig, struct tokens held[N_SEQ], uint32_t *random)
{
    int32_t seq = below(random, N_SEQ), n = below(random, (int32_t)held[seq].len + 1);
    bool can = llm_seq_can_cut(rig->context, seq, n);
    assert_int_equal(llm_seq_cut(rig->context, seq, n), can);
    if (rig->arch->cuts_anywhere) assert_true(can);
    if (can) tokens_truncate(&held[seq], (size_t)n);
}

static void random_share(struct rig *rig, struct tokens held[N_SEQ], uint32_t *random)
{
    int32_t from = below(random, N_SEQ), to = (from + 1 + below(random, N_SEQ - 1)) % N_SEQ;
    int32_t len = (int32_t)held[from].len, n = below(random, 2) == 0 ? len : below(random, len + 1);
    bool shared = llm_seq_share(rig->context, from, to, n);
    assert_int_equal(shared, n > 0 && (n == len || rig->arch->cuts_anywhere));
    tokens_truncate(&held[to], 0);
    if (shared) tokens_append(&held[to], held[from].v, (size_t)n);
}

static void two_hundred_random_operations_leave_every_sequence_right(struct rig *rig)
{
    struct tokens held[N_SEQ] = {{0}};
    uint32_t random = 80;
    for (int i = 0; i < N_OPERATIONS; i++) {
        int32_t what = below(&random, 10), seq = below(&random, N_SEQ);
        if (what < 5) {
            random_decode(rig, held, &random);
        } else if (what < 8) {
            random_share(rig, held, &random);
        } else if (what < 9) {
            random_cut(rig, held, &random);
        } else {
            llm_seq_clear(rig->context, seq);
            tokens_truncate(&held[seq], 0);
        }
        for (seq = 0; seq < N_SEQ; seq++) assert_int_equal(llm_seq_end(rig->context, seq), held[seq].len);
    }
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        expect_branch(rig, seq, &held[seq], (int32_t)held[seq].len, 81);
        tokens_release(&held[seq]);
    }
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(what_can_be_cut_anywhere_is_known),
        RIG_TEST(one_wrong_token_changes_logits_by_more_than_ten_times_the_bound),
        RIG_TEST(a_sequence_continues_from_shared_cells_as_from_its_own),
        RIG_TEST(a_copy_in_a_stream_of_its_own_gives_the_bits_of_a_cold_run),
        RIG_TEST(cells_that_lie_among_those_of_others_can_be_shared),
        RIG_TEST(what_was_shared_can_be_shared_again),
        RIG_TEST(the_source_is_undisturbed_to_the_last_bit),
        RIG_TEST(clearing_one_leaves_the_other_whole),
        RIG_TEST(cutting_one_leaves_the_other_whole),
        RIG_TEST(a_sharer_is_right_when_the_source_is_cleared_and_its_cells_are_reused),
        RIG_TEST(a_part_of_what_cannot_be_cut_is_refused_and_leaves_nothing),
        RIG_TEST(nothing_and_more_than_there_is_are_refused_and_leave_nothing),
        RIG_TEST(two_hundred_random_operations_leave_every_sequence_right),
    };
    return cmocka_run_group_tests(tests, rigs_open, rigs_close);
}
