#include "ask.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_REPLY = 600 }; /* tokens */

hearth *ask_open(const char *path, hearth_error *error)
{
    static const char *const settings[][2] = {
        {"models.demo.n_seq_max", "1"},
        {"models.demo.context_window", "4096"},
        {"cache.tiers.disk.quota_mb", "0"}, /* prompts are not worth keeping */
    };
    hearth_config *config = hearth_config_new();
    int code = hearth_config_set(config, "models.demo.path", path, error);
    for (size_t i = 0; code == 0 && i < sizeof settings / sizeof *settings; i++)
        code = hearth_config_set(config, settings[i][0], settings[i][1], error);
    hearth *instance = code == 0 ? hearth_open(config, error) : NULL;
    hearth_config_free(config);
    if (instance != NULL && hearth_load(instance, NULL, NULL, error) < 0) {
        hearth_close(instance);
        instance = NULL;
    }
    return instance;
}

/* What events brought. */
struct answer {
    struct buf text;
    int32_t *tokens;
    size_t n_tokens;
};

/* A hearth_event_fn. */
static void take_event(void *ud, const hearth_event *event)
{
    struct answer *answer = ud;
    if (event->type == HEARTH_EVENT_TEXT || event->type == HEARTH_EVENT_PROMPT)
        buf_append(&answer->text, event->text, event->text_len);
    if (event->type != HEARTH_EVENT_PROMPT) return;
    answer->tokens = mem_grow(NULL, event->n_tokens, sizeof *answer->tokens);
    memcpy(answer->tokens, event->tokens, event->n_tokens * sizeof *answer->tokens);
    answer->n_tokens = event->n_tokens;
}

/* Submits the messages and waits for the end. */
static int run(hearth *instance, const struct conversation *conversation, size_t n, hearth_params *params,
               struct answer *answer, hearth_error *error)
{
    char *messages = conversation_messages_json(conversation, n), *tools = conversation_tools_json(conversation);
    params->messages = hearth_json_read(messages, strlen(messages), error);
    params->tools = tools == NULL ? NULL : hearth_json_read(tools, strlen(tools), error);
    params->cache_prompt = false;
    params->continue_final = HEARTH_CONTINUE_NEVER;
    hearth_request *request = hearth_submit(instance, params, take_event, answer, error);
    int code = request == NULL ? (int)error->code : hearth_wait(request, error);
    hearth_request_release(request);
    hearth_json_free(params->messages);
    hearth_json_free(params->tools);
    free(messages);
    free(tools);
    if (code != 0) {
        buf_release(&answer->text);
        free(answer->tokens);
    }
    return code;
}

char *ask_reply(hearth *instance, const struct conversation *conversation, size_t n, const struct asking *asking,
                hearth_error *error)
{
    struct answer answer = {0};
    hearth_params params = hearth_params_default();
    params.sampling.temperature = asking->temperature;
    params.sampling.seed = asking->seed;
    params.max_tokens = LONGEST_REPLY;
    return run(instance, conversation, n, &params, &answer, error) == 0 ? buf_take(&answer.text) : NULL;
}

char *ask_prompt(hearth *instance, const struct conversation *conversation, size_t n, int32_t **tokens,
                 size_t *n_tokens, hearth_error *error)
{
    struct answer answer = {0};
    hearth_params params = hearth_params_default();
    params.only_prompt = true;
    if (run(instance, conversation, n, &params, &answer, error) != 0) return NULL;
    *tokens = answer.tokens;
    *n_tokens = answer.n_tokens;
    return buf_take(&answer.text);
}
