/* The projectors that hearth-mkmodel writes: libmtmd loads each for its model and turns images or sounds into chunks
 * and embeddings of the kind that its name says, and the model's replies depend on them. */
#include "support.h"

#include <mtmd-helper.h>
#include <mtmd.h>

enum { EMBD = 64, WIDTH = 112, HEIGHT = 84, RATE = 16000, REPLY = 12, MAX_FILE = 500000 };

static const struct kind {
    const char *name, *arch;
    int seconds; /* of a sound; 0: of images */
    bool mrope, non_causal;
    size_t n_tokens; /* of the image or the sound */
    llama_pos n_pos;
} kinds[] = {
    {"llava", "llama", 0, false, false, 16, 16},
    {"qwen2vl", "qwen2vl", 0, true, false, 12, 4}, /* 4 x 3 tokens take max(4, 3) positions */
    {"gemma3", "gemma3", 0, false, true, 16, 16},
    {"audio", "llama", 1, false, false, 25, 25},
    {"whisper", "llama", 10, false, false, 50, 50}, /* padded to 30 seconds */
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- Rigs ---- */

/* A model with its projector; close_rig(). */
struct rig {
    const struct kind *kind;
    struct llama_model *model;
    mtmd_context *mtmd;
    int n_vocab;
};

/* Writes the projector for the model at `model_path`; free() the path. */
static char *write_projector(const char *kind, const char *model_path, const char *seed)
{
    char *path = in_folder("mmproj.gguf");
    struct outcome outcome = RUN("--mmproj", kind, "--for", model_path, "--seed", seed, "-o", path);
    assert_string_equal(outcome.err, "");
    assert_int_equal(outcome.code, 0);
    release_outcome(&outcome);
    return path;
}

static mtmd_context *open_mtmd(const char *path, const struct llama_model *model)
{
    struct mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu = false;
    params.n_threads = 1;
    params.print_timings = false;
    return mtmd_init_from_file(path, model, params);
}

static struct rig open_rig(const struct kind *kind)
{
    print_message("  %s\n", kind->name);
    char *model_path = write_arch(kind->arch);
    char *path = write_projector(kind->name, model_path, "1");
    struct rig rig = {.kind = kind, .model = load(model_path)};
    rig.mtmd = open_mtmd(path, rig.model);
    if (rig.mtmd == NULL) fail_msg("libmtmd does not load %s", path);
    rig.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(rig.model));
    free(model_path);
    free(path);
    return rig;
}

static void close_rig(struct rig *rig)
{
    mtmd_free(rig->mtmd);
    llama_model_free(rig->model);
}

/* ---- Media ---- */

/* A picture that another variant has nowhere in common. */
static mtmd_bitmap *make_image(int variant)
{
    static unsigned char pixels[HEIGHT][WIDTH][3];
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            pixels[y][x][0] = (unsigned char)(x * 2 + variant * 90);
            pixels[y][x][1] = (unsigned char)(y * 3 + variant * 50);
            pixels[y][x][2] = (unsigned char)((x / 8 + y / 8 + variant) % 2 * 200);
        }
    }
    return mtmd_bitmap_init(WIDTH, HEIGHT, &pixels[0][0][0]);
}

/* A tone that another variant has in another pitch. */
static mtmd_bitmap *make_sound(int variant, int seconds)
{
    size_t n = (size_t)(seconds * RATE);
    float *samples = mem_alloc(n * sizeof *samples);
    for (size_t i = 0; i < n; i++) samples[i] = 0.5f * sinf((float)i * (variant == 0 ? 0.05f : 0.6f));
    mtmd_bitmap *sound = mtmd_bitmap_init_from_audio(n, samples);
    free(samples);
    return sound;
}

/* A prompt with the medium in its middle; frees the medium. mtmd_input_chunks_free() the chunks. */
static mtmd_input_chunks *make_prompt(const struct rig *rig, mtmd_bitmap *medium)
{
    static const char text[] = "Consider <__media__> and say what it is.";
    mtmd_bitmap_set_id(medium, "the medium");
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    const mtmd_input_text input = {.text = text, .text_len = strlen(text), .add_special = true, .parse_special = true};
    assert_int_equal(mtmd_tokenize(rig->mtmd, chunks, &input, (const mtmd_bitmap *const[]){medium}, 1), 0);
    mtmd_bitmap_free(medium);
    return chunks;
}

static mtmd_input_chunks *prompt_with(const struct rig *rig, int variant)
{
    return make_prompt(rig, rig->kind->seconds > 0 ? make_sound(variant, rig->kind->seconds) : make_image(variant));
}

