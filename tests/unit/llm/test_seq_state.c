/* Snapshots and checkpoints: the contracts of llm_seq_save(), llm_seq_load() and llm_seq_rewind(), for every
 * architecture with a decoder and in both layouts. The oracle is a cold run. With a stream each, loaded cells have the
 * indices of a cold run, and its bits. Those of a sliding window do not: in a cold run they come after cells that have
 * left the window. */
#include "rigs.h"

/* Cells that have left the window but that several sequences share are reused only when all have released them. In a
 * unified KV cache, sequences no longer than LONGEST still find free cells. */
enum { WRONG = 50, HALF = 64, N_STATES = 6, LONGEST = 60 };

/* A saved state; `bytes` has exactly its size, so that the sanitizer sees reads and writes out of bounds. */
struct saved {
    void *bytes;
    size_t size;
    int32_t n;
};

static struct saved save(struct rig *rig, int32_t seq, enum llm_state what)
{
    struct saved saved = {.size = llm_seq_state_size(rig->context, seq, what), .n = llm_seq_end(rig->context, seq)};
    assert_true(saved.size > 0);
    saved.bytes = mem_alloc(saved.size);
    assert_int_equal(llm_seq_save(rig->context, seq, what, saved.bytes, saved.size), saved.size);
    return saved;
}

static bool load(struct rig *rig, int32_t seq, const struct saved *saved)
{
    return llm_seq_load(rig->context, seq, saved->bytes, saved->size, saved->n) == LLM_LOADED;
}

static bool rewind_to(struct rig *rig, int32_t seq, const struct saved *saved)
{
    return llm_seq_rewind(rig->context, seq, saved->bytes, saved->size, saved->n) == LLM_LOADED;
}

static const char *layout(const struct rig *rig)
{
    return rig->unified ? "unified" : "split";
}

/* OWN random tokens after the first n of the prompt give the logits of a cold run; without a window in a stream each,
 * its bits. */
static void expect_right(struct rig *rig, int32_t seq, const struct tokens *prompt, int32_t n, uint32_t seed)
{
    struct tokens tokens = branch_of(rig, prompt, n, seed);
    expect_goes_on(rig, seq, &tokens, n);
    const float *warm = llm_logits(rig->context, (OWN - 1) % CHUNK),
                *cold = llm_logits(rig->cold, (n + OWN - 1) % CHUNK);
    bool exact = !rig->unified && llm_model_info(rig->model)->n_swa <= 0 && n % CHUNK == 0;
    if (exact && memcmp(warm, cold, (size_t)rig->n_vocab * sizeof *warm) != 0)
        fail_msg("%s, split: not the bits of a cold run", rig->arch->name);
    tokens_release(&tokens);
}

/* Makes a sequence compute tokens that are dropped later. */
static void decode_other_tokens(struct rig *rig, int32_t seq, const struct tokens *prompt, int32_t n, uint32_t seed)
{
    struct tokens tokens = {0};
    tokens_append(&tokens, prompt->v, (size_t)n);
    add_random(rig, &tokens, seed, WRONG);
    put(rig, seq, &tokens, n);
    tokens_release(&tokens);
}

static void expect_empty(struct rig *rig, int32_t seq, const char *what)
{
    if (llm_seq_end(rig->context, seq) != 0)
        fail_msg("%s, %s, %s: the sequence ends at %d", rig->arch->name, layout(rig), what,
                 llm_seq_end(rig->context, seq));
}

/* ---- Snapshots ---- */

static void a_snapshot_continues_in_another_sequence_as_in_its_own(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 1, PROMPT), other = random_tokens(rig, 2, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_SNAPSHOT);
    put(rig, 1, &other, 0); /* what the sequence held is gone */
    assert_true(load(rig, 1, &saved));
    expect_right(rig, 1, &prompt, PROMPT, 3);
    expect_right(rig, 0, &prompt, PROMPT, 4);
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&other);
}

