/* The projector and the encoder of a model: see model_media.h. */
#include "lib/media/model_media.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "llm/model.h"
#include "llm/model_identity.h"
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

/* Rows differ by a rounding where the attention or the build of llama.cpp is another: what was computed with one is not
 * reused with the other. Their last bits depend on the machine as well, which only deterministic runs must not mix. */
static void describe_rows(const struct model_media_params *params, struct buf *out)
{
    const struct llm_projector_params *p = &params->projector;
    llm_describe_build(out);
    buf_printf(out, "flash_attention %s\non GPU %d\ntokens %d %d\n", p->flash_attention, p->on_gpu, p->min_tokens,
               p->max_tokens);
    if (!params->deterministic) return;
    buf_printf(out, "threads %d\ncpu %s\nbuild %s\n", llm_threads_for(p->threads), llm_cpu_features(), llm_build());
    llm_describe_gpus(out);
}

static int make_key(struct model_media *media, const struct model_media_params *params, hearth_error *error)
{
    struct buf rows = {0};
    struct sha256 *hash = sha256_open();
    int rc = hash_file(params->projector.path, hash, error);
    describe_rows(params, &rows);
    sha256_feed(hash, rows.v, rows.len);
    sha256_so_far(hash, media->key);
    sha256_close(hash);
    buf_release(&rows);
    return rc;
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
    layouts_close(media->layouts);
    free(media);
}
