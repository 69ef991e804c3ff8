/* Helpers for tests of slices: a state format for every rig, states that are cut into slices and loaded, and the
 * oracles: what is saved again has the same bytes, and a cold run. Each test runs with values transposed and not, and
 * with quantised cells. Without patches/0002, and on processors that it is not for, flash attention sums cells of 16
 * bits in 16 bits: the same cells at other indices made a difference of up to 6e-3 there, of 2e-5 elsewhere. */
#ifndef UNIT_LLM_CUTTING_H
#define UNIT_LLM_CUTTING_H

#include "rigs.h"

#include "llm/state_slices.h"

enum { MAX_CUTS = 8, HALF = PROMPT / 2 };

static struct llm_state_format *formats[2 * N_ARCHS];

static inline struct llm_state_format *format_of(const struct rig *rig)
{
    size_t i = 0;
    while (archs + i / 2 != rig->arch || (i % 2 == 1) != rig->unified) i++;
    return formats[i];
}

static inline struct rig *other_layout(struct rig *rig)
{
    return &rigs[(rig - rigs) ^ 1];
}

static const char *layout(const struct rig *rig)
{
    return rig->unified ? "unified" : "split";
}

static inline void fail_in(const struct rig *rig, const char *what)
{
    fail_msg("%s, %s, %s: %s", rig->arch->name, layout(rig), rig_cells, what);
}

/* ---- Pieces ---- */

/* All KV rows of n tokens in some slices, and the checkpoint after them. */
struct saved {
    struct buf rows[MAX_CUTS], checkpoint;
    int32_t bounds[MAX_CUTS + 1];
    size_t n_slices;
    int32_t n;
};

static inline void release(struct saved *saved)
{
    for (size_t i = 0; i < MAX_CUTS; i++) buf_release(&saved->rows[i]);
    buf_release(&saved->checkpoint);
}

static inline void cut_rows(struct rig *rig, int32_t seq, int32_t from, int32_t to, struct buf *slice)
{
    const struct llm_state_format *format = format_of(rig);
    struct llm_regions regions;
    size_t size = llm_rows_size(rig->context, format, seq, from, to);
    if (size == 0) fail_in(rig, "no rows");
    void *raw = mem_alloc(size);
    assert_int_equal(llm_rows_save(rig->context, format, seq, from, to, raw, size), size);
    if (!llm_cut_rows(format, raw, size, from, to, slice, &regions)) fail_in(rig, "rows are not cut");
    free(regions.v);
    free(raw);
}

static inline void cut_checkpoint(struct rig *rig, int32_t seq, int32_t n, struct buf *slice)
{
    struct llm_regions regions;
    size_t size = llm_seq_state_size(rig->context, seq, LLM_STATE_CHECKPOINT);
    assert_true(size > 0);
    void *raw = mem_alloc(size);
    assert_int_equal(llm_seq_save(rig->context, seq, LLM_STATE_CHECKPOINT, raw, size), size);
    if (!llm_cut_checkpoint(format_of(rig), raw, size, n, slice, &regions)) fail_in(rig, "what moves is not cut");
    free(regions.v);
    free(raw);
}

/* Cuts at random positions; with a seed of 0 in the middle. */
static inline void choose_cuts(struct saved *saved, int32_t n, uint32_t seed)
{
    bool cut[PROMPT + OWN + 1] = {[HALF] = seed == 0};
    for (int i = 1; i < MAX_CUTS && seed != 0; i++) cut[1 + below(&seed, n - 1)] = true;
    saved->n = n;
    for (int32_t i = 1; i <= n; i++)
        if (cut[i] || i == n) saved->bounds[++saved->n_slices] = i;
}

static inline struct saved save(struct rig *rig, int32_t seq, uint32_t seed)
{
    struct saved saved = {0};
    choose_cuts(&saved, llm_seq_end(rig->context, seq), seed);
    for (size_t i = 0; i < saved.n_slices && llm_state_format_has_rows(format_of(rig)); i++)
        cut_rows(rig, seq, saved.bounds[i], saved.bounds[i + 1], &saved.rows[i]);
    if (llm_state_format_has_checkpoints(format_of(rig))) cut_checkpoint(rig, seq, saved.n, &saved.checkpoint);
    return saved;
}

static inline bool load_rows(struct rig *rig, int32_t seq, const struct llm_state_slice *slices, size_t n)
{
    const struct llm_state_format *format = format_of(rig);
    if (llm_state_format_appends(format)) {
        for (size_t i = 0; i < n; i++)
            if (llm_rows_load(rig->context, format, seq, &slices[i]) != LLM_LOADED) return false;
        return true;
    }
    struct buf joined = {0};
    bool ok = llm_join_rows(format, slices, n, &joined) &&
              llm_rows_load_all(rig->context, format, seq, joined.v, joined.len, slices[n - 1].to);
    buf_release(&joined);
    return ok;
}

