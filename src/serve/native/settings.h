/* llama-server's "generation_settings", in answers and in GET /props: the sampling and request parameters of a
 * reply. Pure functions; any thread. */
#ifndef SERVE_NATIVE_SETTINGS_H
#define SERVE_NATIVE_SETTINGS_H

#include "base/buf.h"
#include "serve/fields/fields.h"

/* Append members of an object, without braces: sampling parameters (those not set are left out), and the request's
 * other parameters. */
void settings_put_sampling(struct buf *out, const hearth_sampling *sampling);
void settings_put_request(struct buf *out, const struct fields *fields);

#endif