static void a_snapshot_can_be_loaded_when_its_source_is_gone_and_more_than_once(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 5, PROMPT), other = random_tokens(rig, 6, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_SNAPSHOT);
    llm_seq_clear(rig->context, 0);
    put(rig, 0, &other, 0);
    for (int32_t seq = 2; seq < 5; seq++) assert_true(load(rig, seq, &saved));
    for (int32_t seq = 2; seq < 5; seq++) expect_right(rig, seq, &prompt, PROMPT, (uint32_t)seq);
    expect_right(rig, 0, &other, PROMPT, 7);
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&other);
}

static void what_was_loaded_can_be_cut_where_anything_can_and_else_is_not(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 8, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_SNAPSHOT);
    assert_true(load(rig, 1, &saved));
    bool cut = llm_seq_cut(rig->context, 1, PROMPT - CHUNK);
    assert_int_equal(cut, rig->arch->cuts_anywhere);
    expect_right(rig, 1, &prompt, cut ? PROMPT - CHUNK : PROMPT, 9);
    free(saved.bytes);
    tokens_release(&prompt);
}

static void a_snapshot_of_a_shared_sequence_is_complete(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 10, PROMPT), branch = branch_of(rig, &prompt, PROMPT, 11);
    put(rig, 0, &prompt, 0);
    assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    put(rig, 1, &branch, PROMPT);
    struct saved saved = save(rig, 1, LLM_STATE_SNAPSHOT);
    llm_seq_clear(rig->context, 1);
    assert_true(load(rig, 2, &saved));
    int32_t len = (int32_t)branch.len;
    expect_right(rig, 2, &branch, len, 12);
    assert_true(load(rig, 0, &saved)); /* whose cells nobody shares any more */
    expect_right(rig, 0, &branch, len, 13);
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&branch);
}

/* ---- Checkpoints ---- */

static void only_what_cannot_be_cut_has_a_checkpoint(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 20, PROMPT);
    for (enum llm_state what = LLM_STATE_SNAPSHOT; what <= LLM_STATE_CHECKPOINT; what++)
        assert_int_equal(llm_seq_state_size(rig->context, 0, what), 0); /* of an empty sequence */
    put(rig, 0, &prompt, 0);
    size_t checkpoint = llm_seq_state_size(rig->context, 0, LLM_STATE_CHECKPOINT);
    size_t whole = llm_seq_state_size(rig->context, 0, LLM_STATE_SNAPSHOT);
    assert_int_equal(checkpoint > 0, !rig->arch->cuts_anywhere);
    assert_true(checkpoint <= whole);
    uint8_t byte = 0;
    if (checkpoint == 0) assert_int_equal(llm_seq_save(rig->context, 0, LLM_STATE_CHECKPOINT, &byte, 1), 0);
    assert_int_equal(llm_seq_save(rig->context, 0, LLM_STATE_SNAPSHOT, &byte, 1), 0); /* too few bytes for it */
    tokens_release(&prompt);
}

static void a_sequence_rewinds_to_its_checkpoint(struct rig *rig)
{
    if (rig->arch->cuts_anywhere) return;
    struct tokens prompt = random_tokens(rig, 21, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_CHECKPOINT);
    decode_other_tokens(rig, 0, &prompt, PROMPT, 22);
    assert_true(rewind_to(rig, 0, &saved));
    expect_right(rig, 0, &prompt, PROMPT, 23);
    assert_true(rewind_to(rig, 0, &saved)); /* a second time, from other tokens */
    expect_right(rig, 0, &prompt, PROMPT, 24);
    assert_true(rewind_to(rig, 0, &saved)); /* and not from anywhere else */
    assert_true(rewind_to(rig, 0, &saved));
    expect_right(rig, 0, &prompt, PROMPT, 25);
    free(saved.bytes);
    tokens_release(&prompt);
}

