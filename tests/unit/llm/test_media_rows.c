/* Media in the cells: rows of images and sounds are computed, saved in slices, shared, cut and continued like text, and
 * give the logits of a cold run. Cells are F32 and flash attention is off, which round to F16 and would hide a wrong
 * cell. */
#include "support.h"

#include "llm/cell_map.h"
#include "llm/projector.h"
#include "llm/state_slices.h"

enum { BEFORE = 20, AFTER = 15, WIDTH = 112, HEIGHT = 84, MAX_SPANS = 2 };

static const struct kind {
    const char *name, *arch;
    bool sound;
    float bound; /* the largest difference allowed between logits, which lie between -20 and 20 */
} kinds[] = {
    {"llava", "llama", false, 1e-4F}, {"qwen2vl", "qwen2vl", false, 1e-4F}, {"gemma3", "gemma3", false, 1e-2F},
    {"audio", "llama", true, 1e-4F},  {"qwen2vl", "qwen35", false, 1e-4F},
};

/* A model with its projector, a context, and one for cold runs. */
struct rig {
    const struct kind *kind;
    char *folder;
    struct llm_model *model;
    struct llm_projector *projector;
    struct llm_context *context, *cold;
    struct llm_state_format *format;
    int32_t n_vocab;
};

static struct llm_context *open_exact(struct llm_model *model)
{
    struct llm_context_params params = context_params(1024, 4);
    params.unified = true;
    params.type_k = params.type_v = "f32";
    params.flash_attention = "off";
    return open_context(model, &params);
}

static struct rig open_rig(const struct kind *kind)
{
    struct rig rig = {.kind = kind, .folder = folder_open()};
    char *model = make_model(rig.folder, kind->arch, "--ctx 1024"), *path = mem_format("%s/mmproj.gguf", rig.folder);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --mmproj %s --for '%s' -o '%s' >/dev/null", env("HEARTH_BUILD"),
                               kind->name, model, path);
    run(command);
    hearth_error error = {0};
    struct llm_projector_params params = {.path = path, .threads.n = 1, .flash_attention = "off"};
    rig.model = open_model(model);
    rig.projector = llm_projector_open(rig.model, &params, &error);
    if (rig.projector == NULL) fail_msg("%s", error.message);
    rig.context = open_exact(rig.model);
    rig.cold = open_exact(rig.model);
    rig.format = llm_state_format_open(rig.context, &error);
    if (rig.format == NULL) fail_msg("%s", error.message);
    rig.n_vocab = llm_model_info(rig.model)->n_vocab;
    free(command);
    free(model);
    free(path);
    return rig;
}

static void close_rig(struct rig *rig)
{
    llm_state_format_close(rig->format);
    llm_context_close(rig->cold);
    llm_context_close(rig->context);
    llm_projector_close(rig->projector);
    llm_model_close(rig->model);
    folder_remove(rig->folder);
}

/* ---- Prompts with two media ---- */

struct prompt {
    struct tokens tokens;
    struct media_spans spans;
    struct llm_medium *media[MAX_SPANS];
    size_t chunks[MAX_SPANS];
    float *rows[MAX_SPANS];
    struct llm_place *places[MAX_SPANS]; /* NULL: positions in one dimension */
};

static struct llm_medium *make_medium(const struct rig *rig, uint8_t seed)
{
    hearth_error error = {0};
    struct llm_medium *medium;
    if (rig->kind->sound) {
        enum { SAMPLES = 8000 };
        float *samples = mem_alloc(SAMPLES * sizeof *samples);
        for (int i = 0; i < SAMPLES; i++) samples[i] = sinf((float)i * 0.01F * (float)(seed + 1));
        medium = llm_medium_of_sound(rig->projector, samples, SAMPLES, &error);
        free(samples);
    } else {
        uint8_t *rgb = mem_alloc((size_t)WIDTH * HEIGHT * 3);
        for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 3; i++) rgb[i] = (uint8_t)(i * 31 + i / WIDTH * seed);
        medium = llm_medium_of_image(rig->projector, rgb, WIDTH, HEIGHT, &error);
        free(rgb);
    }
    if (medium == NULL) fail_msg("%s", error.message);
    return medium;
}

