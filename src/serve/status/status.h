/* Status routes: health, models, slots, Prometheus metrics, also in the form of OpenMetrics 1.0, which has exemplars
 * (https://prometheus.io/docs/specs/om/open_metrics_spec/). And the routes that load and unload models, in the form of
 * llama-server's router: the body is {"model": "NAME"}, the answer comes at once, and GET /v1/models shows the
 * progress. HTTP thread, or answering threads where the table of routes says so. */
#ifndef SERVE_STATUS_STATUS_H
#define SERVE_STATUS_STATUS_H

#include "base/buf.h"
#include "serve/core/call.h"
#include "serve/core/exemplars.h"
#include "serve/core/reading.h"

/* ---- OpenMetrics: pure functions ---- */

#define OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Whether a client with this Accept header (NULL: none) wants it rather than Prometheus' text format. */
bool openmetrics_is_wanted(const char *accept);

/* Appends `text`, in Prometheus' text format as base/metrics.h writes it, in that of OpenMetrics. */
void openmetrics_put(struct buf *out, const char *text, const struct exemplars *exemplars);

void status_root(struct call *call);
void status_liveness(struct call *call);
void status_health(struct call *call);
void status_models(struct call *call);
void status_model(struct call *call);
void status_slots(struct call *call);
void status_put_slots(struct buf *out, const hearth *instance); /* the body of GET /slots */
void status_slot_action(struct call *call);                     /* POST /slots/{id} */
void status_metrics(struct call *call);

/* Finds a model by name (NULL: the first) and its index. False: the call has been answered with 404. */
bool status_find_model(struct call *call, const char *name, size_t *index, hearth_model_info *info);

/* ---- Loading and unloading ---- */

extern const struct reading_form lifecycle_load;   /* POST /models/load */
extern const struct reading_form lifecycle_unload; /* POST /models/unload */

/* ---- The KV cache (cache_routes.c) ---- */

/* An order that was given is carried out on a thread of the library's, whether or not its client is still there; its
 * end comes back by a post. */

void cache_status(struct call *call);                           /* GET /cache: tiers and counters */
void cache_put_status(struct buf *out, const hearth *instance); /* its body */

/* POST /cache/lookup: how much of a prompt is cached, and where; any API's body. */
void cache_lookup(struct call *call);

/* POST /cache/resident: an order about a conversation in the KV cells. The body is {"model", "seq_id", "hash",
 * "order"}, where GET /cache shows the first three and the last is keep, release or evict. Without a model, the order
 * is for the one that answers requests without one. */
extern const struct reading_form resident_orders_give;

/* GET /cache/stored lists stored conversations, newest first: ?limit= of them (50, at most 100), ?after= the `next` of
 * the page before. No text of a conversation is ever shown: the store does not know whose it is. */
void stored_list(struct call *call);

/* POST /cache/stored: an order about a stored one, {"tier", "key", "order"}, where the list shows the first two and the
 * last is keep, release or drop. */
extern const struct reading_form stored_order;

/* ---- The live view (live.c) ---- */

/* GET /live streams what GET /slots and GET /cache say, and counters of each model, as server-sent events {"slots":
 * […], "cache": {…}, "models": […]}. The first comes at once, then at most four a second while something changes, and
 * one every few seconds while nothing does.
 *
 * One report is made for all who watch, and none while nobody does: neither the engine nor the HTTP thread has any work
 * with it then. A client that reads slowly misses reports and gets the newest once it has taken what was sent; nothing
 * is queued for it. HTTP thread only. */
struct live;

struct live *live_open(const hearth *instance, struct http_server *http, struct workers *workers);

/* After http_run() has returned and before http_close(): ends the streams. NULL is fine. */
void live_close(struct live *live);

/* Ends every stream; clients that come again get another one. */
void live_end_all(struct live *live);

/* The same, but whoever comes again is refused: a stream would hold up the end of the server. */
void live_stop(struct live *live);

/* GET /live. Needs the grants of both routes: that of /slots is checked before, that of /cache here. */
void live_stream(struct call *call);

/* ---- Bodies of any API (any_api.c) ---- */

/* For routes that answer something else of a request than its reply: how much of it is cached, what its prompt is. The
 * query parameter ?as= says whose body it is. No state; reading runs on the reading thread. */

/* How a route reads and answers bodies of one API. */
struct any_api_form {
    const char *as; /* "chat", "completion", "messages", "responses", "ollama"; "": whatever it is found to be */
    struct reading_form form;
};

/* Reads the body as `as` says, without it as the first form does. HEARTH_INVALID, param "as", for another API. HTTP
 * thread only. */
void any_api_start(struct call *call, const struct any_api_form *forms, size_t n);

/* Read a body to a struct fields; NULL with the error. Of Responses none that continues stored items: without those its
 * prompt would be another one. */
void *any_api_openai(struct buf *body, hearth_error *error);
void *any_api_messages(struct buf *body, hearth_error *error);
void *any_api_responses(struct buf *body, hearth_error *error);
void *any_api_ollama(struct buf *body, hearth_error *error);
void *any_api_detected(struct buf *body, hearth_error *error); /* by its fields; others are OpenAI's */

#endif
