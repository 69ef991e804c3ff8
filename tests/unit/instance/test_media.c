/* Images and sounds in chats, over real models and projectors: each is encoded once, what is cached is what would be
 * computed, and a file that cannot be read is refused by its name. */
#include "support.h"

#include "unit/media/fake_ffmpeg.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- Models ---- */

struct kind {
    const char *projector, *arch; /* arch NULL: the demo model */
    bool sound;
};

static const struct kind kinds[] = {
    {"llava", NULL, false}, {"qwen2vl", "qwen2vl", false}, {"gemma3", "gemma3", false},
    {"audio", NULL, true},  {"qwen2vl", "qwen35", false},
};

static char folder[] = "/tmp/hearth-media-XXXXXX";

static void shell(const char *command)
{
    if (system(command) != 0) fail_msg("%s", command);
}

static char *model_of(const struct kind *kind)
{
    if (kind->arch == NULL) return source_path("models/demo.gguf");
    char *path = mem_format("%s/%s.gguf", folder, kind->arch), *vocab = source_path("models/demo.gguf");
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' --ctx 2048 -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), kind->arch, vocab, path);
    shell(command);
    free(command);
    free(vocab);
    return path;
}

static hearth_config *config_of(const struct kind *kind, const char *const *more)
{
    char *model = model_of(kind), *projector = mem_format("%s/%s.mmproj.gguf", folder, kind->projector);
    char *command = mem_format("'%s/bin/hearth-mkmodel' --mmproj %s --for '%s' -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), kind->projector, model, projector);
    shell(command);
    hearth_config *config = demo_config(
        (const char *const[]){"path", model, "mmproj", projector, "n_seq_max", "2", "context_window", "2048", NULL});
    for (; *more != NULL; more += 2) {
        char *key = mem_format("models.demo.%s", more[0]);
        set(config, key, more[1]);
        free(key);
    }
    free(command);
    free(projector);
    free(model);
    return config;
}

/* With another key of the model, if any. */
static hearth *open_model(const struct kind *kind, const char *key, const char *value)
{
    return start(config_of(kind, (const char *const[]){key, value, NULL}));
}

/* ---- Uploads ---- */

static struct buf upload_of(const struct kind *kind, int number)
{
    if (kind->sound) return sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, 0.5 + number);
    uint8_t *pixels = gradient(112, 84);
    for (size_t i = 0; i < 112 * 84 * 3; i += 7) pixels[i] = (uint8_t)(pixels[i] + 40 * number);
    struct buf file = png_of(pixels, 112, 84, PNG_FORMAT_RGB);
    free(pixels);
    return file;
}

#define MEDIUM(n)   "{\"type\":\"image_url\",\"media\":" #n "}"
#define TEXT(words) "{\"type\":\"text\",\"text\":\"" words "\"}"
#define PARTS(...)  "{\"role\":\"user\",\"content\":[" __VA_ARGS__ "]}"
#define FIRST       SYSTEM("Be brief.") "," PARTS(MEDIUM(0) "," TEXT("What is this?"))

enum { UPLOADS = 3 };

struct chat {
    hearth *instance;
    struct buf files[UPLOADS];
    hearth_medium media[UPLOADS];
    struct caller callers[16];
    size_t n;
};

static void begin(struct chat *chat, const struct kind *kind, hearth *instance)
{
    *chat = (struct chat){.instance = instance};
    for (int i = 0; i < UPLOADS; i++) {
        chat->files[i] = upload_of(kind, i);
        chat->media[i] = (hearth_medium){.bytes = chat->files[i].v, .len = chat->files[i].len};
    }
}

static void finish(struct chat *chat)
{
    end(chat->instance, chat->callers, chat->n);
    for (int i = 0; i < UPLOADS; i++) buf_release(&chat->files[i]);
}

/* What a request gives, with the first two uploads. */
static struct caller *ask(struct chat *chat, const char *messages, bool cached)
{
    struct caller *caller = &chat->callers[chat->n++];
    hearth_params params = chat_params(messages);
    params.max_tokens = 6;
    params.sampling.ignore_eos = true;
    params.cache_prompt = cached;
    params.media = chat->media;
    params.n_media = UPLOADS;
    run(caller, chat->instance, &params);
    if (caller->failed) fail_msg("%s", caller->error.message);
    return caller;
}