static bool is_text(const mtmd_input_chunk *chunk)
{
    return mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT;
}

/* The medium's only chunk. */
static const mtmd_input_chunk *medium_of(const mtmd_input_chunks *chunks)
{
    assert_int_equal(mtmd_input_chunks_size(chunks), 3);
    assert_true(is_text(mtmd_input_chunks_get(chunks, 0)));
    assert_true(is_text(mtmd_input_chunks_get(chunks, 2)));
    return mtmd_input_chunks_get(chunks, 1);
}

/* The chunk's embeddings, EMBD numbers a token; free() them. */
static float *embed(const struct rig *rig, const mtmd_input_chunk *chunk)
{
    assert_int_equal(mtmd_encode_chunk(rig->mtmd, chunk), 0);
    size_t n = mtmd_input_chunk_get_n_tokens(chunk) * EMBD;
    float *embeddings = mem_alloc(n * sizeof *embeddings);
    memcpy(embeddings, mtmd_get_output_embd(rig->mtmd), n * sizeof *embeddings);
    assert_finite(embeddings, (int)n, rig->kind->name);
    return embeddings;
}

static float rms(const float *numbers, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += numbers[i] * numbers[i];
    return sqrtf(sum / (float)n);
}

static float rms_difference(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrtf(sum / (float)n);
}

/* ---- Replies ---- */

/* What the model makes of a prompt; free() the logits. */
struct answer {
    float *logits; /* after the prompt */
    llama_token reply[REPLY];
    llama_pos n_past; /* after the prompt */
};

static struct answer answer_after(struct llama_context *context, const struct rig *rig, llama_pos n_past)
{
    struct answer answer = {.n_past = n_past};
    const float *logits = llama_get_logits_ith(context, -1);
    assert_non_null(logits);
    assert_finite(logits, rig->n_vocab, rig->kind->name);
    answer.logits = mem_alloc((size_t)rig->n_vocab * sizeof *logits);
    memcpy(answer.logits, logits, (size_t)rig->n_vocab * sizeof *logits);
    for (int i = 0; i < REPLY; i++) {
        answer.reply[i] = likeliest(logits, rig->n_vocab);
        logits = decode(context, &answer.reply[i], 1);
    }
    return answer;
}

/* Decodes at most `n_batch` tokens in one call. */
static struct answer ask_in_pieces(const struct rig *rig, int variant, int n_batch)
{
    struct llama_context *context = open_context(rig->model, 512, false);
    mtmd_input_chunks *chunks = prompt_with(rig, variant);
    llama_pos n_past = 0;
    assert_int_equal(mtmd_helper_eval_chunks(rig->mtmd, context, chunks, 0, 0, n_batch, true, &n_past), 0);
    struct answer answer = answer_after(context, rig, n_past);
    mtmd_input_chunks_free(chunks);
    llama_free(context);
    return answer;
}

static struct answer ask(const struct rig *rig, int variant)
{
    return ask_in_pieces(rig, variant, 512);
}

static bool same_logits(const struct answer *a, const struct answer *b, const struct rig *rig)
{
    return memcmp(a->logits, b->logits, (size_t)rig->n_vocab * sizeof *a->logits) == 0;
}

/* ---- Kinds ---- */

static void every_projector_is_what_its_name_says(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        struct rig rig = open_rig(kind);
        assert_int_equal(mtmd_support_vision(rig.mtmd), kind->seconds == 0);
        assert_int_equal(mtmd_support_audio(rig.mtmd), kind->seconds > 0);
        assert_int_equal(mtmd_get_audio_sample_rate(rig.mtmd), kind->seconds > 0 ? RATE : -1);
        assert_int_equal(mtmd_decode_use_mrope(rig.mtmd), kind->mrope);

        mtmd_input_chunks *chunks = prompt_with(&rig, 0);
        const mtmd_input_chunk *medium = medium_of(chunks);
        assert_int_equal(mtmd_input_chunk_get_type(medium),
                         kind->seconds > 0 ? MTMD_INPUT_CHUNK_TYPE_AUDIO : MTMD_INPUT_CHUNK_TYPE_IMAGE);
        assert_int_equal(mtmd_input_chunk_get_n_tokens(medium), kind->n_tokens);
        assert_int_equal(mtmd_input_chunk_get_n_pos(medium), kind->n_pos);
        assert_int_equal(mtmd_decode_use_non_causal(rig.mtmd, medium), kind->non_causal);
        mtmd_input_chunks_free(chunks);
        close_rig(&rig);
    }
}

