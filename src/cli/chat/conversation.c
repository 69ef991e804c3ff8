/* What was said in a chat: see conversation.h. */
#include "cli/chat/conversation.h"

#include "base/base64.h"
#include "base/error.h"
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

/* The text of a message: its content, or the text after its files. */
static const char *text_of(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *last = json_array_get(content, json_array_size(content) - 1);
    const char *text = json_string_value(json_is_string(content) ? content : json_object_get(last, "text"));
    return text == NULL ? "" : text;
}

void conversation_take_back(struct conversation *chat)
{
    const size_t last = json_array_size(chat->messages) - 1;
    drop_media(chat, first_medium(chat, json_array_get(chat->messages, last)));
    json_array_remove(chat->messages, last);
}

char *conversation_undo(struct conversation *chat)
{
    char *text = NULL;
    size_t n = json_array_size(chat->messages);
    while (n > 0 && text == NULL) {
        const json_t *last = json_array_get(chat->messages, --n);
        const char *role = json_string_value(json_object_get(last, "role"));
        if (strcmp(role, "system") == 0) break;
        if (strcmp(role, "user") == 0) text = mem_strdup(text_of(last));
        conversation_take_back(chat);
    }
    return text;
}

void conversation_clear(struct conversation *chat)
{
    const size_t kept = conversation_system(chat) != NULL;
    while (json_array_size(chat->messages) > kept) json_array_remove(chat->messages, kept);
    drop_media(chat, 0);
}

/* ---- The system prompt ---- */

const char *conversation_system(const struct conversation *chat)
{
    const json_t *first = json_array_get(chat->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    return role != NULL && strcmp(role, "system") == 0 ? text_of(first) : NULL;
}

void conversation_set_system(struct conversation *chat, const char *text)
{
    if (conversation_system(chat) != NULL) json_array_remove(chat->messages, 0);
    if (text != NULL)
        json_array_insert_new(chat->messages, 0,
                              json_pack("{s:s, s:o}", "role", "system", "content", clean_string(text, strlen(text))));
}

/* ---- As JSON, with the files ---- */

static const char data_url[] = "data:application/octet-stream;base64,";

/* The content part of a file: what it is, its bytes say. */
static json_t *export_medium(const hearth_medium *medium)
{
    struct buf url = {0};
    buf_puts(&url, data_url);
    base64_put(&url, medium->bytes, medium->len);
    json_t *part = json_pack("{s:s, s:{s:s%}}", "type", "image_url", "image_url", "url", url.v, url.len);
    buf_release(&url);
    return part;
}

json_t *conversation_export(const struct conversation *chat)
{
    json_t *messages = json_deep_copy(chat->messages);
    json_t *message, *part;
    size_t i, k;
    json_array_foreach(messages, i, message)
    {
        json_t *content = json_object_get(message, "content");
        json_array_foreach(content, k, part)
        {
            const json_t *place = json_object_get(part, "media");
            if (place != NULL) json_array_set_new(content, k, export_medium(&chat->media.v[json_integer_value(place)]));
        }
    }
    return messages;
}

/* A file's content part becomes one that names its place; text stays. */
static bool import_part(struct conversation *chat, json_t *content, size_t k)
{
    json_t *part = json_array_get(content, k);
    const char *url = json_string_value(json_object_get(json_object_get(part, "image_url"), "url"));
    const char *comma = url == NULL ? NULL : strchr(url, ',');
    struct base64_bytes bytes = {0};
    if (url == NULL) return json_is_string(json_object_get(part, "text"));
    if (strncmp(url, "data:", 5) != 0 || comma == NULL) return false;
    if (base64_get(&bytes, comma + 1, strlen(comma + 1)) != BASE64_GOOD || bytes.v == NULL) return false;
    conversation_attach(chat, "a saved file", (char *)bytes.v, bytes.len);
    json_array_set_new(content, k,
                       json_pack("{s:s, s:I}", "type", "image_url", "media", (json_int_t)chat->media.n - 1));
    return true;
}

static bool import_message(struct conversation *chat, json_t *message)
{
    json_t *content = json_object_get(message, "content");
    bool good = json_is_string(json_object_get(message, "role")) && (json_is_string(content) || json_is_array(content));
    for (size_t k = 0; good && k < json_array_size(content); k++) good = import_part(chat, content, k);
    chat->media.n_said = chat->media.n;
    if (good) json_array_append(chat->messages, message);
    return good;
}

int conversation_import(struct conversation *chat, const json_t *messages, hearth_error *error)
{
    struct conversation loaded;
    json_t *copy = json_deep_copy(messages), *message;
    bool good = json_is_array(messages);
    size_t i;
    conversation_init(&loaded);
    json_array_foreach(copy, i, message) good = good && import_message(&loaded, message);
    json_decref(copy);
    if (!good) {
        conversation_release(&loaded);
        return error_set(error, HEARTH_INVALID, "no list of messages that can be gone on with: write it with /save");
    }
    loaded.model = mem_strdup(chat->model);
    conversation_release(chat);
    *chat = loaded;
    return HEARTH_OK;
}

void conversation_release(struct conversation *chat)
{
    drop_media(chat, 0);
    free(chat->media.v);
    free(chat->model);
    json_decref(chat->messages);
    *chat = (struct conversation){0};
}