static int64_t counter(const hearth *instance, const char *name)
{
    char *metrics = hearth_metrics(instance), *line = mem_format("\n%s{model=\"demo\"} ", name);
    const char *at = strstr(metrics, line);
    if (at == NULL) fail_msg("there is no %s", name);
    int64_t value = strtoll(at + strlen(line), NULL, 10);
    hearth_free(metrics);
    free(line);
    return value;
}

static int64_t encoded(const struct chat *chat)
{
    return counter(chat->instance, "hearth_media_encoded_total");
}

/* The text of a reply as a message; it may need escapes. */
static char *reply_message(const struct caller *caller)
{
    struct buf text = {0};
    for (size_t i = 0; i < caller->text.len; i++) {
        unsigned char c = (unsigned char)caller->text.v[i];
        if (c < 0x80 && c >= ' ' && c != '"' && c != '\\') buf_append(&text, &c, 1);
    }
    char *message = mem_format(ASSISTANT("%s"), buf_text(&text));
    buf_release(&text);
    return message;
}

/* ---- Tests ---- */

/* Text after an image, a second image, the first turn edited: each as if nothing were cached, each medium encoded once.
 */
static void turns_are_those_of_a_cold_run(const struct kind *kind)
{
    struct chat chat;
    begin(&chat, kind, open_model(kind, NULL, NULL));
    struct caller *first = ask(&chat, "[" FIRST "]", true);
    int64_t one = encoded(&chat);
    assert_true(one >= 1);
    char *reply = reply_message(first);
    char *second = mem_format("[" FIRST ",%s," USER("And now?") "]", reply);
    char *third = mem_format("[" FIRST ",%s," PARTS(TEXT("This one?") "," MEDIUM(1)) "]", reply);
    char *edited = mem_format(
        "[" SYSTEM("Be brief.") "," PARTS(MEDIUM(0) "," TEXT("Who is this?")) ",%s," USER("And now?") "]", reply);
    const char *const turns[] = {second, third, edited};
    static const bool new_medium[] = {false, true, false};
    for (size_t i = 0; i < 3; i++) {
        int64_t before = encoded(&chat);
        struct caller *warm = ask(&chat, turns[i], true);
        assert_int_equal(encoded(&chat) - before, new_medium[i] ? one : 0);
        if (kind->arch == NULL || strcmp(kind->arch, "qwen35") != 0)
            assert_true(warm->result.cache_n > first->result.prompt_n / 2);
        struct caller *cold = ask(&chat, turns[i], false);
        assert_int_equal(cold->result.cache_n, 0);
        assert_int_equal(cold->result.n_prompt, warm->result.n_prompt);
        assert_string_equal(cold->text.v, warm->text.v);
    }
    free(edited);
    free(third);
    free(second);
    free(reply);
    finish(&chat);
}

static void each_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        print_message("  %s, %s\n", kinds[i].projector, kinds[i].arch == NULL ? "demo" : kinds[i].arch);
        turns_are_those_of_a_cold_run(&kinds[i]);
    }
}

static void another_image_is_another_prompt(void **state)
{
    (void)state;
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], NULL, NULL));
    struct caller *first = ask(&chat, "[" FIRST "]", true);
    chat.media[0] = chat.media[1];
    struct caller *other = ask(&chat, "[" FIRST "]", true);
    assert_int_equal(other->result.n_prompt, first->result.n_prompt);
    assert_true(other->result.cache_n < first->result.cache_n + first->result.prompt_n / 2);
    struct caller *cold = ask(&chat, "[" FIRST "]", false);
    assert_string_equal(cold->text.v, other->text.v);
    finish(&chat);
}

/* Nothing is cached and no encoding kept: the layout is known, and the file is decoded when its rows are wanted. */
static void a_known_file_is_encoded_again_where_nothing_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct chat chat;
        begin(&chat, &kinds[i], open_model(&kinds[i], "media_cache_mb", "0"));
        struct caller *first = ask(&chat, "[" FIRST "]", false);
        int64_t once = encoded(&chat);
        struct caller *again = ask(&chat, "[" FIRST "]", false);
        assert_int_equal(encoded(&chat), 2 * once);
        assert_int_equal(again->result.n_prompt, first->result.n_prompt);
        assert_string_equal(again->text.v, first->text.v);
        finish(&chat);
    }
}

