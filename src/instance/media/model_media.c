/* The projector and the encoder of a model, layouts of media, and reading images: see model_media.h. */
#include "instance/media/model_media.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "hearth.h"
#include "llm/model.h"
#include "llm/model_identity.h"
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Layouts ---- */

/* A layout has some kilobytes, most of them in places of rows. */
#define REMEMBERED 256

/* ---- One layout ---- */

struct media_layout *layout_of(const struct llm_medium *medium, bool mrope)
{
    size_t n = llm_medium_chunks(medium);
    struct media_layout *layout = mem_alloc(sizeof *layout + n * sizeof *layout->v);
    atomic_init(&layout->refs, 1);
    layout->n = n;
    for (size_t i = 0; i < n; i++) {
        struct llm_chunk chunk = llm_medium_chunk(medium, i);
        struct layout_chunk *out = &layout->v[i];
        *out = (struct layout_chunk){.n = chunk.n, .n_pos = chunk.n_pos, .causal = chunk.causal};
        if (chunk.tokens != NULL) {
            out->tokens = mem_alloc(((size_t)chunk.n + 1) * sizeof(int32_t));
            memcpy(out->tokens, chunk.tokens, (size_t)chunk.n * sizeof(int32_t));
        } else if (mrope) {
            out->places = mem_alloc((size_t)chunk.n * sizeof *out->places);
            for (int32_t row = 0; row < chunk.n; row++) out->places[row] = llm_medium_place(medium, i, 0, row);
        }
    }
    return layout;
}

static struct media_layout *hold_layout(struct media_layout *layout)
{
    if (layout != NULL) atomic_fetch_add(&layout->refs, 1);
    return layout;
}

void layout_release(struct media_layout *layout)
{
    if (layout == NULL || atomic_fetch_sub(&layout->refs, 1) > 1) return;
    for (size_t i = 0; i < layout->n; i++) {
        free(layout->v[i].tokens);
        free(layout->v[i].places);
    }
    free(layout);
}

/* ---- The table of layouts ---- */

struct entry {
    uint8_t digest[SHA256_BYTES];
    struct media_layout *layout; /* NULL: the entry is free */
    uint64_t used;
};

struct layouts {
    pthread_mutex_t mutex; /* guards what follows */
    struct entry v[REMEMBERED];
    uint64_t uses;
};

/* The entry with that digest, else a free one, else the one that was used least recently. */
static struct entry *entry_for(struct layouts *layouts, const uint8_t digest[SHA256_BYTES])
{
    struct entry *oldest = &layouts->v[0];
    for (size_t i = 0; i < REMEMBERED; i++) {
        struct entry *entry = &layouts->v[i];
        if (entry->layout != NULL && memcmp(entry->digest, digest, SHA256_BYTES) == 0) return entry;
        if (entry->used < oldest->used) oldest = entry;
    }
    return oldest;
}

struct media_layout *layouts_find(struct layouts *layouts, const uint8_t digest[SHA256_BYTES])
{
    pthread_mutex_lock(&layouts->mutex);
    struct entry *entry = entry_for(layouts, digest);
    bool known = entry->layout != NULL && memcmp(entry->digest, digest, SHA256_BYTES) == 0;
    if (known) entry->used = ++layouts->uses;
    struct media_layout *layout = known ? hold_layout(entry->layout) : NULL;
    pthread_mutex_unlock(&layouts->mutex);
    return layout;
}

void layouts_add(struct layouts *layouts, const uint8_t digest[SHA256_BYTES], struct media_layout *layout)
{
    pthread_mutex_lock(&layouts->mutex);
    struct entry *entry = entry_for(layouts, digest);
    struct media_layout *former = entry->layout;
    memcpy(entry->digest, digest, SHA256_BYTES);
    entry->layout = hold_layout(layout);
    entry->used = ++layouts->uses;
    pthread_mutex_unlock(&layouts->mutex);
    layout_release(former);
}

/* ---- The media of a model ---- */

/* The digest of the projector's file and of what its rows depend on beside it. Rows differ by a rounding where the
 * attention or the build of llama.cpp is another, and are not reused then. Their last bits depend on the machine as
 * well, which only deterministic runs must not mix. */
static int make_key(struct model_media *media, const struct model_media_params *params, hearth_error *error)
{
    const struct llm_projector_params *p = &params->projector;
    FILE *file = fopen(p->path, "rbe");
    if (file == NULL) return error_at(error, HEARTH_IO, "mmproj", "cannot read %s: %s", p->path, strerror(errno));
    struct sha256 *hash = sha256_open();
    char *bytes = mem_alloc(1 << 20);
    for (size_t n; (n = fread(bytes, 1, 1 << 20, file)) > 0;) sha256_feed(hash, bytes, n);
    bool failed = ferror(file) != 0;
    free(bytes);
    fclose(file);
    struct buf rows = {0};
    llm_describe_build(&rows);
    buf_printf(&rows, "flash_attention %s\non GPU %d\ntokens %d %d\n", p->flash_attention, p->on_gpu, p->min_tokens,
               p->max_tokens);
    if (params->deterministic) {
        buf_printf(&rows, "threads %d\ncpu %s\nbuild %s\n", llm_count_threads(&p->threads), llm_cpu_features(),
                   llm_build());
        llm_describe_gpus(&rows);
    }
    sha256_feed(hash, rows.v, rows.len);
    sha256_so_far(hash, media->key);
    sha256_close(hash);
    buf_release(&rows);
    return failed ? error_at(error, HEARTH_IO, "mmproj", "cannot read %s", p->path) : HEARTH_OK;
}

