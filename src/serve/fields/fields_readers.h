/* Readers of single fields, for the table in fields.c: each checks the value of the field `name` and sets it in
 * `fields`, or fails with the field in error->param. No state; any thread. */
#ifndef SERVE_FIELDS_FIELDS_READERS_H
#define SERVE_FIELDS_FIELDS_READERS_H

#include "serve/fields/body.h"
#include "serve/fields/fields.h"

typedef int field_reader(struct fields *fields, const char *name, const json_t *value, hearth_error *error);

/* fields_chat.c: messages and arguments of the template; fields_tools.c: tools. */
field_reader field_messages, field_template_kwargs, field_tools, field_tool_choice, field_parallel_tool_calls,
    field_reasoning_effort, field_reasoning, field_enable_thinking, field_thinking, field_reasoning_format,
    field_continue_final, field_generation_prompt;

/* Where those of a list stood before some were left out. */
void field_note_places(struct fields *fields, const char *name, json_t *places);

/* OpenAI's deprecated function calling. */
field_reader field_functions, field_function_call;
json_t *field_with_tools(const json_t *messages); /* the messages with function calls converted to tool calls */

/* fields_format.c: output constraints, also by the names that vLLM and SGLang give them, and logprobs. */
field_reader field_structured_outputs, field_guided_json, field_guided_regex, field_guided_choice, field_guided_grammar;
field_reader field_grammar, field_response_format, field_json_schema, field_logprobs, field_top_logprobs, field_n_probs,
    field_prompt_logprobs;

/* Checks and sets the parameters of logprobs that depend on several fields. */
int fields_finish_scores(struct fields *fields, hearth_error *error);

/* fields_prompt.c: the prompt of a completion, and its suffix (fill-in-the-middle). */
field_reader field_prompt, field_suffix;
bool field_get_prompt(const json_t *value, struct fields_prompt *prompt); /* release it even if it returns false */
bool field_is_one_prompt(const json_t *value);                            /* else a list of prompts */
const json_t *field_unwrap_prompt(const json_t *value, bool *has_media);  /* of {"prompt_string": …}, as it is else */
void field_use_prompt(const struct fields_prompt *prompt, hearth_params *params); /* borrowed */
void field_release_prompt(struct fields_prompt *prompt);
size_t field_prompt_size(const struct fields_prompt *prompt); /* bytes */

/* fields_sampling.c: list-valued sampling parameters. */
field_reader fields_read_samplers, fields_read_breakers, fields_read_logit_bias;

#endif
