/* The identity of a stored state: the bytes of the model's files, the type of its weights, and the context parameters
 * that a state depends on. */
#include "support.h"

#include "base/log.h"
#include "llm/model_identity.h"

#include <gguf.h>

static char *folder;

static int open_folder(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    if (log_open(NULL, "error", "text", &error) != HEARTH_OK) return -1;
    folder = folder_open();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

/* ---- Fingerprints ---- */

struct digest {
    uint8_t v[32];
};

static struct digest fingerprint(const char *path)
{
    struct digest digest;
    hearth_error error;
    if (llm_file_fingerprint(path, &(struct llm_reading){.verify = false}, digest.v, &error) != HEARTH_OK)
        fail_msg("%s", error.message);
    return digest;
}

static bool same(struct digest a, struct digest b)
{
    return memcmp(a.v, b.v, sizeof a.v) == 0;
}

static void flip(const char *path, size_t at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, (long)at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, (long)at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void a_flipped_bit_in_any_tensor_changes_the_fingerprint(void **state)
{
    (void)state;
    char *path = make_model(folder, "llama", "");
    struct digest before = fingerprint(path);
    assert_true(same(before, fingerprint(path)));
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        size_t at = gguf_get_data_offset(file) + gguf_get_tensor_offset(file, i) + gguf_get_tensor_size(file, i) - 1;
        flip(path, at);
        if (same(before, fingerprint(path))) fail_msg("%s", gguf_get_tensor_name(file, i));
        flip(path, at);
    }
    assert_true(same(before, fingerprint(path)));
    gguf_free(file);
    free(path);
}

/* Two files that are parts of one model by name and metadata; their other content does not matter here. */
static char *make_parts(uint16_t count)
{
    char *first = NULL;
    for (uint16_t i = 0; i < 2; i++) {
        char *path = mem_format("%s/parts-%05d-of-%05d.gguf", folder, i + 1, count);
        struct gguf_context *out = gguf_init_empty();
        gguf_set_val_u16(out, "split.no", i);
        gguf_set_val_u16(out, "split.count", count);
        gguf_set_val_str(out, "general.name", "a name that is long enough to be changed");
        assert_true(gguf_write_to_file(out, path, false));
        gguf_free(out);
        if (i == 0)
            first = path;
        else
            free(path);
    }
    return first;
}

static void all_parts_of_a_split_model_count(void **state)
{
    (void)state;
    char *first = make_parts(2), *second = mem_format("%s/parts-00002-of-00002.gguf", folder);
    struct digest before = fingerprint(first), after;
    flip(second, 150);
    after = fingerprint(first);
    assert_false(same(before, after));
    flip(second, 150);
    assert_true(same(before, fingerprint(first)));
    assert_true(same(before, fingerprint(second))); /* whichever part is named */
    free(first);
    free(second);
}

static void a_part_that_is_missing_or_misnamed_is_said(void **state)
{
    (void)state;
    struct digest digest;
    hearth_error error;
    char *first = make_parts(3), *renamed = mem_format("%s/renamed.gguf", folder);
    assert_int_equal(llm_file_fingerprint(first, &(struct llm_reading){.verify = false}, digest.v, &error),
                     HEARTH_NOT_FOUND);
    assert_non_null(strstr(error.message, "parts-00003-of-00003.gguf"));
    assert_int_equal(rename(first, renamed), 0);
    assert_int_equal(llm_file_fingerprint(renamed, &(struct llm_reading){.verify = false}, digest.v, &error),
                     HEARTH_INVALID);
    assert_non_null(strstr(error.message, "renamed.gguf"));
    free(first);
    free(renamed);
}

static void a_fingerprint_can_be_stopped_and_fails_in_one_line(void **state)
{
    (void)state;
    struct digest digest;
    hearth_error error;
    _Atomic bool stop = true;
    char *demo = demo_path();
    assert_int_equal(llm_file_fingerprint(demo, &(struct llm_reading){.stop = &stop}, digest.v, &error),
                     HEARTH_CANCELLED);
    assert_int_equal(llm_file_fingerprint("/nowhere.gguf", &(struct llm_reading){.verify = false}, digest.v, &error),
                     HEARTH_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere.gguf"));
    assert_int_equal(llm_file_fingerprint("/nowhere.gguf", &(struct llm_reading){.verify = false}, digest.v, NULL),
                     HEARTH_NOT_FOUND);
    free(demo);
}

/* ---- Type of the weights ---- */

static void the_type_of_the_weights_is_what_the_file_says(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f16", "q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char *options = mem_format("--type %s", types[i]), *path = make_model(folder, "qwen3", options);
        assert_string_equal(llm_file_quant(path), types[i]);
        free(options);
        free(path);
    }
    assert_string_equal(llm_file_quant("/nowhere.gguf"), "unknown");
    char *parts = make_parts(2); /* which have no such metadata */
    assert_string_equal(llm_file_quant(parts), "unknown");
    free(parts);
}

/* ---- Contexts ---- */

static void describe(struct llm_model *model, const struct llm_context_params *params, struct buf *out)
{
    struct llm_context *context = open_context(model, params);
    buf_clear(out);
    llm_context_describe(context, out);
    llm_context_close(context);
}

static void what_states_depend_on_changes_the_description_and_nothing_else_does(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct buf plain = {0}, other = {0};
    const struct llm_context_params params = context_params(256, 2);
    describe(model, &params, &plain);
    struct llm_context_params same[5], different[8];
    for (size_t i = 0; i < 5; i++) same[i] = params;
    for (size_t i = 0; i < 8; i++) different[i] = params;
    same[0].unified = true;
    same[1].n_seq = 5;
    same[2].n_ubatch = 64;
    same[3].type_k = "auto";        /* f16 */
    same[4].flash_attention = "on"; /* as resolved */
    different[0].flash_attention = "off";
    different[1].type_k = "f32";
    different[2].type_v = "q8_0";
    different[3].rope_freq_base = 12345;
    different[4].rope_freq_scale = 0.5;
    different[5].rope_scaling = "linear";
    different[6].yarn_beta_fast = 16;
    different[7].yarn_orig_ctx = 128;
    for (size_t i = 0; i < 5; i++) {
        describe(model, &same[i], &other);
        if (strcmp(plain.v, other.v) != 0) fail_msg("the same, number %zu:\n%s\n%s", i, plain.v, other.v);
    }
    for (size_t i = 0; i < 8; i++) {
        describe(model, &different[i], &other);
        if (strcmp(plain.v, other.v) == 0) fail_msg("not different, number %zu:\n%s", i, plain.v);
    }
    assert_non_null(strstr(plain.v, llm_version()));
    buf_release(&plain);
    buf_release(&other);
    llm_model_close(model);
}

static void rotation_of_quantised_cells_is_part_of_the_description(void **state)
{
    (void)state;
    struct llm_model *model = open_demo();
    struct buf on = {0}, off = {0};
    struct llm_context_params params = context_params(256, 1);
    params.type_k = params.type_v = "q8_0";
    describe(model, &params, &on);
    setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1);
    describe(model, &params, &off);
    unsetenv("LLAMA_ATTN_ROT_DISABLE");
    assert_string_not_equal(on.v, off.v);
    buf_release(&on);
    buf_release(&off);
    llm_model_close(model);
}