static void add_text(const struct rig *rig, struct prompt *prompt, uint32_t seed, int n)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        tokens_push(&prompt->tokens, (int32_t)((seed >> 8) % (uint32_t)rig->n_vocab));
    }
}

static void add_rows(const struct rig *rig, struct prompt *prompt, struct llm_medium *medium, size_t chunk, uint8_t key)
{
    const struct llm_projector_facts *facts = llm_projector_facts_of(rig->projector);
    struct llm_chunk c = llm_medium_chunk(medium, chunk);
    size_t i = prompt->spans.len;
    uint8_t hash[32];
    struct media_span span = {.at = (int32_t)prompt->tokens.len, .n = c.n, .n_pos = c.n_pos, .causal = c.causal};
    memset(hash, key, sizeof hash);
    media_tokens_append(&prompt->tokens, hash, c.n);
    prompt->media[i] = medium;
    prompt->chunks[i] = chunk;
    prompt->rows[i] = mem_alloc((size_t)c.n * facts->row_floats * sizeof(float));
    hearth_error error = {0};
    if (llm_medium_encode(rig->projector, medium, chunk, prompt->rows[i], &error) != HEARTH_OK)
        fail_msg("%s", error.message);
    media_spans_add(&prompt->spans, &span);
    int32_t position = media_spans_position(&prompt->spans, span.at);
    if (!facts->mrope) return;
    prompt->places[i] = mem_alloc((size_t)c.n * sizeof *prompt->places[i]);
    for (int32_t row = 0; row < c.n; row++) prompt->places[i][row] = llm_medium_place(medium, chunk, position, row);
}

static void add_medium(const struct rig *rig, struct prompt *prompt, uint8_t seed)
{
    struct llm_medium *medium = make_medium(rig, seed);
    for (size_t i = 0; i < llm_medium_chunks(medium); i++) {
        struct llm_chunk chunk = llm_medium_chunk(medium, i);
        if (chunk.tokens != NULL)
            tokens_append(&prompt->tokens, chunk.tokens, (size_t)chunk.n);
        else
            add_rows(rig, prompt, medium, i, seed);
    }
}

static struct prompt prompt_with_media(const struct rig *rig)
{
    struct prompt prompt = {0};
    add_text(rig, &prompt, 1, BEFORE);
    add_medium(rig, &prompt, 1);
    add_text(rig, &prompt, 2, AFTER);
    add_medium(rig, &prompt, 2);
    add_text(rig, &prompt, 3, AFTER);
    return prompt;
}

static void release(struct prompt *prompt)
{
    for (size_t i = 0; i < prompt->spans.len; i++) {
        llm_medium_close(prompt->media[i]);
        free(prompt->rows[i]);
        free(prompt->places[i]);
    }
    tokens_release(&prompt->tokens);
    media_spans_release(&prompt->spans);
}

static int32_t len_of(const struct prompt *prompt)
{
    return (int32_t)prompt->tokens.len;
}

/* ---- Computing ---- */

static void put_rows(struct llm_context *context, const struct prompt *prompt, int32_t seq, size_t i)
{
    const struct media_span *span = &prompt->spans.v[i];
    assert_int_equal(llm_decode_rows(context, &(struct llm_media_rows){.seq = seq,
                                                                       .from = span->at,
                                                                       .n = span->n,
                                                                       .rows = prompt->rows[i],
                                                                       .places = prompt->places[i],
                                                                       .causal = span->causal}),
                     LLM_DECODED);
}

