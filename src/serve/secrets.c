/* See secrets.h. The reading thread is detached, and may outlive the server where a disk hangs. So it has copies of the
 * paths, and posts to the HTTP thread only while `server` is set. The holder of the last reference frees what they
 * share. */
#include "serve/secrets.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "serve/core/keys.h"
#include "serve/core/server.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How long the end waits for a reading thread, so that it does not meet with what libraries free at the process's end;
 * one whose disk hangs is left. */
#define ENDS_WITHIN_MS 200

/* Where they are; NULL: not set. */
struct places {
    char *keys, *cert, *cert_key;
};

/* The result of a read. NULL: not set, or the error says why not. */
struct found {
    bool ready;
    struct keys *keys;
    struct http_tls *tls;
    hearth_error keys_error, tls_error;
};

struct secrets {
    struct places places;
    char *isolate; /* server.isolate_keys */
    void (*reloaded)(void *ud);
    void *ud;
    pthread_mutex_t mutex; /* guards the members below; the HTTP thread alone writes `server` */
    pthread_cond_t changed;
    struct server *server; /* NULL: it ends */
    struct found found;    /* put by the reading thread, taken by the HTTP thread */
    bool reading, again;   /* a thread reads; it has to read once more, since files may have changed meanwhile */
    int refs;              /* of the server, of a reading thread, and of each posted call */
};

/* ---- Reading ---- */

static char *setting(const hearth_config *config, const char *key)
{
    return mem_strdup(server_setting(config, key));
}

static struct places places_of(const hearth_config *config)
{
    return (struct places){.keys = setting(config, "server.api_keys_file"),
                           .cert = setting(config, "server.tls_cert"),
                           .cert_key = setting(config, "server.tls_key")};
}

static void places_release(struct places *places)
{
    free(places->keys);
    free(places->cert);
    free(places->cert_key);
}

static struct keys *read_keys(const struct places *places, hearth_error *error)
{
    *error = (hearth_error){0};
    if (places->keys == NULL) return NULL;
    struct keys *keys = keys_open(places->keys, error);
    if (keys == NULL) error_prefix(error, "server.api_keys_file: ");
    return keys;
}

static struct http_tls *read_tls(const struct places *places, hearth_error *error)
{
    const char *cert = places->cert, *key = places->cert_key;
    *error = (hearth_error){0};
    if (cert == NULL && key == NULL) return NULL;
    if (cert == NULL || key == NULL) {
        error_at(error, HEARTH_INVALID, cert == NULL ? "server.tls_cert" : "server.tls_key",
                 "server.tls_cert and server.tls_key are needed together: set both or none");
        return NULL;
    }
    struct http_tls *tls = http_tls_open(cert, key, error);
    if (tls == NULL) error_prefix(error, "server.%s: ", error->param);
    return tls;
}

static struct found read_all(const struct places *places)
{
    struct found found = {.ready = true};
    found.keys = read_keys(places, &found.keys_error);
    found.tls = read_tls(places, &found.tls_error);
    return found;
}

static void drop(struct found *found)
{
    keys_close(found->keys);
    http_tls_close(found->tls);
    *found = (struct found){0};
}

int secrets_check(const hearth_config *config, hearth_error *error)
{
    struct places places = places_of(config);
    struct found found = read_all(&places);
    *error = found.keys_error.code != HEARTH_OK ? found.keys_error : found.tls_error;
    drop(&found);
    places_release(&places);
    return (int)error->code;
}

/* ---- Putting to use ---- */

static void use_keys(struct secrets *secrets, struct keys *keys)
{
    struct server *server = secrets->server;
    const char *isolate = secrets->isolate;
    bool is_auto = isolate == NULL || strcmp(isolate, "auto") == 0;
    keys_close(server->keys);
    server->keys = keys;
    server->isolate_keys = is_auto ? keys_have_several_owners(keys) : strcmp(isolate, "true") == 0;
    log_event(LOG_INFO, "http", "API keys read", log_str("file", secrets->places.keys),
              log_bool("isolated", server->isolate_keys));
}

static void log_reloaded(const char *key, const hearth_error *error)
{
    if (error->code == HEARTH_OK)
        log_event(LOG_INFO, "http", "reloaded", log_str("key", key));
    else
        log_event(LOG_ERROR, "http", "not reloaded, the former one stays", log_str("error", error->message));
}

