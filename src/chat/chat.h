/* Chat templates, over llama.cpp's `common` (jinja): messages in, prompt text out.
 *
 * This folder holds the project's only C++: it turns exceptions into errors and C++ strings into C strings, and gives
 * the template what llama-server would give it. A template is compiled once per model and immutable afterwards: any
 * thread may render, several at once. */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "hearth.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct chat_template;

struct chat_template_params {
    const char *source;      /* the template's text; must not be empty */
    const char *bos, *eos;   /* text of the begin and end tokens, "" if there is none */
    bool adds_bos, adds_eos; /* tokenising adds them: then they are taken out of the rendered text */
    const char *kwargs_json; /* arguments of requests that do not say otherwise: an object; NULL: none */
};

struct chat_request {
    const char *messages_json; /* an array in OpenAI's form */
    const char *kwargs_json;   /* an object for the template, or NULL */
    const char *tools_json;    /* an array in OpenAI's form, or NULL */
    hearth_tool_choice tool_choice;
    const char
        *allowed_tools_json; /* an array of names: only these are called, though the prompt shows all; NULL: any */
    int parallel_tool_calls; /* 1, 0, -1: as the template can */
    const char *grammar;     /* of the reply: GBNF, or NULL */
    const char *json_schema; /* of the reply, or NULL */
    hearth_continue continue_final;
    bool reasoning_in_text;     /* the reader leaves reasoning in the content */
    bool add_generation_prompt; /* end with the words that make the assistant speak */
    size_t n_messages;          /* render only so many of the first messages, as turns that are over; 0: all */
    int64_t now;                /* unix seconds that the template may print; fixed for a conversation */
    bool refuses_media;         /* parts that are no text; else a note stands in their place */
};

/* A run of the prompt's text. Runs follow each other without gaps. */
struct chat_part {
    size_t offset, len; /* bytes */
    bool is_input;      /* the request's own words; else the template's, whose special tokens are meant as such */
};

struct chat_prompt {
    char *text; /* zero-terminated, but may hold zero bytes of the request's as well */
    size_t len;
    struct chat_part *parts;
    size_t n_parts;
    char *cue; /* the words that make the assistant speak, where they came with the rendering; NULL: they did not */
    size_t n_media; /* images and the like that a note stands for */
};

/* Fails with HEARTH_INVALID, param "chat_template" and llama.cpp's own words where the template has a fault; with the
 * argument's name ("chat_template_kwargs.messages") where that may not be set. */
struct chat_template *chat_template_open(const struct chat_template_params *params, hearth_error *error);
void chat_template_close(struct chat_template *template_);

/* The text that is rendered: what was given, or what llama.cpp replaces it with. Lives as long as the template. */
const char *chat_template_source(const struct chat_template *template_);

/* What llama.cpp finds that a template can, as a JSON object of true and false; "{}" where there is none, or it has a
 * fault. free() it. */
char *chat_capabilities(const struct chat_template_params *params);

/* Renders the prompt; what it holds is the caller's, to be given to chat_prompt_release(). HEARTH_INVALID where the
 * messages are malformed (param names the field) or the template refuses them (param is "messages", the message the
 * template's); HEARTH_UNSUPPORTED for parts that are no text, where the request refuses them. On failure the prompt is
 * left empty. */
int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error);
void chat_prompt_release(struct chat_prompt *prompt);

/* ---- Replies ---- */

/* When a lazy grammar begins to hold. */
struct chat_trigger {
    enum {
        CHAT_TRIGGER_WORD,    /* this text occurs; where it is one of `preserved` and one token, that token */
        CHAT_TRIGGER_PATTERN, /* this regular expression is found */
        CHAT_TRIGGER_WHOLE    /* this regular expression matches all of the reply so far */
    } how;
    const char *text;
};

/* How replies to a request are constrained and read. Constant; strings live as long as it. */
struct chat_format {
    const char *grammar; /* GBNF; NULL: none */
    bool grammar_lazy;
    bool grammar_prefilled; /* what must match begins with `prefill` */
    const struct chat_trigger *triggers;
    size_t n_triggers;
    const char *const *preserved; /* special tokens whose text belongs to the reply */
    size_t n_preserved;
    const char *const *stops; /* strings that end the reply */
    size_t n_stops;
    const char *prefill;        /* what the prompt's end has said of the reply already; "" */
    const char *thinking_start; /* NULL: the model does not reason */
    const char *const *thinking_ends;
    size_t n_thinking_ends;
};

/* The format of the replies to such a request: worked out once for each template and set of tools, then remembered. The
 * caller gives it back with chat_format_unref(). `prompt` is what the request was rendered to and spares rendering it
 * again, or NULL. Fails as rendering does; HEARTH_INVALID, param "json_schema",
 * "grammar" or "tools", where one of them cannot be used. */
int chat_format_open(const struct chat_template *template_, const struct chat_request *request,
                     const struct chat_prompt *prompt, const struct chat_format **format, hearth_error *error);
const struct chat_format *chat_format_ref(const struct chat_format *format);
void chat_format_unref(const struct chat_format *format); /* NULL is fine */

/* Reads one reply: see hearth_reader in hearth.h. What was read is not read again: the work is linear in the reply's
 * length, but for a small part near its end. */
struct chat_reader;

struct chat_reader *chat_reader_open(const struct chat_format *format); /* which it holds */
void chat_reader_close(struct chat_reader *reader);
void chat_reader_add(struct chat_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud);
void chat_reader_end(struct chat_reader *reader, hearth_delta_fn each, void *ud);

/* The grammar of what a JSON schema describes; the caller frees it with free(). HEARTH_INVALID, param "json_schema",
 * with what is wrong and where. */
char *chat_schema_grammar(const char *json_schema, hearth_error *error);

/* The text alone; the caller frees it with free(). NULL on failure. Text with zero bytes in it is refused. */
char *chat_render(const struct chat_template *template_, const struct chat_request *request, hearth_error *error);

#ifdef __cplusplus
}
#endif
#endif