/* Computes the tokens [from, to) of the prompt; returns the logits of the last one, which is text. */
static const float *put(struct llm_context *context, const struct prompt *prompt, int32_t seq, int32_t from, int32_t to)
{
    int32_t n = 0;
    llm_seq_set_media(context, seq, &prompt->spans);
    while (from < to) {
        struct llm_batch_token batch[512];
        const struct media_span *span = media_spans_at(&prompt->spans, from);
        if (span != NULL) {
            put_rows(context, prompt, seq, (size_t)(span - prompt->spans.v));
            from = span->at + span->n;
            continue;
        }
        for (n = 0; from + n < to && media_spans_at(&prompt->spans, from + n) == NULL; n++)
            batch[n] = (struct llm_batch_token){
                .token = prompt->tokens.v[from + n], .pos = from + n, .seq = seq, .logits = from + n + 1 == to};
        assert_int_equal(llm_decode(context, batch, n), LLM_DECODED);
        from += n;
    }
    return llm_logits(context, n - 1);
}

/* Continues the sequence, which has the first `from` tokens, to the end of the prompt: with the logits of a cold run.
 */
static void expect_goes_on(const struct rig *rig, const struct prompt *prompt, int32_t seq, int32_t from)
{
    assert_int_equal(llm_seq_end(rig->context, seq), from);
    llm_seq_clear(rig->cold, 0);
    const float *cold = put(rig->cold, prompt, 0, 0, len_of(prompt));
    const float *warm = put(rig->context, prompt, seq, from, len_of(prompt));
    float most = 0;
    for (int32_t i = 0; i < rig->n_vocab; i++) most = fmaxf(most, fabsf(cold[i] - warm[i]));
    if (!(most <= rig->kind->bound)) fail_msg("%s: logits differ by %g", rig->kind->name, (double)most);
    assert_int_equal(llm_seq_end(rig->context, seq), len_of(prompt));
}

static void clear_all(const struct rig *rig)
{
    for (int32_t seq = 0; seq < 4; seq++) {
        llm_seq_clear(rig->context, seq);
        llm_seq_set_media(rig->context, seq, NULL);
    }
}

/* ---- Tests ---- */

/* Ends that a prefix may have: before, behind and between media. */
static size_t ends_of(const struct prompt *prompt, int32_t ends[8])
{
    size_t n = 0;
    ends[n++] = BEFORE / 2;
    for (size_t i = 0; i < prompt->spans.len; i++) {
        ends[n++] = prompt->spans.v[i].at;
        ends[n++] = prompt->spans.v[i].at + prompt->spans.v[i].n;
    }
    ends[n++] = len_of(prompt) - 3;
    return n;
}

/* The largest difference between the logits of these two prompts, each computed from nothing. */
static float difference_of(const struct rig *rig, const struct prompt *one, const struct prompt *other)
{
    float *kept = mem_alloc((size_t)rig->n_vocab * sizeof *kept), most = 0;
    memcpy(kept, put(rig->cold, one, 1, 0, len_of(one)), (size_t)rig->n_vocab * sizeof *kept);
    const float *logits = put(rig->cold, other, 2, 0, len_of(other));
    for (int32_t i = 0; i < rig->n_vocab; i++) most = fmaxf(most, fabsf(kept[i] - logits[i]));
    llm_seq_clear(rig->cold, 1);
    llm_seq_clear(rig->cold, 2);
    free(kept);
    return most;
}

static void a_cold_run_is_the_same_each_time_and_other_media_give_another_one(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig), other = prompt_with_media(rig);
    expect_goes_on(rig, &prompt, 0, 0);
    float *rows = other.rows[0];
    other.rows[0] = other.rows[1]; /* both media are the second one */
    assert_true(difference_of(rig, &prompt, &other) > 10 * rig->kind->bound);
    other.rows[0] = rows;
    release(&prompt);
    release(&other);
}

static void rows_that_see_each_other_give_other_logits(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig), causal = prompt_with_media(rig);
    if (!prompt.spans.v[0].causal) {
        causal.spans.v[0].causal = causal.spans.v[1].causal = true;
        assert_true(difference_of(rig, &prompt, &causal) > 10 * rig->kind->bound);
    }
    release(&prompt);
    release(&causal);
}

