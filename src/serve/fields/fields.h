/* From the JSON body of a request to hearth_params: one table of fields for all routes that take a prompt.
 *
 * A field that is null was not given. Fields nobody knows are skipped, since clients send many that mean nothing
 * here, but told (unknown.h); fields that are known but not built are refused, since the reply would not be what was
 * asked for. Errors name the field in `param`. No state; any thread.
 *
 * What was read keeps of the body's tree only what it borrows from. */
#ifndef SERVE_FIELDS_FIELDS_H
#define SERVE_FIELDS_FIELDS_H

#include "base/buf.h"
#include "hearth.h"

#include <jansson.h>

/* Choices of one request: n times the number of prompts. */
#define FIELDS_CHOICES_MAX 128
#define FIELDS_STOP_MAX    16
#define FIELDS_HINT_MAX    256 /* bytes of an id that may help to find a session */
#define FIELDS_PROBS_MAX   100
#define FIELDS_SALT_MAX    4096 /* bytes */
#define FIELDS_STOP_BYTES  65536

/* What a body may hold beside the bytes of its strings: see json_size.h. Templates take more than jansson for each
 * value. */
#define FIELDS_DEPTH_MAX  512
#define FIELDS_TREE_MAX   (32u << 20) /* bytes of a tree, on top of as many as the body has */
#define FIELDS_VALUES_MAX 65536       /* of messages, tools, arguments of the template and schema together */

/* Which body a field belongs to. A lookup is a chat or a completion of which only the prompt counts. */
enum { FIELDS_CHAT = 1, FIELDS_COMPLETION = 2, FIELDS_BOTH = 3, FIELDS_LOOKUP = 4, FIELDS_ANY = 7 };

/* One of text, tokens and parts, the others being NULL. */
struct fields_prompt {
    json_t *strings; /* the text, or a list of the parts' */
    const char *text;
    size_t len;
    int32_t *tokens;
    size_t n_tokens;
    hearth_part *parts; /* text and tokens mixed */
    size_t n_parts;
};

/* A request that was read. Strings belong to `body`. */
struct fields {
    json_t *body;
    hearth_params params; /* all but the prompt of a completion */
    struct fields_prompt *prompts;
    size_t n_prompts; /* 1 for a chat; 0: there is none */
    int32_t n;        /* choices for each prompt */
    int32_t best_of;
    bool stream, include_usage, echo, timings_per_token;
    bool verbose;                /* the answer holds that of llama-server's own form as well */
    bool hides_reasoning;        /* the answer leaves it out */
    bool has_functions;          /* chat: calls come in the form of OpenAI's "functions" */
    bool has_logprobs, logprobs; /* chat: whether "logprobs" was given, and what it says */

    json_t *kwargs; /* of the template, from several fields, while it is put together */
    char *messages, *kwargs_text, *tools, *allowed_tools, *schema; /* JSON text */
    const char **stop, **samplers, **dry_breakers;
    char *sampler_letters; /* what `samplers` points into where it was given as letters */
    hearth_bias *bias;
    hearth_lora *lora;
    hearth_snippet *snippets; /* POST /infill */

    const char *api; /* whose body it is, for the log; NULL: nobody asks for unknown fields */
    char *unknown;   /* names of fields that nobody reads, "a, b"; NULL: none */
};

/* The body of another API as a chat of OpenAI's, which is the caller's; NULL with the error. */
typedef json_t *fields_converter(const json_t *body, hearth_error *error);

/* An API beside OpenAI's and llama-server's, which are read as they are (NULL). Static; each has a room of its own. */
struct fields_api {
    const char *name; /* for the log */
    fields_converter *convert;
    const char *const *known; /* fields that it has, NULL at the end: what is not among them is unknown */
    bool has_table;           /* those that mean the same in every API (convert_passes()) are known as well */
};

/* Reads a body for one of the three routes. On failure nothing is to be released. */
int fields_read(struct fields *fields, int route, const char *body, size_t len, hearth_error *error);

/* The same for a body that was parsed already, which it takes over. Other APIs are read as if they were OpenAI's. */
int fields_take(struct fields *fields, int route, json_t *body, hearth_error *error);

/* Reads a body of an API, which it is converted from first, and releases it. NULL with the error;
 * fields_close(). These take and give untyped pointers as a struct reading_form wants them. */
struct fields *fields_open(struct buf *body, int route, const struct fields_api *api, hearth_error *error);
struct fields *fields_open_tree(json_t *tree, int route, const struct fields_api *api,
                                hearth_error *error); /* taken over */
/* The same for a body that was made a chat of already, which is taken over. */
struct fields *fields_open_converted(const json_t *body, json_t *chat, int route, const struct fields_api *api,
                                     hearth_error *error);
void *fields_open_chat(struct buf *body, hearth_error *error);
void *fields_open_completion(struct buf *body, hearth_error *error);
void fields_close(void *fields);

/* Bytes that a struct fields takes with all that belongs to it. */
size_t fields_size(const void *fields);

/* Any JSON within the bounds above out of a body, or an object; NULL with the error. */
json_t *fields_parse_any(const char *body, size_t len, hearth_error *error);
json_t *fields_parse(const char *body, size_t len, hearth_error *error);
json_t *fields_parse_body(struct buf *body, hearth_error *error); /* an object; the body is released */

void fields_release(struct fields *fields);

/* The n x n_prompts requests of hearth, prompt by prompt; free() the array. They borrow from `fields`. */
hearth_params *fields_choices(const struct fields *fields, size_t *n);

/* Whether the field is read, on one of these routes. */
bool fields_knows(const char *name, int route);

/* A value as JSON text; free() it. */
char *fields_dump(const json_t *value);

/* Whether a body really asks for something with this field: null, false, 0, "", [] and {} ask for nothing. */
bool fields_asks(const json_t *body, const char *name);

/* Reads a list of adapters, [{"id": 0, "scale": 0.5}], as requests and POST /lora-adapters have it; free() it. Never
 * NULL on success, also for an empty list. */
int fields_read_lora(const json_t *value, hearth_lora **lora, size_t *n, hearth_error *error);

/* Refuses what is not built (unsupported.c). */
int fields_refuse_unsupported(const json_t *body, int route, hearth_error *error);

#endif
