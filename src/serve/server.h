/* What the files of this folder share: the instance that is served, how far it is, and what HTTP counted. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "http/http.h"
#include "serve/cors.h"
#include "serve/exchange.h"
#include "serve/hosts.h"
#include "serve/keys.h"
#include "serve/ratelimit.h"
#include "serve/reading.h"
#include "serve/serve.h"
#include "serve/stored.h"
#include "serve/unknown.h"

#include <pthread.h>

enum server_stage { SERVER_LOADING, SERVER_READY, SERVER_STOPPING };

/* Requests answered on one route with one status. */
struct server_count {
    const char *route; /* of the route table */
    int status;
    int64_t n;
};

struct server {
    hearth *instance;
    struct http_server *http;
    struct reading *reading;
    struct exchange_limits limits;
    struct stored *stored;
    size_t max_body; /* bytes */

    /* The HTTP thread's. */
    struct keys *keys; /* NULL: no key is asked for */
    bool isolate_keys; /* the owners of keys share no cached state */
    struct ratelimits *ratelimits;
    struct cors *cors;
    struct hosts *hosts; /* NULL: there are keys, and any name will do */
    int ollama_port;     /* that Ollama's clients come to; 0: none */
    struct server_count *counts;
    size_t n_counts;
    struct unknown_log unknown;

    /* Written by the loading thread and by signals, read by the HTTP thread. */
    pthread_mutex_t mutex;
    enum server_stage stage;
    char loading_model[128];
    double loading_progress;
};

enum server_stage server_stage(struct server *server);

/* serve_run() with other bounds for its streams. */
int server_run(const hearth_config *config, const struct serve_options *options, const struct exchange_limits *limits,
               hearth_error *error);

#endif
