/* The media of one request's prompt: their kinds, the tokens of their rows, and the rows themselves, when the engine
 * asks for them.
 *
 * In the rendered text a marker stands for each medium, which no client can guess. Reading decodes a medium and cuts it
 * into chunks; from then on it is known how many rows it has. They are encoded only if the engine comes to them: a
 * prefix that is in the cells, or in the store, needs no encoder.
 *
 * Belongs to the request: first to its preparing thread, then, through job->media, to the engine's. */
#ifndef INSTANCE_MEDIA_PROMPT_MEDIA_H
#define INSTANCE_MEDIA_PROMPT_MEDIA_H

#include "chat/chat.h"
#include "engine/job.h"
#include "instance/media/model_media.h"
#include "media/media_fetch.h"

struct engine;
struct prompt_media;

/* Whom encodings are shared with: the time that a request takes would tell others what it found. */
struct prompt_media_sharing {
    const char *salt; /* requests with the same; NULL or "": those without */
    bool none;        /* nobody: nothing of it is kept */
};

/* Of so many uploads, which are borrowed, as `sharing` is. `model` NULL: it takes text only, and documents are all that
 * is read. */
struct prompt_media *prompt_media_open(struct model_media *model, const hearth_medium *uploads, size_t n,
                                       const struct prompt_media_sharing *sharing);

/* Whether reading them takes so long that others should not wait for it. That is so where a program of the machine has
 * to read one, one comes from elsewhere, or there are large images or long sounds that are not known. */
bool prompt_media_is_slow(struct prompt_media *media, const struct media_sources *sources);
void prompt_media_close(struct prompt_media *media); /* NULL is fine */

/* The limits of all of them together. */
struct prompt_media_room {
    int32_t rows;    /* of images, sounds and videos */
    uint64_t pixels; /* of images */
    struct media_document_limits documents;
};

/* Reads all of them, as long as there is room; `sources` says which URLs are fetched, within its limits for all of
 * them. An error names the upload's field. A PDF document becomes its text. Of other files that the projector does not
 * take, or that are neither image nor sound, there is no text. */
int prompt_media_read(struct prompt_media *media, const struct media_sources *sources,
                      const struct prompt_media_room *room, hearth_error *error);

/* The text in each upload's place in the rendered text. */
const struct chat_medium *prompt_media_texts(const struct prompt_media *media);

/* Of each upload a SHA-256 of its content, of all else that its rows depend on beside the projector, and of what says
 * whom they are shared with. */
const uint8_t (*prompt_media_digests(const struct prompt_media *media))[SHA256_BYTES];

/* The first marker in the text; NULL: there is none. `len` is its length, `upload` which one it stands for. */
const char *prompt_media_find(const struct prompt_media *media, const char *text, size_t text_len, size_t *len,
                              size_t *upload);

/* Appends the tokens of a medium to a list. */
void prompt_media_tokens(const struct prompt_media *media, size_t upload, struct tokens *tokens);

/* The same for the prompt itself, whose spans these become: in job->media, once all are appended. */
void prompt_media_append(struct prompt_media *media, size_t upload, struct tokens *prompt);
void prompt_media_attach(struct prompt_media *media, struct engine *engine, struct job *job);

/* The request has ended: its rows are not needed any more. */
void prompt_media_give_back(struct prompt_media *media);

#endif