/* Requests at once, whose prompts differ before the image, share one encoding. */
static void agents_that_look_at_one_image_encode_it_once(void **state)
{
    (void)state;
    enum { N = 4 };
    static const char *const messages[N] = {
        "[" SYSTEM("You paint.") "," PARTS(MEDIUM(0)) "]", "[" SYSTEM("You cook.") "," PARTS(MEDIUM(0)) "]",
        "[" SYSTEM("You sing.") "," PARTS(MEDIUM(0)) "]", "[" SYSTEM("You act.") "," PARTS(MEDIUM(0)) "]"};
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], "queue_depth", "4"));
    for (int i = 0; i < N; i++) {
        hearth_params params = chat_params(messages[i]);
        params.max_tokens = 2;
        params.media = chat.media;
        params.n_media = 1;
        caller_init(&chat.callers[i]);
        caller_submit(&chat.callers[i], chat.instance, &params);
    }
    chat.n = N;
    for (int i = 0; i < N; i++) caller_await_end(&chat.callers[i]);
    for (int i = 0; i < N; i++) assert_false(chat.callers[i].failed);
    assert_int_equal(encoded(&chat), 1);
    assert_int_equal(counter(chat.instance, "hearth_media_encodings_shared_total"), N - 1);
    finish(&chat);
}

/* How long a request takes must not tell whether somebody else has sent the image. */
static void encodings_are_shared_under_one_salt_and_never_without_the_cache(void **state)
{
    (void)state;
    static const struct {
        const char *salt;
        bool uncached;
        int encoded; /* so far */
    } rows[] = {{NULL, false, 1}, {"a", false, 2}, {"b", false, 3}, {"a", false, 3}, {"a", true, 4},
                {"a", true, 5},   {NULL, true, 6}, {"", false, 6},  {"b", false, 6}};
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], "cache_min_tokens", "0"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_params params = chat_params("[" FIRST "]");
        params.max_tokens = 2;
        params.media = chat.media;
        params.n_media = 1;
        params.cache_salt = rows[i].salt;
        params.cache_prompt = !rows[i].uncached;
        run(&chat.callers[chat.n++], chat.instance, &params);
        if (encoded(&chat) != rows[i].encoded) fail_msg("row %zu: %d encodings", i, (int)encoded(&chat));
    }
    finish(&chat);
}

static struct buf image_of_a_megapixel(void)
{
    uint8_t *pixels = gradient(1250, 900);
    struct buf file = png_of(pixels, 1250, 900, PNG_FORMAT_RGB);
    free(pixels);
    return file;
}

static struct buf small_image(void)
{
    uint8_t *pixels = gradient(112, 84);
    struct buf file = png_of(pixels, 112, 84, PNG_FORMAT_RGB);
    free(pixels);
    return file;
}

static struct buf sound_of_two_seconds(void)
{
    return sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, 2.1);
}

/* Of eight frames, two seconds. */
static struct buf video_of_two_seconds(void)
{
    struct buf frames = {0};
    uint8_t *pixels = gradient(56, 56);
    for (int i = 0; i < 8; i++) add_frame(&frames, pixels, 56, 56);
    struct buf upload = video_of(&frames);
    buf_release(&frames);
    free(pixels);
    return upload;
}

/* Tokens of a prompt with this upload where the key has the value; -1: the upload is too large. */
static int32_t tokens_with(const struct kind *kind, const struct buf *upload, const char *key, const char *value)
{
    struct caller caller;
    hearth *instance = open_model(kind, key, value);
    const hearth_medium medium = {.bytes = upload->v, .len = upload->len, .field = "here"};
    hearth_params params = chat_params("[" PARTS(MEDIUM(0)) "]");
    params.max_tokens = 1;
    params.media = &medium;
    params.n_media = 1;
    run(&caller, instance, &params);
    int32_t n = caller.failed ? -1 : caller.result.n_prompt;
    if (caller.failed) assert_int_equal(caller.error.code, HEARTH_TOO_LONG);
    if (caller.failed) assert_string_equal(caller.error.param, "here");
    end(instance, &caller, 1);
    return n;
}

