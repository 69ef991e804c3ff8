/* Parses the JSON body of a generation request to hearth_params: one table of fields for all routes that take a prompt.
 *
 * A field that is null was not given. Unknown fields are ignored, since clients send many that mean nothing here, but
 * reported (unknown.h). Known but unsupported ones are refused (likewise), since the reply would not be what the client
 * asked for. Errors name the field in `param`. No state; any thread.
 *
 * After parsing, only those parts of the JSON tree are kept that the parameters borrow from. */
#ifndef SERVE_FIELDS_FIELDS_H
#define SERVE_FIELDS_FIELDS_H

#include "base/buf.h"
#include "hearth.h"
#include "serve/core/exchange.h"
#include "serve/core/header_list.h"
#include "serve/fields/upload.h"

#include <jansson.h>

/* Bounds of a request. Choices: n times the number of prompts. */
#define FIELDS_CHOICES_MAX 128
#define FIELDS_STOP_MAX    16
#define FIELDS_HINT_MAX    256 /* bytes of a session id */
#define FIELDS_PROBS_MAX   100
#define FIELDS_SCORES_MAX  20   /* for each token of a prompt, of which there are many more than of a reply */
#define FIELDS_SALT_MAX    4096 /* bytes */
#define FIELDS_STOP_BYTES  65536

/* The member of a converted chat with the places of its messages and tools (serve/core/errors.h), which no client sets.
 */
#define FIELDS_PLACES "places"

/* Bounds of the JSON tree: see body.h. Template rendering needs more memory for each value than jansson. */
#define FIELDS_DEPTH_MAX  512
#define FIELDS_TREE_MAX   (32u << 20) /* bytes of a tree, on top of the bytes of the body */
#define FIELDS_VALUES_MAX 65536       /* of messages, tools, arguments of the template and schema together */

/* The routes that a field belongs to. A cache lookup (LOOKUP) is a chat or a completion of which only the prompt
 * counts. */
enum { FIELDS_CHAT = 1, FIELDS_COMPLETION = 2, FIELDS_BOTH = 3, FIELDS_LOOKUP = 4, FIELDS_ANY = 7 };

/* A prompt: one of text, tokens and parts; the others are NULL. */
struct fields_prompt {
    json_t *strings; /* holds the text, or the texts of the parts */
    const char *text;
    size_t len;
    int32_t *tokens;
    size_t n_tokens;
    hearth_part *parts; /* text and tokens mixed */
    size_t n_parts;
};

/* A parsed request. Strings belong to `body`, and values are those of the body's tree as far as it has them. */
struct fields {
    json_t *body;
    hearth_params params; /* all but the prompt of a completion */
    struct fields_prompt *prompts;
    size_t n_prompts; /* 1 for a chat; 0: there is none */
    int32_t n;        /* choices for each prompt */
    int32_t best_of;
    bool stream, include_usage, echo, timings_per_token;
    bool scores;                 /* the answer has "prompt_logprobs" */
    bool verbose;                /* the answer also contains llama-server's native form ("__verbose") */
    bool hides_reasoning;        /* the answer omits the reasoning */
    bool repeats;                /* chat: the answer begins with what it continues ("echo") */
    bool has_functions;          /* chat: calls are answered in the form of OpenAI's deprecated "functions" */
    bool has_logprobs, logprobs; /* chat: whether "logprobs" was given, and what it says */

    bool is_converted; /* from another API: the messages name their uploads already */
    struct uploads uploads;
    struct header_list left_out; /* what the model will not see */
    json_t *custom_tools;        /* names of the chat's custom tools: a list; NULL: it has none */
    json_t *places;              /* where messages and tools stand in the client's body; NULL: where they are here */

    json_t *messages, *tools, *allowed_tools, *schema; /* the parameters' */
    json_t *kwargs; /* likewise: arguments of the template, collected from several fields while parsing */
    const char **stop, **samplers, **dry_breakers;
    char *made_grammar;    /* of a regular expression; hearth_free() */
    char *sampler_letters; /* holds `samplers` if they were given as letters */
    hearth_bias *bias;
    hearth_lora *lora;
    hearth_snippet *snippets; /* POST /infill */

    const char *api; /* name of the API in the log; NULL: unknown fields are not reported */
    char *unknown;   /* names of unknown fields, "a, b"; NULL: none */
};

/* Converts the body of another API to an OpenAI chat, owned by the caller; NULL with the error. Media go to `uploads`,
 * which the caller releases: their strings in the body are empty then, and the chat's parts name them. `left_out` gets
 * what the chat does not have. */
