#include "speculative.h"

#include "common.h"

#include <../common/speculative.h>

int32_t speculative_guess(llama_context *model, llama_context *head, const int32_t *tokens, int32_t n, int32_t *guess,
                          int32_t max)
{
    common_params_speculative params;
    params.types = {COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3};
    params.draft.ctx_tgt = model;
    params.draft.ctx_dft = head;
    params.draft.n_max = max;
    params.draft.n_min = 0;
    params.draft.p_min = 0;
    params.draft.backend_sampling = false;
    common_speculative *driver = common_speculative_init(params, 1);

    llama_tokens prompt(tokens, tokens + n - 1), result;
    common_speculative_begin(driver, 0, {});
    llama_batch batch = llama_batch_init(n, 0, 1);
    for (int32_t i = 0; i + 1 < n; i++) common_batch_add(batch, tokens[i], i, {0}, i + 2 == n);
    if (llama_decode(model, batch) == 0 && common_speculative_process(driver, batch)) {
        common_speculative_draft_params &asked = common_speculative_get_draft_params(driver, 0);
        asked.drafting = true;
        asked.n_max = max;
        asked.pos0 = n - 1;
        asked.id_last = tokens[n - 1];
        asked.prompt = &prompt;
        asked.result = &result;
        common_speculative_draft(driver);
    }
    llama_batch_free(batch);
    common_speculative_free(driver);
    for (size_t i = 0; i < result.size(); i++) guess[i] = result[i];
    return static_cast<int32_t>(result.size());
}
