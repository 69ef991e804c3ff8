/* States cut into slices and joined again, for every architecture with a decoder and in both layouts. */
#include "slicing.h"

/* ---- Loading ---- */

static void slices_cut_anywhere_continue_as_a_cold_run(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 1, PROMPT);
    put(rig, 0, &prompt, 0);
    for (uint32_t seed = 1; seed <= 3; seed++) {
        struct saved saved = save(rig, 0, seed);
        load(rig, 1, &saved);
        expect_holds(rig, 1, &saved);
        expect_right(rig, 1, &prompt, seed);
        release(&saved);
    }
    expect_right(rig, 0, &prompt, 4);
    tokens_release(&prompt);
}

static void a_sequence_of_any_length_comes_back(struct rig *rig)
{
    uint32_t seed = 5;
    for (int i = 0; i < 5; i++) {
        struct tokens prompt = random_tokens(rig, seed, i == 0 ? 2 : 2 + below(&seed, PROMPT));
        clear_all(rig);
        put(rig, 0, &prompt, 0);
        struct saved saved = save(rig, 0, seed);
        llm_seq_clear(rig->context, 0);
        load(rig, 0, &saved);
        expect_holds(rig, 0, &saved);
        expect_right(rig, 0, &prompt, seed);
        release(&saved);
        tokens_release(&prompt);
    }
}

static void slices_of_one_layout_load_in_the_other(struct rig *rig)
{
    struct rig *other = other_layout(rig);
    struct tokens prompt = random_tokens(rig, 6, PROMPT), here = random_tokens(rig, 7, HALF);
    put(rig, 1, &here, 0);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 8);
    clear_all(other);
    put(other, 0, &here, 0);
    load(other, 3, &saved);
    expect_holds(other, 3, &saved);
    expect_right(other, 3, &prompt, 9);
    expect_right(other, 0, &here, 10);
    release(&saved);
    tokens_release(&prompt);
    tokens_release(&here);
}

/* Computes two prompts in turn, so that in one pool neither has its cells side by side; in calls that no window is a
 * multiple of, or in those of a cold run where its bits are expected. */
static void interleave(struct rig *rig, const struct tokens *even, const struct tokens *odd)
{
    int32_t step = repeats_bits(rig) ? CHUNK : 7;
    for (int32_t at = 0; at < PROMPT; at += step) {
        int32_t end = at + step < PROMPT ? at + step : PROMPT;
        assert_int_equal(decode_range(rig->context, even, 0, at, end, step), LLM_DECODED);
        assert_int_equal(decode_range(rig->context, odd, 1, at, end, step), LLM_DECODED);
    }
}

static void scattered_cells_are_saved_in_the_order_of_their_positions(struct rig *rig)
{
    struct tokens even = random_tokens(rig, 11, PROMPT), odd = random_tokens(rig, 12, PROMPT);
    interleave(rig, &even, &odd);
    struct saved first = save(rig, 0, 13), second = save(rig, 1, 14);
    llm_seq_clear(rig->context, 0); /* leaves holes in a unified KV cache, where the first tokens were */
    struct tokens hole = random_tokens(rig, 15, HALF + 3);
    put(rig, 2, &hole, 0);
    load(rig, 3, &second);
    expect_holds(rig, 3, &second);
    load(rig, 0, &first);
    expect_holds(rig, 0, &first);
    expect_holds(rig, 1, &second);
    for (int32_t seq = 0; seq < 4; seq++) {
        const struct tokens *of[] = {&even, &odd, &hole, &odd};
        expect_right(rig, seq, of[seq], (uint32_t)(16 + seq));
    }
    release(&first);
    release(&second);
    tokens_release(&even);
    tokens_release(&odd);
    tokens_release(&hole);
}

static void saving_changes_nothing(struct rig *rig)
{
    struct tokens prompt = random_tokens(rig, 20, PROMPT), tokens = branch_of(rig, &prompt, PROMPT, 21);
    size_t size = (size_t)rig->n_vocab * sizeof(float);
    put(rig, 0, &tokens, 0);
    float *undisturbed = mem_alloc(size);
    memcpy(undisturbed, llm_logits(rig->context, (PROMPT + OWN - 1) % CHUNK), size);
    llm_seq_clear(rig->context, 0);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 22);
    put(rig, 0, &tokens, PROMPT);
    assert_memory_equal(llm_logits(rig->context, (OWN - 1) % CHUNK), undisturbed, size);
    free(undisturbed);
    release(&saved);
    tokens_release(&prompt);
    tokens_release(&tokens);
}

