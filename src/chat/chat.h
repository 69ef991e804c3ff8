/* Chat templates, by llama.cpp's `common` (jinja): messages in, prompt text out; and how replies are constrained and
 * parsed.
 *
 * This folder is C++, as `common` is: it turns exceptions into errors and C++ strings into C strings, and gives the
 * template what llama-server would give it. A template is compiled once per model and immutable afterwards: any
 * thread may render, several at once. */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "hearth.h"

#include <jansson.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct chat_template;

struct chat_template_params {
    const char *source;      /* the template's text; must not be empty */
    const char *bos, *eos;   /* BOS/EOS text, "" if there is none */
    bool adds_bos, adds_eos; /* tokenising adds BOS/EOS: then they are removed from the rendered text */
    const char *kwargs_json; /* default chat_template_kwargs: an object; NULL: none */
};

struct chat_parsed;

/* The text that is rendered in place of a medium. */
struct chat_medium {
    const char *text; /* NULL: a note, as for other parts that are not text */
    bool is_marker;   /* rows replace it later; else it is text like that of other parts */
};

/* Whether the work is to be given up: asked again and again, on the thread that works. */
struct chat_stop {
    bool (*gives_up)(void *ud);
    void *ud;
};

struct chat_request {
    const json_t *messages; /* an array in OpenAI's form; trees are read by base/json_text.h */
    const json_t *kwargs;   /* an object for the template, or NULL */
    const json_t *tools;    /* an array in OpenAI's form, or NULL */
    hearth_tool_choice tool_choice;
    const json_t
        *allowed_tools;        /* an array of names: only these may be called, though the prompt lists all; NULL: any */
    int parallel_tool_calls;   /* 1, 0; -1: if the template supports it */
    const char *grammar;       /* of the reply: GBNF, or NULL */
    const json_t *json_schema; /* of the reply, or NULL */
    hearth_continue continue_final;
    bool reasoning_in_text;          /* the reader does not separate reasoning from content */
    bool add_generation_prompt;      /* end with the generation prompt, which opens the assistant's turn */
    size_t n_messages;               /* render only this many leading messages, as finished turns; 0: all */
    int64_t now;                     /* Unix time in seconds that the template may print; fixed for a conversation */
    bool refuses_media;              /* refuse content parts that are not text; else a note replaces them */
    const struct chat_medium *media; /* what is rendered for the part {"media": i}; NULL: there is none */
    size_t n_media;
    bool takes_media;                 /* the model takes some, so that a note says it does not take this one */
    bool plain;                       /* the messages are put as plainly as they can be, since the template refuses them
                                         otherwise: chat_prompt.plain of the same messages */
    const struct chat_stop *stop;     /* of rendering, which then fails with HEARTH_CANCELLED; NULL: never */
    const struct chat_parsed *parsed; /* of this request, by chat_parse(); NULL: each call parses it for itself */
};

/* A run of the prompt's text. Runs are contiguous. */
struct chat_part {
    size_t offset, len; /* bytes */
    bool is_input;      /* from the request; else from the template, whose special tokens are meant as such */
};

struct chat_prompt {
    char *text; /* zero-terminated, but may contain zero bytes from the request */
    size_t len;
    struct chat_part *parts;
    size_t n_parts;
    char *generation_prompt; /* the generation prompt, if it is known from rendering; else NULL */
    bool plain;              /* the messages were put as plainly as they can be: request.plain */
    char *left_out;          /* what the model does not see, one a line, as in "messages[2].content": media that a note
                                replaces, fields of older messages whose text the template does not print; NULL: nothing */
};

/* Fails with HEARTH_INVALID, param "chat_template" and llama.cpp's message where the template is invalid; with the
 * argument's name ("chat_template_kwargs.messages") where that may not be set. */
struct chat_template *chat_template_open(const struct chat_template_params *params, hearth_error *error);
void chat_template_close(struct chat_template *template_);

/* The source that is rendered: the given one, or llama.cpp's replacement for it. Lives as long as the template. */
const char *chat_template_source(const struct chat_template *template_);

/* The capabilities that llama.cpp finds in a template, as a JSON object of true and false; "{}" where there are none,
 * or it is invalid. free() it. */
char *chat_capabilities(const struct chat_template_params *params);

/* The texts of a chat that asks for the transcription of a sound, as llama.cpp has them for such a template: a system
 * message and the text before the sound. Both may be ""; free() them. */
void chat_transcription_texts(const struct chat_template_params *params, char **system, char **user);

