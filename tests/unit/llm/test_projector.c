/* Projectors of every kind that hearth-mkmodel makes: what a medium becomes, and rows that are the same each time. */
#include "support.h"

#include "llm/projector.h"

#include <pthread.h>

enum { WIDTH = 112, HEIGHT = 84 };

static const struct kind {
    const char *name, *arch;
    bool sound, mrope, causal;
    int32_t n, n_pos; /* rows, and positions that they take */
    float seconds;
} kinds[] = {
    {"llava", "llama", false, false, true, 16, 16, 0},    {"qwen2vl", "qwen2vl", false, true, true, 12, 4, 0},
    {"gemma3", "gemma3", false, false, false, 16, 16, 0}, {"audio", "llama", true, false, true, 25, 25, 1},
    {"whisper", "llama", true, false, true, 50, 50, 10},
};

/* A model with its projector; close_rig(). */
struct rig {
    const struct kind *kind;
    char *folder;
    struct llm_model *model;
    struct llm_projector *projector;
};

static char *make_projector(const char *folder, const char *kind, const char *model)
{
    char *path = mem_format("%s/%s.mmproj.gguf", folder, kind);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --mmproj %s --for '%s' -o '%s' >/dev/null", env("HEARTH_BUILD"),
                               kind, model, path);
    run(command);
    free(command);
    return path;
}

static struct llm_projector_params params_of(const char *path)
{
    return (struct llm_projector_params){.path = path, .threads.n = 1, .flash_attention = "auto"};
}

static struct rig open_rig(const struct kind *kind)
{
    struct rig rig = {.kind = kind, .folder = folder_open()};
    char *model = make_model(rig.folder, kind->arch, ""), *path = make_projector(rig.folder, kind->name, model);
    struct llm_projector_params params = params_of(path);
    hearth_error error = {0};
    rig.model = open_model(model);
    rig.projector = llm_projector_open(rig.model, &params, &error);
    if (rig.projector == NULL) fail_msg("%s: %s", kind->name, error.message);
    free(model);
    free(path);
    return rig;
}

static void close_rig(struct rig *rig)
{
    llm_projector_close(rig->projector);
    llm_model_close(rig->model);
    folder_remove(rig->folder);
}

/* ---- Media ---- */

static struct llm_medium *make_image(const struct rig *rig, uint8_t seed)
{
    uint8_t *rgb = mem_alloc((size_t)WIDTH * HEIGHT * 3);
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 3; i++) rgb[i] = (uint8_t)(i * 31 + i / WIDTH * seed);
    hearth_error error = {0};
    struct llm_medium *medium = llm_medium_of_image(rig->projector, rgb, WIDTH, HEIGHT, &error);
    if (medium == NULL) fail_msg("%s", error.message);
    free(rgb);
    return medium;
}

static struct llm_medium *make_sound(const struct rig *rig, uint8_t seed)
{
    uint32_t rate = llm_projector_facts_of(rig->projector)->sample_rate;
    size_t n = (size_t)(rig->kind->seconds * (float)rate);
    float *samples = mem_alloc(n * sizeof *samples);
    for (size_t i = 0; i < n; i++) samples[i] = 0.5F * sinf((float)i * 0.02F * (float)(seed + 1));
    hearth_error error = {0};
    struct llm_medium *medium = llm_medium_of_sound(rig->projector, samples, n, &error);
    if (medium == NULL) fail_msg("%s", error.message);
    free(samples);
    return medium;
}

static struct llm_medium *make_medium(const struct rig *rig, uint8_t seed)
{
    return rig->kind->sound ? make_sound(rig, seed) : make_image(rig, seed);
}

/* The chunk of rows, of which each of these media has one. */
static size_t rows_of(const struct llm_medium *medium)
{
    for (size_t i = 0; i < llm_medium_chunks(medium); i++)
        if (llm_medium_chunk(medium, i).tokens == NULL) return i;
    fail_msg("no rows");
    return 0;
}

