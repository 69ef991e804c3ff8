/* The assumed system prompt of a model: see system_prompt.h. The preparing threads of the model share it under a mutex,
 * which they hold for a comparison or a copy only. */
#include "lib/requests/system_prompt.h"

#include "base/json_text.h"
#include "base/memory.h"
#include "lib/parameters/message_hashes.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct system_prompt {
    pthread_mutex_t mutex;
    char *only;   /* canonical JSON of the one message seen; NULL: none yet, or several */
    bool several; /* a second one was seen: never reset */
};

struct system_prompt *system_prompt_open(void)
{
    struct system_prompt *prompt = mem_alloc(sizeof *prompt);
    pthread_mutex_init(&prompt->mutex, NULL);
    return prompt;
}

void system_prompt_close(struct system_prompt *prompt)
{
    if (prompt == NULL) return;
    pthread_mutex_destroy(&prompt->mutex);
    free(prompt->only);
    free(prompt);
}

static bool is_system(const json_t *message)
{
    return chat_is_system_role(json_string_value(json_object_get(message, "role")));
}

/* ---- Recording ---- */

/* An image or a sound is named by its place among those of its own request. */
static bool has_media(const json_t *message)
{
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(message, "content"), i, part)
    {
        if (json_object_get(part, "media") != NULL) return true;
    }
    return false;
}

/* Takes ownership of the text. NULL: a message that no other request can have. */
static void record(struct system_prompt *prompt, char *text)
{
    if (text != NULL && prompt->only == NULL && !prompt->several) {
        prompt->only = text;
        return;
    }
    if (!prompt->several && (text == NULL || strcmp(prompt->only, text) != 0)) {
        free(prompt->only);
        prompt->only = NULL;
        prompt->several = true;
    }
    free(text);
}

void system_prompt_learn(struct system_prompt *prompt, const char *messages_json)
{
    json_t *messages = json_text_read(messages_json, strlen(messages_json), NULL);
    const json_t *first = json_array_get(messages, 0);
    if (is_system(first)) {
        struct buf text = {0};
        if (!has_media(first)) json_text_write_sorted(&text, first);
        pthread_mutex_lock(&prompt->mutex);
        record(prompt, has_media(first) ? NULL : buf_take(&text));
        pthread_mutex_unlock(&prompt->mutex);
    }
    json_decref(messages);
}

/* ---- Assuming ---- */

static bool has_system(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (is_system(json_array_get(messages, i))) return true;
    return false;
}

/* Takes the message over. NULL: the messages have a system message, or are none. */
static char *with_first(json_t *message, const char *messages_json)
{
    char *result = NULL;
    json_t *messages = json_text_read(messages_json, strlen(messages_json), NULL);
    if (json_array_size(messages) > 0 && !has_system(messages)) {
        json_array_insert(messages, 0, message);
        result = json_text_of(messages);
    }
    json_decref(messages);
    json_decref(message);
    return result;
}

char *system_prompt_put(const char *text, const char *messages_json)
{
    return with_first(json_pack("{s:s, s:s}", "role", "system", "content", text), messages_json);
}

char *system_prompt_assume(struct system_prompt *prompt, const char *messages_json)
{
    pthread_mutex_lock(&prompt->mutex);
    char *only = mem_strdup(prompt->only);
    pthread_mutex_unlock(&prompt->mutex);
    if (only == NULL) return NULL;
    char *result = with_first(json_text_read(only, strlen(only), NULL), messages_json);
    free(only);
    return result;
}