static void what_is_cut_and_shared_goes_on(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    int32_t ends[8];
    size_t n = ends_of(&prompt, ends);
    for (size_t i = 0; i < n && llm_cuts_anywhere(rig->context); i++) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, len_of(&prompt));
        llm_seq_set_media(rig->context, 1, &prompt.spans);
        assert_true(llm_seq_share(rig->context, 0, 1, ends[i]));
        expect_goes_on(rig, &prompt, 1, ends[i]);
        assert_true(llm_seq_cut(rig->context, 0, ends[i]));
        expect_goes_on(rig, &prompt, 0, ends[i]);
    }
    release(&prompt);
}

static void a_snapshot_goes_on_in_another_sequence(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    int32_t ends[8];
    size_t n = ends_of(&prompt, ends);
    for (size_t i = 0; i < n; i++) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, ends[i]);
        size_t size = llm_seq_state_size(rig->context, 0, LLM_STATE_SNAPSHOT);
        void *bytes = mem_alloc(size);
        assert_int_equal(llm_seq_save(rig->context, 0, LLM_STATE_SNAPSHOT, bytes, size), size);
        llm_seq_set_media(rig->context, 2, &prompt.spans);
        assert_int_equal(llm_seq_load(rig->context, 2, bytes, size, ends[i]), LLM_LOADED);
        expect_goes_on(rig, &prompt, 2, ends[i]);
        free(bytes);
    }
    release(&prompt);
}

/* The canonical slice of these rows. */
static struct buf slice_of(const struct rig *rig, int32_t seq, int32_t from, int32_t to)
{
    struct llm_regions regions;
    struct buf slice = {0};
    size_t size = llm_rows_size(rig->context, rig->format, seq, from, to);
    void *raw = mem_alloc(size);
    assert_int_equal(llm_rows_save(rig->context, rig->format, seq, from, to, raw, size), size);
    if (!llm_cut_rows(rig->format, raw, size, from, to, &slice, &regions)) fail_msg("%d to %d cannot be cut", from, to);
    free(regions.v);
    free(raw);
    return slice;
}

/* Copies the rows up to `to` from sequence 0 to sequence 3, in slices of so many rows, which may end within a medium.
 */
static void copy_slices(const struct rig *rig, int32_t to, int32_t stride)
{
    for (int32_t from = 0, end; from < to; from = end) {
        end = from + stride < to ? from + stride : to;
        struct buf slice = slice_of(rig, 0, from, end);
        struct llm_state_slice piece = {.bytes = slice.v, .size = slice.len, .from = from, .to = end};
        assert_int_equal(llm_rows_load(rig->context, rig->format, 3, &piece), LLM_LOADED);
        if (!llm_state_format_has_checkpoints(rig->format)) assert_int_equal(llm_seq_end(rig->context, 3), end);
        buf_release(&slice);
    }
}

static void expect_same_slices(const struct rig *rig, int32_t to)
{
    struct buf slice = slice_of(rig, 0, 0, to), again = slice_of(rig, 3, 0, to);
    assert_int_equal(again.len, slice.len);
    assert_memory_equal(again.v, slice.v, slice.len);
    buf_release(&again);
    buf_release(&slice);
}

static void slices_go_on_and_are_the_same_when_they_are_saved_again(const struct rig *rig)
{
    static const int32_t strides[] = {1000, 64, 7};
    struct prompt prompt = prompt_with_media(rig);
    int32_t to = prompt.spans.v[1].at + prompt.spans.v[1].n + 2;
    if (llm_state_format_has_checkpoints(rig->format)) to = 0;
    for (size_t i = 0; i < sizeof strides / sizeof *strides && to > 0; i++) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, len_of(&prompt));
        llm_seq_set_media(rig->context, 3, &prompt.spans);
        copy_slices(rig, to, strides[i]);
        expect_same_slices(rig, to);
        expect_goes_on(rig, &prompt, 3, to);
    }
    release(&prompt);
}