static void kv_rows_around_the_wanted_ones_are_left_out(struct rig *rig)
{
    if (!llm_state_format_has_rows(format_of(rig))) return;
    struct tokens prompt = random_tokens(rig, 23, PROMPT);
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0), overlapping = saved;
    struct buf all = {0};
    cut_rows(rig, 0, 0, PROMPT, &all);
    const struct llm_state_slice slices[] = {
        {.bytes = all.v, .size = all.len, .from = 0, .to = 9},
        {.bytes = saved.rows[0].v, .size = saved.rows[0].len, .from = 9, .to = HALF - 1},
        {.bytes = all.v, .size = all.len, .from = HALF - 1, .to = HALF + 1},
        {.bytes = saved.rows[1].v, .size = saved.rows[1].len, .from = HALF + 1, .to = PROMPT},
    };
    assert_true(load_rows(rig, 1, slices, 4));
    assert_true(load_checkpoint(rig, 1, &overlapping));
    expect_holds(rig, 1, &saved);
    expect_right(rig, 1, &prompt, 24);
    buf_release(&all);
    release(&saved);
    tokens_release(&prompt);
}

static void a_slice_is_cut_like_the_raw_state(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    if (!llm_state_format_has_rows(format)) return;
    struct tokens prompt = random_tokens(rig, 25, PROMPT);
    struct buf all = {0}, direct = {0}, again = {0};
    put(rig, 0, &prompt, 0);
    cut_rows(rig, 0, 0, PROMPT, &all);
    for (int32_t from = 0; from < PROMPT; from += 41) {
        struct llm_regions regions;
        int32_t to = from + 41 < PROMPT ? from + 41 : PROMPT;
        cut_rows(rig, 0, from, to, &direct);
        assert_true(llm_cut_rows(format, all.v, all.len, from, to, &again, &regions));
        expect_same(rig, &again, &direct, "cut twice is cut otherwise");
        free(regions.v);
    }
    buf_release(&all);
    buf_release(&direct);
    buf_release(&again);
    tokens_release(&prompt);
}

/* Recurrent and SWA states are left out, but for the tiny states of a model with windows. */
static void in_a_unified_kv_cache_only_the_rows_are_copied(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    bool both = llm_model_info(rig->model)->kind == HEARTH_KIND_HYBRID && llm_model_info(rig->model)->n_swa > 0;
    if (!llm_state_format_appends(format) || both) return;
    struct tokens prompt = random_tokens(rig, 27, PROMPT);
    struct buf slice = {0};
    put(rig, 0, &prompt, 0);
    cut_rows(rig, 0, HALF, PROMPT, &slice);
    assert_int_equal(llm_rows_size(rig->context, format, 0, HALF, PROMPT), slice.len);
    buf_release(&slice);
    tokens_release(&prompt);
}

/* ---- Regions ---- */

static void expect_regions(const struct rig *rig, const struct buf *slice, const struct llm_regions *regions)
{
    uint64_t end = 0;
    for (size_t i = 0; i < regions->len; i++) {
        const struct llm_region *r = &regions->v[i];
        if (strchr("KVvRSM", r->what) == NULL || r->offset < end || r->size != r->rows * r->row_bytes)
            fail_in(rig, "a region that cannot be");
        end = r->offset + r->size;
    }
    assert_true(end <= slice->len);
}

