/* POST /models/fit: whether a model that can be pulled would fit this machine, and what it would take, before anything
 * but the headers of its files is fetched. */
#ifndef SERVE_PULLS_FITS_H
#define SERVE_PULLS_FITS_H

#include "serve/core/reading.h"

extern const struct reading_form fit_asked;

#endif
