/* The end of a cache lookup. The engine has found where the prompt and the most similar cached one diverge. A preparing
 * thread writes down the words on both sides and finds the message that the divergence is in. That renders the
 * conversation several times, which would hold up the engine thread. The result is constant afterwards. */
#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "instance/models/loaded_model.h"
#include "instance/models/model_manager.h"
#include "instance/models/model_names.h"
#include "instance/requests/request.h"

#include <stdio.h>

/* Tokens before the divergence whose words are reported; of those after it, up to DIVERGENCE_NEXT. */
#define COMMON_TOKENS 8

void lookup_answered(struct job *job, const hearth_result *result)
{
    hearth_request *request = (hearth_request *)job;
    struct admission *admission = request->model->admission;
    request->lookup.result = *result;
    request->lookup.answered = true;
    if (!admission_postpone(admission, job, 0, admission_wakes(admission))) /* deadline 0: it is due at once */
        job_fail_with(job, HEARTH_UNAVAILABLE, "engine shutting down");
}

/* ---- Words and message ---- */

/* Characters whose bytes are not all within the tokens become U+FFFD. */
static void put_words(const struct model *model, const int32_t *tokens, int32_t n, struct buf *out)
{
    struct buf bytes = {0};
    for (int32_t i = 0; i < n; i++) llm_token_bytes(model->weights, tokens[i], true, &bytes);
    utf8_put_clean(out, buf_text(&bytes), bytes.len);
    buf_release(&bytes);
}

void lookup_finish(hearth_request *request)
{
    struct lookup *lookup = &request->lookup;
    struct job *job = &request->job;
    lookup->message = -1;
    if (job->nearest.where != NULL) {
        const struct divergence *divergence = &job->nearest.divergence;
        int32_t at = divergence->common, rest = (int32_t)job->prompt.len - at, most = DIVERGENCE_NEXT;
        int32_t before = at < COMMON_TOKENS ? at : COMMON_TOKENS;
        put_words(request->model, job->prompt.v + at - before, before, &lookup->common);
        put_words(request->model, job->prompt.v + at, rest < most ? rest : most, &lookup->prompt);
        put_words(request->model, divergence->next, divergence->n_next, &lookup->nearest);
        if (lookup->chat.text.text != NULL)
            lookup->message = prepare_message_at(&lookup->chat, &job->prompt, job->conversation.n_messages, at);
    }
    /* The index counts the request's own messages, without an assumed system message before them. */
    if (lookup->message >= 0 && request->assumed != NULL) lookup->message--;
    if (lookup->message >= 0) {
        const json_t *messages = json_text_tree(request->params->messages);
        const json_t *role = json_object_get(json_array_get(messages, (size_t)lookup->message), "role");
        if (json_is_string(role)) snprintf(lookup->role, sizeof lookup->role, "%s", json_string_value(role));
    }
    job_done(job, &lookup->result);
}

void lookup_release(struct lookup *lookup)
{
    prepare_release(&lookup->chat);
    buf_release(&lookup->common);
    buf_release(&lookup->prompt);
    buf_release(&lookup->nearest);
}

hearth_divergence hearth_request_divergence(const hearth_request *request)
{
    const struct nearest *nearest = &request->job.nearest;
    const struct lookup *lookup = &request->lookup;
    if (!request->job.only_lookup || nearest->where == NULL) return (hearth_divergence){.message = -1};
    return (hearth_divergence){.position = nearest->divergence.common,
                               .where = nearest->where,
                               .limit = nearest->limit,
                               .common = buf_text(&lookup->common),
                               .prompt = buf_text(&lookup->prompt),
                               .nearest = buf_text(&lookup->nearest),
                               .message = lookup->message,
                               .role = lookup->role};
}

/* ---- Tokens of a text, without a request; any thread ---- */

int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                        bool parse_special, int32_t **tokens, hearth_error *error)
{
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry == NULL) return (int32_t)error->code;
    struct model *found = brief_lease_take(entry);
    if (found == NULL) {
        hearth_load_model(instance, model, NULL);
        return error_set(error, HEARTH_UNAVAILABLE, "loading model '%s': try again in a moment", entry->config->name);
    }
    struct tokens list = {0};
    int rc = llm_check_text(found->weights, text, len, error);
    if (rc == HEARTH_OK) llm_tokenize(found->weights, text, len, add_special, parse_special, &list);
    brief_lease_end(entry);
    *tokens = list.v;
    return rc == HEARTH_OK ? (int32_t)list.len : rc;
}