/* The window before the first checkpoint was overwritten long ago when the sequence rewinds to it. */
static void a_sequence_rewinds_to_any_of_several_checkpoints_but_never_forward(struct rig *rig)
{
    if (rig->arch->cuts_anywhere) return;
    struct tokens prompt = random_tokens(rig, 26, WINDOW - OWN), start = {0};
    tokens_append(&start, prompt.v, HALF);
    put(rig, 0, &start, 0);
    struct saved first = save(rig, 0, LLM_STATE_CHECKPOINT);
    tokens_append(&start, prompt.v + HALF, PROMPT - HALF);
    put(rig, 0, &start, HALF);
    struct saved second = save(rig, 0, LLM_STATE_CHECKPOINT);
    put(rig, 0, &prompt, PROMPT);
    assert_true(rewind_to(rig, 0, &second));
    expect_right(rig, 0, &prompt, PROMPT, 27);
    assert_true(rewind_to(rig, 0, &first));
    expect_right(rig, 0, &prompt, HALF, 28);
    assert_true(rewind_to(rig, 0, &first));
    assert_false(rewind_to(rig, 0, &second)); /* the cells between the two are gone */
    expect_empty(rig, 0, "forward");
    expect_right(rig, 0, &prompt, 0, 29);
    free(first.bytes);
    free(second.bytes);
    tokens_release(&prompt);
    tokens_release(&start);
}

static void rewinding_leaves_a_sharer_whole(struct rig *rig)
{
    if (rig->arch->cuts_anywhere) return;
    struct tokens prompt = random_tokens(rig, 30, PROMPT), branch = branch_of(rig, &prompt, PROMPT, 31);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_CHECKPOINT);
    put(rig, 0, &branch, PROMPT);
    assert_true(llm_seq_share(rig->context, 0, 1, (int32_t)branch.len));
    decode_other_tokens(rig, 2, &prompt, 0, 32); /* makes the copies between streams */
    assert_true(rewind_to(rig, 0, &saved));
    expect_right(rig, 1, &branch, (int32_t)branch.len, 33);
    expect_right(rig, 0, &prompt, PROMPT, 34);
    assert_true(rewind_to(rig, 1, &saved)); /* it holds the same first cells */
    expect_right(rig, 1, &prompt, PROMPT, 35);
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&branch);
}

static void a_checkpoint_is_refused_without_the_cells_it_completes(struct rig *rig)
{
    if (rig->arch->cuts_anywhere) return;
    struct tokens prompt = random_tokens(rig, 36, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, LLM_STATE_CHECKPOINT);
    llm_seq_clear(rig->context, 0);
    assert_false(rewind_to(rig, 0, &saved));
    expect_empty(rig, 0, "rewind of nothing");
    decode_other_tokens(rig, 0, &prompt, 0, 37); /* fewer cells than the state completes */
    assert_false(rewind_to(rig, 0, &saved));
    expect_empty(rig, 0, "rewind of too little");
    expect_right(rig, 0, &prompt, 0, 38);
    free(saved.bytes);
    tokens_release(&prompt);
}

/* ---- Faults ---- */

typedef bool restoring(struct rig *rig, int32_t seq, const struct saved *saved);

/* Tried on a sequence that holds enough for a checkpoint. Other sequences stay right, and it can be used again. */
static void expect_refused(struct rig *rig, restoring *restore, const struct saved *saved, const char *what)
{
    struct tokens other = random_tokens(rig, 40, PROMPT);
    llm_seq_clear(rig->context, 1);
    put(rig, 1, &other, 0);
    if (restore(rig, 1, saved)) fail_msg("%s, %s, %s: taken for a state", rig->arch->name, layout(rig), what);
    expect_empty(rig, 1, what);
    tokens_release(&other);
}