static void each_limit_is_a_key(void **state)
{
    (void)state;
    static const struct kind images = {"qwen2vl", "qwen2vl", false}, sounds = {"audio", NULL, true};
    enum { REFUSED, FEWER, MORE };
    static const struct {
        const char *key, *value;
        const struct kind *kind;
        struct buf (*upload)(void);
        int expected;
    } rows[] = {
        {"image_megapixels", "1", &images, image_of_a_megapixel, REFUSED},
        {"request_megapixels", "1", &images, image_of_a_megapixel, REFUSED},
        {"image_max_tokens", "8", &images, image_of_a_megapixel, FEWER},
        {"image_min_tokens", "120", &images, small_image, MORE},
        {"sound_seconds", "2", &sounds, sound_of_two_seconds, REFUSED},
        {"video_frames", "3", &images, video_of_two_seconds, FEWER},
        {"video_fps", "0.1", &images, video_of_two_seconds, MORE}, /* a time for each frame */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf upload = rows[i].upload();
        int32_t usual = tokens_with(rows[i].kind, &upload, NULL, NULL);
        int32_t with = tokens_with(rows[i].kind, &upload, rows[i].key, rows[i].value);
        print_message("    %s: %d tokens, with %s %d\n", rows[i].key, usual, rows[i].value, with);
        assert_true(usual > 0);
        assert_true(rows[i].expected == REFUSED ? with == -1
                    : rows[i].expected == FEWER ? with < usual && with > 0
                                                : with > usual);
        buf_release(&upload);
    }
}

/* ---- What they cost others ---- */

static struct buf black_image(uint32_t width, uint32_t height)
{
    uint8_t *pixels = mem_alloc((size_t)width * height * 3);
    struct buf file = png_of(pixels, width, height, PNG_FORMAT_RGB);
    free(pixels);
    return file;
}

static bool has_ended(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    bool ended = caller->n_last > 0;
    pthread_mutex_unlock(&caller->mutex);
    return ended;
}

/* As many requests with large images as there are preparing threads, each of which takes seconds until it is refused
 * for its last upload; and a text. */
static void large_images_hold_up_no_text(void **state)
{
    (void)state;
    enum { REQUESTS = 2, IMAGES = 4 };
    struct buf large = black_image(6000, 4000);
    hearth_medium media[IMAGES + 1];
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], NULL, NULL));
    for (int i = 0; i < IMAGES; i++) media[i] = (hearth_medium){.bytes = large.v, .len = large.len};
    media[IMAGES] = (hearth_medium){.bytes = "broken", .len = 6};
    hearth_params params = chat_params("[" FIRST "]");
    params.media = media;
    params.n_media = IMAGES + 1;
    params.cache_prompt = false; /* so that each is decoded */
    for (; chat.n < REQUESTS; chat.n++) {
        caller_init(&chat.callers[chat.n]);
        caller_submit(&chat.callers[chat.n], chat.instance, &params);
    }
    hearth_params text = chat_params("[" USER("Hello") "]");
    text.max_tokens = 2;
    run(&chat.callers[chat.n++], chat.instance, &text);
    assert_false(chat.callers[REQUESTS].failed);
    for (int i = 0; i < REQUESTS; i++) assert_false(has_ended(&chat.callers[i]));
    for (int i = 0; i < REQUESTS; i++) {
        caller_await_end(&chat.callers[i]);
        assert_says(chat.callers[i].error.message, "unknown type");
    }
    finish(&chat);
    buf_release(&large);
}

/* Before any is decoded: the first of them is none. */
static void the_pixels_of_a_request_have_a_bound(void **state)
{
    (void)state;
    struct buf image = black_image(1000, 400), broken = black_image(800, 500);
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], "request_megapixels", "1"));
    broken.len /= 2;
    const hearth_medium media[] = {{.bytes = broken.v, .len = broken.len, .field = "first"},
                                   {.bytes = image.v, .len = image.len, .field = "second"},
                                   {.bytes = image.v, .len = image.len, .field = "third"}};
    hearth_params params = chat_params("[" FIRST "]");
    params.media = media;
    for (size_t n = 3; n >= 2; n--) {
        struct caller *caller = &chat.callers[chat.n++];
        params.n_media = n;
        run(caller, chat.instance, &params);
        assert_true(caller->failed);
        assert_string_equal(caller->error.param, n == 3 ? "third" : "first");
        assert_says(caller->error.message, n == 3 ? "'third' has, with the other images, 2 million pixels: those of a "
                                                    "request may have 1 together (models.*.request_megapixels)"
                                                  : "damaged or cut off");
    }
    finish(&chat);
    buf_release(&broken);
    buf_release(&image);
}

