/* Ollama's API, for clients that have no other: POST /api/chat, /api/generate, /api/embed, /api/embeddings, and the
 * routes about models. ollama_body.c and ollama_embed.c convert bodies to OpenAI chats, completions or embedding
 * requests. The dialect in ollama.c writes objects, streams as lines of JSON (NDJSON). ollama_models.c lists models;
 * ollama_folder.c pulls and removes them and makes presets. HTTP thread only, unless said otherwise. docs/ollama.md
 * says what differs from Ollama. */
#ifndef SERVE_OLLAMA_OLLAMA_H
#define SERVE_OLLAMA_OLLAMA_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* The routes. */
extern const struct reading_form ollama_chat;
extern const struct reading_form ollama_generate;
extern const struct reading_form ollama_embed;
extern const struct reading_form ollama_embeddings;
void ollama_version(struct call *call);
void ollama_tags(struct call *call);
void ollama_ps(struct call *call);
extern const struct reading_form ollama_show;
extern const struct reading_form ollama_pull;
extern const struct reading_form ollama_delete;
extern const struct reading_form ollama_create;
extern const struct reading_form ollama_copy;
void ollama_refuse(struct call *call); /* routes that would make files of models */

/* Adds the presets of the models folder to the instance; at the start. */
void ollama_load_presets(const struct server *server);

/* {"error":"…"}, with the client's own name of the field. */
void ollama_put_error(struct buf *out, const hearth_error *error, const char *request_id);

/* ---- Bodies (ollama_body.c); any thread ---- */

/* A parsed body of /api/chat or /api/generate. */
struct ollama_request {
    struct fields *fields; /* NULL: only loads or unloads the model */
    char *model;           /* as the client wrote it; NULL: not given */
    bool is_chat;
    bool unload;
    bool has_keep;   /* "keep_alive" is given */
    double keep;     /* in seconds; negative: always */
    int64_t num_ctx; /* context window that the client requests, in tokens; 0: not given */
};

/* Parses the tree, and takes it over. NULL: the error is filled in. */
struct ollama_request *ollama_read(json_t *tree, bool is_chat, hearth_error *error);
void ollama_close(void *request);
size_t ollama_size(const void *request); /* bytes */

/* Convert a body to an OpenAI chat or completion, owned by the caller; NULL: the error is filled in. */
json_t *ollama_chat_body(const json_t *body, struct uploads *uploads, struct header_list *left_out,
                         hearth_error *error);
json_t *ollama_generate_body(const json_t *body, struct uploads *uploads, struct header_list *left_out,
                             hearth_error *error);
extern const struct fields_api ollama_chat_api, ollama_generate_api;

/* The library's error with the client's own name of the field. */
hearth_error ollama_rename(const hearth_error *error);

/* ---- Answers ---- */

/* Appends a time as Ollama writes it: "2026-01-02T03:04:05.678Z". */
void ollama_put_time(struct buf *out, int64_t unix_ms);

/* For tests: the dialect and its state. `model` is copied. */
extern const struct dialect ollama_dialect;
void *ollama_state(const char *model, bool is_chat);

#endif
