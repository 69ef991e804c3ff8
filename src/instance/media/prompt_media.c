/* Media of a prompt: see prompt_media.h. */
#include "instance/media/prompt_media.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/little.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "instance/media/model_media.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A medium that is to be encoded. The encoder may still need it when the request has ended. */
struct medium {
    _Atomic int refs;
    const struct model_media *model;
    struct llm_medium *chunks; /* NULL: not cut yet; then the encoder's thread decodes the file */
    struct media_bytes file;   /* own copy; empty where chunks were there from the beginning */
    bool is_sound;
};

/* A run of rows in the prompt. */
struct run_of_rows {
    size_t upload, chunk;
    struct encoding *encoding; /* NULL: not wanted */
    struct llm_place *places;  /* NULL: not asked for yet, or positions have one dimension */
};

struct upload {
    const hearth_medium *file;
    struct buf fetched;          /* the bytes of one that has a URL */
    struct media_layout *layout; /* NULL: neither an image nor a sound that the projector takes */
    struct medium *medium;       /* NULL: nothing of it had to be encoded yet, and its layout was known */
    bool has_digest;
};

#define LONG_SECONDS 60 /* of a request's sounds: more take about a second to read */
#define LONG_MS      30 /* of its images: other requests wait no longer for the thread that reads them */
#define MARKER_BEGIN "<__media_%016llx_"
#define MARKER_END   "__>"

struct prompt_media {
    struct model_media *model;
    struct prompt_media_sharing sharing;
    struct upload *uploads;
    size_t n;
    uint8_t (*digests)[SHA256_BYTES];
    char begin[40];            /* of each marker; its number and MARKER_END follow */
    struct chat_medium *texts; /* allocated */
    struct media_spans spans;
    struct run_of_rows *runs; /* one for each span */
    struct engine *engine;
    const struct media_stop *stop; /* while it is read: the request is cancelled */
    struct prompt_media_room room; /* likewise: less the text of the documents so far */
    uint64_t pixels;               /* likewise: of the images so far */
};

/* ---- Opening ---- */

struct prompt_media *prompt_media_open(struct model_media *model, const hearth_medium *uploads, size_t n,
                                       const struct prompt_media_sharing *sharing)
{
    struct prompt_media *media = mem_alloc(sizeof *media);
    unsigned long long secret = 0;
    os_random(&secret, sizeof secret);
    *media = (struct prompt_media){.model = model, .sharing = *sharing, .n = n};
    media->uploads = mem_alloc(n * sizeof *media->uploads);
    media->texts = mem_alloc(n * sizeof *media->texts);
    media->digests = mem_alloc(n * sizeof *media->digests);
    snprintf(media->begin, sizeof media->begin, MARKER_BEGIN, secret);
    for (size_t i = 0; i < n; i++) media->uploads[i].file = &uploads[i];
    return media;
}

static struct media_bytes upload_bytes(const struct upload *upload)
{
    const struct buf *fetched = &upload->fetched;
    if (upload->file->url != NULL) return (struct media_bytes){.v = (const uint8_t *)fetched->v, .len = fetched->len};
    return (struct media_bytes){.v = upload->file->bytes, .len = upload->file->len};
}

static void unref(struct medium *medium)
{
    if (medium == NULL || atomic_fetch_sub(&medium->refs, 1) > 1) return;
    llm_medium_close(medium->chunks);
    free((void *)(uintptr_t)medium->file.v);
    free(medium);
}

void prompt_media_give_back(struct prompt_media *media)
{
    if (media == NULL) return;
    for (size_t i = 0; i < media->spans.len; i++) {
        encoding_release(media->runs[i].encoding);
        media->runs[i].encoding = NULL;
    }
}

void prompt_media_close(struct prompt_media *media)
{
    if (media == NULL) return;
    prompt_media_give_back(media);
    for (size_t i = 0; i < media->spans.len; i++) free(media->runs[i].places);
    for (size_t i = 0; i < media->n; i++) {
        unref(media->uploads[i].medium);
        layout_release(media->uploads[i].layout);
        buf_release(&media->uploads[i].fetched);
        free((void *)(uintptr_t)media->texts[i].text);
    }
    media_spans_release(&media->spans);
    free(media->runs);
    free(media->uploads);
    free(media->texts);
    free(media->digests);
    free(media);
}

