/* The memory estimate: a worked example, and the reports compared with what llama.cpp allocates.
 *
 * The example counts q8_0 as 1 byte an element. hearth counts its block scales as well, 34 bytes for 32 elements, since
 * llama.cpp allocates them; no cell type has exactly 1 byte. The example's own numbers are therefore numbers of
 * elements here, and each type multiplies them by its exact size. */
#include "support.h"

#include "instance/models/model_context.h"

#include <unistd.h>

/* The model of the example, Qwen3-8B-Q8_0. */
enum { LAYERS = 36, KV_HEADS = 8, HEAD = 128, WINDOW = 8192, SLOTS = 8 };

static struct estimate estimate_with(const char *type_k, const char *type_v, int64_t slots)
{
    int32_t heads[LAYERS];
    for (int i = 0; i < LAYERS; i++) heads[i] = KV_HEADS;
    char k[8], v[8];
    snprintf(k, sizeof k, "%s", type_k);
    snprintf(v, sizeof v, "%s", type_v);
    struct llm_context_params context = {
        .type_k = k, .type_v = v, .window = WINDOW, .n_seq = (int32_t)slots, .n_batch = 2048, .n_ubatch = 512};
    struct llm_model_info info = {
        .n_layer = LAYERS, .n_head_kv = heads, .n_embd_head_k = HEAD, .n_embd_head_v = HEAD, .size_bytes = 9000000000U};
    return estimate_memory(&(struct config_model){.mmproj = NULL}, &context, &info);
}

static void assert_bytes(double got, double expected)
{
    if (got != expected) fail_msg("%.17g bytes, not %.17g", got, expected);
}

static void the_steps_of_the_example_come_out(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double element;
    } types[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"q8_0", 34.0 / 32}, {"q4_0", 18.0 / 32}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct estimate e = estimate_with(types[i].name, types[i].name, SLOTS);
        double element = types[i].element;
        assert_bytes(e.row, 2048 * element);                 /* step 1: 8 x (128 + 128) x 1 = 2,048 */
        assert_bytes(e.sequence, 603979776.0 * element);     /* step 2: 8,192 x 36 x 2,048 = ~0.6 GB */
        assert_bytes(e.cells.total, 4831838208.0 * element); /* step 3: x 8 = ~4.8 GB */
        assert_bytes(e.total, 9e9 + e.cells.total);          /* step 4: 9.0 + 4.8 = ~13.8 GB */
        assert_int_equal(e.attention_layers, LAYERS);
    }
    double nominal = 9e9 + estimate_with("f16", "f16", SLOTS).cells.total / 2;
    assert_true(nominal > 13.8e9 && nominal < 13.9e9);
}

static void keys_and_values_are_counted_by_their_own_types(void **state)
{
    (void)state;
    struct estimate e = estimate_with("f32", "q8_0", SLOTS);
    assert_bytes(e.row, KV_HEADS * (HEAD * 4 + HEAD * 34.0 / 32));
}

static void every_slot_has_a_full_window(void **state)
{
    (void)state;
    double one = estimate_with("q8_0", "q8_0", 1).cells.total;
    for (int64_t slots = 2; slots <= 16; slots *= 2)
        assert_bytes(estimate_with("q8_0", "q8_0", slots).cells.total, one * (double)slots);
}

/* ---- Reports ---- */

/* A random model; the caller removes it and frees the path. */
static char *make_model(const char *arch)
{
    char *demo = source_path("models/demo.gguf"),
         *path = mem_format("%s/unit-lib-%d-%s.gguf", getenv("HEARTH_BUILD"), (int)getpid(), arch);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), arch, demo, path);
    assert_int_equal(system(command), 0);
    free(command);
    free(demo);
    return path;
}