static void expect_faults_refused(struct rig *rig, restoring *restore, const struct saved *saved)
{
    static const size_t ends[] = {1, 4, 7, 8, 11, 12, 15, 16, 40};
    static const size_t header[] = {0, 3, 8, 12};
    for (size_t i = 0; i < 2 * sizeof ends / sizeof *ends; i++) {
        size_t size = i % 2 == 0 ? ends[i / 2] : saved->size - ends[i / 2];
        struct saved cut = {.bytes = mem_alloc(size), .size = size, .n = saved->n};
        memcpy(cut.bytes, saved->bytes, size);
        expect_refused(rig, restore, &cut, "truncated");
        free(cut.bytes);
    }
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        uint8_t *byte = (uint8_t *)saved->bytes + header[i];
        *byte ^= 1;
        expect_refused(rig, restore, saved, "a bit of the header is wrong");
        *byte ^= 1;
    }
    struct saved longer = {.bytes = mem_alloc(saved->size + 1), .size = saved->size + 1, .n = saved->n};
    memcpy(longer.bytes, saved->bytes, saved->size);
    expect_refused(rig, restore, &longer, "a byte too many");
    free(longer.bytes);
    expect_refused(rig, restore, &(struct saved){.n = saved->n}, "no bytes");
    for (int32_t off = -1; off <= 1; off += 2) {
        struct saved wrong = {.bytes = saved->bytes, .size = saved->size, .n = saved->n + off};
        expect_refused(rig, restore, &wrong, "not so many tokens");
    }
}

static void a_damaged_state_leaves_the_sequence_empty_and_the_others_whole(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 41, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved whole = save(rig, 0, LLM_STATE_SNAPSHOT);
    expect_faults_refused(rig, load, &whole);
    if (!rig->arch->cuts_anywhere) {
        struct saved checkpoint = save(rig, 0, LLM_STATE_CHECKPOINT);
        expect_faults_refused(rig, rewind_to, &checkpoint);
        free(checkpoint.bytes);
    }
    expect_right(rig, 1, &prompt, 0, 42);
    expect_right(rig, 0, &prompt, PROMPT, 43);
    assert_true(load(rig, 1, &whole));
    expect_right(rig, 1, &prompt, PROMPT, 44);
    free(whole.bytes);
    tokens_release(&prompt);
}

static void a_snapshot_that_finds_no_cells_is_refused(struct rig *rig)
{
    bool has_cells = llm_model_info(rig->model)->kind != HEARTH_KIND_RECURRENT;
    if (!rig->unified || !has_cells) return;
    struct llm_context_params params = context_params(WINDOW, 2);
    params.type_k = params.type_v = "f32";
    params.flash_attention = "off";
    params.unified = true;
    params.n_cells = WINDOW;
    struct rig narrow = *rig;
    narrow.context = open_context(rig->model, &params);
    struct tokens prompt = random_tokens(rig, 45, PROMPT), other = random_tokens(rig, 46, PROMPT + OWN);
    put(&narrow, 0, &prompt, 0);
    struct saved saved = save(&narrow, 0, LLM_STATE_SNAPSHOT);
    llm_seq_clear(narrow.context, 0);
    put(&narrow, 1, &other, 0);
    assert_int_equal(llm_seq_load(narrow.context, 0, saved.bytes, saved.size, saved.n), LLM_NO_ROOM);
    expect_empty(&narrow, 0, "no cells");
    expect_right(&narrow, 1, &other, (int32_t)other.len, 47);
    llm_seq_clear(narrow.context, 1);
    assert_true(load(&narrow, 0, &saved));
    expect_right(&narrow, 0, &prompt, PROMPT, 48);
    llm_context_close(narrow.context);
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&other);
}

/* ---- Copies between streams ---- */

static void expect_nothing_saved(struct rig *rig, int32_t seq)
{
    enum { PLENTY = 1 << 20 };
    void *bytes = mem_alloc(PLENTY);
    for (enum llm_state what = LLM_STATE_SNAPSHOT; what <= LLM_STATE_CHECKPOINT; what++) {
        assert_int_equal(llm_seq_state_size(rig->context, seq, what), 0);
        assert_int_equal(llm_seq_save(rig->context, seq, what, bytes, PLENTY), 0);
    }
    free(bytes);
}

