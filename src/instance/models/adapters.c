/* LoRA adapters: loading them with their model, checking and completing the scales of requests, and the scope and
 * identity that keep states of different adapters apart. A request's scales are an array with one for each adapter of
 * the model, 0 for those not named; all 0 is NULL, the model without adapters. So equal sets are equal arrays, in
 * whatever order a request wrote them. */
#include "instance/models/adapters.h"

#include "base/error.h"
#include "base/memory.h"
#include "instance/models/fingerprint.h"
#include "instance/models/model_names.h"
#include "instance/parameters/parameters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A larger scale makes no sense, and an identity could not distinguish such scales. */
#define SCALE_MAX 1000.0

struct adapters {
    const char *name;                  /* of the model, borrowed from the configuration */
    const struct config_loras *config; /* borrowed from the instance's configuration */
    size_t n;
    struct llm_adapter **handles;
    struct fingerprint *fingerprints;
    pthread_mutex_t mutex; /* guards what follows */
    double *scales;        /* defaults, for requests that name no adapters */
};

/* ---- Scales ---- */

/* An identity holds scales with 32 binary places: scales that it cannot distinguish are rounded to the same number, so
 * that they compute the same. */
static double round_scale(double scale)
{
    return round(scale * 0x1p32) / 0x1p32;
}

static int check_scale(const char *param, double scale, hearth_error *error)
{
    if (fabs(scale) <= SCALE_MAX) return HEARTH_OK; /* and no NAN */
    return error_at(error, HEARTH_INVALID, param, "the scale of an adapter must be a number from %g to %g", -SCALE_MAX,
                    SCALE_MAX);
}

static int check_wanted(const struct adapters *adapters, const hearth_lora *wanted, size_t n, hearth_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if (wanted[i].id < 0 || (size_t)wanted[i].id >= adapters->n)
            return error_at(error, HEARTH_INVALID, "lora", "there is no adapter %d: the model has %zu, counted from 0",
                            wanted[i].id, adapters->n);
        for (size_t k = 0; k < i; k++)
            if (wanted[k].id == wanted[i].id)
                return error_at(error, HEARTH_INVALID, "lora", "adapter %d is named twice", wanted[i].id);
        int rc = check_scale("lora", wanted[i].scale, error);
        if (rc != HEARTH_OK) return rc;
    }
    return HEARTH_OK;
}

static void write_scales(double *scales, const hearth_lora *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) scales[wanted[i].id] = round_scale(wanted[i].scale) + 0.0; /* never -0 */
}

int adapters_choose(struct adapters *adapters, const hearth_lora *wanted, size_t n, double **scales,
                    hearth_error *error)
{
    *scales = NULL;
    int rc = wanted == NULL ? HEARTH_OK : check_wanted(adapters, wanted, n, error);
    if (rc != HEARTH_OK || adapters->n == 0) return rc;
    double *chosen = mem_alloc(adapters->n * sizeof *chosen);
    if (wanted == NULL) {
        pthread_mutex_lock(&adapters->mutex);
        memcpy(chosen, adapters->scales, adapters->n * sizeof *chosen);
        pthread_mutex_unlock(&adapters->mutex);
    } else {
        write_scales(chosen, wanted, n);
    }
    bool any = false;
    for (size_t i = 0; i < adapters->n; i++) any = any || chosen[i] != 0;
    if (any)
        *scales = chosen;
    else
        free(chosen);
    return HEARTH_OK;
}

/* ---- Scope and identity ---- */

uint64_t adapters_scope(const struct adapters *adapters, const char *salt, const double *scales)
{
    uint64_t scope = chat_scope(salt);
    if (scales == NULL) return scope;
    struct sha256 *hash = sha256_open();
    uint8_t digest[SHA256_BYTES];
    sha256_feed(hash, &scope, sizeof scope);
    sha256_feed(hash, scales, adapters->n * sizeof *scales);
    sha256_so_far(hash, digest);
    sha256_close(hash);
    memcpy(&scope, digest, sizeof scope);
    return scope;
}

