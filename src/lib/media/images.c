/* Reading images, and its price: see images.h. */
#include "lib/media/images.h"

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* An image has pixels to be scaled to, however small it is. */
#define LEAST_PIXELS 250000

/* 12 MB of pixels. */
#define LARGE_PIXELS 4000000

/* ---- The price ---- */

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

/* Two that learn at once may forget one of the two. */
static void learn(uint64_t pixels, int64_t ns)
{
    int64_t before = atomic_load(&price), seen = ns * 1000 / priced_pixels(pixels);
    atomic_store(&price, before + (seen - before) / 4);
}

/* Of this thread alone: how busy the machine is, says nothing of an image. */
static int64_t cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* ---- Turns of large ones ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t left;
    uint64_t tickets, turn;
} turns = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static void take_turn(void)
{
    pthread_mutex_lock(&turns.mutex);
    uint64_t ticket = turns.tickets++;
    while (turns.turn != ticket) pthread_cond_wait(&turns.left, &turns.mutex);
    pthread_mutex_unlock(&turns.mutex);
}

static void give_turn(void)
{
    pthread_mutex_lock(&turns.mutex);
    turns.turn++;
    pthread_cond_broadcast(&turns.left);
    pthread_mutex_unlock(&turns.mutex);
}

/* ---- Reading ---- */

uint64_t image_pixels(const struct model_media *model, const struct media_bytes *bytes)
{
    hearth_error error;
    struct media_image image;
    bool is_taken = llm_projector_facts_of(model->projector)->images &&
                    media_kind_of(media_format_of(bytes)) == MEDIA_IMAGE &&
                    media_image_measure(bytes, &model->images, &image, &error) == HEARTH_OK;
    return is_taken ? (uint64_t)image.width * image.height : 0;
}

static struct llm_medium *decode_and_cut(const struct model_media *model, const struct media_bytes *bytes,
                                         hearth_error *error)
{
    struct media_image image;
    if (media_image_decode(bytes, &model->images, &image, error) != HEARTH_OK) return NULL;
    struct llm_medium *chunks = llm_medium_of_image(model->projector, image.rgb, image.width, image.height, error);
    free(image.rgb);
    return chunks;
}

struct llm_medium *image_read(const struct model_media *model, const struct media_bytes *bytes,
                              const struct media_stop *stop, hearth_error *error)
{
    uint64_t pixels = image_pixels(model, bytes);
    struct llm_medium *chunks = NULL;
    if (pixels > LARGE_PIXELS) take_turn();
    int64_t began_at = cpu_ns();
    if (media_has_to_stop(stop))
        error_set(error, HEARTH_CANCELLED, "request was cancelled");
    else
        chunks = decode_and_cut(model, bytes, error);
    if (chunks != NULL) learn(pixels, cpu_ns() - began_at);
    if (pixels > LARGE_PIXELS) give_turn();
    return chunks;
}
