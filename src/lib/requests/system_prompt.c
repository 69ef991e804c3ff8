/* The assumed system prompt of a model: see system_prompt.h. The preparing threads of the model share it under a mutex,
 * which they hold for a comparison or a copy only. */
#include "lib/requests/system_prompt.h"

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

static char *first_system_message(const char *messages_json)
{
    json_t *messages = json_loads(messages_json, JSON_ALLOW_NUL, NULL);
    const json_t *first = json_array_get(messages, 0);
    char *text = is_system(first) ? json_dumps(first, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(messages);
    return text;
}

/* Takes ownership of the text. */
static void record(struct system_prompt *prompt, char *text)
{
    if (prompt->only == NULL && !prompt->several) {
        prompt->only = text;
        return;
    }
    if (!prompt->several && strcmp(prompt->only, text) != 0) {
        free(prompt->only);
        prompt->only = NULL;
        prompt->several = true;
    }
    free(text);
}

void system_prompt_learn(struct system_prompt *prompt, const char *messages_json)
{
    char *text = first_system_message(messages_json);
    if (text == NULL) return;
    pthread_mutex_lock(&prompt->mutex);
    record(prompt, text);
    pthread_mutex_unlock(&prompt->mutex);
}

/* ---- Assuming ---- */

static bool has_system(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (is_system(json_array_get(messages, i))) return true;
    return false;
}

static char *with_first(json_t *messages, const char *message_json)
{
    json_array_insert_new(messages, 0, json_loads(message_json, JSON_ALLOW_NUL, NULL));
    return json_dumps(messages, JSON_COMPACT);
}

char *system_prompt_assume(struct system_prompt *prompt, const char *messages_json)
{
    pthread_mutex_lock(&prompt->mutex);
    char *only = mem_strdup(prompt->only), *result = NULL;
    pthread_mutex_unlock(&prompt->mutex);
    if (only == NULL) return NULL;
    json_t *messages = json_loads(messages_json, JSON_ALLOW_NUL, NULL);
    if (json_array_size(messages) > 0 && !has_system(messages)) result = with_first(messages, only);
    json_decref(messages);
    free(only);
    return result;
}
