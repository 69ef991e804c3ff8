/* A whole server on a thread of the test, with real sockets and the fake library (fake_hearth.h). */
#ifndef UNIT_SERVE_HARNESS_H
#define UNIT_SERVE_HARNESS_H

#include "fakes/fake_hearth.h"
#include "serve/core/exchange.h"
#include "serve/serve.h"
#include "unit/serve/http_client.h"

#include <pthread.h>
#include <signal.h>

struct harness {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *listen; /* NULL: a free port */
    int port;           /* of the last address listened on */
    int n_listening;
    bool ready;
    struct exchange_limits limits;
    int rc;
    hearth_error error;
};

static inline void note_listening(void *ud, const char *address)
{
    struct harness *h = ud;
    pthread_mutex_lock(&h->mutex);
    h->port = (int)strtol(strrchr(address, ':') + 1, NULL, 10);
    h->n_listening++;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static inline void note_ready(void *ud, const hearth *instance)
{
    (void)instance;
    struct harness *h = ud;
    pthread_mutex_lock(&h->mutex);
    h->ready = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static inline void *harness_run(void *ud)
{
    struct harness *h = ud;
    struct serve_options options = {
        .on_listening = note_listening, .on_ready = note_ready, .ud = h, .limits = &h->limits};
    h->rc = serve_run(NULL, &options, &h->error);
    return NULL;
}

static inline void harness_await_ready(struct harness *h)
{
    pthread_mutex_lock(&h->mutex);
    while (!h->ready) pthread_cond_wait(&h->changed, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

/* Starts listening; the models may still be loading. */
static inline void harness_listen(struct harness *h)
{
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    fake_set("server.listen", h->listen != NULL ? h->listen : "127.0.0.1:0");
    pthread_create(&h->thread, NULL, harness_run, h);
    pthread_mutex_lock(&h->mutex);
    while (h->port == 0) pthread_cond_wait(&h->changed, &h->mutex);
    pthread_mutex_unlock(&h->mutex);
}

/* For cmocka's setup and teardown: a harness whose server does not run yet; stops the server, and checks that it
 * leaves nothing behind. */
static inline int harness_setup(void **state)
{
    struct harness *h = calloc(1, sizeof *h);
    fake_reset();
    h->limits = exchange_limits_default;
    *state = h;
    return 0;
}

static inline struct client harness_start(struct harness *h)
{
    harness_listen(h);
    harness_await_ready(h);
    return client_open(h->port, 0);
}

static inline void harness_join(struct harness *h)
{
    pthread_join(h->thread, NULL);
    assert_int_equal(fake_unreleased(), 0);
    h->port = 0;
}

static inline int harness_teardown(void **state)
{
    struct harness *h = *state;
    if (h->port != 0) {
        kill(getpid(), SIGTERM);
        harness_join(h);
        assert_int_equal(h->rc, HEARTH_OK);
    }
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->changed);
    free(h);
    fake_reset();
    return 0;
}

/* One request with its answer. */
static inline struct response ask(struct client *client, const char *method, const char *path, const char *body)
{
    client_send(client, method, path, "", body);
    return client_read(client, strcmp(method, "HEAD") != 0);
}

static inline void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("'%s' is not in: %s", part, text);
}

#endif
