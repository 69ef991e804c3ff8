/* The HTTP server: runs a library instance behind the APIs' routes, from listening to the drain. A client of
 * hearth.h; it knows nothing of engines or llama.cpp. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "hearth.h"

struct exchange_limits;

struct serve_options {
    /* Called with every address that is listened on, as soon as it is (models may still be loading). May be NULL. */
    void (*on_listening)(void *ud, const char *address);
    hearth_progress on_progress; /* progress of loading, for a terminal; may be NULL. Called on the loading thread */
    /* All models are loaded. Called on the loading thread; may be NULL. */
    void (*on_ready)(void *ud, const hearth *instance);
    /* Whether the configuration has this model because it was pulled, and nobody has configured it: only such a one may
     * be removed over HTTP. Any thread; NULL: none is. */
    bool (*is_pulled)(void *ud, const char *name);
    void *ud;
    const struct exchange_limits *limits; /* bounds of streams; NULL: exchange_limits_default */
};

/* Opens an instance for the configuration, listens, loads the models in the background (GET /health reports the
 * progress) and serves until SIGTERM or SIGINT. Then drains for server.drain_timeout; a second signal ends at once.
 * SIGHUP reopens the log and reloads API keys and certificates. Returns 0 after a drain, or a negative code with the
 * error filled in where listening or loading failed. Call it from the main thread. */
int serve_run(const hearth_config *config, const struct serve_options *options, hearth_error *error);

/* HEARTH_OK if the files of API keys and certificates that the configuration names, and its socket group, can be
 * served with. */
int serve_check(const hearth_config *config, hearth_error *error);

#endif
