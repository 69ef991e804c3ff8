/* What the files of this folder share: the instance that is served, how far it is, and what HTTP counted. */
#ifndef SERVE_CORE_SERVER_H
#define SERVE_CORE_SERVER_H

#include "http/http.h"
#include "serve/core/cors.h"
#include "serve/core/exchange.h"
#include "serve/core/hosts.h"
#include "serve/core/keys.h"
#include "serve/core/ratelimit.h"
#include "serve/core/reading.h"

#include <pthread.h>

enum server_stage { SERVER_LOADING, SERVER_READY, SERVER_STOPPING };

/* Requests answered on one route with one status. */
struct server_count {
    const char *route; /* of the route table */
    int status;
    int64_t n;
};

struct stored;
struct unknown_log;

struct server {
    hearth *instance;
    struct http_server *http;
    struct reading *reading;
    struct exchange_limits limits;
    struct stored *stored; /* responses and conversations */
    size_t max_body;       /* bytes */

    /* The HTTP thread's. */
    struct keys *keys; /* NULL: no key is asked for */
    bool isolate_keys; /* the owners of keys share no cached state */
    struct ratelimits *ratelimits;
    struct cors *cors;
    struct hosts *hosts; /* NULL: there are keys, and any name will do */
    int ollama_port;     /* that Ollama's clients come to; 0: none */
    struct server_count *counts;
    size_t n_counts;
    struct unknown_log *unknown; /* fields that the log was told of */

    /* Written by the loading thread and by signals, read by the HTTP thread. */
    pthread_mutex_t mutex;
    enum server_stage stage;
    char loading_model[128];
    double loading_progress;
};

enum server_stage server_stage(struct server *server);

#endif
