/* State shared by the routes: the library instance, its loading stage, API keys, limits, the stores and the HTTP
 * metrics. serve.c owns it. */
#ifndef SERVE_CORE_SERVER_H
#define SERVE_CORE_SERVER_H

#include "http/http.h"
#include "serve/core/cors.h"
#include "serve/core/exchange.h"
#include "serve/core/exemplars.h"
#include "serve/core/keys.h"
#include "serve/core/ratelimit.h"
#include "serve/core/reading.h"
#include "serve/core/workers.h"

#include <pthread.h>

enum server_stage { SERVER_LOADING, SERVER_READY, SERVER_STOPPING };

/* hearth_http_requests_total: requests answered on one route with one status. */
struct server_count {
    const char *route; /* a pattern of the route table */
    int status;
    int64_t n;
};

struct live;
struct pulls;
struct stored;
struct tracer;
struct unknown_log;

struct server {
    hearth *instance;
    struct http_server *http;
    struct reading *reading;
    struct workers *workers;
    struct exchange_limits limits;
    struct stored *stored; /* stored responses and conversations */
    struct live *live;     /* the streams of GET /live */
    struct pulls *pulls;   /* models that come and go */
    struct tracer *tracer; /* NULL: requests are not traced */
    size_t max_body;       /* bytes */

    /* HTTP thread only. */
    struct keys *keys; /* NULL: the server has no API keys */
    bool isolate_keys; /* owners of API keys share no cached prefixes */
    struct ratelimits *ratelimits;
    struct cors *cors;
    struct hosts *hosts; /* NULL: there are API keys, and the Host header is not checked */
    int ollama_port;     /* port of server.ollama_listen; 0: none */
    struct server_count *counts;
    size_t n_counts;
    size_t further_choices, max_further_choices; /* of requests under way, beyond one of each; 0 at most: no limit */
    struct exemplars exemplars;                  /* none without a tracer */
    struct unknown_log *unknown;                 /* unknown fields that were logged already */

    /* Under the mutex: written by the loading thread and the signal handlers, read by the HTTP thread. */
    pthread_mutex_t mutex;
    enum server_stage stage;
    char loading_model[128];
    double loading_progress;
};

/* The value of a key; NULL if it is unset, empty or "null". */
const char *server_setting(const hearth_config *config, const char *key);

enum server_stage server_stage(struct server *server);

#endif