/* Reads and checks messages, tools, schema and arguments of the request, once for all calls that follow:
 * request.parsed. On success the caller has *parsed to close, else it is NULL. HEARTH_INVALID where something is
 * malformed, with the field's name; HEARTH_UNSUPPORTED for parts that are not text, where the request refuses them. */
int chat_parse(const struct chat_request *request, struct chat_parsed **parsed, hearth_error *error);
void chat_parsed_close(struct chat_parsed *parsed); /* NULL is fine */

/* Renders the prompt, which the caller releases with chat_prompt_release(). Fails as chat_parse() does, and with
 * HEARTH_INVALID where the template fails, or does not print text of a system message or of the last turn. Where the
 * template fails, the error's message is the template's. `param` is the message or tool that it fails on, as in
 * "messages[3]" or "tools[0].function.parameters"; else "messages". Where it does not print a text, `param` is that
 * field, or the message's role where that is an unknown one. On failure the prompt is left empty. */
int chat_render_parts(const struct chat_template *template_, const struct chat_request *request,
                      struct chat_prompt *prompt, hearth_error *error);
void chat_prompt_release(struct chat_prompt *prompt);

/* ---- Replies ---- */

/* When a lazy grammar begins to hold. */
struct chat_trigger {
    enum {
        CHAT_TRIGGER_WORD,    /* this text occurs; if it is one of `preserved` and a single token, that token */
        CHAT_TRIGGER_PATTERN, /* this regular expression is found */
        CHAT_TRIGGER_WHOLE    /* this regular expression matches all of the reply so far */
    } how;
    const char *text;
};

/* How replies to a request are constrained and parsed. Immutable; its strings live as long as it does. */
struct chat_format {
    const char *grammar; /* GBNF; NULL: none */
    bool grammar_lazy;
    bool grammar_prefilled; /* the grammar matches `prefill` first */
    const struct chat_trigger *triggers;
    size_t n_triggers;
    const char *const *preserved; /* special tokens whose text is part of the reply */
    size_t n_preserved;
    const char *const *stops; /* strings that end the reply */
    size_t n_stops;
    const char *prefill;        /* the end of the prompt that already belongs to the reply; "" */
    const char *thinking_start; /* start tag of reasoning; NULL: the model does not reason */
    const char *const *thinking_ends;
    size_t n_thinking_ends;
    const char *unenforced; /* of its schemas, as docs/schemas.md names it, one a line; NULL: nothing */
};

/* The format of the replies to such a request, made once for each template and set of tools and then cached. The caller
 * releases it with chat_format_unref(). `prompt` is the request's rendered prompt, which saves rendering it again, or
 * NULL. Fails as rendering does; HEARTH_INVALID, param "json_schema", "grammar" or "tools", where one of them cannot be
 * used. */
int chat_format_open(const struct chat_template *template_, const struct chat_request *request,
                     const struct chat_prompt *prompt, const struct chat_format **format, hearth_error *error);
const struct chat_format *chat_format_ref(const struct chat_format *format);
void chat_format_unref(const struct chat_format *format); /* NULL is fine */

/* Parses one reply while it is generated: see hearth_reader in hearth.h. The work is linear in the reply's length,
 * since text is not parsed again but for a small part near its end. */
struct chat_reader;

struct chat_reader *chat_reader_open(const struct chat_format *format); /* which it holds */
void chat_reader_close(struct chat_reader *reader);
void chat_reader_add(struct chat_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud);
void chat_reader_end(struct chat_reader *reader, hearth_delta_fn each, void *ud);

/* Once it has ended: whether each call of the reply was closed, and has arguments that are a JSON object. */
bool chat_reader_is_whole(const struct chat_reader *reader);

/* For tests: bytes parsed so far, counting every time that a byte was parsed. */
size_t chat_reader_work(const struct chat_reader *reader);

/* Converts a JSON schema to GBNF; the caller frees it with free(), and what *unenforced gets where
 * something is not enforced, one a line (`unenforced` may be NULL). HEARTH_INVALID, param "json_schema", with what is
 * wrong and where. */
char *chat_schema_grammar(const json_t *json_schema, char **unenforced, hearth_error *error);

/* GBNF of the texts that are all of what a regular expression matches; the caller frees it with free(). HEARTH_INVALID,
 * with what is wrong. */
char *chat_pattern_grammar(const char *pattern, hearth_error *error);

/* The text alone; the caller frees it with free(). NULL on failure. Text with zero bytes in it is refused. */
char *chat_render(const struct chat_template *template_, const struct chat_request *request, hearth_error *error);

#ifdef __cplusplus
}
#endif
#endif