static void what_cannot_be_read_is_refused_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *says;
    } rows[] = {{"hello", "unknown type"}, {"\x89PNG\r\n\x1a\nbroken", "PNG"}, {"\xff\xd8\xff\xe0junk", "JPEG"}};
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], NULL, NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller *caller = &chat.callers[chat.n++];
        hearth_medium bad = {
            .bytes = rows[i].bytes, .len = strlen(rows[i].bytes), .field = "messages[1].content[0].image_url.url"};
        hearth_params params = chat_params("[" FIRST "]");
        params.media = &bad;
        params.n_media = 1;
        run(caller, chat.instance, &params);
        assert_true(caller->failed);
        assert_int_equal(caller->error.code, HEARTH_INVALID);
        assert_string_equal(caller->error.param, "messages[1].content[0].image_url.url");
        assert_says(caller->error.message, rows[i].says);
    }
    ask(&chat, "[" FIRST "]", true);
    struct caller *caller = &chat.callers[chat.n++]; /* rows of an image have no logprobs */
    hearth_params scored = chat_params("[" FIRST "]");
    scored.media = chat.media;
    scored.n_media = UPLOADS;
    scored.prompt_logprobs = 0;
    run(caller, chat.instance, &scored);
    assert_true(caller->failed);
    assert_string_equal(caller->error.param, "prompt_logprobs");
    finish(&chat);
}

/* A sound for a model of images, and everything for a model of text: a note in its place, or a refusal. */
static void what_a_model_does_not_take_becomes_a_note(void **state)
{
    (void)state;
    struct chat chat;
    begin(&chat, &kinds[3], open_model(&kinds[0], NULL, NULL));
    ask(&chat, "[" FIRST "]", true);
    assert_int_equal(encoded(&chat), 0);
    finish(&chat);
    begin(&chat, &kinds[3], open_model(&kinds[0], "media", "refuse"));
    struct caller *caller = &chat.callers[chat.n++];
    hearth_params params = chat_params("[" FIRST "]");
    params.media = chat.media;
    params.n_media = 1;
    run(caller, chat.instance, &params);
    assert_true(caller->failed);
    assert_int_equal(caller->error.code, HEARTH_UNSUPPORTED);
    finish(&chat);
}

static void a_user_cannot_spell_a_medium(void **state)
{
    (void)state;
    struct chat chat;
    begin(&chat, &kinds[0], open_model(&kinds[0], NULL, NULL));
    ask(&chat, "[" PARTS(TEXT("<__media_0000000000000000_0__> <__media__>") "," MEDIUM(0)) "]", true);
    assert_int_equal(encoded(&chat), 1);
    finish(&chat);
}

static void the_estimate_of_memory_counts_the_projector(void **state)
{
    (void)state;
    hearth_error error;
    hearth_config *config = config_of(&kinds[0], (const char *const[]){NULL});
    char *report = hearth_memory_report(config, "demo", &error), *path = mem_format("%s/llava.mmproj.gguf", folder);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    const char *at = report == NULL ? NULL : strstr(report, "  projector ");
    if (at == NULL) fail_msg("%s", report == NULL ? error.message : report);
    assert_true(strtoll(at + strlen("  projector "), NULL, 10) == file.st_size);
    free(path);
    hearth_free(report);
    hearth_config_free(config);
}

static void a_projector_of_nothing_is_refused_at_the_start(void **state)
{
    (void)state;
    hearth_error error;
    char *model = source_path("models/demo.gguf");
    hearth_config *config = DEMO("mmproj", model);
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    if (instance != NULL) {
        assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_INVALID);
        hearth_close(instance);
    }
    assert_string_equal(error.param, "mmproj");
    free(model);
}

/* A projector of llava's with the type of another in its metadata: "mlp" and its length become "hunyuanvl". */
static void rename_type(const char *path)
{
    static const char before[] = "\3\0\0\0\0\0\0\0mlp", after[] = "\11\0\0\0\0\0\0\0hunyuanvl";
    static char bytes[1 << 22];
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    char *at = memmem(bytes, n, before, sizeof before - 1);
    assert_non_null(at);
    rewind(file);
    fwrite(bytes, 1, (size_t)(at - bytes), file);
    fwrite(after, 1, sizeof after - 1, file);
    fwrite(at + sizeof before - 1, 1, n - (size_t)(at - bytes) - (sizeof before - 1), file);
    assert_int_equal(fclose(file), 0);
}

