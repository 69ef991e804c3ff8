/* The words of a cache lookup: what a prompt and the one most like it say where they diverge. They are written when the
 * engine has found the place, on its thread: some dozen tokens, whatever the prompt has. Then they are constant. */
#include "base/utf8.h"
#include "lib/request.h"

/* Tokens before the place whose words are told; of those after it the engine notes so many. */
#define COMMON_TOLD 8

/* Characters that begin or end outside of the tokens become U+FFFD. */
static void put_words(const struct model *model, const int32_t *tokens, int32_t n, struct buf *out)
{
    struct buf bytes = {0};
    for (int32_t i = 0; i < n; i++) llm_token_bytes(model->weights, tokens[i], true, &bytes);
    utf8_put_clean(out, buf_text(&bytes), bytes.len);
    buf_release(&bytes);
}

void lookup_put_words(hearth_request *request)
{
    const struct job *job = &request->job;
    const struct divergence *divergence = &job->nearest.divergence;
    struct lookup_words *words = &request->words;
    int32_t at = divergence->common, rest = (int32_t)job->prompt.len - at, most = DIVERGENCE_NEXT;
    int32_t before = at < COMMON_TOLD ? at : COMMON_TOLD;
    if (job->nearest.where == NULL) return;
    put_words(request->model, job->prompt.v + at - before, before, &words->common);
    put_words(request->model, job->prompt.v + at, rest < most ? rest : most, &words->prompt);
    put_words(request->model, divergence->next, divergence->n_next, &words->nearest);
}

void lookup_release(struct lookup_words *words)
{
    buf_release(&words->common);
    buf_release(&words->prompt);
    buf_release(&words->nearest);
}

hearth_divergence hearth_request_divergence(const hearth_request *request)
{
    const struct nearest *nearest = &request->job.nearest;
    if (nearest->where == NULL) return (hearth_divergence){0};
    return (hearth_divergence){.position = nearest->divergence.common,
                               .where = nearest->where,
                               .limit = nearest->limit,
                               .common = buf_text(&request->words.common),
                               .prompt = buf_text(&request->words.prompt),
                               .nearest = buf_text(&request->words.nearest)};
}
