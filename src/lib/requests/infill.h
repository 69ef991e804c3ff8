/* Prompts with a gap that the model fills in: what precedes it, what follows it, and what else the editor has open, in
 * the order that models with such tokens were trained on. Pure functions; any thread. */
#ifndef LIB_REQUESTS_INFILL_H
#define LIB_REQUESTS_INFILL_H

#include "hearth.h"
#include "llm/model.h"

/* The model that is to fill in, and the room it has for less or more than the text. */
struct infill_model {
    const struct llm_model *weights;
    const char *name;
    int32_t window;  /* tokens that prompt and reply may have */
    int32_t n_batch; /* three quarters of it are for what precedes the gap, one for what follows: both are cut to it, at
                        the ends that are far from the gap */
};

/* Turns the tokens of what precedes the gap into the whole prompt, with the parameters' `typed`, `suffix` and
 * `snippets`. HEARTH_UNSUPPORTED where the model has no tokens for that. */
int infill_prompt(const struct infill_model *model, const hearth_params *params, struct tokens *prompt,
                  hearth_error *error);

#endif