static float *encode(const struct rig *rig, const struct llm_medium *medium, size_t *n)
{
    size_t chunk = rows_of(medium);
    *n = (size_t)llm_medium_chunk(medium, chunk).n * llm_projector_facts_of(rig->projector)->row_floats;
    float *rows = mem_alloc(*n * sizeof *rows);
    hearth_error error = {0};
    if (llm_medium_encode(rig->projector, medium, chunk, rows, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return rows;
}

/* ---- Tests ---- */

static void media_become_chunks(const struct rig *rig)
{
    const struct llm_projector_facts *facts = llm_projector_facts_of(rig->projector);
    assert_int_equal(facts->images, !rig->kind->sound);
    assert_int_equal(facts->sounds, rig->kind->sound);
    assert_int_equal(facts->mrope, rig->kind->mrope);
    struct llm_medium *medium = make_medium(rig, 1);
    size_t at = rows_of(medium);
    struct llm_chunk rows = llm_medium_chunk(medium, at);
    assert_int_equal(rows.n, rig->kind->n);
    assert_int_equal(rows.n_pos, rig->kind->n_pos);
    assert_int_equal(rows.causal, rig->kind->causal);
    for (size_t i = 0; i < llm_medium_chunks(medium); i++)
        if (i != at) assert_true(llm_medium_chunk(medium, i).n == llm_medium_chunk(medium, i).n_pos);
    for (int32_t row = 0; row < rows.n; row++) {
        struct llm_place place = llm_medium_place(medium, at, 100, row);
        bool in_rows = rig->kind->mrope; /* 4 x 3, row by row */
        assert_int_equal(place.t, in_rows ? 100 : 100 + row);
        assert_int_equal(place.x, in_rows ? 100 + row % 4 : 100 + row);
        assert_int_equal(place.y, in_rows ? 100 + row / 4 : 100 + row);
    }
    llm_medium_close(medium);
}

static void equal_media_have_equal_rows_and_others_others(const struct rig *rig)
{
    struct llm_medium *media[] = {make_medium(rig, 1), make_medium(rig, 1), make_medium(rig, 2)};
    float *rows[3];
    size_t n = 0;
    for (int i = 0; i < 3; i++) rows[i] = encode(rig, media[i], &n);
    assert_memory_equal(rows[0], rows[1], n * sizeof **rows);
    assert_memory_not_equal(rows[0], rows[2], n * sizeof **rows);
    for (int i = 0; i < 3; i++) {
        free(rows[i]);
        llm_medium_close(media[i]);
    }
}

struct encoder {
    const struct rig *rig;
    float *rows;
    size_t n;
};

static void *encode_often(void *ud)
{
    struct encoder *encoder = ud;
    for (int i = 0; i < 5; i++) {
        struct llm_medium *medium = make_medium(encoder->rig, 1);
        free(encoder->rows);
        encoder->rows = encode(encoder->rig, medium, &encoder->n);
        llm_medium_close(medium);
    }
    return NULL;
}

static void threads_may_cut_and_encode_at_once(const struct rig *rig)
{
    struct encoder encoders[3] = {{.rig = rig}, {.rig = rig}, {.rig = rig}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, encode_often, &encoders[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(encoders[0].rows, encoders[i].rows, encoders[0].n * sizeof *encoders[0].rows);
    for (int i = 0; i < 3; i++) free(encoders[i].rows);
}

static void each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct rig rig = open_rig(&kinds[i]);
        media_become_chunks(&rig);
        equal_media_have_equal_rows_and_others_others(&rig);
        threads_may_cut_and_encode_at_once(&rig);
        close_rig(&rig);
    }
}

static void what_a_projector_does_not_take_is_refused(void **state)
{
    (void)state;
    struct rig images = open_rig(&kinds[0]), sounds = open_rig(&kinds[3]);
    const uint8_t pixel[3] = {0};
    const float samples[2] = {0};
    hearth_error error;
    assert_null(llm_medium_of_sound(images.projector, samples, 2, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    assert_null(llm_medium_of_image(sounds.projector, pixel, 1, 1, &error));
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    assert_null(llm_medium_of_sound(sounds.projector, samples, 1, &error)); /* libmtmd would end the process */
    assert_int_equal(error.code, HEARTH_INVALID);
    close_rig(&images);
    close_rig(&sounds);
}

static void a_file_that_is_no_projector_is_refused(void **state)
{
    (void)state;
    char *folder = folder_open(), *path = make_model(folder, "llama", "");
    struct llm_model *model = open_model(path);
    struct llm_projector_params params = params_of(path);
    hearth_error error = {0};
    assert_null(llm_projector_open(model, &params, &error));
    assert_string_equal(error.param, "mmproj");
    params.path = "/nowhere/mmproj.gguf";
    assert_null(llm_projector_open(model, &params, &error));
    llm_model_close(model);
    free(path);
    folder_remove(folder);
}

static int set_up(void **state)
{
    (void)state;
    llm_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),
        cmocka_unit_test(what_a_projector_does_not_take_is_refused),
        cmocka_unit_test(a_file_that_is_no_projector_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
