/* The messages of a chat, and the files that came with them: see conversation.h. */
#include "cli/chat/conversation.h"

#include "base/base64.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Bytes of a file at most. */
#define FILE_MOST (64u << 20)

/* ---- Paths ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A file URL has %20 for a blank. */
static char *path_of_url(const char *url)
{
    struct buf path = {0};
    for (; *url != '\0'; url++) {
        const int high = *url == '%' ? hex_digit(url[1]) : -1, low = high < 0 ? -1 : hex_digit(url[2]);
        const char byte = low < 0 ? *url : (char)(high * 16 + low);
        buf_append(&path, &byte, 1);
        if (low >= 0) url += 2;
    }
    return buf_take(&path);
}

char *attachment_path(const char *text)
{
    static const char scheme[] = "file://";
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)*text)) text++, len--;
    while (len > 0 && isspace((unsigned char)text[len - 1])) len--;
    const char quote = len >= 2 && (text[0] == '\'' || text[0] == '"') && text[len - 1] == text[0] ? text[0] : '\0';
    struct buf plain = {0};
    /* Quotes go, or backslashes where there are no quotes: the ways in which terminals write special characters. */
    if (quote != '\0') buf_append(&plain, text + 1, len - 2);
    for (size_t i = 0; quote == '\0' && i < len; i++) {
        if (text[i] == '\\' && i + 1 < len) i++;
        buf_append(&plain, &text[i], 1);
    }
    char *path = buf_take(&plain), *home = getenv("HOME"), *whole = NULL;
    if (strncmp(path, scheme, strlen(scheme)) == 0)
        whole = path_of_url(path + strlen(scheme));
    else if (strncmp(path, "~/", 2) == 0 && home != NULL)
        whole = mem_format("%s%s", home, path + 1);
    if (whole == NULL) return path;
    free(path);
    return whole;
}

bool attachment_is_pasted(const char *line)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".wav", ".mp3", ".flac"};
    char *path = attachment_path(line);
    const size_t len = strlen(path);
    struct stat st;
    bool known = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        known = known || (len > strlen(endings[i]) && strcasecmp(path + len - strlen(endings[i]), endings[i]) == 0);
    const bool pasted = known && strchr(path, '/') != NULL && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    return pasted;
}

/* ---- Files ---- */

int attachment_read(const char *path, struct buf *bytes, hearth_error *error)
{
    char block[1 << 16];
    struct stat st;
    FILE *file = fopen(path, "rbe");
    if (file == NULL || fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        const char *why = file == NULL ? strerror(errno) : "it is not a regular file";
        error_at(error, HEARTH_IO, path, "%s: %s", path, why);
        if (file != NULL) fclose(file);
        return HEARTH_IO;
    }
    for (size_t n; bytes->len <= FILE_MOST && (n = fread(block, 1, sizeof block, file)) > 0;)
        buf_append(bytes, block, n);
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) return error_at(error, HEARTH_IO, path, "%s cannot be read", path);
    if (bytes->len <= FILE_MOST) return HEARTH_OK;
    return error_at(error, HEARTH_TOO_LONG, path, "%s has more than %u MiB", path, FILE_MOST >> 20);
}

/* ---- The conversation ---- */

void conversation_init(struct conversation *chat)
{
    *chat = (struct conversation){.messages = json_array()};
}

/* ---- Attached files ---- */

