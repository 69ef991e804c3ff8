/* What was said in a chat: see conversation.h. */
#include "cli/chat/conversation.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

void conversation_init(struct conversation *chat)
{
    *chat = (struct conversation){.messages = json_array()};
}

/* ---- Attached files ---- */

/* Only the first `n` files stay. */
static void drop_media(struct conversation *chat, size_t n)
{
    struct conversation_media *media = &chat->media;
    while (media->n > n) {
        const hearth_medium *last = &media->v[--media->n];
        free((void *)last->bytes);
        free((void *)last->field);
    }
    if (media->n_said > n) media->n_said = n;
}

void conversation_attach(struct conversation *chat, const char *path, char *bytes, size_t len)
{
    struct conversation_media *media = &chat->media;
    media->v = mem_grow(media->v, media->n + 1, sizeof *media->v);
    media->v[media->n++] = (hearth_medium){.bytes = bytes, .len = len, .field = mem_strdup(path)};
}

/* ---- Messages ---- */

static json_t *clean_string(const char *text, size_t len)
{
    struct buf clean = {0};
    utf8_put_clean(&clean, text, len);
    json_t *string = json_stringn(buf_text(&clean), clean.len);
    buf_release(&clean);
    return string;
}

/* The content of a message with files: a part for each, then the text. */
static json_t *content_parts(struct conversation *chat, json_t *text)
{
    json_t *parts = json_array();
    for (size_t i = chat->media.n_said; i < chat->media.n; i++)
        json_array_append_new(parts, json_pack("{s:s, s:I}", "type", "image_url", "media", (json_int_t)i));
    json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", text));
    chat->media.n_said = chat->media.n;
    return parts;
}

void conversation_say(struct conversation *chat, const char *role, const char *text, size_t len)
{
    json_t *content = clean_string(text, len);
    if (strcmp(role, "user") == 0 && chat->media.n > chat->media.n_said) content = content_parts(chat, content);
    json_array_append_new(chat->messages, json_pack("{s:s, s:o}", "role", role, "content", content));
}

/* How many files come before those of this message: the first that it names. */
static size_t first_medium(const struct conversation *chat, const json_t *message)
{
    size_t i, first = chat->media.n_said;
    const json_t *part;
    json_array_foreach(json_object_get(message, "content"), i, part)
    {
        const json_t *place = json_object_get(part, "media");
        if (place != NULL && (size_t)json_integer_value(place) < first) first = (size_t)json_integer_value(place);
    }
    return first;
}

void conversation_take_back(struct conversation *chat)
{
    const size_t last = json_array_size(chat->messages) - 1;
    drop_media(chat, first_medium(chat, json_array_get(chat->messages, last)));
    json_array_remove(chat->messages, last);
}

void conversation_release(struct conversation *chat)
{
    drop_media(chat, 0);
    free(chat->media.v);
    free(chat->model);
    json_decref(chat->messages);
    *chat = (struct conversation){0};
}
