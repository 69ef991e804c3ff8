/* The exactness matrix of media: images, sounds and videos first, last, in the middle and two of them, under each
 * projector, layout, caching and place of what is cached. A reply from the cache has the tokens of a reply that is
 * computed whole, with the same probabilities; in deterministic mode to the last bit; and each medium is encoded once.
 * Of the matrix half is played, so chosen that any three of its four dimensions meet in all their values; and of that
 * half `make test` plays each cell with two of the eight scripts, so that each script meets every layout, caching and
 * place, and in four commits every projector (fakes/cases.h).
 *
 * Weights are random, so that now and then two tokens are as likely as each other but for rounding: replies may part
 * there, and are compared no further. */
#include "fakes/cases.h"
#include "unit/instance/support.h"
#include "unit/media/fake_ffmpeg.h"

#include <math.h>
#include <unistd.h>

/* ---- The matrix ---- */

static const struct kind {
    const char *projector, *arch;
    enum media_kind upload;
    double bound; /* of logprobs, between what is reused and what is computed: rounding, as in support.h */
} kinds[] = {
    {"llava", "llama", MEDIA_IMAGE, 1e-4},      {"qwen2vl", "qwen2vl", MEDIA_IMAGE, 1e-4},
    {"gemma3", "gemma3", MEDIA_IMAGE, 1e-2},    {"audio", "llama", MEDIA_AUDIO, 1e-4},
    {"whisper", "llama", MEDIA_AUDIO, 1e-4},    {"qwen2vl", "qwen35", MEDIA_IMAGE, 1e-4},
    {"qwen2vl", "qwen2vl", MEDIA_FRAMES, 1e-4},
};

static const struct layout {
    const char *name, *unified, *deterministic;
} layouts[] = {{"one pool", "true", "false"}, {"a stream each", "false", "false"}, {"deterministic", "auto", "true"}};

static const struct caching {
    const char *name, *system, *incremental;
} cachings[] = {{"conversations", "false", "true"}, {"system prompts", "true", "false"}};

enum place { CELLS, STORED, N_PLACES };
static const char *const places[] = {"in cells", "stored, restarted"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Messages; %s is the reply to the first turn. */
#define MEDIUM(n)   "{\"type\":\"image_url\",\"media\":" #n "}"
#define TEXT(words) "{\"type\":\"text\",\"text\":\"" words "\"}"
#define PARTS(...)  "{\"role\":\"user\",\"content\":[" __VA_ARGS__ "]}"
#define RULES       SYSTEM("Answer each question in few words, and do not say what was not asked.")
#define LOOK        PARTS(MEDIUM(0) "," TEXT("What is this?"))
#define PLAIN       USER("Tell me about rivers and the towns beside them.")

static const struct script {
    const char *name, *first, *second;
    int before, added, again; /* distinct media of the first turn; that the second adds, and computes again */
} scripts[] = {
    {"text after an image", "[" RULES "," LOOK "]", "[" RULES "," LOOK ",%s," USER("And why?") "]", 1, 0, 0},
    {"an image before all text", "[" LOOK "]", "[" LOOK ",%s," USER("And why?") "]", 1, 0, 0},
    {"an image after text", "[" RULES "," PLAIN "]", "[" RULES "," PLAIN ",%s," LOOK "]", 0, 1, 0},
    {"a second image", "[" RULES "," LOOK "]", "[" RULES "," LOOK ",%s," PARTS(TEXT("Or this?") "," MEDIUM(1)) "]", 1,
     1, 0},
    {"two images in a message", "[" RULES "," PARTS(MEDIUM(0) "," TEXT("or") "," MEDIUM(1)) "]",
     "[" RULES "," PARTS(MEDIUM(0) "," TEXT("or") "," MEDIUM(1)) ",%s," USER("Which?") "]", 2, 0, 0},
    {"text edited behind an image", "[" RULES "," LOOK "," ASSISTANT("A river.") "," USER("Where?") "]",
     "[" RULES "," LOOK "," ASSISTANT("A town.") "," USER("Where?") "]", 1, 0, 0},
    {"text edited before an image", "[" RULES "," PLAIN "," ASSISTANT("They are long.") "," LOOK "]",
     "[" RULES "," PLAIN "," ASSISTANT("They are old.") "," PARTS(MEDIUM(0) "," TEXT("What is this?")) "]", 1, 0, 1},
    {"the image replaced", "[" RULES "," LOOK "]", "[" RULES "," PARTS(MEDIUM(1) "," TEXT("What is this?")) "]", 1, 1,
     0},
};

/* One cell of the matrix. */
struct cell {
    char *name;
    const struct kind *kind;
    const struct layout *layout;
    const struct caching *caching;
    enum place place;
    size_t sum; /* of the four's indices, an even one */
};

static char folder[] = "/tmp/hearth-media-XXXXXX";

/* ---- Models ---- */

static void shell(char *command)
{
    if (system(command) != 0) fail_msg("%s", command);
    free(command);
}

/* Makes model and projector, unless they are there. */
static void paths_of(const struct kind *kind, char **model, char **projector)
{
    const char *build = getenv("HEARTH_BUILD");
    char *vocab = source_path("models/demo.gguf");
    *model = mem_format("%s/%s.gguf", folder, kind->arch);
    *projector = mem_format("%s/%s-%s.gguf", folder, kind->projector, kind->arch);
    if (access(*model, R_OK) != 0)
        shell(mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' --ctx 2048 -o '%s' >/dev/null", build,
                         kind->arch, vocab, *model));
    if (access(*projector, R_OK) != 0)
        shell(mem_format("'%s/bin/hearth-mkmodel' --mmproj %s --for '%s' -o '%s' >/dev/null", build, kind->projector,
                         *model, *projector));
    free(vocab);
}

