/* Fill-in-the-middle prompts: prefix, suffix and snippets of an editor, with the model's special tokens between them in
 * the order that such models were trained on. Pure functions; any thread. */
#ifndef LIB_REQUESTS_INFILL_H
#define LIB_REQUESTS_INFILL_H

#include "hearth.h"
#include "llm/model.h"

/* The model and the number of tokens that prefix, suffix and snippets may take. */
struct infill_model {
    const struct llm_model *weights;
    const char *name;
    int32_t window;  /* tokens that prompt and reply may have */
    int32_t n_batch; /* tokens: the prefix keeps its last 3/4 of it, the suffix its first 1/4 */
};

/* Turns the tokens of the prefix into the whole prompt, with the parameters' `typed`, `suffix` and `snippets`.
 * HEARTH_UNSUPPORTED where the vocabulary has no fill-in-the-middle tokens. */
int infill_prompt(const struct infill_model *model, const hearth_params *params, struct tokens *prompt,
                  hearth_error *error);

#endif