static void a_projector_whose_positions_are_others_is_refused_at_the_start(void **state)
{
    (void)state;
    hearth_error error = {0};
    hearth_config *config = config_of(&kinds[0], (const char *const[]){NULL});
    char *path = mem_format("%s/llava.mmproj.gguf", folder);
    rename_type(path);
    hearth *instance = hearth_open(config, &error);
    hearth_config_free(config);
    if (instance != NULL) {
        assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_UNSUPPORTED);
        hearth_close(instance);
    }
    assert_int_equal(error.code, HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "HunyuanVL"));
    free(path);
}

struct replacement {
    const char *path, *by;
    _Atomic bool enough;
    bool in_time;
};

static bool is_open(int fd, const char *path)
{
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    return n > 0 && (target[n] = '\0', strcmp(target, path) == 0);
}

/* Gives the name to another file once so much of the former was read as only hashing reads. */
static void *replace(void *ud)
{
    struct replacement *r = ud;
    char *deleted = mem_format("%s (deleted)", r->path);
    for (int fd = 3, done = 0; !done && !atomic_load(&r->enough); fd = fd < 64 ? fd + 1 : 3) {
        if (!is_open(fd, r->path) || lseek(fd, 0, SEEK_CUR) < 16 << 20) continue;
        done = rename(r->by, r->path) == 0;
        r->in_time = done && is_open(fd, deleted);
    }
    free(deleted);
    return NULL;
}

/* Loads a model whose projector is so large that hashing it takes a while. False: the thread came too late. */
static bool load_while_replaced(int *rc, hearth_error *error)
{
    pthread_t thread;
    hearth_config *config = config_of(&kinds[0], (const char *const[]){NULL});
    char *path = mem_format("%s/llava.mmproj.gguf", folder), *by = mem_format("%s/other.gguf", folder),
         *copy = mem_format("cp '%s' '%s'", path, by);
    shell(copy);
    assert_int_equal(truncate(path, 256 << 20), 0);
    hearth *instance = hearth_open(config, error);
    if (instance == NULL) fail_msg("%s", error->message);
    struct replacement r = {.path = path, .by = by};
    assert_int_equal(pthread_create(&thread, NULL, replace, &r), 0);
    *rc = hearth_load(instance, NULL, NULL, error);
    atomic_store(&r.enough, true);
    pthread_join(thread, NULL);
    hearth_close(instance);
    hearth_config_free(config);
    free(path);
    free(by);
    free(copy);
    return r.in_time;
}

static void a_projector_that_is_replaced_while_it_is_hashed_is_not_taken(void **state)
{
    (void)state;
    hearth_error error = {0};
    int rc = HEARTH_OK, tries = 0;
    while (!load_while_replaced(&rc, &error)) assert_true(++tries < 50);
    assert_int_equal(rc, HEARTH_INVALID);
    assert_string_equal(error.param, "mmproj");
    assert_non_null(strstr(error.message, "was changed while it was loaded"));
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    install_ffmpeg(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    shell(command);
    free(command);
    return 0;
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),
        cmocka_unit_test(another_image_is_another_prompt),
        cmocka_unit_test(a_known_file_is_encoded_again_where_nothing_is_kept),
        cmocka_unit_test(agents_that_look_at_one_image_encode_it_once),
        cmocka_unit_test(encodings_are_shared_under_one_salt_and_never_without_the_cache),
        cmocka_unit_test(each_limit_is_a_key),
        cmocka_unit_test(large_images_hold_up_no_text),
        cmocka_unit_test(the_pixels_of_a_request_have_a_bound),
        cmocka_unit_test(what_cannot_be_read_is_refused_by_its_name),
        cmocka_unit_test(what_a_model_does_not_take_becomes_a_note),
        cmocka_unit_test(a_user_cannot_spell_a_medium),
        cmocka_unit_test(the_estimate_of_memory_counts_the_projector),
        cmocka_unit_test(a_projector_of_nothing_is_refused_at_the_start),
        cmocka_unit_test(a_projector_whose_positions_are_others_is_refused_at_the_start),
        cmocka_unit_test(a_projector_that_is_replaced_while_it_is_hashed_is_not_taken),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