static void a_copy_cannot_be_saved_before_it_is_made(struct rig *rig)
{
    if (rig->unified) return;
    struct tokens prompt = random_tokens(rig, 50, PROMPT), other = random_tokens(rig, 51, PROMPT);
    put(rig, 1, &other, 0);
    put(rig, 0, &prompt, 0);
    assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    expect_nothing_saved(rig, 1);
    struct saved source = save(rig, 0, LLM_STATE_SNAPSHOT);
    struct llm_batch_token bad = {.token = -1};
    assert_int_equal(llm_decode(rig->context, &bad, 1), LLM_REFUSED); /* a call that does not make the copy */
    expect_nothing_saved(rig, 1);
    decode_other_tokens(rig, 2, &prompt, 0, 52);
    struct saved copy = save(rig, 1, LLM_STATE_SNAPSHOT);
    assert_true(load(rig, 3, &source));
    assert_true(load(rig, 4, &copy));
    expect_right(rig, 3, &prompt, PROMPT, 53);
    expect_right(rig, 4, &prompt, PROMPT, 54);
    free(source.bytes);
    free(copy.bytes);
    tokens_release(&prompt);
    tokens_release(&other);
}

/* Data loaded into the source now would be copied, and data in the copy overwritten. */
static void nothing_is_loaded_into_either_end_of_a_copy_before_it_is_made(struct rig *rig)
{
    if (rig->unified) return;
    struct tokens prompt = random_tokens(rig, 55, PROMPT), other = random_tokens(rig, 56, PROMPT);
    put(rig, 2, &other, 0);
    struct saved saved = save(rig, 2, LLM_STATE_SNAPSHOT);
    for (int32_t end = 0; end < 2; end++) {
        llm_seq_clear(rig->context, 0);
        put(rig, 0, &prompt, 0);
        assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
        assert_false(load(rig, end, &saved));
        expect_empty(rig, end, "a copy is under way");
        assert_true(load(rig, 3, &saved)); /* which has no part in it */
        expect_right(rig, 1 - end, &prompt, PROMPT, 57);
        assert_true(load(rig, end, &saved));
        expect_right(rig, end, &other, PROMPT, 58);
        expect_right(rig, 3, &other, PROMPT, 59);
    }
    free(saved.bytes);
    tokens_release(&prompt);
    tokens_release(&other);
}

/* ---- Anything in any order ---- */

/* A saved state, and its tokens. */
struct kept {
    struct saved saved;
    enum llm_state what;
    struct tokens tokens;
};

/* The model of a test of random operations: what each sequence should hold. */
struct belief {
    struct tokens held[N_SEQ];
    struct kept kept[N_STATES];
    uint32_t random;
};

static void random_clear(struct rig *rig, struct belief *belief)
{
    int32_t seq = below(&belief->random, N_SEQ);
    llm_seq_clear(rig->context, seq);
    tokens_truncate(&belief->held[seq], 0);
}

static void random_decode(struct rig *rig, struct belief *belief)
{
    int32_t seq = below(&belief->random, N_SEQ);
    struct tokens *held = &belief->held[seq];
    if (held->len == LONGEST) {
        llm_seq_clear(rig->context, seq);
        tokens_truncate(held, 0);
    }
    int32_t from = (int32_t)held->len, n = 1 + below(&belief->random, LONGEST - from);
    add_random(rig, held, next_random(&belief->random), n);
    put(rig, seq, held, from);
}

/* With a stream each, any decode makes the copy. */
static void random_share(struct rig *rig, struct belief *belief)
{
    int32_t from = below(&belief->random, N_SEQ), to = (from + 1 + below(&belief->random, N_SEQ - 1)) % N_SEQ;
    int32_t n = (int32_t)belief->held[from].len;
    assert_int_equal(llm_seq_share(rig->context, from, to, n), n > 0);
    tokens_truncate(&belief->held[to], 0);
    tokens_append(&belief->held[to], belief->held[from].v, (size_t)n);
    if (!rig->unified) random_decode(rig, belief);
}