/* The canonical checkpoint of sequence 0, loaded into sequence 3, which has its rows. */
static void copy_checkpoint(const struct rig *rig, int32_t n)
{
    struct llm_regions regions;
    struct buf slice = {0};
    size_t size = llm_seq_state_size(rig->context, 0, LLM_STATE_CHECKPOINT);
    void *raw = mem_alloc(size);
    assert_int_equal(llm_checkpoint_save(rig->context, rig->format, 0, raw, size), size);
    assert_true(llm_cut_checkpoint(rig->format, raw, size, n, &slice, &regions));
    assert_int_equal(llm_checkpoint_load(rig->context, rig->format, 3, slice.v, slice.len, n), LLM_LOADED);
    free(regions.v);
    free(raw);
    buf_release(&slice);
}

static void rows_with_their_checkpoint_go_on(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    int32_t ends[8];
    size_t n = llm_state_format_has_checkpoints(rig->format) ? ends_of(&prompt, ends) : 0;
    for (size_t i = 0; i < n; i++) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, ends[i]);
        llm_seq_set_media(rig->context, 3, &prompt.spans);
        copy_slices(rig, ends[i], 50);
        copy_checkpoint(rig, ends[i]);
        expect_goes_on(rig, &prompt, 3, ends[i]);
    }
    release(&prompt);
}

/* A checkpoint in memory takes the sequence itself back, too. */
static void a_sequence_goes_back_to_a_checkpoint(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    int32_t at = prompt.spans.v[0].at + prompt.spans.v[0].n + 3;
    if (!llm_cuts_anywhere(rig->context)) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, at);
        size_t size = llm_seq_state_size(rig->context, 0, LLM_STATE_CHECKPOINT);
        void *bytes = mem_alloc(size);
        assert_int_equal(llm_seq_save(rig->context, 0, LLM_STATE_CHECKPOINT, bytes, size), size);
        put(rig->context, &prompt, 0, at, len_of(&prompt));
        assert_int_equal(llm_seq_rewind(rig->context, 0, bytes, size, at), LLM_LOADED);
        expect_goes_on(rig, &prompt, 0, at);
        free(bytes);
    }
    release(&prompt);
}

/* What two prompts have in common may be followed by a medium in the one and by text in the other. */
static void what_is_shared_may_go_on_with_other_media(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig), plain = {0};
    int32_t at = prompt.spans.v[0].at;
    tokens_append(&plain.tokens, prompt.tokens.v, (size_t)at);
    add_text(rig, &plain, 9, AFTER);
    if (!llm_cuts_anywhere(rig->context)) {
        clear_all(rig);
        put(rig->context, &prompt, 0, 0, at);
        size_t size = llm_seq_state_size(rig->context, 0, LLM_STATE_CHECKPOINT);
        void *bytes = mem_alloc(size);
        assert_int_equal(llm_seq_save(rig->context, 0, LLM_STATE_CHECKPOINT, bytes, size), size);
        put(rig->context, &prompt, 0, at, len_of(&prompt));
        llm_seq_set_media(rig->context, 1, &plain.spans);
        assert_true(llm_seq_share(rig->context, 0, 1, len_of(&prompt)));
        assert_int_equal(llm_seq_rewind(rig->context, 1, bytes, size, at), LLM_LOADED);
        expect_goes_on(rig, &plain, 1, at);
        free(bytes);
    }
    release(&prompt);
    release(&plain);
}

