/* From the JSON body of a request to hearth_params: one table of fields for all routes that take a prompt.
 *
 * A field that is null was not given. Fields nobody knows are skipped, since clients send many that mean nothing
 * here; fields that are known but not built are refused, since the reply would not be what was asked for. Errors
 * name the field in `param`. No state; any thread. */
#ifndef SERVE_FIELDS_H
#define SERVE_FIELDS_H

#include "hearth.h"

#include <jansson.h>

/* Choices of one request: n times the number of prompts. */
#define FIELDS_CHOICES_MAX 128
#define FIELDS_STOP_MAX    16
#define FIELDS_HINT_MAX    256 /* bytes of an id that may help to find a session */

/* Which body a field belongs to. A lookup is a chat or a completion of which only the prompt counts. */
enum { FIELDS_CHAT = 1, FIELDS_COMPLETION = 2, FIELDS_BOTH = 3, FIELDS_LOOKUP = 4, FIELDS_ANY = 7 };

struct fields_prompt {
    const char *text; /* NULL: tokens */
    size_t len;
    int32_t *tokens;
    size_t n_tokens;
};

/* A request that was read. Strings belong to `body`. */
struct fields {
    json_t *body;
    hearth_params params; /* all but the prompt of a completion */
    struct fields_prompt *prompts;
    size_t n_prompts; /* 1 for a chat; 0: there is none */
    int32_t n;        /* choices for each prompt */
    int32_t best_of;
    bool stream, include_usage, echo;

    char *messages, *template_kwargs; /* JSON text */
    const char **stop;
    hearth_bias *bias;
};

/* Reads a body for one of the three routes. On failure nothing is to be released. */
int fields_read(struct fields *fields, int route, const char *body, size_t len, hearth_error *error);
void fields_release(struct fields *fields);

/* The n x n_prompts requests of hearth, prompt by prompt; free() the array. They borrow from `fields`. */
hearth_params *fields_choices(const struct fields *fields, size_t *n);

/* Refuses what is not built (unbuilt.c). */
int fields_refuse_unbuilt(const json_t *body, int route, hearth_error *error);

#endif
