/* Copies of hearth_params, which outlive the call of hearth_submit(). Any thread. */
#ifndef LIB_PARAMETERS_REQUEST_PARAMS_H
#define LIB_PARAMETERS_REQUEST_PARAMS_H

#include "hearth.h"

/* A copy that shares nothing; params_free() it. */
hearth_params *params_copy(const hearth_params *params);

/* The same, but what params->shared owns is not copied: the copy takes a reference to it, and has neither model nor
 * request_id. */
hearth_params *params_keep(const hearth_params *params);
void params_free(hearth_params *params); /* NULL is fine */

#endif