/* The number in the last line after the heading that begins with this name, blanks aside. */
static double figure(const char *report, const char *heading, const char *name)
{
    const char *at = strstr(report, heading);
    if (at == NULL) fail_msg("no '%s' in %s", heading, report);
    for (at = strchr(at, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        const char *line = at + 1 + strspn(at + 1, " ");
        if (strncmp(line, name, strlen(name)) == 0) return strtod(line + strlen(name), NULL);
    }
    fail_msg("no '%s' in %s", name, report);
    return 0;
}

static void assert_close(double a, double b, double share)
{
    if (a < b * (1 - share) || a > b * (1 + share)) fail_msg("%.0f is not within %.0f %% of %.0f", a, share * 100, b);
}

static void what_is_allocated_agrees_with_the_estimate(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double element;
    } types[] = {{"f16", 2}, {"q8_0", 34.0 / 32}, {"f32", 4}};
    static const char *const slots[] = {"1", "4"};
    for (int i = 0; i < 6; i++) {
        const char *type = types[i % 3].type;
        hearth_config *config =
            DEMO("cache_type_k", type, "cache_type_v", type, "n_seq_max", slots[i / 3], "context_window", "2048");
        hearth_error error;
        char *report = hearth_memory_report(config, "demo", &error);
        assert_non_null(report);
        double row = 4 * (64 + 64) * types[i % 3].element; /* the demo model: 4 heads of 64, 4 layers */
        double cells = row * 4 * 2048 * strtod(slots[i / 3], NULL);
        assert_bytes(figure(report, "estimate", "1 a token, a layer"), row);
        assert_bytes(figure(report, "estimate", "2 a slot (window x layers)"), row * 4 * 2048);
        assert_bytes(figure(report, "estimate", "3 all slots"), cells);
        assert_bytes(figure(report, "estimate", "weights") + cells, figure(report, "estimate", "4 total"));
        assert_close(figure(report, "allocated", "cells"), cells, 0.02);
        assert_close(figure(report, "allocated", "weights"), figure(report, "estimate", "weights"), 0.02);
        assert_bytes(figure(report, "allocated", "total"), figure(report, "allocated", "weights") +
                                                               figure(report, "allocated", "cells") +
                                                               figure(report, "allocated", "compute buffers"));
        hearth_free(report);
        hearth_config_free(config);
    }
}

struct spare_case {
    const char *arch, *slots, *spare;
    int sequences; /* with the scratch sequence */
};

