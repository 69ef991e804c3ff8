/* The projector and the encoder of a model: see model_media.h. */
#include "lib/media/model_media.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hash_file(const char *path, struct sha256 *hash, hearth_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) return error_at(error, HEARTH_IO, "mmproj", "cannot read %s: %s", path, strerror(errno));
    char *bytes = mem_alloc(1 << 20);
    for (size_t n; (n = fread(bytes, 1, 1 << 20, file)) > 0;) sha256_feed(hash, bytes, n);
    bool failed = ferror(file) != 0;
    free(bytes);
    fclose(file);
    return failed ? error_at(error, HEARTH_IO, "mmproj", "cannot read %s", path) : HEARTH_OK;
}

/* Rows differ by a rounding where the attention is another: what was computed with one kind is not reused with the
 * other. */
static int make_key(struct model_media *media, const struct llm_projector_params *params, hearth_error *error)
{
    struct sha256 *hash = sha256_open();
    int rc = hash_file(params->path, hash, error);
    sha256_feed(hash, params->flash_attention, strlen(params->flash_attention) + 1);
    sha256_feed(hash, &params->on_gpu, sizeof params->on_gpu);
    sha256_feed(hash, &params->min_tokens, sizeof params->min_tokens);
    sha256_feed(hash, &params->max_tokens, sizeof params->max_tokens);
    sha256_so_far(hash, media->key);
    sha256_close(hash);
    return rc;
}

static struct encoder *open_encoder(struct model_media *media, const struct model_media_params *params,
                                    hearth_error *error)
{
    char name[STORE_MODEL_NAME];
    snprintf(name, sizeof name, "%s (mmproj)", params->name);
    if (params->store != NULL) media->stored = stored_encodings_open(params->store, media->key, name);
    const struct encoder_params encoder = {.budget = params->budget, .stored = media->stored, .stats = params->stats};
    return encoder_open(&encoder, error);
}

struct model_media *model_media_open(const struct model_media_params *params, hearth_error *error)
{
    struct model_media *media = mem_alloc(sizeof *media);
    media->images = params->images;
    media->videos = params->videos;
    media->save_timeout_ns = params->save_timeout_ns;
    media->most_at_once = params->n_ubatch;
    media->layouts = layouts_open();
    int rc = make_key(media, &params->projector, error);
    if (rc == HEARTH_OK) media->projector = llm_projector_open(params->weights, &params->projector, error);
    if (media->projector != NULL) media->encoder = open_encoder(media, params, error);
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
    layouts_close(media->layouts);
    free(media);
}