/* ---- Reading ---- */

static struct llm_medium *read_sound(const struct model_media *model, const struct media_bytes *bytes,
                                     const struct media_stop *stop, hearth_error *error)
{
    struct media_sound sound;
    if (media_sound_decode(bytes, &model->sounds, stop, &sound, error) != HEARTH_OK) return NULL;
    struct llm_medium *chunks = llm_medium_of_sound(model->projector, sound.samples, sound.n, error);
    free(sound.samples);
    return chunks;
}

static struct llm_medium *read_video(const struct model_media *model, const struct media_bytes *bytes,
                                     const struct media_stop *stop, hearth_error *error)
{
    struct media_video video;
    if (media_video_decode(bytes, &model->videos, stop, &video, error) != HEARTH_OK) return NULL;
    struct llm_frame *frames = mem_alloc(video.n * sizeof *frames);
    for (size_t i = 0; i < video.n; i++)
        frames[i] = (struct llm_frame){video.frames[i].rgb, video.frames[i].width, video.frames[i].height};
    struct llm_medium *chunks = llm_medium_of_frames(model->projector, frames, video.n, video.fps, error);
    free(frames);
    media_video_release(&video);
    return chunks;
}

/* NULL with HEARTH_OK in `error`: the projector takes no such files. `stop` may be NULL. */
static struct llm_medium *read_upload(const struct model_media *model, const struct media_bytes *bytes,
                                      const struct media_stop *stop, hearth_error *error)
{
    const struct llm_projector_facts *facts = llm_projector_facts_of(model->projector);
    enum media_format format = media_format_of(bytes);
    error->code = HEARTH_OK;
    switch (media_kind_of(format)) {
    case MEDIA_IMAGE:
        return facts->images ? image_read(model, bytes, stop, error) : NULL;
    case MEDIA_AUDIO:
        return facts->sounds ? read_sound(model, bytes, stop, error) : NULL;
    case MEDIA_FRAMES:
        return facts->images ? read_video(model, bytes, stop, error) : NULL;
    case MEDIA_DOCUMENT:
        return NULL;
    case MEDIA_NOTHING:
        break;
    }
    error_set(error, HEARTH_INVALID,
              "is a %s: send PNG, JPEG, WebP, GIF or BMP, WAV, MP3 or FLAC, MP4, WebM, Matroska or AVI",
              media_format_name(format));
    return NULL;
}

static const char *field_of(const struct upload *upload)
{
    return upload->file->field != NULL ? upload->file->field : "media";
}

static int name_field(const struct upload *upload, hearth_error *error)
{
    hearth_error reason = *error;
    const char *field = field_of(upload);
    if (reason.code == HEARTH_CANCELLED) return HEARTH_CANCELLED;
    error_at(error, reason.code, field, "'%s' %s", field, reason.message);
    error_note_length(error, (size_t)reason.n_prompt, (size_t)reason.window);
    return (int)reason.code;
}

static struct medium *medium_open(const struct model_media *model, const struct media_bytes *file)
{
    struct medium *medium = mem_alloc(sizeof *medium);
    *medium =
        (struct medium){.refs = 1, .model = model, .is_sound = media_kind_of(media_format_of(file)) == MEDIA_AUDIO};
    return medium;
}

/* Decodes a file whose layout is not known. */
static int learn_layout(struct prompt_media *media, size_t i, const struct media_bytes *file, hearth_error *error)
{
    struct upload *upload = &media->uploads[i];
    struct llm_medium *chunks = read_upload(media->model, file, media->stop, error);
    if (chunks == NULL) return error->code == HEARTH_OK ? HEARTH_OK : name_field(upload, error);
    upload->medium = medium_open(media->model, file);
    upload->medium->chunks = chunks;
    upload->layout = layout_of(chunks, llm_projector_facts_of(media->model->projector)->mrope);
    for (size_t k = 0; k < upload->layout->n; k++) {
        const struct layout_chunk *chunk = &upload->layout->v[k];
        int32_t most = media->model->most_at_once; /* rows that see each other must fit one micro-batch */
        if (chunk->tokens != NULL || chunk->causal || chunk->n <= most) continue;
        error_set(error, HEARTH_UNSUPPORTED,
                  "has %d rows, which this model computes at once: raise n_ubatch, which is %d", chunk->n, most);
        return name_field(upload, error);
    }
    if (!media->sharing.none) layouts_add(media->model->layouts, media->digests[i], upload->layout);
    return HEARTH_OK;
}

