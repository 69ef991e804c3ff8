/* POST /v1/audio/transcriptions: OpenAI's form with a sound, answered with what is said in it.
 *
 * It is a chat of one message, the sound behind a line that asks for its text, so that everything that holds for chats
 * holds here: admission, caching, limits. That line, and what model and language add to it, is llama-server's, so that
 * both give the same reply. */
#ifndef SERVE_OPENAI_TRANSCRIPTION_H
#define SERVE_OPENAI_TRANSCRIPTION_H

#include "serve/core/call.h"
#include "serve/core/exchange.h"
#include "serve/core/reading.h"
#include "serve/fields/fields.h"

/* The route. HTTP thread only. */
extern const struct reading_form transcription_create;

/* ---- For the route and tests ---- */

enum transcription_format { TRANSCRIPTION_JSON, TRANSCRIPTION_TEXT, TRANSCRIPTION_VERBOSE };

/* A parsed form. */
struct transcription {
    json_t *unknown;        /* an object with a member for each field that nobody reads */
    json_t *chat;           /* its fields that a chat has too, without messages */
    struct uploads uploads; /* the file */
    char *prompt;           /* NULL: the model's */
    char *language;         /* NULL: not named */
    double seconds;         /* of the sound */
    enum transcription_format format;
};

/* Parse a form, whose file takes the body's memory over; NULL with the error. Any thread. */
void *transcription_open(struct buf *body, const struct reading_caller *caller, hearth_error *error);
size_t transcription_size(const void *transcription);
void transcription_close(void *transcription);

/* The chat that asks this model. NULL with the error; what it is made of is moved out of the transcription. */
struct fields *transcription_ask(struct transcription *transcription, const hearth_model_info *model,
                                 hearth_error *error);

/* The dialect of a format, and its state. */
const struct dialect *transcription_dialect(enum transcription_format format);
void *transcription_state(const struct transcription *transcription);

#endif
