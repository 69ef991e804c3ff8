/* Bytes that are no state, or cannot be loaded where they should be, are refused; the sequence is empty then, and other
 * sequences stay. For every architecture with a decoder and in both layouts. */
#include "slicing.h"

/* ---- Damage ---- */

/* Cuts a copy of exactly its size, so that the sanitizer sees reads out of bounds. */
static bool cuts(const struct rig *rig, bool checkpoint, const char *bytes, size_t size, int32_t n)
{
    struct buf slice = {0};
    struct llm_regions regions = {0};
    char *copy = mem_alloc(size);
    memcpy(copy, bytes, size);
    bool ok = checkpoint ? llm_cut_checkpoint(format_of(rig), copy, size, n, &slice, &regions)
                         : llm_cut_rows(format_of(rig), copy, size, 0, n, &slice, &regions);
    free(copy);
    free(regions.v);
    buf_release(&slice);
    return ok;
}

/* The number of single flipped bits, one in each byte that is in no region, that are not noticed. */
static uint32_t accepted_flips(const struct rig *rig, bool checkpoint, const struct buf *slice, int32_t n)
{
    struct buf again = {0};
    struct llm_regions regions = {0};
    uint32_t accepted = 0, seed = 30;
    size_t region = 0;
    if (checkpoint)
        assert_true(llm_cut_checkpoint(format_of(rig), slice->v, slice->len, n, &again, &regions));
    else
        assert_true(llm_cut_rows(format_of(rig), slice->v, slice->len, 0, n, &again, &regions));
    for (size_t at = 0; at < slice->len; at++) {
        if (region < regions.len && at == regions.v[region].offset) at += regions.v[region++].size;
        if (at == slice->len) break;
        char flip = (char)(1 << below(&seed, 8));
        slice->v[at] ^= flip;
        accepted += cuts(rig, checkpoint, slice->v, slice->len, n);
        slice->v[at] ^= flip;
    }
    free(regions.v);
    buf_release(&again);
    return accepted;
}

static void expect_truncated_refused(const struct rig *rig, bool checkpoint, const struct buf *slice, int32_t n)
{
    for (size_t size = 0; size < slice->len; size += size < 600 ? 1 : 997)
        if (cuts(rig, checkpoint, slice->v, size, n)) fail_in(rig, "half a state is cut");
    if (cuts(rig, checkpoint, slice->v, slice->len - 1, n)) fail_in(rig, "a byte less is cut");
    char *longer = mem_alloc(slice->len + 1);
    memcpy(longer, slice->v, slice->len);
    if (cuts(rig, checkpoint, longer, slice->len + 1, n)) fail_in(rig, "a byte more is cut");
    free(longer);
}

/* The sequence that the bytes came from is not read: 4 bytes, and 4 of each cell. With the extension, 12 of each are
 * not read either. */
static void what_is_not_a_state_is_not_cut(struct rig *rig)
{
    enum { FEW = 24 };
    struct tokens prompt = random_tokens(rig, 31, FEW);
    bool places = strcmp(rig->arch->name, "qwen2vl") == 0 || strcmp(rig->arch->name, "qwen35") == 0;
    put(rig, 0, &prompt, 0);
    if (llm_state_format_has_rows(format_of(rig))) {
        struct buf slice = {0};
        cut_rows(rig, 0, 0, FEW, &slice);
        assert_int_equal(accepted_flips(rig, false, &slice, FEW), 4 + FEW * (places ? 16 : 4));
        expect_truncated_refused(rig, false, &slice, FEW);
        assert_false(cuts(rig, false, slice.v, slice.len, FEW + 1));
        buf_release(&slice);
    }
    if (llm_state_format_has_checkpoints(format_of(rig))) {
        struct buf slice = {0};
        bool window = llm_model_info(rig->model)->n_swa > 0;
        cut_checkpoint(rig, 0, FEW, &slice);
        assert_int_equal(accepted_flips(rig, true, &slice, FEW), window ? 4 + FEW * 4 : 4);
        expect_truncated_refused(rig, true, &slice, FEW);
        assert_false(cuts(rig, true, slice.v, slice.len, FEW + 1));
        assert_false(cuts(rig, true, slice.v, slice.len, FEW - 1));
        buf_release(&slice);
    }
    tokens_release(&prompt);
}