/* The documents of a request may have as much text together as the request itself. */
static int read_document(struct prompt_media *media, size_t i, const struct media_bytes *file, hearth_error *error)
{
    struct buf text = {0}, clean = {0};
    struct media_document_limits *room = &media->room.documents;
    int rc = media_document_text(file, room, media->stop, &text, error);
    room->most_bytes -= text.len < room->most_bytes ? text.len : room->most_bytes;
    bool missing = rc == HEARTH_UNSUPPORTED; /* the program: a note stands for the document */
    if (rc == HEARTH_OK) utf8_put_clean(&clean, buf_text(&text), text.len);
    if (rc == HEARTH_OK) media->texts[i].text = buf_take(&clean);
    buf_release(&text);
    if (missing) log_event(LOG_WARN, "serve", "a document cannot be read", log_str("reason", error->message));
    return rc == HEARTH_OK || missing ? HEARTH_OK : name_field(&media->uploads[i], error);
}

/* The digest becomes one of itself and of these bytes. */
static void extend(uint8_t digest[SHA256_BYTES], const void *bytes, size_t len)
{
    struct sha256 *hash = sha256_open();
    sha256_feed(hash, digest, SHA256_BYTES);
    sha256_feed(hash, bytes, len);
    sha256_so_far(hash, digest);
    sha256_close(hash);
}

static void digest(struct prompt_media *media, size_t i, const struct media_bytes *file)
{
    const struct prompt_media_sharing *sharing = &media->sharing;
    uint8_t *digest = media->digests[i];
    if (media->uploads[i].has_digest) return;
    media->uploads[i].has_digest = true;
    sha256_of(file->v, file->len, digest);
    if (media->model != NULL && media_kind_of(media_format_of(file)) == MEDIA_FRAMES) {
        const struct media_video_limits *frames = &media->model->videos;
        uint8_t which[sizeof frames->fps + sizeof frames->most_frames];
        memcpy(which, &frames->fps, sizeof frames->fps);
        memcpy(which + sizeof frames->fps, &frames->most_frames, sizeof frames->most_frames);
        extend(digest, which, sizeof which);
    }
    if (sharing->salt != NULL && sharing->salt[0] != '\0') extend(digest, sharing->salt, strlen(sharing->salt));
    if (sharing->none) extend(digest, media->begin, strlen(media->begin)); /* which is random */
}

static int read_one(struct prompt_media *media, size_t i, hearth_error *error)
{
    struct upload *upload = &media->uploads[i];
    const struct media_bytes file = upload_bytes(upload);
    enum media_kind kind = media_kind_of(media_format_of(&file));
    digest(media, i, &file);
    if (kind == MEDIA_DOCUMENT) return read_document(media, i, &file, error);
    if (media->model == NULL) return HEARTH_OK;
    if (upload->file->fault != NULL)
        return error_at(error, HEARTH_INVALID, field_of(upload), "%s", upload->file->fault);
    upload->layout = layouts_find(media->model->layouts, media->digests[i]);
    int rc = upload->layout == NULL ? learn_layout(media, i, &file, error) : HEARTH_OK;
    if (rc == HEARTH_OK && upload->layout != NULL)
        media->texts[i] =
            (struct chat_medium){.text = mem_format("%s%zu" MARKER_END, media->begin, i), .is_marker = true};
    return rc;
}

/* Of a model that takes text only nothing is refused here: a note stands for what was not fetched. */
static bool is_fetched(const struct model_media *model, const char *url, const struct media_sources *sources)
{
    return model != NULL || (sources->urls && strncasecmp(url, "http", 4) == 0) ||
           (sources->folder != NULL && strncasecmp(url, "file:", 5) == 0);
}

/* How long reading takes, of what is to be read. */
struct effort {
    double seconds; /* of sound */
    int64_t ns;     /* for images */
};

static bool is_much(const struct effort *effort)
{
    return effort->seconds > LONG_SECONDS || effort->ns > clock_from_ms(LONG_MS);
}