typedef json_t *fields_converter(const json_t *body, struct uploads *uploads, struct header_list *left_out,
                                 hearth_error *error);

/* An API other than OpenAI's and llama-server's, which need no conversion (NULL). Static, one in each API's folder. */
struct fields_api {
    const char *name; /* for the log */
    fields_converter *convert;
    const char *known; /* its fields, with blanks between; others are reported as unknown */
    bool has_table;    /* fields that every API shares (convert_passes()) are known too */
};

/* Parses a body for one of the routes FIELDS_CHAT, FIELDS_COMPLETION, FIELDS_LOOKUP. On failure nothing has to be
 * released. */
int fields_read(struct fields *fields, int route, const char *body, size_t len, hearth_error *error);

/* Converts a body from its API, parses and releases it. NULL with the error; fields_close() frees.
 * fields_open_chat(), fields_open_completion() and fields_close() have the types that a struct reading_form needs. */
struct fields *fields_open(struct buf *body, int route, const struct fields_api *api, hearth_error *error);
struct fields *fields_open_tree(json_t *tree, int route, const struct fields_api *api,
                                hearth_error *error); /* taken over */

/* A converted body. */
struct fields_converted {
    const json_t *body; /* the client's, for its unknown fields */
    json_t *chat;
    struct uploads *uploads;     /* that the chat names; NULL: the chat is the body itself, OpenAI's */
    struct header_list left_out; /* by its converter */
};

/* The same for a body that is converted already: takes chat and uploads over. */
struct fields *fields_open_converted(const struct fields_converted *converted, int route, const struct fields_api *api,
                                     hearth_error *error);
void *fields_open_chat(struct buf *body, hearth_error *error);
void *fields_open_completion(struct buf *body, hearth_error *error);
void fields_close(void *fields);

/* Bytes of a struct fields and all it owns. */
size_t fields_size(const void *fields);

/* Parse any JSON value, or an object, within the bounds above (body.c); NULL with the error. */
json_t *fields_parse_any(const char *body, size_t len, hearth_error *error);
json_t *fields_parse(const char *body, size_t len, hearth_error *error);
json_t *fields_parse_body(struct buf *body, hearth_error *error); /* an object; the body is released */

void fields_release(struct fields *fields);

/* Starts an exchange with all choices of the request: the plan says the rest. The exchange owns the fields, unless the
 * plan names another owner of theirs. HTTP thread only. */
void fields_start(struct call *call, struct fields *fields, struct exchange_plan plan);

/* Starts one that is answered with the prompts alone, one for each of the request. HTTP thread only. */
void fields_start_prompt(struct call *call, struct fields *fields, const struct dialect *dialect);

/* The library requests of all choices: `n` for each prompt, in order; free() the array. They borrow from `fields`. */
hearth_params *fields_choices(const struct fields *fields, size_t *n);

/* Whether the table has the field for one of these routes. */
bool fields_knows(const char *name, int route);

/* Whether the field's value asks for something: null, false, 0, "", [] and {} do not. */
bool fields_asks(const json_t *body, const char *name);

/* Parses a list of LoRA adapters, [{"id": 0, "scale": 0.5}], of a request or of POST /lora-adapters; free() it. Not
 * NULL on success, even for an empty list. */
int fields_read_lora(const json_t *value, hearth_lora **lora, size_t *n, hearth_error *error);

/* Refuses fields that are known but unsupported (unknown.c). */
int fields_refuse_unsupported(const json_t *body, int route, hearth_error *error);

/* ---- Custom tools of OpenAI's APIs (fields_tools.c) ---- */

/* Their calls have a text and no JSON. The model is given a function with that text as its one argument, "input". The
 * client gets its calls as those of the custom tool. */

/* The function, without its type; owned by the caller. `tool` has "description" and "format". A regular expression is
 * enforced, as far as a schema's `pattern` is; other grammars (Lark) are words of the description. */
json_t *custom_tool_function(const json_t *name, const json_t *tool);

/* Whether a call of this name is that of a custom tool: `names` is a list of theirs, or NULL. */
bool custom_tool_is_among(const json_t *names, const char *name);

/* The arguments of a call, as text in a JSON string; owned by the caller. */
json_t *custom_tool_arguments(const json_t *input);

/* Appends the text of a call's arguments; those that were cut off, or that have another form, as they are. */
void custom_tool_put_input(struct buf *out, const struct buf *arguments);

#endif
