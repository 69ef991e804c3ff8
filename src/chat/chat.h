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
};

struct chat_request {
    const char *messages_json; /* an array in OpenAI's form */
    const char *kwargs_json;   /* an object for the template, or NULL */
    bool generation_cue;       /* end with the words that make the assistant speak */
    size_t n_messages;         /* render only so many of the first messages; 0: all */
    int64_t now;               /* unix seconds that the template may print; fixed for a conversation */
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
};

/* Fails with HEARTH_INVALID, param "chat_template" and llama.cpp's own words where the template has a fault. */
struct chat_template *chat_template_open(const struct chat_template_params *params, hearth_error *error);
void chat_template_close(struct chat_template *template_);

/* The text that is rendered: what was given, or what llama.cpp replaces it with. Lives as long as the template. */
const char *chat_template_source(const struct chat_template *template_);

/* Renders the prompt; what it holds is the caller's, to be given to chat_prompt_release(). HEARTH_INVALID where the
 * messages are malformed (param names the field) or the template refuses them (param is "messages", the message the
 * template's); HEARTH_UNSUPPORTED for parts that are no text. On failure the prompt is left empty. */
int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error);
void chat_prompt_release(struct chat_prompt *prompt);

/* The text alone; the caller frees it with free(). NULL on failure. Text with zero bytes in it is refused. */
char *chat_render(const struct chat_template *template_, const struct chat_request *request, hearth_error *error);

#ifdef __cplusplus
}
#endif
#endif