static void rows_may_be_computed_in_parts_where_they_do_not_see_each_other(const struct rig *rig)
{
    enum { PART = 5 };
    struct prompt prompt = prompt_with_media(rig);
    const struct media_span *span = &prompt.spans.v[0];
    size_t width = llm_projector_facts_of(rig->projector)->row_floats;
    clear_all(rig);
    put(rig->context, &prompt, 0, 0, span->at);
    for (int32_t from = 0; from < span->n && span->causal; from += PART) {
        int32_t n = span->n - from < PART ? span->n - from : PART;
        struct llm_media_rows rows = {.from = span->at + from,
                                      .n = n,
                                      .rows = prompt.rows[0] + (size_t)from * width,
                                      .places = prompt.places[0] == NULL ? NULL : prompt.places[0] + from,
                                      .causal = true};
        assert_int_equal(llm_decode_rows(rig->context, &rows), LLM_DECODED);
        assert_int_equal(llm_seq_end(rig->context, 0), span->at + from + n);
    }
    if (span->causal) expect_goes_on(rig, &prompt, 0, span->at + span->n);
    release(&prompt);
}

/* Another sequence leaves; the rows above it move down, media and all, in parts that end anywhere. */
static void rows_that_are_moved_go_on(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    struct llm_cell_map map;
    clear_all(rig);
    bool moves = llm_cells_map(rig->context, &map) && llm_state_format_appends(rig->format);
    if (moves) {
        put(rig->context, &prompt, 1, 0, len_of(&prompt));
        put(rig->context, &prompt, 0, 0, len_of(&prompt));
        llm_seq_clear(rig->context, 1);
        struct buf before = slice_of(rig, 0, 0, len_of(&prompt));
        struct llm_positions above = llm_seq_above(rig->context, 0, len_of(&prompt));
        assert_int_equal(above.from, 0);
        assert_int_equal(above.to, len_of(&prompt));
        for (int32_t from = above.from; from < above.to; from += 20) {
            int32_t to = from + 20 < above.to ? from + 20 : above.to;
            assert_true(llm_rows_move(rig->context, rig->format, 0, from, to));
        }
        assert_true(llm_cells_map(rig->context, &map));
        assert_int_equal(map.top, len_of(&prompt));
        struct buf after = slice_of(rig, 0, 0, len_of(&prompt));
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.v, before.v, before.len);
        buf_release(&before);
        buf_release(&after);
        llm_seq_cut(rig->context, 0, len_of(&prompt) - 1);
        expect_goes_on(rig, &prompt, 0, len_of(&prompt) - 1);
    }
    release(&prompt);
}

static void rows_that_do_not_fit_are_refused(const struct rig *rig)
{
    struct prompt prompt = prompt_with_media(rig);
    const struct media_span *span = &prompt.spans.v[0];
    struct llm_media_rows rows = {
        .from = span->at, .n = span->n, .rows = prompt.rows[0], .places = prompt.places[0], .causal = span->causal};
    clear_all(rig);
    rows.n = 0;
    assert_int_equal(llm_decode_rows(rig->context, &rows), LLM_REFUSED);
    rows.n = 200; /* n_ubatch is 128: llama.cpp would end the process */
    rows.causal = false;
    assert_int_equal(llm_decode_rows(rig->context, &rows), LLM_REFUSED);
    rows.n = 4;
    rows.seq = 4;
    assert_int_equal(llm_decode_rows(rig->context, &rows), LLM_REFUSED);
    release(&prompt);
}

static void each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct rig rig = open_rig(&kinds[i]);
        print_message("  %s, %s\n", kinds[i].name, kinds[i].arch);
        a_cold_run_is_the_same_each_time_and_other_media_give_another_one(&rig);
        rows_that_see_each_other_give_other_logits(&rig);
        what_is_cut_and_shared_goes_on(&rig);
        a_snapshot_goes_on_in_another_sequence(&rig);
        slices_go_on_and_are_the_same_when_they_are_saved_again(&rig);
        rows_with_their_checkpoint_go_on(&rig);
        a_sequence_goes_back_to_a_checkpoint(&rig);
        what_is_shared_may_go_on_with_other_media(&rig);
        rows_may_be_computed_in_parts_where_they_do_not_see_each_other(&rig);
        rows_that_are_moved_go_on(&rig);
        rows_that_do_not_fit_are_refused(&rig);
        close_rig(&rig);
    }
}

static int set_up(void **state)
{
    (void)state;
    llm_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
