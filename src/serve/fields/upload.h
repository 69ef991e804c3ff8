/* Media that clients upload within a body: images, sounds, videos and documents. They come as base64, plain or within a
 * data URL, as bytes in a form, or as URLs. Here they become the bytes that hearth_params.media has, and the client's
 * content part the one that names them. The bytes of a file decide its type, later and elsewhere: neither "format" nor
 * a data URL's type is believed.
 *
 * A URL stays one: whether it is fetched, the model's configuration says.
 *
 * The text is freed as soon as it is decoded, so that a body is not in memory twice. Data that cannot be decoded
 * becomes a medium with a fault. The model decides whether that matters, since one that takes text only never needed
 * the data. No state; any thread. */
#ifndef SERVE_FIELDS_UPLOAD_H
#define SERVE_FIELDS_UPLOAD_H

#include "hearth.h"

#include <jansson.h>

/* The media of a request, in the order in which they are read. {0} has none. */
struct uploads {
    hearth_medium *v; /* bytes and field are allocated */
    size_t n, cap;
};

void uploads_release(struct uploads *uploads);
size_t uploads_size(const struct uploads *uploads); /* bytes */

/* Decodes `text`, a JSON string, which is empty afterwards. `field` names it in the client's body. */
void uploads_take(struct uploads *uploads, json_t *text, const char *field);

/* Takes a file over that came as bytes, allocated, in a part of a form. */
void uploads_take_file(struct uploads *uploads, void *bytes, size_t len, const char *field);

/* The content part that names the last one taken; `as`: "image_url", "input_audio", "input_video", "file". */
json_t *uploads_part(const struct uploads *uploads, const char *as);

/* How an API writes a content part with a medium. */
struct upload_form {
    const char *type;       /* of the API's part */
    const char *as;         /* of the chat's */
    const char *holder;     /* member with the data: a string, or an object with one of the members; NULL: the part */
    const char *members[2]; /* with the data, the usual one first; the second may be NULL */
};

/* The form of this type among n; NULL: none. */
const struct upload_form *upload_form_of(const struct upload_form *forms, size_t n, const json_t *type);

/* Whether the part has no data, but the id of a file that only another server keeps. */
bool upload_is_elsewhere(const struct upload_form *form, const json_t *part);

/* Makes the chat's part of an API's, whose path is `at`, and takes its data. Owned by the caller. */
json_t *upload_read(struct uploads *uploads, const struct upload_form *form, const json_t *part, const char *at);

/* Whether a text is an image in base64 and can be nothing else: long, of base64 alone, beginning like a PNG, JPEG, GIF
 * or WebP file. */
bool upload_is_image(const json_t *text);

#endif
