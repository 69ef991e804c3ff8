/* What a reply was generated with, as llama-server tells it in "generation_settings" and in GET /props. Pure functions;
 * any thread. */
#ifndef SERVE_NATIVE_SETTINGS_H
#define SERVE_NATIVE_SETTINGS_H

#include "base/buf.h"
#include "serve/fields/fields.h"

/* The members of an object, without braces: how tokens are picked (what is not given is left out), and what else a
 * request says. */
void settings_put_sampling(struct buf *out, const hearth_sampling *sampling);
void settings_put_request(struct buf *out, const struct fields *fields);

#endif