/* Cells of 32 bits and no flash attention: what is rounded less differs less. */
static hearth *open_instance(const struct cell *cell, const char *store)
{
    char *model, *projector;
    paths_of(cell->kind, &model, &projector);
    const char *const keys[][2] = {{"models.m.path", model},
                                   {"models.m.mmproj", projector},
                                   {"models.m.threads", "1"},
                                   {"models.m.n_seq_max", "2"},
                                   {"models.m.context_window", "2048"},
                                   {"models.m.cache_min_tokens", "0"},
                                   {"models.m.cache_type_k", "f32"},
                                   {"models.m.cache_type_v", "f32"},
                                   {"models.m.flash_attention", "off"},
                                   {"models.m.kv_unified", cell->layout->unified},
                                   {"models.m.deterministic", cell->layout->deterministic},
                                   {"models.m.system_prompt_cache", cell->caching->system},
                                   {"models.m.incremental_cache", cell->caching->incremental},
                                   {"cache.tiers.disk.path", store},
                                   {"cache.tiers.disk.quota_mb", cell->place == STORED ? "256" : "0"}};
    hearth_config *config = hearth_config_new();
    for (size_t i = 0; i < COUNT(keys); i++) set(config, keys[i][0], keys[i][1]);
    free(model);
    free(projector);
    return start(config);
}

/* ---- Uploads ---- */

enum { UPLOADS = 2 };

/* Four frames, of which the projector makes three: the first, two that it merges, and the last. */
static struct buf short_video(int number)
{
    struct buf frames = {0};
    uint8_t *pixels = gradient(56, 56);
    for (int i = 0; i < 4; i++) {
        memset(pixels, 60 * i + 20 * number, 56 * 3 * 10);
        add_frame(&frames, pixels, 56, 56);
    }
    struct buf upload = video_of(&frames);
    buf_release(&frames);
    free(pixels);
    return upload;
}

static struct buf upload_of(const struct kind *kind, int number)
{
    if (kind->upload == MEDIA_AUDIO) return sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, 0.4 + 0.3 * number);
    if (kind->upload == MEDIA_FRAMES) return short_video(number);
    uint32_t width = number == 0 ? 112 : 84, height = number == 0 ? 84 : 112;
    uint8_t *pixels = gradient(width, height);
    struct buf file = png_of(pixels, width, height, PNG_FORMAT_RGB);
    free(pixels);
    return file;
}

/* ---- Replies with their probabilities ---- */

enum { REPLY = 8 };

struct reply {
    struct caller caller; /* first */
    int32_t tokens[REPLY];
    double logs[REPLY], margins[REPLY]; /* of the chosen token; to the next likely one */
    int n;
};