/* Removes the files from `first` up to `end`; those after them move up. */
static void drop_media(struct conversation *chat, size_t first, size_t end)
{
    struct conversation_media *media = &chat->media;
    for (size_t i = first; i < end; i++) {
        free((void *)media->v[i].bytes);
        free((void *)media->v[i].field);
    }
    if (end > first && media->n > end) memmove(&media->v[first], &media->v[end], (media->n - end) * sizeof *media->v);
    media->n -= end - first;
    if (media->n_said > first) media->n_said -= (media->n_said < end ? media->n_said : end) - first;
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

void conversation_say(struct conversation *chat, const char *role, const char *text, size_t len)
{
    json_t *content = clean_string(text, len);
    if (strcmp(role, "user") == 0 && chat->media.n > chat->media.n_said) {
        json_t *parts = json_array(); /* one for each file, then the text */
        for (size_t i = chat->media.n_said; i < chat->media.n; i++)
            json_array_append_new(parts, json_pack("{s:s, s:I}", "type", "image_url", "media", (json_int_t)i));
        json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", content));
        chat->media.n_said = chat->media.n;
        content = parts;
    }
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
    drop_media(chat, first_medium(chat, json_array_get(chat->messages, last)), chat->media.n_said);
    json_array_remove(chat->messages, last);
}

/* Takes the last message back, and leaves its files for the next one. */
static void take_text_back(struct conversation *chat)
{
    const size_t last = json_array_size(chat->messages) - 1;
    chat->media.n_said = first_medium(chat, json_array_get(chat->messages, last));
    json_array_remove(chat->messages, last);
}

static char *undo(struct conversation *chat, void (*take_back)(struct conversation *chat))
{
    char *text = NULL;
    size_t n = json_array_size(chat->messages);
    while (n > 0 && text == NULL) {
        const json_t *last = json_array_get(chat->messages, --n);
        const char *role = json_string_value(json_object_get(last, "role"));
        if (strcmp(role, "system") == 0) break;
        if (strcmp(role, "user") == 0) text = mem_strdup(text_of(last));
        take_back(chat);
    }
    return text;
}

char *conversation_undo(struct conversation *chat)
{
    return undo(chat, conversation_take_back);
}

char *conversation_reopen(struct conversation *chat)
{
    return undo(chat, take_text_back);
}

void conversation_clear(struct conversation *chat)
{
    const size_t kept = conversation_system(chat) != NULL;
    while (json_array_size(chat->messages) > kept) json_array_remove(chat->messages, kept);
    drop_media(chat, 0, chat->media.n);
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

/* Files by the bytes that they begin with. hearth looks at these itself; other servers want to be told. */
static const struct file_kind {
    const char *bytes;
    size_t at;
    const char *type;  /* of an image's data URL */
    const char *sound; /* a sound's format; NULL: an image */
} kinds[] = {
    {"\x89PNG", 0, "image/png", NULL},
    {"\xff\xd8\xff", 0, "image/jpeg", NULL},
    {"GIF8", 0, "image/gif", NULL},
    {"WEBP", 8, "image/webp", NULL},
    {"WAVE", 8, NULL, "wav"},
    {"ID3", 0, NULL, "mp3"},
    {"\xff\xfb", 0, NULL, "mp3"},
    {"BM", 0, "image/bmp", NULL},
    {"", 0, "application/octet-stream", NULL},
};

/* The content part of a file. */
static json_t *export_medium(const hearth_medium *medium)
{
    const struct file_kind *kind = kinds;
    while (medium->len < kind->at + strlen(kind->bytes) ||
           memcmp((const char *)medium->bytes + kind->at, kind->bytes, strlen(kind->bytes)) != 0)
        kind++;
    struct buf text = {0};
    if (kind->sound == NULL) buf_printf(&text, "data:%s;base64,", kind->type);
    base64_put(&text, medium->bytes, medium->len);
    json_t *part = kind->sound == NULL ? json_pack("{s:s, s:{s:s%}}", "type", "image_url", "image_url", "url",
                                                   buf_text(&text), text.len)
                                       : json_pack("{s:s, s:{s:s%, s:s}}", "type", "input_audio", "input_audio", "data",
                                                   buf_text(&text), text.len, "format", kind->sound);
    buf_release(&text);
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

/* The part of a conversation that another one becomes: a file's names its place, a text's has nothing beside the text,
 * whatever the other had. NULL: it is neither. */
static json_t *import_part(struct conversation *chat, const json_t *part)
{
    const char *url = json_string_value(json_object_get(json_object_get(part, "image_url"), "url"));
    const char *base64 = json_string_value(json_object_get(json_object_get(part, "input_audio"), "data"));
    if (url != NULL) { /* without a comma its file is elsewhere */
        const char *comma = strncmp(url, "data:", 5) != 0 ? NULL : strchr(url, ',');
        base64 = comma != NULL ? comma + 1 : NULL;
    }
    json_t *text = json_object_get(part, "text");
    struct base64_bytes bytes = {0};
    if (base64 == NULL) return json_is_string(text) ? json_pack("{s:s, s:O}", "type", "text", "text", text) : NULL;
    if (base64_get(&bytes, base64, strlen(base64)) != BASE64_GOOD || bytes.v == NULL) return NULL;
    conversation_attach(chat, "a saved file", (char *)bytes.v, bytes.len);
    return json_pack("{s:s, s:I}", "type", "image_url", "media", (json_int_t)chat->media.n - 1);
}

int conversation_import(struct conversation *chat, const json_t *messages, hearth_error *error)
{
    struct conversation loaded;
    bool good = json_is_array(messages);
    conversation_init(&loaded);
    for (size_t i = 0; good && i < json_array_size(messages); i++) {
        /* Role and content are taken over, and nothing else: other members are for other programs, and a template may
         * read them. */
        const json_t *message = json_array_get(messages, i);
        json_t *role = json_object_get(message, "role"), *given = json_object_get(message, "content");
        json_t *content = json_is_array(given) ? json_array() : json_incref(given);
        good = json_is_string(role) && (json_is_string(content) || json_is_array(content));
        for (size_t k = 0; good && k < json_array_size(given); k++)
            good = json_array_append_new(content, import_part(&loaded, json_array_get(given, k))) == 0;
        loaded.media.n_said = loaded.media.n;
        if (good) json_array_append_new(loaded.messages, json_pack("{s:O, s:O}", "role", role, "content", content));
        json_decref(content);
    }
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
    drop_media(chat, 0, chat->media.n);
    free(chat->media.v);
    free(chat->model);
    json_decref(chat->messages);
    *chat = (struct conversation){0};
}