static void positions_of_an_image_are_two_dimensional_with_m_rope(void **state)
{
    (void)state;
    enum { COLUMNS = 4, AT = 100 };
    struct rig rig = open_rig(&kinds[1]);
    mtmd_input_chunks *chunks = prompt_with(&rig, 0);
    const mtmd_image_tokens *image = mtmd_input_chunk_get_tokens_image(medium_of(chunks));
    for (uint32_t i = 0; i < rig.kind->n_tokens; i++) {
        struct mtmd_decoder_pos pos = mtmd_image_tokens_get_decoder_pos(image, AT, i);
        assert_int_equal(pos.t, AT);
        assert_int_equal(pos.x, AT + i % COLUMNS);
        assert_int_equal(pos.y, AT + i / COLUMNS);
    }
    mtmd_input_chunks_free(chunks);
    close_rig(&rig);
}

static void a_long_sound_is_several_chunks_of_one_id(void **state)
{
    (void)state;
    struct rig rig = open_rig(&kinds[4]);
    mtmd_input_chunks *chunks = make_prompt(&rig, make_sound(0, 40));
    assert_int_equal(mtmd_input_chunks_size(chunks), 4);
    const mtmd_input_chunk *first = mtmd_input_chunks_get(chunks, 1), *second = mtmd_input_chunks_get(chunks, 2);
    assert_string_equal(mtmd_input_chunk_get_id(first), "the medium");
    assert_string_equal(mtmd_input_chunk_get_id(second), "the medium");
    float *a = embed(&rig, first), *b = embed(&rig, second);
    size_t n = rig.kind->n_tokens * EMBD;
    assert_true(rms_difference(a, b, n) > 0.05f);
    free(a);
    free(b);
    mtmd_input_chunks_free(chunks);
    close_rig(&rig);
}

/* Cut into pieces, what attends to later tokens of its medium cannot see those of the next piece. */
static void tokens_attend_to_later_ones_of_their_medium_only_where_the_kind_says(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct rig rig = open_rig(&kinds[i]);
        struct answer whole = ask(&rig, 0), cut = ask_in_pieces(&rig, 0, 5);
        float difference = rms_difference(whole.logits, cut.logits, (size_t)rig.n_vocab);
        print_message("    difference %g\n", (double)difference);
        if (kinds[i].non_causal) {
            assert_true(difference > 0.01f);
        } else {
            assert_true(difference < 0.001f);
        }
        free(whole.logits);
        free(cut.logits);
        close_rig(&rig);
    }
}

/* ---- Embeddings ---- */

static void embeddings_are_like_those_of_tokens_and_differ_with_the_medium(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct rig rig = open_rig(&kinds[i]);
        mtmd_input_chunks *chunks[3] = {prompt_with(&rig, 0), prompt_with(&rig, 0), prompt_with(&rig, 1)};
        float *embeddings[3];
        for (int j = 0; j < 3; j++) embeddings[j] = embed(&rig, medium_of(chunks[j]));
        size_t n = kinds[i].n_tokens * EMBD;
        float size = rms(embeddings[0], n), other = rms_difference(embeddings[0], embeddings[2], n);
        float neighbour = rms_difference(embeddings[0], embeddings[0] + EMBD, n - EMBD);
        print_message("    RMS %.2f, from token to token %.2f, from medium to medium %.2f\n", (double)size,
                      (double)neighbour, (double)other);
        assert_true(size > 0.05f && size < 0.5f);
        assert_true(neighbour > size / 50);
        assert_true(other > size / 10);
        assert_memory_equal(embeddings[0], embeddings[1], n * sizeof(float));
        for (int j = 0; j < 3; j++) {
            free(embeddings[j]);
            mtmd_input_chunks_free(chunks[j]);
        }
        close_rig(&rig);
    }
}

static void a_reply_depends_on_the_medium_alone(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct rig rig = open_rig(&kinds[i]);
        struct answer first = ask(&rig, 0), again = ask(&rig, 0), other = ask(&rig, 1);
        assert_true(same_logits(&first, &again, &rig));
        assert_memory_equal(first.reply, again.reply, sizeof first.reply);
        assert_false(same_logits(&first, &other, &rig));
        assert_memory_not_equal(first.reply, other.reply, sizeof first.reply);
        assert_int_equal(first.n_past, other.n_past);
        free(first.logits);
        free(again.logits);
        free(other.logits);
        close_rig(&rig);
    }
}