static void regions_name_every_table_of_a_slice(struct rig *rig)
{
    const struct llm_state_format *format = format_of(rig);
    struct tokens prompt = random_tokens(rig, 26, PROMPT);
    struct llm_regions regions;
    put(rig, 0, &prompt, 0);
    struct saved saved = save(rig, 0, 0);
    if (llm_state_format_has_rows(format)) {
        struct buf again = {0};
        uint64_t bytes = 0;
        assert_true(llm_cut_rows(format, saved.rows[0].v, saved.rows[0].len, 0, HALF, &again, &regions));
        expect_regions(rig, &again, &regions);
        for (size_t i = 0; i < regions.len; i++) bytes += regions.v[i].row_bytes;
        assert_int_equal(bytes, llm_state_format_row_bytes(format));
        free(regions.v);
        buf_release(&again);
    }
    if (llm_state_format_has_checkpoints(format)) {
        struct buf again = {0};
        assert_true(llm_cut_checkpoint(format, saved.checkpoint.v, saved.checkpoint.len, PROMPT, &again, &regions));
        expect_same(rig, &again, &saved.checkpoint, "what moves is cut otherwise a second time");
        expect_regions(rig, &again, &regions);
        free(regions.v);
        buf_release(&again);
    }
    release(&saved);
    tokens_release(&prompt);
}

/* ---- Opening a format ---- */

static void expect_unsupported(struct llm_context *context, const char *why)
{
    hearth_error error = {0};
    assert_null(llm_state_format_open(context, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    if (strstr(error.message, why) == NULL) fail_msg("%s", error.message);
    for (int32_t seq = 0; seq < 2; seq++) assert_int_equal(llm_seq_end(context, seq), 0);
    llm_context_close(context);
}

static bool always(void *ud)
{
    (void)ud;
    return true;
}

static void what_cannot_be_stored_is_said_in_one_line(void **state)
{
    (void)state;
    struct llm_context_params params = context_params(WINDOW, 256);
    params.unified = true;
    params.n_cells = WINDOW;
    expect_unsupported(open_context(models[0], &params), "take one less");
    params = context_params(WINDOW, 2);
    params.window = 8;
    expect_unsupported(open_context(models[0], &params), "computed");
    params = context_params(WINDOW, 2);
    params.abort = always;
    expect_unsupported(open_context(models[0], &params), "computed");
}

static void one_sequence_is_enough_and_so_are_small_batches(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++) {
        for (int unified = 0; unified < 2; unified++) {
            hearth_error error = {0};
            struct llm_context_params params = context_params(WINDOW, 1);
            params.unified = unified == 1;
            params.n_batch = params.n_ubatch = 3;
            struct llm_context *context = open_context(models[i], &params);
            struct llm_state_format *format = llm_state_format_open(context, &error);
            if (format == NULL) fail_msg("%s: %s", archs[i].name, error.message);
            assert_int_equal(llm_seq_end(context, 0), 0);
            llm_state_format_close(format);
            llm_context_close(context);
        }
    }
}

/* The scratch sequence. */
static void the_last_sequence_is_still_refused_to_others(struct rig *rig)
{
    struct llm_batch_token row = {.seq = N_SEQ};
    assert_int_equal(llm_decode(rig->context, &row, 1), LLM_REFUSED);
    assert_int_equal(llm_state_format_has_rows(format_of(rig)),
                     llm_model_info(rig->model)->kind != HEARTH_KIND_RECURRENT);
    assert_int_equal(llm_state_format_has_checkpoints(format_of(rig)), !llm_cuts_anywhere(rig->context));
    assert_int_equal(llm_state_format_appends(format_of(rig)),
                     rig->unified && llm_state_format_has_rows(format_of(rig)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_last_sequence_is_still_refused_to_others),
        RIG_TEST(slices_cut_anywhere_continue_as_a_cold_run),
        RIG_TEST(a_sequence_of_any_length_comes_back),
        RIG_TEST(slices_of_one_layout_load_in_the_other),
        RIG_TEST(scattered_cells_are_saved_in_the_order_of_their_positions),
        RIG_TEST(saving_changes_nothing),
        RIG_TEST(kv_rows_around_the_wanted_ones_are_left_out),
        RIG_TEST(a_slice_is_cut_like_the_raw_state),
        RIG_TEST(in_a_unified_kv_cache_only_the_rows_are_copied),
        RIG_TEST(regions_name_every_table_of_a_slice),
        cmocka_unit_test(what_cannot_be_stored_is_said_in_one_line),
        cmocka_unit_test(one_sequence_is_enough_and_so_are_small_batches),
    };
    int failed = 0;
    RUN_IN_EVERY_VARIANT(tests, failed)
    return failed;
}