struct identity adapters_identity(const struct adapters *adapters, const struct identity *base, const char *salt,
                                  const double *scales)
{
    struct identity identity = identity_salted(base, salt);
    if (scales == NULL) return identity;
    struct adapter *parts = mem_alloc(adapters->n * sizeof *parts);
    size_t n = 0;
    for (size_t i = 0; i < adapters->n; i++) {
        if (scales[i] == 0) continue;
        parts[n].scale = scales[i];
        memcpy(parts[n++].digest, adapters->fingerprints[i].digest, sizeof parts->digest);
    }
    fingerprint_with_adapters(base->model, parts, n, identity.model);
    free(parts);
    return identity;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

char *adapters_label(const struct adapters *adapters, const double *scales)
{
    struct buf label = {0};
    for (size_t i = 0; scales != NULL && i < adapters->n; i++) {
        if (scales[i] == 0) continue;
        const char *name = base_name(adapters->config->v[i].path), *suffix = strstr(name, ".gguf");
        buf_printf(&label, "%s%.*s", label.len == 0 ? "" : "+",
                   suffix == NULL ? (int)strlen(name) : (int)(suffix - name), name);
        if (scales[i] != 1) buf_printf(&label, ":%g", scales[i]);
    }
    return label.len == 0 ? NULL : buf_take(&label);
}

/* ---- Life ---- */

struct adapters *adapters_open(const struct config_model *config, hearth_error *error)
{
    struct adapters *adapters = mem_alloc(sizeof *adapters);
    size_t n = config->lora.len;
    adapters->name = config->name;
    adapters->config = &config->lora;
    adapters->n = n;
    adapters->handles = mem_alloc((n + 1) * sizeof(struct llm_adapter *));
    adapters->fingerprints = mem_alloc((n + 1) * sizeof *adapters->fingerprints);
    adapters->scales = mem_alloc((n + 1) * sizeof *adapters->scales);
    pthread_mutex_init(&adapters->mutex, NULL);
    for (size_t i = 0; i < n; i++) {
        double scale = config->lora.v[i].scale;
        if (check_scale("scale", scale, error) != HEARTH_OK) {
            error_prefix(error, "models.%s.lora[%zu].path: ", config->name, i);
            adapters_close(adapters);
            return NULL;
        }
        adapters->scales[i] = round_scale(scale) + 0.0;
    }
    return adapters;
}

int adapters_load(struct adapters *adapters, struct llm_model *weights, struct store *store, hearth_error *error)
{
    const struct config_lora *lora = adapters->config->v;
    int rc = HEARTH_OK;
    for (size_t i = 0; i < adapters->n && store != NULL && rc == HEARTH_OK; i++)
        rc = fingerprint_start(&adapters->fingerprints[i],
                               &(struct fingerprint_source){.path = lora[i].path, .store = store}, error);
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < adapters->n; i++) {
        adapters->handles[i] = llm_adapter_open(weights, lora[i].path, error);
        if (adapters->handles[i] != NULL) continue;
        error_prefix(error, "models.%s.lora[%zu].path: ", adapters->name, i);
        return (int)error->code;
    }
    return HEARTH_OK;
}

bool adapters_finish(struct adapters *adapters, hearth_error *error)
{
    for (size_t i = 0; i < adapters->n; i++) {
        if (fingerprint_finish(&adapters->fingerprints[i])) continue;
        *error = adapters->fingerprints[i].error;
        return false;
    }
    return true;
}

void adapters_abandon(struct adapters *adapters)
{
    for (size_t i = 0; adapters != NULL && i < adapters->n; i++) atomic_store(&adapters->fingerprints[i].stop, true);
}

void adapters_unload(struct adapters *adapters)
{
    for (size_t i = 0; i < adapters->n; i++) {
        fingerprint_stop(&adapters->fingerprints[i]);
        llm_adapter_close(adapters->handles[i]);
        adapters->handles[i] = NULL;
    }
}

void adapters_close(struct adapters *adapters)
{
    if (adapters == NULL) return;
    adapters_unload(adapters);
    pthread_mutex_destroy(&adapters->mutex);
    free(adapters->handles);
    free(adapters->fingerprints);
    free(adapters->scales);
    free(adapters);
}

size_t adapters_count(const struct adapters *adapters)
{
    return adapters->n;
}

struct llm_adapter *const *adapters_handles(const struct adapters *adapters)
{
    return adapters->handles;
}

/* ---- Default scales, for hearth.h ---- */

int32_t hearth_lora_list(const hearth *instance, const char *model, hearth_adapter *out, size_t max,
                         hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry == NULL) return (int32_t)error->code;
    struct adapters *adapters = entry->adapters;
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n && i < max; i++)
        out[i] = (hearth_adapter){
            .id = (int32_t)i, .file = base_name(adapters->config->v[i].path), .scale = adapters->scales[i]};
    pthread_mutex_unlock(&adapters->mutex);
    return (int32_t)adapters->n;
}

int hearth_lora_set(hearth *instance, const char *model, const hearth_lora *lora, size_t n, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry == NULL) return (int)error->code;
    struct adapters *adapters = entry->adapters;
    if (check_wanted(adapters, lora, n, error) != HEARTH_OK) return (int)error->code;
    pthread_mutex_lock(&adapters->mutex);
    memset(adapters->scales, 0, adapters->n * sizeof *adapters->scales);
    write_scales(adapters->scales, lora, n);
    pthread_mutex_unlock(&adapters->mutex);
    return HEARTH_OK;
}