/* Unlocks. */
static void unref(struct secrets *secrets)
{
    bool last = --secrets->refs == 0;
    pthread_mutex_unlock(&secrets->mutex);
    if (!last) return;
    drop(&secrets->found);
    places_release(&secrets->places);
    free(secrets->isolate);
    pthread_cond_destroy(&secrets->changed);
    pthread_mutex_destroy(&secrets->mutex);
    free(secrets);
}

/* Posted by the reading thread. */
static void take_found(void *ud)
{
    struct secrets *secrets = ud;
    pthread_mutex_lock(&secrets->mutex);
    struct found found = secrets->found;
    secrets->found = (struct found){0};
    bool serves = secrets->server != NULL;
    pthread_mutex_unlock(&secrets->mutex);
    if (serves) {
        if (found.keys != NULL) use_keys(secrets, found.keys);
        if (secrets->places.keys != NULL) log_reloaded("server.api_keys_file", &found.keys_error);
        secrets->reloaded(secrets->ud);
        if (found.tls != NULL) http_use_tls(secrets->server->http, found.tls);
        if (secrets->places.cert != NULL) log_reloaded("server.tls_cert", &found.tls_error);
    } else {
        drop(&found);
    }
    pthread_mutex_lock(&secrets->mutex);
    unref(secrets);
}

/* ---- The reading thread ---- */

static void *reading_main(void *ud)
{
    struct secrets *secrets = ud;
    pthread_mutex_lock(&secrets->mutex);
    do {
        secrets->again = false;
        pthread_mutex_unlock(&secrets->mutex);
        struct found found = read_all(&secrets->places);
        pthread_mutex_lock(&secrets->mutex);
        /* With the mutex. A result that the HTTP thread has not taken yet is replaced, and the call that is posted for
         * it takes this one. */
        bool posted = secrets->found.ready;
        drop(&secrets->found);
        secrets->found = found;
        if (!posted && secrets->server != NULL) {
            secrets->refs++;
            http_post(secrets->server->http, take_found, secrets);
        }
    } while (secrets->again && secrets->server != NULL);
    secrets->reading = false;
    pthread_cond_signal(&secrets->changed);
    unref(secrets);
    return NULL;
}

void secrets_reload(struct secrets *secrets, void (*reloaded)(void *ud), void *ud)
{
    pthread_t thread;
    hearth_error error;
    secrets->reloaded = reloaded;
    secrets->ud = ud;
    pthread_mutex_lock(&secrets->mutex);
    bool was_reading = secrets->reading;
    secrets->again = was_reading;
    secrets->reading = true;
    secrets->refs += !was_reading;
    pthread_mutex_unlock(&secrets->mutex);
    if (was_reading) return;
    if (thread_start(&thread, reading_main, secrets, "reads keys and certificates", &error) == HEARTH_OK) {
        pthread_detach(thread);
        return;
    }
    log_event(LOG_ERROR, "http", "not reloaded, the former one stays", log_str("error", error.message));
    pthread_mutex_lock(&secrets->mutex);
    secrets->reading = false;
    unref(secrets);
}

/* ---- Opening and closing ---- */

struct secrets *secrets_open(const hearth_config *config, struct server *server, hearth_error *error)
{
    struct secrets *secrets = mem_alloc(sizeof *secrets);
    secrets->places = places_of(config);
    secrets->isolate = setting(config, "server.isolate_keys");
    secrets->server = server;
    secrets->refs = 1;
    pthread_mutex_init(&secrets->mutex, NULL);
    clock_cond_init(&secrets->changed);
    struct keys *keys = read_keys(&secrets->places, error);
    if (keys != NULL) use_keys(secrets, keys);
    if (error->code == HEARTH_OK) return secrets;
    secrets_close(secrets);
    return NULL;
}

int secrets_use_tls(struct secrets *secrets, hearth_error *error)
{
    struct http_tls *tls = read_tls(&secrets->places, error);
    if (tls != NULL) http_use_tls(secrets->server->http, tls);
    return (int)error->code;
}

void secrets_close(struct secrets *secrets)
{
    if (secrets == NULL) return;
    struct clock *clock = clock_monotonic();
    int64_t until = clock_now(clock) + clock_from_ms(ENDS_WITHIN_MS);
    pthread_mutex_lock(&secrets->mutex);
    secrets->server = NULL;
    while (secrets->reading && clock_now(clock) < until) clock->wait(clock, &secrets->changed, &secrets->mutex, until);
    unref(secrets);
}