/* Encodes other media in between: embeddings that were copied are all that a prompt needs. */
static void embeddings_that_were_kept_serve_a_later_prompt(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct rig rig = open_rig(&kinds[i]);
        mtmd_input_chunks *chunks = prompt_with(&rig, 0);
        const mtmd_input_chunk *medium = medium_of(chunks);
        float *embeddings = embed(&rig, medium);
        struct answer other = ask(&rig, 1), first = ask(&rig, 0);

        struct llama_context *context = open_context(rig.model, 512, false);
        llama_pos n_past = 0;
        const mtmd_input_chunk *before = mtmd_input_chunks_get(chunks, 0), *after = mtmd_input_chunks_get(chunks, 2);
        mtmd_input_chunk *place = mtmd_input_chunk_get_placeholder(medium); /* without the pixels or samples */
        assert_int_equal(mtmd_helper_eval_chunk_single(rig.mtmd, context, before, n_past, 0, 512, false, &n_past), 0);
        assert_int_equal(
            mtmd_helper_decode_image_chunk(rig.mtmd, context, place, embeddings, n_past, 0, 512, &n_past, NULL, NULL),
            0);
        assert_int_equal(mtmd_helper_eval_chunk_single(rig.mtmd, context, after, n_past, 0, 512, true, &n_past), 0);
        struct answer kept = answer_after(context, &rig, n_past);
        assert_int_equal(kept.n_past, first.n_past);
        assert_true(same_logits(&kept, &first, &rig));
        assert_false(same_logits(&kept, &other, &rig));

        free(embeddings);
        free(other.logits);
        free(first.logits);
        free(kept.logits);
        mtmd_input_chunk_free(place);
        mtmd_input_chunks_free(chunks);
        llama_free(context);
        close_rig(&rig);
    }
}

/* ---- Files ---- */

static void a_projector_is_as_wide_as_its_model(void **state)
{
    (void)state;
    char *model_path = WRITE("wide.gguf", "--arch", "llama", "--embd", "96");
    struct llama_model *model = load(model_path);
    for (int i = 0; i < KINDS; i++) {
        char *path = write_projector(kinds[i].name, model_path, "1");
        mtmd_context *mtmd = open_mtmd(path, model); /* refuses another width */
        assert_non_null(mtmd);
        mtmd_free(mtmd);
        free(path);
    }
    llama_model_free(model);
    free(model_path);
}

static void the_same_arguments_give_the_same_small_file_and_another_seed_another(void **state)
{
    (void)state;
    static const char *const seeds[] = {"7", "7", "8"};
    char *model = write_arch("llama");
    for (int i = 0; i < KINDS; i++) {
        char *bytes[3];
        size_t lengths[3];
        for (int j = 0; j < 3; j++) {
            char *path = write_projector(kinds[i].name, model, seeds[j]);
            bytes[j] = read_file(path, &lengths[j]);
            free(path);
        }
        print_message("  %s: %zu bytes\n", kinds[i].name, lengths[0]);
        assert_true(lengths[0] < MAX_FILE);
        assert_int_equal(lengths[0], lengths[1]);
        assert_int_equal(lengths[0], lengths[2]);
        assert_memory_equal(bytes[0], bytes[1], lengths[0]);
        assert_memory_not_equal(bytes[0], bytes[2], lengths[0]);
        for (int j = 0; j < 3; j++) free(bytes[j]);
    }
    free(model);
}

/* ---- Main ---- */

static int open_quietly(void **state)
{
    mtmd_helper_log_set(say_nothing, NULL);
    return open_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_projector_is_what_its_name_says),
        cmocka_unit_test(positions_of_an_image_are_two_dimensional_with_m_rope),
        cmocka_unit_test(a_long_sound_is_several_chunks_of_one_id),
        cmocka_unit_test(tokens_attend_to_later_ones_of_their_medium_only_where_the_kind_says),
        cmocka_unit_test(embeddings_are_like_those_of_tokens_and_differ_with_the_medium),
        cmocka_unit_test(a_reply_depends_on_the_medium_alone),
        cmocka_unit_test(embeddings_that_were_kept_serve_a_later_prompt),
        cmocka_unit_test(a_projector_is_as_wide_as_its_model),
        cmocka_unit_test(the_same_arguments_give_the_same_small_file_and_another_seed_another),
    };
    return cmocka_run_group_tests(tests, open_quietly, remove_folder);
}
