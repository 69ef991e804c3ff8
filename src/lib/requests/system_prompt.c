/* The assumed system prompt of a model: see system_prompt.h. The preparing threads of the model share it under a mutex,
 * which they hold for a comparison or a copy only: it is a copy of a request's message, and each request gets one. */
#include "lib/requests/system_prompt.h"

#include "base/memory.h"
#include "lib/parameters/message_hashes.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct system_prompt {
    pthread_mutex_t mutex;
    json_t *only; /* the one message seen; NULL: none yet, or several */
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
    json_decref(prompt->only);
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

/* The message may be one that no other request can have. */
static void record(struct system_prompt *prompt, const json_t *message)
{
    bool is_own = has_media(message);
    if (!is_own && prompt->only == NULL && !prompt->several) prompt->only = json_deep_copy(message);
    if (!is_own && json_equal(prompt->only, message)) return;
    json_decref(prompt->only);
    prompt->only = NULL;
    prompt->several = true;
}

void system_prompt_learn(struct system_prompt *prompt, const json_t *messages)
{
    const json_t *first = json_array_get(messages, 0);
    if (!is_system(first)) return;
    pthread_mutex_lock(&prompt->mutex);
    record(prompt, first);
    pthread_mutex_unlock(&prompt->mutex);
}

/* ---- Assuming ---- */

static bool has_system(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (is_system(json_array_get(messages, i))) return true;
    return false;
}

/* Takes the message over. NULL: the messages have a system message, or are none. */
static json_t *with_first(json_t *message, const json_t *messages)
{
    json_t *list = NULL;
    if (json_array_size(messages) > 0 && !has_system(messages)) {
        list = json_copy((json_t *)messages);
        json_array_insert(list, 0, message);
    }
    json_decref(message);
    return list;
}

json_t *system_prompt_put(const char *text, const json_t *messages)
{
    return with_first(json_pack("{s:s, s:s}", "role", "system", "content", text), messages);
}

json_t *system_prompt_assume(struct system_prompt *prompt, const json_t *messages)
{
    pthread_mutex_lock(&prompt->mutex);
    json_t *only = json_deep_copy(prompt->only);
    pthread_mutex_unlock(&prompt->mutex);
    return only == NULL ? NULL : with_first(only, messages);
}