static void on_event(void *ud, const hearth_event *event)
{
    struct reply *reply = ud;
    if (event->type == HEARTH_EVENT_TEXT && event->logprobs != NULL && reply->n < REPLY) {
        const hearth_logprobs *l = event->logprobs;
        reply->tokens[reply->n] = event->token;
        reply->logs[reply->n] = l->chosen.log;
        reply->margins[reply->n++] = l->n_top > 1 ? l->top[0].log - l->top[1].log : 1;
    }
    caller_event(&reply->caller, event);
}

struct stage {
    const struct cell *cell;
    hearth *instance;
    struct buf files[UPLOADS];
    hearth_medium media[UPLOADS];
    char *store;
};

static void ask(struct reply *reply, struct stage *stage, const char *messages, bool cached)
{
    hearth_error error;
    hearth_params params = chat_params(messages);
    params.max_tokens = REPLY;
    params.sampling.ignore_eos = true;
    params.cache_prompt = cached;
    params.top_logprobs = 2;
    params.media = stage->media;
    params.n_media = UPLOADS;
    *reply = (struct reply){.n = 0};
    caller_init(&reply->caller);
    pthread_mutex_lock(&reply->caller.mutex);
    reply->caller.request = hearth_submit(stage->instance, &params, on_event, reply, &error);
    pthread_mutex_unlock(&reply->caller.mutex);
    if (reply->caller.request == NULL) fail_msg("%s", error.message);
    caller_await_end(&reply->caller);
    if (reply->caller.failed) fail_msg("%s", reply->caller.error.message);
    hearth_request_release(reply->caller.request);
}

static void forget(struct reply *reply)
{
    buf_release(&reply->caller.text);
    pthread_mutex_destroy(&reply->caller.mutex);
    pthread_cond_destroy(&reply->caller.changed);
}

static void expect_same(const struct stage *stage, const struct reply *warm, const struct reply *cold)
{
    bool exact = strcmp(stage->cell->layout->deterministic, "true") == 0;
    double bound = exact ? 0 : stage->cell->kind->bound;
    assert_int_equal(warm->n, cold->n);
    for (int i = 0; i < cold->n; i++) {
        double apart = fabs(warm->logs[i] - cold->logs[i]);
        bool close = cold->margins[i] <= bound;
        if (warm->tokens[i] != cold->tokens[i] && close && !exact) return;
        if (warm->tokens[i] != cold->tokens[i] || apart > bound)
            fail_msg("token %d: %d in place of %d, logprobs differ by %g (%d tokens were reused)", i, warm->tokens[i],
                     cold->tokens[i], apart, warm->caller.result.cache_n);
    }
}

/* ---- Playing ---- */

struct encodings {
    int64_t made, fetched;
};

static int64_t counter(const char *metrics, const char *name)
{
    const char *at = strstr(metrics, name);
    return at == NULL ? -1 : strtoll(at + strlen(name), NULL, 10);
}

static struct encodings encodings_of(const struct stage *stage)
{
    char *metrics = hearth_metrics(stage->instance);
    struct encodings n = {counter(metrics, "\nhearth_media_encoded_total{model=\"m\"} "),
                          counter(metrics, "\nhearth_media_encodings_fetched_total{model=\"m\"} ")};
    hearth_free(metrics);
    return n;
}

/* Encodings that a request needed since then. */
static struct encodings needed_since(const struct stage *stage, struct encodings before)
{
    struct encodings now = encodings_of(stage);
    return (struct encodings){now.made - before.made, now.fetched - before.fetched};
}

/* Closing stores what is resident. */
static void restart(struct stage *stage)
{
    if (stage->cell->place != STORED) return;
    hearth_close(stage->instance);
    stage->instance = open_instance(stage->cell, stage->store);
}

static char *reply_message(const struct reply *reply)
{
    struct buf text = {0};
    for (size_t i = 0; i < reply->caller.text.len; i++) {
        char c = reply->caller.text.v[i];
        if (c >= ' ' && c != '"' && c != '\\' && c != 127) buf_append(&text, &c, 1);
    }
    char *message = mem_format(ASSISTANT("%s"), buf_text(&text));
    buf_release(&text);
    return message;
}

/* Encodings stay in memory; after a restart those are read from the store whose rows do not come from there, unless
 * encoding is known to be faster. */
