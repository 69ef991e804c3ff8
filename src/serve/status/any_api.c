/* Bodies of any API: see status.h. */
#include "serve/status/status.h"

#include "base/error.h"
#include "serve/anthropic/anthropic.h"
#include "serve/core/errors.h"
#include "serve/fields/body.h"
#include "serve/fields/fields.h"
#include "serve/ollama/ollama.h"
#include "serve/responses/responses.h"

#include <string.h>

void *any_api_openai(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, NULL, error);
}

void *any_api_messages(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, &anthropic_api, error);
}

/* Refuses bodies that continue stored items: without those the prompt would be another than the one that is looked
 * up. */
static json_t *whole_response_chat(const json_t *body, struct uploads *uploads, struct header_list *left_out,
                                   hearth_error *error)
{
    static const char *const links[] = {"previous_response_id", "conversation"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        if (!fields_asks(body, links[i])) continue;
        error_at(error, HEARTH_UNSUPPORTED, links[i],
                 "stored items are not continued here: leave out '%s', and send all of them in 'input'", links[i]);
        return NULL;
    }
    return responses_chat(body, uploads, left_out, error);
}

static const struct fields_api whole_response_api = {.name = "responses", .convert = whole_response_chat};

void *any_api_responses(struct buf *body, hearth_error *error)
{
    return fields_open(body, FIELDS_LOOKUP, &whole_response_api, error);
}

void *any_api_ollama(struct buf *text, hearth_error *error)
{
    json_t *body = fields_parse_body(text, error);
    if (body == NULL) return NULL;
    bool is_chat = json_object_get(body, "messages") != NULL;
    return fields_open_tree(body, FIELDS_LOOKUP, is_chat ? &ollama_chat_api : &ollama_generate_api, error);
}

/* Whether the body has fields, or content blocks in its messages, that only Anthropic's API has. */
static bool is_anthropic(const json_t *body)
{
    static const char *const own[] = {"system", "stop_sequences", "anthropic_version", "output_config"};
    static const char types[] = "tool_use tool_result thinking redacted_thinking";
    size_t i, k;
    json_t *item, *block;
    for (i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(body, own[i]) != NULL) return true;
    json_array_foreach(json_object_get(body, "tools"), i,
                       item) if (json_object_get(item, "input_schema") != NULL) return true;
    json_array_foreach(json_object_get(body, "messages"), i, item)
    {
        json_array_foreach(json_object_get(item, "content"), k, block)
        {
            if (words_have(types, json_string_value(json_object_get(block, "type")))) return true;
        }
    }
    return false;
}

void *any_api_detected(struct buf *text, hearth_error *error)
{
    json_t *body = fields_parse_body(text, error);
    if (body == NULL) return NULL;
    const struct fields_api *api = NULL;
    if (json_object_get(body, "input") != NULL)
        api = &whole_response_api;
    else if (json_object_get(body, "messages") != NULL && is_anthropic(body))
        api = &anthropic_api;
    return fields_open_tree(body, FIELDS_LOOKUP, api, error);
}

void any_api_start(struct call *call, const struct any_api_form *forms, size_t n)
{
    const char *as = http_query(call->http, "as");
    for (size_t i = 0; i < n; i++) {
        if (strcmp(as == NULL ? forms[0].as : as, forms[i].as) != 0) continue;
        reading_start(call, &forms[i].form);
        return;
    }
    call_refuse(call, errors_put, HEARTH_INVALID, "as", "'as' must be chat, completion, messages, responses or ollama");
}
