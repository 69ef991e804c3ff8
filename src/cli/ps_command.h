/* The output of `hearth ps` for a running server: its models, slots and tiers, as tables of 80 columns. Pure
 * functions. */
#ifndef CLI_PS_COMMAND_H
#define CLI_PS_COMMAND_H

#include "base/buf.h"

#include <jansson.h>
#include <stdint.h>

/* The answers of the server; members that are missing count as 0 or "". */
struct ps_facts {
    const char *url;      /* of the server */
    const json_t *health; /* /health */
    const json_t *models; /* "data" of /v1/models */
    const json_t *slots;  /* /slots */
    json_t *tiers;        /* of /cache */
    const char *metrics;  /* /metrics */
};

/* Requests of a model that wait: for admission, for the model, or for a slot. */
int64_t ps_waiting(const char *metrics, const char *model);

void ps_put(struct buf *out, const struct ps_facts *facts);

#endif