/* The same model with LongRoPE factors for positions beyond `original`, its original context; 0: not named. */
static void add_window_factors(const char *path, uint32_t original)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *out = gguf_init_empty();
    struct ggml_context *own = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    int64_t n_rot = gguf_get_val_u32(file, gguf_find_key(file, "llama.rope.dimension_count"));
    gguf_set_kv(out, file);
    gguf_set_val_str(out, "llama.rope.scaling.type", "longrope");
    if (original > 0) gguf_set_val_u32(out, "llama.rope.scaling.original_context_length", original);
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++)
        gguf_add_tensor(out, ggml_get_tensor(tensors, gguf_get_tensor_name(file, i)));
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    for (size_t i = 0; i < 2; i++) {
        struct ggml_tensor *factors = ggml_new_tensor_1d(own, GGML_TYPE_F32, n_rot / 2);
        for (int64_t k = 0; k < n_rot / 2; k++) ((float *)factors->data)[k] = i == 0 ? 1.0F : 2.0F;
        gguf_add_tensor(out, ggml_set_name(factors, names[i]));
    }
    assert_true(gguf_write_to_file(out, path, false));
    gguf_free(out);
    gguf_free(file);
    ggml_free(own);
    ggml_free(tensors);
}

static void expect_window_counts(const char *path, const char *scaling, bool counts)
{
    struct llm_model *model = open_model(path);
    struct buf small = {0}, large = {0};
    struct llm_context_params params = context_params(1024, 1), wide = context_params(8192, 1);
    params.rope_scaling = wide.rope_scaling = scaling;
    describe(model, &params, &small);
    describe(model, &wide, &large);
    assert_int_equal(strcmp(small.v, large.v) != 0, counts);
    buf_release(&small);
    buf_release(&large);
    llm_model_close(model);
}

static void the_window_counts_where_rope_depends_on_it(void **state)
{
    (void)state;
    char *path = make_model(folder, "llama", "--ctx 16384");
    expect_window_counts(path, "none", false);
    add_window_factors(path, 2048);
    expect_window_counts(path, "none", true);
    free(path);
    path = make_model(folder, "llama", "--ctx 4096");
    expect_window_counts(path, "none", false);  /* no LongRoPE factors, so the window does not matter */
    expect_window_counts(path, "linear", true); /* scaled to the window */
    add_window_factors(path, 0);
    expect_window_counts(path, "none", true); /* beyond the original context */
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_in_any_tensor_changes_the_fingerprint),
        cmocka_unit_test(all_parts_of_a_split_model_count),
        cmocka_unit_test(a_part_that_is_missing_or_misnamed_is_said),
        cmocka_unit_test(a_fingerprint_can_be_stopped_and_fails_in_one_line),
        cmocka_unit_test(the_type_of_the_weights_is_what_the_file_says),
        cmocka_unit_test(what_states_depend_on_changes_the_description_and_nothing_else_does),
        cmocka_unit_test(rotation_of_quantised_cells_is_part_of_the_description),
        cmocka_unit_test(the_window_counts_where_rope_depends_on_it),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