static struct effort effort_of(struct prompt_media *media, bool all)
{
    struct effort effort = {0};
    for (size_t i = 0; media->model != NULL && i < media->n; i++) {
        const struct media_bytes file = upload_bytes(&media->uploads[i]);
        if (file.len == 0) continue;
        if (!all) {
            /* A file that is known from another request, as with each turn of a conversation, is not decoded. To see
             * that, it is hashed. */
            digest(media, i, &file);
            struct media_layout *layout = layouts_find(media->model->layouts, media->digests[i]);
            layout_release(layout);
            if (layout != NULL) continue;
        }
        hearth_error error;
        double seconds = 0;
        uint64_t pixels = image_pixels(media->model, &file);
        if (pixels > 0) effort.ns += image_expect_ns(pixels);
        if (media_kind_of(media_format_of(&file)) == MEDIA_AUDIO &&
            llm_projector_facts_of(media->model->projector)->sounds &&
            media_sound_measure(&file, &seconds, &error) == HEARTH_OK)
            effort.seconds += seconds;
    }
    return effort;
}

bool prompt_media_is_slow(struct prompt_media *media, const struct media_sources *sources)
{
    for (size_t i = 0; i < media->n; i++) {
        const char *url = media->uploads[i].file->url;
        const struct media_bytes file = upload_bytes(&media->uploads[i]);
        if (url != NULL && is_fetched(media->model, url, sources)) return true;
        if (url != NULL) continue;
        enum media_kind kind = media_kind_of(media_format_of(&file));
        if (kind == MEDIA_DOCUMENT || (media->model != NULL && kind == MEDIA_FRAMES)) return true;
    }
    struct effort effort = effort_of(media, true);
    if (!is_much(&effort)) return false;
    effort = effort_of(media, false);
    return is_much(&effort);
}

/* The log has a URL's scheme and host alone: the rest may be a secret. */
static int fetch(struct upload *upload, struct media_sources *left, hearth_error *error)
{
    int64_t began_at = clock_now(clock_monotonic());
    const char *url = upload->file->url;
    int rc = media_fetch(url, left, &upload->fetched, error);
    if (rc != HEARTH_OK) return name_field(upload, error);
    left->most_bytes -= upload->fetched.len;
    size_t scheme = strcspn(url, ":") + 3;
    char *host = mem_strndup(url, scheme + strcspn(url + scheme, "/?#"));
    log_event(LOG_INFO, "serve", "fetched a medium", log_str("from", host),
              log_int("bytes", (int64_t)upload->fetched.len),
              log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - began_at)));
    free(host);
    return HEARTH_OK;
}

/* Counts an image among those of the request, before anything of it is decoded. */
static int count_pixels(struct prompt_media *media, struct upload *upload, hearth_error *error)
{
    const struct media_bytes file = upload_bytes(upload);
    if (media->model != NULL && file.len > 0) media->pixels += image_pixels(media->model, &file);
    if (media->pixels <= media->room.pixels) return HEARTH_OK;
    error_set(error, HEARTH_TOO_LONG,
              "has, with the other images, %llu million pixels: those of a request may have %llu together "
              "(models.*.request_megapixels)",
              (unsigned long long)(media->pixels + 999999) / 1000000, (unsigned long long)media->room.pixels / 1000000);
    return name_field(upload, error);
}

int prompt_media_read(struct prompt_media *media, const struct media_sources *sources,
                      const struct prompt_media_room *room, hearth_error *error)
{
    int64_t rows = 0;
    struct media_sources left = *sources;
    media->stop = sources->stop;
    media->room = *room;
    for (size_t i = 0; i < media->n; i++) /* first those that came with the request */
        if (media->uploads[i].file->url == NULL && count_pixels(media, &media->uploads[i], error) != HEARTH_OK)
            return (int)error->code;
    for (size_t i = 0; i < media->n; i++) {
        struct upload *upload = &media->uploads[i];
        int rc = HEARTH_OK;
        if (media_has_to_stop(media->stop)) return error_set(error, HEARTH_CANCELLED, "request was cancelled");
        if (upload->file->url != NULL && is_fetched(media->model, upload->file->url, sources)) {
            rc = fetch(upload, &left, error);
            if (rc == HEARTH_OK) rc = count_pixels(media, upload, error);
        }
        if (rc == HEARTH_OK) rc = read_one(media, i, error);
        if (rc != HEARTH_OK) return rc;
        for (size_t k = 0; upload->layout != NULL && k < upload->layout->n; k++) rows += upload->layout->v[k].n;
        if (rows < room->rows) continue;
        error_set(error, HEARTH_TOO_LONG,
                  "images, sounds and videos up to here have %lld tokens, the context window holds %d", (long long)rows,
                  room->rows);
        error_note_length(error, (size_t)rows, (size_t)room->rows);
        return name_field(upload, error);
    }
    return HEARTH_OK;
}