/* Every bit of a random byte of the structure, or of any: either refused with an empty sequence, or loaded. */
static void damaged_rows_are_refused_and_other_sequences_stay(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    struct tokens prompt = random_tokens(rig, 32, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    uint32_t seed = 33;
    for (int i = 0; i < 200 && llm_state_format_appends(format); i++) {
        struct buf *rows = &saved.rows[0];
        struct llm_state_slice slice = slice_of(&saved, 0);
        int32_t at = below(&seed, i % 2 == 0 ? 200 : (int32_t)rows->len);
        char flip = (char)(1 << below(&seed, 8));
        rows->v[at] ^= flip;
        llm_seq_clear(rig->context, 1);
        if (llm_rows_load(rig->context, format, 1, &slice) != LLM_LOADED)
            assert_int_equal(llm_seq_end(rig->context, 1), 0);
        rows->v[at] ^= flip;
    }
    for (int i = 0; i < 100 && llm_state_format_has_checkpoints(format); i++) {
        int32_t at = below(&seed, i % 2 == 0 && saved.checkpoint.len > 100 ? 100 : (int32_t)saved.checkpoint.len);
        char flip = (char)(1 << below(&seed, 8));
        saved.checkpoint.v[at] ^= flip;
        llm_seq_clear(rig->context, 1);
        if (!load_checkpoint(rig, 1, &saved)) assert_int_equal(llm_seq_end(rig->context, 1), 0);
        saved.checkpoint.v[at] ^= flip;
    }
    expect_holds(rig, 0, &saved);
    load(rig, 1, &saved);
    expect_right(rig, 1, &prompt, 34);
    expect_right(rig, 0, &prompt, 35);
    release(&saved);
    tokens_release(&prompt);
}

/* ---- What cannot be loaded ---- */

static void rows_must_follow_one_another(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    if (!llm_state_format_has_rows(format)) return;
    struct tokens prompt = random_tokens(rig, 40, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    struct llm_state_slice second = slice_of(&saved, 1), first = slice_of(&saved, 0), beyond = first, empty = first;
    struct llm_state_slice gap[] = {first, second};
    struct buf joined = {0};
    beyond.to = HALF + 1;
    empty.to = 0;
    gap[1].from++;
    assert_false(llm_join_rows(format, &second, 1, &joined));
    assert_false(llm_join_rows(format, gap, 2, &joined));
    assert_false(llm_join_rows(format, &beyond, 1, &joined));
    assert_false(llm_join_rows(format, &empty, 1, &joined));
    assert_false(llm_join_rows(format, gap, 0, &joined));
    if (llm_state_format_appends(format)) {
        assert_int_equal(llm_rows_load(rig->context, format, 1, &beyond), LLM_BAD_STATE);
        assert_int_equal(llm_rows_load(rig->context, format, 1, &empty), LLM_BAD_STATE);
        if (!llm_state_format_has_checkpoints(format))
            assert_int_equal(llm_rows_load(rig->context, format, 1, &second), LLM_BAD_STATE);
    }
    assert_int_equal(llm_seq_end(rig->context, 1), 0);
    assert_int_equal(llm_rows_size(rig->context, format, 0, 0, PROMPT + 1), 0);
    assert_int_equal(llm_rows_size(rig->context, format, 0, 5, 5), 0);
    assert_int_equal(llm_rows_size(rig->context, format, 0, -1, 5), 0);
    assert_int_equal(llm_rows_size(rig->context, format, 1, 0, 1), 0);
    release(&saved);
    tokens_release(&prompt);
}

static void a_checkpoint_completes_only_as_many_kv_rows(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    if (!llm_state_format_has_rows(format) || !llm_state_format_has_checkpoints(format)) return;
    struct tokens prompt = random_tokens(rig, 41, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    struct llm_state_slice first = slice_of(&saved, 0);
    assert_false(load_checkpoint(rig, 1, &saved));
    assert_int_equal(llm_seq_end(rig->context, 1), 0);
    assert_true(load_rows(rig, 1, &first, 1));
    assert_int_equal(llm_seq_end(rig->context, 1), 0);
    assert_false(load_checkpoint(rig, 1, &saved));
    load(rig, 1, &saved);
    expect_right(rig, 1, &prompt, 42);
    release(&saved);
    tokens_release(&prompt);
}

static void a_pending_copy_is_neither_saved_nor_overwritten(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    if (rig->unified) return;
    struct tokens prompt = random_tokens(rig, 43, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    assert_true(llm_seq_share(rig->context, 0, 1, PROMPT));
    if (llm_state_format_has_rows(format)) {
        struct llm_state_slice slices[] = {slice_of(&saved, 0), slice_of(&saved, 1)};
        assert_int_equal(llm_rows_size(rig->context, format, 1, 0, PROMPT), 0);
        assert_false(load_rows(rig, 1, slices, 2));
    } else {
        assert_false(load_checkpoint(rig, 1, &saved));
    }
    assert_int_equal(llm_seq_end(rig->context, 1), 0);
    expect_right(rig, 0, &prompt, 44); /* makes the copies */
    load(rig, 1, &saved);
    expect_right(rig, 1, &prompt, 45);
    release(&saved);
    tokens_release(&prompt);
}

static struct rig open_narrow(struct rig *rig)
{
    struct llm_context_params params = context_params(WINDOW, 2);
    params.type_k = params.type_v = rig_cells;
    params.flash_attention = rig_flash_attention;
    params.unified = true;
    params.n_cells = WINDOW;
    struct rig narrow = *rig;
    narrow.context = open_context(rig->model, &params);
    return narrow;
}

static void without_free_cells_the_sequence_is_unchanged_and_the_others_whole(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    if (!llm_state_format_appends(format)) return;
    struct rig narrow = open_narrow(rig);
    struct tokens prompt = random_tokens(rig, 46, PROMPT), other = random_tokens(rig, 47, PROMPT + OWN);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    struct llm_state_slice slices[] = {slice_of(&saved, 0), slice_of(&saved, 1)};
    put(&narrow, 1, &other, 0);
    assert_int_equal(llm_rows_load(narrow.context, format, 0, &slices[0]), LLM_LOADED);
    assert_int_equal(llm_rows_load(narrow.context, format, 0, &slices[1]), LLM_NO_ROOM);
    assert_int_equal(llm_seq_end(narrow.context, 0), llm_state_format_has_checkpoints(format) ? 0 : HALF);
    llm_seq_clear(narrow.context, 1);
    assert_int_equal(llm_rows_load(narrow.context, format, 0, &slices[1]), LLM_LOADED);
    assert_true(load_checkpoint(&narrow, 0, &saved));
    expect_holds(&narrow, 0, &saved); /* its cells have another order: sums differ in the last bits */
    llm_context_close(narrow.context);
    narrow = open_narrow(rig);
    put(&narrow, 1, &other, 0);
    assert_int_equal(llm_rows_load(narrow.context, format, 0, &slices[0]), LLM_LOADED);
    assert_int_equal(llm_rows_load(narrow.context, format, 0, &slices[1]), LLM_NO_ROOM);
    llm_seq_clear(narrow.context, 0);
    expect_branch(&narrow, 1, &other, PROMPT + OWN, 48);
    llm_context_close(narrow.context);
    release(&saved);
    tokens_release(&prompt);
    tokens_release(&other);
}

/* Cells of a window that several sequences share are free for nobody, however far those have got: a long sequence that
 * is shared whole leaves no cells for another window. */
static void a_checkpoint_is_refused_while_others_hold_all_windows_and_fits_when_one_is_cleared(struct rig *rig)
{
    enum { LONG = 400, CELLS = 512 };
    const struct llm_state_format *format = format_of(rig);
    if (!llm_state_format_appends(format) || llm_model_info(rig->model)->n_swa <= 0) return;
    struct llm_context_params params = context_params(CELLS, 4);
    params.type_k = params.type_v = rig_cells;
    params.flash_attention = rig_flash_attention;
    params.unified = true;
    params.n_cells = 4 * CELLS;
    params.n_ubatch = CHUNK; /* windows have 256 cells then */
    struct rig wide = *rig;
    wide.context = open_context(rig->model, &params);
    struct tokens prompt = random_tokens(rig, 49, LONG);
    struct buf rows = {0}, checkpoint = {0};
    put(&wide, 0, &prompt, 0);
    cut_rows(&wide, 0, 0, LONG, &rows);
    cut_checkpoint(&wide, 0, LONG, &checkpoint);
    size_t size = llm_seq_state_size(wide.context, 0, LLM_STATE_CHECKPOINT);
    void *state = mem_alloc(size);
    assert_int_equal(llm_seq_save(wide.context, 0, LLM_STATE_CHECKPOINT, state, size), size);
    struct llm_state_slice slice = {.bytes = rows.v, .size = rows.len, .to = LONG};
    assert_true(llm_seq_share(wide.context, 0, 1, LONG));
    assert_true(llm_seq_share(wide.context, 0, 3, LONG));
    assert_int_equal(llm_rows_load(wide.context, format, 2, &slice), LLM_LOADED);
    for (int i = 0; i < 2; i++) /* it can be loaded again */
        assert_int_equal(llm_checkpoint_load(wide.context, format, 2, checkpoint.v, checkpoint.len, LONG), LLM_NO_ROOM);
    assert_int_equal(llm_seq_rewind(wide.context, 3, state, size, LONG), LLM_NO_ROOM);
    assert_int_equal(llm_seq_end(wide.context, 3), 0);
    llm_seq_clear(wide.context, 1);
    assert_int_equal(llm_checkpoint_load(wide.context, format, 2, checkpoint.v, checkpoint.len, LONG), LLM_LOADED);
    assert_int_equal(llm_seq_end(wide.context, 2), LONG);
    assert_int_equal(llm_seq_end(wide.context, 0), LONG);
    llm_context_close(wide.context);
    buf_release(&rows);
    buf_release(&checkpoint);
    free(state);
    tokens_release(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(what_is_not_a_state_is_not_cut),
        RIG_TEST(damaged_rows_are_refused_and_other_sequences_stay),
        RIG_TEST(rows_must_follow_one_another),
        RIG_TEST(a_checkpoint_completes_only_as_many_kv_rows),
        RIG_TEST(a_pending_copy_is_neither_saved_nor_overwritten),
        RIG_TEST(without_free_cells_the_sequence_is_unchanged_and_the_others_whole),
        RIG_TEST(a_checkpoint_is_refused_while_others_hold_all_windows_and_fits_when_one_is_cleared),
    };
    int failed = 0;
    RUN_IN_EVERY_VARIANT(tests, failed)
    return failed;
}