static void assert_counted(const struct spare_case *one, const char *deterministic)
{
    hearth_error error;
    char *path = make_model(one->arch);
    hearth_config *config = DEMO("path", path, "n_seq_max", one->slots, "n_seq_spare", one->spare, "context_window",
                                 "1000", "n_ubatch", "100", "deterministic", deterministic);
    char *report = hearth_memory_report(config, "demo", &error), *told = mem_format("sequences %d:", one->sequences);
    assert_non_null(report);
    assert_says(report, told);
    double cells = figure(report, "estimate", "3 all slots") + figure(report, "estimate", "sliding windows") +
                   figure(report, "estimate", "recurrent states");
    double allocated = figure(report, "allocated", "cells");
    assert_in_range(cells, allocated - 3 * 5348,
                    allocated + 3 * 5348); /* buffers are reported in hundredths of a MiB */
    /* Each slot has a copy of its state for drafts. */
    bool copies = figure(report, "estimate", "recurrent states") > 0 && strcmp(deterministic, "true") != 0;
    double drafts =
        copies ? figure(report, "estimate", "recurrent states") / one->sequences * strtod(one->slots, NULL) : 0;
    if (copies) assert_bytes(figure(report, "estimate", "for drafts"), drafts);
    assert_bytes(figure(report, "estimate", "4 total"), figure(report, "estimate", "weights") + cells + drafts);
    hearth_free(report);
    hearth_config_free(config);
    free(told);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* Models with a state or a sliding window for each sequence have more sequences than slots: n_seq_spare says how many,
 * the estimate counts them, and llama.cpp allocates as much. */
static void spare_sequences_are_counted_as_they_are_allocated(void **state)
{
    (void)state;
    static const struct spare_case cases[] = {
        {"gemma3", "1", "-1", 5}, {"gemma3", "4", "0", 5}, {"gpt-oss", "4", "-1", 9}, {"qwen35", "1", "-1", 5},
        {"qwen35", "4", "-1", 9}, {"qwen35", "4", "0", 5}, {"lfm2", "2", "20", 23},   {"falcon-h1", "8", "-1", 17},
        {"mamba2", "4", "-1", 8}, {"mamba2", "1", "0", 1}, {"qwen3", "4", "-1", 33},  {"qwen3", "4", "0", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_counted(&cases[i], "false");
}

static void so_are_the_full_windows_of_deterministic_mode(void **state)
{
    (void)state;
    static const struct spare_case cases[] = {
        {"gemma3", "1", "-1", 1}, {"gemma3", "4", "-1", 4}, {"gpt-oss", "2", "0", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_counted(&cases[i], "true");
}

/* These modes leave nothing in cells between requests, and so have no spare sequences. */
static void only_conversations_have_spare_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *conversations, *system, *unified, *told;
    } cases[] = {{"true", "false", "true", "sequences 9:"},
                 {"false", "true", "true", "sequences 5:"},
                 {"false", "false", "true", "sequences 4:"},
                 {"true", "false", "false", "sequences 4:"}};
    char *path = make_model("qwen35");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_error error;
        hearth_config *config =
            DEMO("path", path, "n_seq_max", "4", "context_window", "256", "kv_unified", cases[i].unified,
                 "incremental_cache", cases[i].conversations, "system_prompt_cache", cases[i].system);
        char *report = hearth_memory_report(config, "demo", &error);
        assert_says(report, cases[i].told);
        hearth_free(report);
        hearth_config_free(config);
    }
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* The demo model was trained for 2048 tokens. */
static void the_report_tells_how_positions_are_stretched(void **state)
{
    (void)state;
    hearth_error error;
    hearth_config *config = DEMO("context_window", "8192", "rope_scaling", "yarn");
    char *report = hearth_memory_report(config, NULL, &error);
    assert_non_null(report);
    assert_says(report, "scaling yarn, freq_base ");
    assert_says(report, "freq_scale 0.25, trained for 2048 tokens");
    assert_says(report, "yarn ext_factor 1, attn_factor 1, beta_fast 32, beta_slow 1");
    hearth_free(report);
    hearth_config_free(config);
    config = DEMO("rope_freq_base", "1234");
    report = hearth_memory_report(config, NULL, &error);
    assert_says(report, "scaling none, freq_base 1234, freq_scale 1,");
    assert_says(report, "yarn ext_factor 0, ");
    hearth_free(report);
    hearth_config_free(config);
}

static void what_cannot_be_allocated_is_estimated_all_the_same(void **state)
{
    (void)state;
    hearth_error error;
    hearth_config *config = DEMO("context_window", "8000000", "n_seq_max", "256", "rope_scaling", "linear");
    char *report = hearth_memory_report(config, NULL, &error);
    assert_non_null(report);
    assert_bytes(figure(report, "estimate", "3 all slots"), 4 * 128 * 2.0 * 4 * 8000000 * 256);
    assert_says(report, "not allocated: models.demo does not fit");
    hearth_free(report);
    assert_null(hearth_memory_report(config, "other", &error));
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    hearth_config_free(config);
}

static void the_report_on_a_file_has_its_figures(void **state)
{
    (void)state;
    hearth_error error;
    char *path = source_path("models/demo.gguf");
    char *report = hearth_model_report(path, &error);
    assert_non_null(report);
    static const char *const lines[] = {
        "architecture     llama\n", "kind             dense\n", "layers           4\n",
        "embedding        256\n",   "heads            4\n",     "vocabulary       1280\n",
        "context_length   2048\n",  "sliding_window   0\n",     "chat_template    yes\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) assert_says(report, lines[i]);
    assert_says(report, path);
    hearth_free(report);
    free(path);
    assert_null(hearth_model_report("/nowhere/a.gguf", &error));
    assert_says(error.message, "/nowhere/a.gguf");
    assert_null(hearth_model_report("/nowhere/a.gguf", NULL));
}

static void a_file_is_checked_to_be_whole(void **state)
{
    (void)state;
    hearth_error error;
    char *demo = source_path("models/demo.gguf");
    char *path = mem_format("%s/unit-lib-check-%d.gguf", getenv("HEARTH_BUILD"), (int)getpid());
    char *command = mem_format("cp %s %s && truncate -s -1000 %s", demo, path, path);
    assert_int_equal(hearth_model_check(demo, &error), HEARTH_OK);
    assert_int_equal(system(command), 0);
    assert_int_equal(hearth_model_check(path, &error), HEARTH_IO);
    assert_says(error.message, "is truncated");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hearth_model_check(path, &error), HEARTH_NOT_FOUND);
    assert_int_equal(hearth_model_check(path, NULL), HEARTH_NOT_FOUND);
    free(command);
    free(path);
    free(demo);
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steps_of_the_example_come_out),
        cmocka_unit_test(keys_and_values_are_counted_by_their_own_types),
        cmocka_unit_test(every_slot_has_a_full_window),
        cmocka_unit_test(what_is_allocated_agrees_with_the_estimate),
        cmocka_unit_test(spare_sequences_are_counted_as_they_are_allocated),
        cmocka_unit_test(so_are_the_full_windows_of_deterministic_mode),
        cmocka_unit_test(only_conversations_have_spare_sequences),
        cmocka_unit_test(a_file_is_checked_to_be_whole),
        cmocka_unit_test(the_report_tells_how_positions_are_stretched),
        cmocka_unit_test(what_cannot_be_allocated_is_estimated_all_the_same),
        cmocka_unit_test(the_report_on_a_file_has_its_figures),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