const struct chat_medium *prompt_media_texts(const struct prompt_media *media)
{
    return media->texts;
}

const uint8_t (*prompt_media_digests(const struct prompt_media *media))[SHA256_BYTES]
{
    return (const uint8_t(*)[SHA256_BYTES])media->digests;
}

/* ---- Tokens ---- */

const char *prompt_media_find(const struct prompt_media *media, const char *text, size_t text_len, size_t *len,
                              size_t *upload)
{
    size_t begin_len = strlen(media->begin);
    for (const char *at = text, *end = text + text_len;
         (at = memmem(at, (size_t)(end - at), media->begin, begin_len)) != NULL; at += begin_len) {
        size_t number = 0;
        const char *digit = at + begin_len;
        for (; digit < end && *digit >= '0' && *digit <= '9' && number < media->n; digit++)
            number = number * 10 + (size_t)(*digit - '0');
        size_t rest = (size_t)(end - digit), end_len = strlen(MARKER_END);
        if (number >= media->n || rest < end_len || memcmp(digit, MARKER_END, end_len) != 0) continue;
        *len = (size_t)(digit - at) + end_len;
        *upload = number;
        return at;
    }
    return NULL;
}

/* The key of a chunk's rows: all that they depend on. */
static void key_of(const struct prompt_media *media, size_t upload, size_t chunk, uint8_t key[SHA256_BYTES])
{
    uint8_t seen[2 * SHA256_BYTES + 8];
    memcpy(seen, media->model->key, SHA256_BYTES);
    memcpy(seen + SHA256_BYTES, media->digests[upload], SHA256_BYTES);
    little_put(seen + 2 * SHA256_BYTES, chunk, 8);
    sha256_of(seen, sizeof seen, key);
}

void prompt_media_tokens(const struct prompt_media *media, size_t upload, struct tokens *tokens)
{
    const struct media_layout *layout = media->uploads[upload].layout;
    for (size_t i = 0; i < layout->n; i++) {
        const struct layout_chunk *chunk = &layout->v[i];
        uint8_t key[SHA256_BYTES];
        key_of(media, upload, i, key);
        if (chunk->tokens != NULL)
            tokens_append(tokens, chunk->tokens, (size_t)chunk->n);
        else
            media_tokens_append(tokens, key, chunk->n);
    }
}

void prompt_media_append(struct prompt_media *media, size_t upload, struct tokens *prompt)
{
    const struct media_layout *layout = media->uploads[upload].layout;
    int32_t at = (int32_t)prompt->len;
    prompt_media_tokens(media, upload, prompt);
    for (size_t i = 0; i < layout->n; at += layout->v[i++].n) {
        const struct layout_chunk *chunk = &layout->v[i];
        struct media_span span = {.at = at, .n = chunk->n, .n_pos = chunk->n_pos, .causal = chunk->causal};
        if (chunk->tokens != NULL) continue;
        media_spans_add(&media->spans, &span);
        media->runs = mem_grow(media->runs, media->spans.len, sizeof *media->runs);
        media->runs[media->spans.len - 1] = (struct run_of_rows){.upload = upload, .chunk = i};
    }
}

/* ---- Rows: the engine's thread ---- */

/* A chunk of a medium, for the encoder. */
struct work {
    struct medium *medium;
    size_t chunk;
    int32_t n; /* rows */
};