/* The key says which file was hashed: another one may have taken its name before it was opened. */
static int open_projector(struct model_media *media, const struct model_media_params *params, hearth_error *error)
{
    const char *path = params->projector.path;
    uint8_t hashed[SHA256_BYTES], opened[SHA256_BYTES];
    int rc = llm_file_stamp(path, hashed, error);
    if (rc == HEARTH_OK) rc = make_key(media, params, error);
    if (rc != HEARTH_OK) return rc;
    media->projector = llm_projector_open(params->weights, &params->projector, error);
    if (media->projector == NULL) return (int)error->code;
    rc = llm_file_stamp(path, opened, error);
    if (rc == HEARTH_OK && memcmp(hashed, opened, sizeof hashed) != 0)
        rc = error_at(error, HEARTH_INVALID, "mmproj", "%s was changed while it was loaded: try again", path);
    return rc;
}

static struct encoder *open_encoder(struct model_media *media, const struct model_media_params *params,
                                    hearth_error *error)
{
    char name[STORE_MODEL_NAME];
    snprintf(name, sizeof name, "%s (mmproj)", params->name);
    const struct stored_encodings_params stored = {
        .store = params->store, .projector = media->key, .name = name, .watch = params->watch};
    if (params->store != NULL) media->stored = stored_encodings_open(&stored);
    const struct encoder_params encoder = {.budget = params->budget,
                                           .stored = media->stored,
                                           .stats = params->stats,
                                           .cpus = params->projector.threads.cpus};
    return encoder_open(&encoder, error);
}

struct model_media *model_media_open(const struct model_media_params *params, hearth_error *error)
{
    struct model_media *media = mem_alloc(sizeof *media);
    media->images = params->images;
    media->videos = params->videos;
    media->save_timeout_ns = params->save_timeout_ns;
    media->most_at_once = params->n_ubatch;
    media->layouts = mem_alloc(sizeof *media->layouts);
    pthread_mutex_init(&media->layouts->mutex, NULL);
    if (open_projector(media, params, error) == HEARTH_OK) media->encoder = open_encoder(media, params, error);
    if (media->encoder == NULL) {
        model_media_close(media);
        return NULL;
    }
    media->sounds = (struct media_sound_limits){.rate = llm_projector_facts_of(media->projector)->sample_rate,
                                                .most_seconds = params->most_seconds};
    return media;
}

void model_media_close(struct model_media *media)
{
    if (media == NULL) return;
    encoder_close(media->encoder);
    stored_encodings_close(media->stored, clock_now(clock_monotonic()) + media->save_timeout_ns);
    llm_projector_close(media->projector);
    for (size_t i = 0; i < REMEMBERED; i++) layout_release(media->layouts->v[i].layout);
    pthread_mutex_destroy(&media->layouts->mutex);
    free(media->layouts);
    free(media);
}

/* ---- Images ---- */

/* An image has pixels to be scaled to, however small it is. */
#define LEAST_PIXELS 250000

/* 12 MB of pixels. */
#define LARGE_PIXELS 4000000

/* ---- The price of an image ---- */

/* Picoseconds a pixel; at first what a slow machine takes. */
static _Atomic int64_t price = 50000;

static int64_t priced_pixels(uint64_t pixels)
{
    return pixels > LEAST_PIXELS ? (int64_t)pixels : LEAST_PIXELS;
}

int64_t image_expect_ns(uint64_t pixels)
{
    return priced_pixels(pixels) * atomic_load(&price) / 1000;
}

/* ---- Turns of large ones ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t left;
    uint64_t tickets, turn;
} turns = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

/* ---- Reading images ---- */

uint64_t image_pixels(const struct model_media *model, const struct media_bytes *bytes)
{
    hearth_error error;
    struct media_image image;
    bool is_taken = llm_projector_facts_of(model->projector)->images &&
                    media_kind_of(media_format_of(bytes)) == MEDIA_IMAGE &&
                    media_image_measure(bytes, &model->images, &image, &error) == HEARTH_OK;
    return is_taken ? (uint64_t)image.width * image.height : 0;
}

struct llm_medium *image_read(const struct model_media *model, const struct media_bytes *bytes,
                              const struct media_stop *stop, hearth_error *error)
{
    uint64_t pixels = image_pixels(model, bytes);
    struct llm_medium *chunks = NULL;
    if (pixels > LARGE_PIXELS) {
        pthread_mutex_lock(&turns.mutex);
        uint64_t ticket = turns.tickets++;
        while (turns.turn != ticket) pthread_cond_wait(&turns.left, &turns.mutex);
        pthread_mutex_unlock(&turns.mutex);
    }
    int64_t began_at = clock_cpu_of_thread(); /* how busy the machine is, says nothing of an image */
    struct media_image image;
    if (media_has_to_stop(stop)) {
        error_set(error, HEARTH_CANCELLED, "request was cancelled");
    } else if (media_image_decode(bytes, &model->images, &image, error) == HEARTH_OK) {
        chunks = llm_medium_of_image(model->projector, image.rgb, image.width, image.height, error);
        free(image.rgb);
    }
    if (chunks != NULL) {
        /* Two that learn at once may forget one of the two. */
        int64_t before = atomic_load(&price), seen = (clock_cpu_of_thread() - began_at) * 1000 / priced_pixels(pixels);
        atomic_store(&price, before + (seen - before) / 4);
    }
    if (pixels > LARGE_PIXELS) {
        pthread_mutex_lock(&turns.mutex);
        turns.turn++;
        pthread_cond_broadcast(&turns.left);
        pthread_mutex_unlock(&turns.mutex);
    }
    return chunks;
}

int hearth_sound_seconds(const void *bytes, size_t len, double *seconds, hearth_error *error)
{
    hearth_error own;
    return media_sound_measure(&(struct media_bytes){.v = bytes, .len = len}, seconds, error != NULL ? error : &own);
}
