/* Ollama's API, for clients that speak no other: POST /api/chat, /api/generate, /api/embed, /api/embeddings, and what
 * they ask of models. A body becomes that of an OpenAI chat, completion or request for vectors (ollama_body.c,
 * ollama_embed.c); answers are objects, and streams a line of JSON for each (ollama.c); ollama_models.c tells of
 * models. HTTP thread only, unless said otherwise. docs/ollama.md says what differs from Ollama. */
#ifndef SERVE_OLLAMA_OLLAMA_H
#define SERVE_OLLAMA_OLLAMA_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/fields/fields.h"

/* The routes. */
void ollama_chat(struct call *call);
void ollama_generate(struct call *call);
void ollama_embed(struct call *call);
void ollama_embeddings(struct call *call);
void ollama_version(struct call *call);
void ollama_tags(struct call *call);
void ollama_ps(struct call *call);
void ollama_show(struct call *call);
void ollama_refuse(struct call *call); /* what would change which models there are */

/* {"error":"…"}, in which the client's own field is named. */
void ollama_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* ---- Bodies (ollama_body.c); any thread ---- */

/* A body of /api/chat or /api/generate that was read. */
struct ollama_request {
    struct fields *fields; /* NULL: the model is only to be loaded or unloaded */
    char *model;           /* as the client calls it; NULL: it names none */
    bool is_chat;
    bool unload;
    int64_t num_ctx; /* cells that the client would like; 0: it does not say */
};

/* Takes the tree. NULL: the error is filled in. */
struct ollama_request *ollama_read(json_t *tree, bool is_chat, hearth_error *error);
void ollama_close(void *request);
size_t ollama_size(const void *request); /* bytes */

/* The body that a request is read as, which is the caller's; NULL: the error is filled in. */
json_t *ollama_chat_body(const json_t *body, hearth_error *error);
json_t *ollama_generate_body(const json_t *body, hearth_error *error);
extern const struct fields_api ollama_chat_api, ollama_generate_api;

/* Whether a body of /api/generate is a completion: its prompt goes to the model without the template. */
bool ollama_is_completion(const json_t *body);

/* An error of the library's in the words of the client. */
hearth_error ollama_rename(const hearth_error *error);

/* ---- Answers ---- */

/* Moments as Ollama writes them: "2026-01-02T03:04:05.678Z". */
void ollama_put_time(struct buf *out, int64_t unix_ms);

/* For tests: the dialect and its state. `model` is copied. */
extern const struct dialect ollama_dialect;
void *ollama_state(const char *model, bool is_chat);

#endif