/* On the encoder's thread, which alone looks at `chunks` from here on. */
static int encode(void *ud, float *rows, hearth_error *error)
{
    const struct work *work = ud;
    struct medium *medium = work->medium;
    int64_t began_at = clock_now(clock_monotonic());
    if (medium->chunks == NULL) medium->chunks = read_upload(medium->model, &medium->file, NULL, error);
    const struct llm_medium *chunks = medium->chunks;
    int rc = chunks == NULL ? (int)error->code : HEARTH_OK;
    /* Programs of the machine decode videos, and may be others by the second time. */
    if (rc == HEARTH_OK &&
        (work->chunk >= llm_medium_chunks(chunks) || llm_medium_chunk(chunks, work->chunk).n != work->n))
        rc = error_set(error, HEARTH_INTERNAL, "a file was decoded again and has come out differently: send it again");
    if (rc == HEARTH_OK) rc = llm_medium_encode(medium->model->projector, chunks, work->chunk, rows, error);
    log_event(rc == HEARTH_OK ? LOG_INFO : LOG_ERROR, "imc-media-cache",
              medium->is_sound ? "encoding-audio-chunk" : "encoding-image-chunk", log_int("tokens", work->n),
              log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - began_at)));
    return rc;
}

static void release_work(void *ud)
{
    struct work *work = ud;
    unref(work->medium);
    free(work);
}

static void poke(void *ud)
{
    engine_poke(ud);
}

static struct encoding *want(struct prompt_media *media, const struct run_of_rows *run, int32_t n)
{
    struct upload *upload = &media->uploads[run->upload];
    if (upload->medium == NULL) {
        /* It is rare that rows are wanted of a file that was not decoded with this request: they were in the cells when
         * it came before. The file is copied, since the request may end first. */
        const struct media_bytes file = upload_bytes(upload);
        uint8_t *copy = mem_alloc(file.len);
        memcpy(copy, file.v, file.len);
        upload->medium = medium_open(media->model, &file);
        upload->medium->file = (struct media_bytes){.v = copy, .len = file.len};
    }
    struct work *work = mem_alloc(sizeof *work);
    *work = (struct work){upload->medium, run->chunk, n};
    atomic_fetch_add(&work->medium->refs, 1);
    size_t width = llm_projector_facts_of(media->model->projector)->row_floats;
    struct encoder_task task = {.n_floats = (size_t)n * width,
                                .secret = media->sharing.none,
                                .medium = work,
                                .encode = encode,
                                .release = release_work};
    key_of(media, run->upload, run->chunk, task.key);
    return encoder_want(media->model->encoder, &task, poke, media->engine);
}

static enum job_rows rows_of_span(void *ud, size_t i, struct job_span_rows *rows, hearth_error *error)
{
    struct prompt_media *media = ud;
    const struct media_span *span = &media->spans.v[i];
    const struct llm_projector_facts *facts = llm_projector_facts_of(media->model->projector);
    struct run_of_rows *run = &media->runs[i];
    if (run->encoding == NULL) run->encoding = want(media, run, span->n);
    const float *v = encoding_rows(run->encoding);
    if (v == NULL && encoding_fault(run->encoding, error) != HEARTH_OK) {
        name_field(&media->uploads[run->upload], error);
        return JOB_ROWS_FAILED;
    }
    if (v == NULL) return JOB_ROWS_PENDING;
    const struct llm_place *from = media->uploads[run->upload].layout->v[run->chunk].places;
    if (run->places == NULL && from != NULL) { /* places of a layout begin at 0 */
        int32_t first = media_spans_position(&media->spans, span->at);
        run->places = mem_alloc((size_t)span->n * sizeof *run->places);
        for (int32_t k = 0; k < span->n; k++)
            run->places[k] = (struct llm_place){from[k].t + first, from[k].y + first, from[k].x + first};
    }
    *rows = (struct job_span_rows){.v = v, .places = run->places, .width = facts->row_floats};
    return JOB_ROWS_READY;
}

/* The encoder keeps them within its budget, in case somebody asks again. */
static void rows_are_computed(void *ud, size_t i)
{
    struct prompt_media *media = ud;
    encoding_release(media->runs[i].encoding);
    media->runs[i].encoding = NULL;
}

void prompt_media_attach(struct prompt_media *media, struct engine *engine, struct job *job)
{
    media->engine = engine;
    job->media =
        (struct job_media){.spans = media->spans, .ud = media, .rows = rows_of_span, .computed = rows_are_computed};
}
