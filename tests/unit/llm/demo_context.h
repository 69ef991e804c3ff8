/* The demo model with a prompt of 50 tokens computed, whose last logits are there: what the tests of a program share.
 */
#ifndef UNIT_LLM_DEMO_CONTEXT_H
#define UNIT_LLM_DEMO_CONTEXT_H

#include "support.h"

#include "base/log.h"

static struct llm_model *model;
static struct llm_context *context;
static struct tokens prompt;

static int set_up(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    log_open(NULL, "error", "text", &error);
    model = open_demo();
    struct llm_context_params params = context_params(256, 1);
    context = open_context(model, &params);
    prompt = prompt_of(model, 50);
    return decode_range(context, &prompt, 0, 0, 50, 1) == LLM_DECODED ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tokens_release(&prompt);
    llm_context_close(context);
    llm_model_close(model);
    return 0;
}

#endif