static void release_kept(struct kept *kept)
{
    free(kept->saved.bytes);
    tokens_release(&kept->tokens);
    *kept = (struct kept){0};
}

static void random_save(struct rig *rig, struct belief *belief)
{
    struct kept *kept = &belief->kept[below(&belief->random, N_STATES)];
    int32_t seq = below(&belief->random, N_SEQ);
    if (belief->held[seq].len == 0) return;
    release_kept(kept);
    bool checkpoint = !rig->arch->cuts_anywhere && below(&belief->random, 2) == 0;
    kept->what = checkpoint ? LLM_STATE_CHECKPOINT : LLM_STATE_SNAPSHOT;
    kept->saved = save(rig, seq, kept->what);
    tokens_append(&kept->tokens, belief->held[seq].v, belief->held[seq].len);
}

static void random_restore(struct rig *rig, struct belief *belief)
{
    const struct kept *kept = &belief->kept[below(&belief->random, N_STATES)];
    if (kept->saved.size == 0) return;
    for (int32_t i = 0, seq = below(&belief->random, N_SEQ); i < N_SEQ; i++, seq = (seq + 1) % N_SEQ) {
        struct tokens *held = &belief->held[seq];
        bool checkpoint = kept->what == LLM_STATE_CHECKPOINT;
        if (checkpoint && tokens_common_prefix(held, &kept->tokens) < kept->tokens.len) continue;
        assert_true(checkpoint ? rewind_to(rig, seq, &kept->saved) : load(rig, seq, &kept->saved));
        tokens_truncate(held, 0);
        tokens_append(held, kept->tokens.v, kept->tokens.len);
        return;
    }
}

static void two_hundred_random_operations_leave_every_sequence_right(struct rig *rig)
{
    static void (*const operations[])(struct rig *, struct belief *) = {
        random_decode, random_decode, random_decode,  random_decode,  random_share,   random_save,
        random_save,   random_save,   random_restore, random_restore, random_restore, random_clear};
    struct belief belief = {.random = 80};
    for (int i = 0; i < N_OPERATIONS; i++) {
        operations[below(&belief.random, (int32_t)(sizeof operations / sizeof *operations))](rig, &belief);
        for (int32_t seq = 0; seq < N_SEQ; seq++)
            assert_int_equal(llm_seq_end(rig->context, seq), belief.held[seq].len);
    }
    for (int32_t seq = 0; seq < N_SEQ; seq++) {
        expect_branch(rig, seq, &belief.held[seq], (int32_t)belief.held[seq].len, 81);
        tokens_release(&belief.held[seq]);
    }
    for (size_t i = 0; i < N_STATES; i++) release_kept(&belief.kept[i]);
}

/* ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_snapshot_continues_in_another_sequence_as_in_its_own),
        RIG_TEST(a_snapshot_can_be_loaded_when_its_source_is_gone_and_more_than_once),
        RIG_TEST(what_was_loaded_can_be_cut_where_anything_can_and_else_is_not),
        RIG_TEST(a_snapshot_of_a_shared_sequence_is_complete),
        RIG_TEST(only_what_cannot_be_cut_has_a_checkpoint),
        RIG_TEST(a_sequence_rewinds_to_its_checkpoint),
        RIG_TEST(a_sequence_rewinds_to_any_of_several_checkpoints_but_never_forward),
        RIG_TEST(rewinding_leaves_a_sharer_whole),
        RIG_TEST(a_checkpoint_is_refused_without_the_cells_it_completes),
        RIG_TEST(a_damaged_state_leaves_the_sequence_empty_and_the_others_whole),
        RIG_TEST(a_snapshot_that_finds_no_cells_is_refused),
        RIG_TEST(a_copy_cannot_be_saved_before_it_is_made),
        RIG_TEST(nothing_is_loaded_into_either_end_of_a_copy_before_it_is_made),
        RIG_TEST(two_hundred_random_operations_leave_every_sequence_right),
    };
    return cmocka_run_group_tests(tests, rigs_open, rigs_close);
}