static void expect_encodings(const struct stage *stage, const struct script *script, struct encodings first,
                             struct encodings second)
{
    const struct cell *cell = stage->cell;
    bool stored = cell->caching == &cachings[0] && strcmp(cell->kind->arch, "llama") == 0; /* cut at any position */
    int64_t each = script->before > 0 ? first.made / script->before : second.made / script->added;
    int64_t needed = second.made + second.fetched;
    assert_true(each >= 1);
    assert_int_equal(first.fetched, 0);
    assert_true(second.made >= each * script->added);
    if (script->added == 0) assert_int_equal(second.made, 0);
    if (cell->place == CELLS)
        assert_int_equal(needed, each * script->added);
    else if (stored)
        assert_int_equal(needed, each * (script->added + script->again));
    else
        assert_true(needed <= each * (script->before + script->added));
}

/* The text with the message in the place of its %s, if any. */
static char *with_message(const char *text, const char *message)
{
    const char *at = strstr(text, "%s");
    if (at == NULL) return mem_strdup(text);
    return mem_format("%.*s%s%s", (int)(at - text), text, message, at + 2);
}

static void play_script(struct stage *stage, const struct script *script)
{
    struct reply first, warm, cold;
    struct encodings before = encodings_of(stage);
    ask(&first, stage, script->first, true);
    struct encodings by_first = needed_since(stage, before);
    char *reply = reply_message(&first), *second = with_message(script->second, reply);
    restart(stage);
    before = encodings_of(stage);
    ask(&warm, stage, second, true);
    struct encodings by_second = needed_since(stage, before);
    ask(&cold, stage, second, false);
    assert_int_equal(cold.caller.result.cache_n, 0);
    expect_same(stage, &warm, &cold);
    expect_encodings(stage, script, by_first, by_second);
    free(second);
    free(reply);
    forget(&first);
    forget(&warm);
    forget(&cold);
}

static void play(void **state)
{
    struct stage stage = {.cell = *state, .store = mem_format("%s/store-XXXXXX", folder)};
    for (size_t i = 0; i < COUNT(scripts); i++) {
        if (!is_in_part(i + stage.cell->sum / 2)) continue;
        strcpy(strrchr(stage.store, '-'), "-XXXXXX");
        assert_non_null(mkdtemp(stage.store));
        for (int k = 0; k < UPLOADS; k++) {
            stage.files[k] = upload_of(stage.cell->kind, k);
            stage.media[k] = (hearth_medium){.bytes = stage.files[k].v, .len = stage.files[k].len};
        }
        stage.instance = open_instance(stage.cell, stage.store);
        print_message("    %s\n", scripts[i].name);
        play_script(&stage, &scripts[i]);
        hearth_close(stage.instance);
        for (int k = 0; k < UPLOADS; k++) buf_release(&stage.files[k]);
    }
    free(stage.store);
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
    int rc = system(command);
    free(command);
    return rc;
}

enum { N_CELLS = COUNT(kinds) * COUNT(layouts) * COUNT(cachings) * N_PLACES };

int main(void)
{
    static struct cell cells[N_CELLS];
    static struct CMUnitTest tests[N_CELLS];
    hearth_error error;
    size_t n = 0;
    for (size_t i = 0; i < N_CELLS; i++) {
        struct cell *cell = &cells[i];
        *cell = (struct cell){.kind = &kinds[i / (COUNT(layouts) * COUNT(cachings) * N_PLACES)],
                              .layout = &layouts[i / (COUNT(cachings) * N_PLACES) % COUNT(layouts)],
                              .caching = &cachings[i / N_PLACES % COUNT(cachings)],
                              .place = (enum place)(i % N_PLACES)};
        cell->sum = (size_t)(cell->kind - kinds) + (size_t)(cell->layout - layouts) +
                    (size_t)(cell->caching - cachings) + cell->place;
        if (cell->sum % 2 != 0) continue;
        cell->name = mem_format("%s%s, %s, %s, %s, %s", cell->kind->projector,
                                cell->kind->upload == MEDIA_FRAMES ? " with video" : "", cell->kind->arch,
                                cell->layout->name, cell->caching->name, places[cell->place]);
        tests[n++] = (struct CMUnitTest){.name = cell->name, .test_func = play, .initial_state = cell};
    }
    hearth_log_open(NULL, "error", "text", &error);
    int failed = _cmocka_run_group_tests("media", tests, n, make_folder, remove_folder);
    for (size_t i = 0; i < n; i++) free(cells[i].name);
    return failed;
}