static inline bool load_checkpoint(struct rig *rig, int32_t seq, const struct saved *saved)
{
    return !llm_state_format_has_checkpoints(format_of(rig)) ||
           llm_checkpoint_load(rig->context, format_of(rig), seq, saved->checkpoint.v, saved->checkpoint.len,
                               saved->n) == LLM_LOADED;
}

static inline struct llm_state_slice slice_of(const struct saved *saved, size_t i)
{
    return (struct llm_state_slice){
        .bytes = saved->rows[i].v, .size = saved->rows[i].len, .from = saved->bounds[i], .to = saved->bounds[i + 1]};
}

static inline void load(struct rig *rig, int32_t seq, const struct saved *saved)
{
    struct llm_state_slice slices[MAX_CUTS];
    for (size_t i = 0; i < saved->n_slices; i++) slices[i] = slice_of(saved, i);
    llm_seq_clear(rig->context, seq);
    if (llm_state_format_has_rows(format_of(rig)) && !load_rows(rig, seq, slices, saved->n_slices))
        fail_in(rig, "rows are not loaded");
    if (!load_checkpoint(rig, seq, saved)) fail_in(rig, "what moves is not loaded");
}

static inline void expect_same(const struct rig *rig, const struct buf *a, const struct buf *b, const char *what)
{
    if (a->len != b->len || (a->len > 0 && memcmp(a->v, b->v, a->len) != 0)) fail_in(rig, what);
}

/* The same cuts give the same bytes. */
static inline void expect_holds(struct rig *rig, int32_t seq, const struct saved *saved)
{
    struct buf slice = {0};
    for (size_t i = 0; i < saved->n_slices && llm_state_format_has_rows(format_of(rig)); i++) {
        cut_rows(rig, seq, saved->bounds[i], saved->bounds[i + 1], &slice);
        expect_same(rig, &slice, &saved->rows[i], "other rows");
    }
    if (llm_state_format_has_checkpoints(format_of(rig))) {
        cut_checkpoint(rig, seq, saved->n, &slice);
        expect_same(rig, &slice, &saved->checkpoint, "another state");
    }
    buf_release(&slice);
}

/* With a stream each and no window, loaded cells have the indices of a cold run, and its bits if they were computed in
 * the same calls. */
static inline bool repeats_bits(const struct rig *rig)
{
    return !rig->unified && llm_model_info(rig->model)->n_swa <= 0;
}

static inline void expect_right(struct rig *rig, int32_t seq, const struct tokens *prompt, uint32_t seed)
{
    int32_t n = (int32_t)prompt->len;
    struct tokens tokens = branch_of(rig, prompt, n, seed);
    expect_goes_on(rig, seq, &tokens, n);
    const float *warm = llm_logits(rig->context, (OWN - 1) % CHUNK),
                *cold = llm_logits(rig->cold, (n + OWN - 1) % CHUNK);
    bool exact = repeats_bits(rig) && n % CHUNK == 0;
    if (exact && memcmp(warm, cold, (size_t)rig->n_vocab * sizeof *warm) != 0) fail_in(rig, "not a cold run's bits");
    tokens_release(&tokens);
}

/* ---- Groups ---- */

static inline int open_all(void **state)
{
    hearth_error error = {0};
    if (rigs_open(state) != 0) return -1;
    for (size_t i = 0; i < 2 * N_ARCHS; i++) {
        formats[i] = llm_state_format_open(rigs[i].context, &error);
        if (formats[i] == NULL) fail_in(&rigs[i], error.message);
    }
    return 0;
}

static inline int close_all(void **state)
{
    for (size_t i = 0; i < 2 * N_ARCHS; i++) llm_state_format_close(formats[i]);
    return rigs_close(state);
}

static const struct variant {
    const char *name, *cells, *flash_attention;
    float bound;
} variants[] = {
    {"transposed values", "f32", "off", 0},
    {"flash attention", "f16", "on", 1e-2F},
    {"quantised cells", "q8_0", "on", 0},
};

static inline void use(const struct variant *variant)
{
    rig_cells = variant->cells;
    rig_flash_attention = variant->flash_attention;
    rig_bound = variant->bound;
}

#define RUN_IN_EVERY_VARIANT(tests, failed)                                                                            \
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {                                                  \
        use(&variants[i]);                                                                                             \
        failed += cmocka_run_group_tests_name(variants[i].name, tests, open_all, close_all);                           \
    }

#endif
