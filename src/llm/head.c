/* Hidden rows, which a model gives and a head reads (head.h, context.h), and whether an EAGLE-3 head fits a model.
 *
 * llama.cpp gives the inputs of a layer for all batch tokens, in the order in which it computed them. That is the order
 * of the batch where all cells are one pool and no layer is recurrent, and nowhere else. So only such a context has
 * them. (With sliding windows a pool that is nearly full may be computed in another order: guesses suffer, replies do
 * not.) A head's needs are checked before it is opened, since llama.cpp ends the process where a graph lacks one
 * of them. The engine's thread; llm_eagle_fits(): any. */
#include "llm/head.h"

#include "base/error.h"
#include "base/memory.h"
#include "llm/context_struct.h"
#include "llm/gguf_file.h"
#include "llm/shim.h"

#include <assert.h>
#include <string.h>

/* ---- EAGLE-3 ---- */

static bool has_tensor(const struct gguf_context *file, const char *name)
{
    return gguf_find_tensor(file, name) >= 0;
}

struct llm_eagle llm_eagle_of(const struct llama_model *model, const struct gguf_context *file)
{
    struct llm_eagle eagle = {0};
    const char *architecture = llm_file_text(file, "general.architecture");
    if (architecture == NULL || strcmp(architecture, "eagle3") != 0) return eagle;
    const int32_t *layers;
    int32_t most = (int32_t)(sizeof eagle.layers.v / sizeof *eagle.layers.v), n = llm_target_layers(model, &layers);
    int64_t map = gguf_find_tensor(file, "d2t"); /* of its tokens to the model's */
    if (n != most || (map >= 0 && gguf_get_tensor_type(file, map) != GGML_TYPE_I64)) return eagle;
    eagle.layers.n = n;
    memcpy(eagle.layers.v, layers, sizeof eagle.layers.v);
    eagle.n_embd = (int32_t)llm_file_hparam(file, "target_hidden_size", 0, 0);
    eagle.borrows = !has_tensor(file, "token_embd.weight") || !has_tensor(file, "output.weight");
    return eagle;
}

/* Architectures whose graph names the inputs of its layers, whose layers all attend, and that are tested here. */
static bool gives_layer_inputs(const struct llm_model_info *model)
{
    static const char *const known[] = {"llama", "qwen3", "qwen3moe", "gpt-oss"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(model->architecture, known[i]) == 0) return true;
    return false;
}

int llm_eagle_fits(const struct llm_model_info *head, const struct llm_model_info *model, hearth_error *error)
{
    const struct llm_eagle *eagle = &head->eagle;
    if (!gives_layer_inputs(model))
        return error_set(error, HEARTH_UNSUPPORTED, "an EAGLE-3 head cannot read the layers of %s models",
                         model->architecture);
    if (head->n_layer != 1 || head->n_embd_head_k != head->n_embd_head_v)
        return error_set(error, HEARTH_UNSUPPORTED, "an EAGLE-3 head has one layer, with keys as long as its values");
    if (eagle->n_embd != model->n_embd)
        return error_set(error, HEARTH_INVALID,
                         "the EAGLE-3 head is for a model with an embedding of %d, and this one has %d", eagle->n_embd,
                         model->n_embd);
    for (int32_t i = 0; i < eagle->layers.n; i++)
        if (eagle->layers.v[i] < 0 || eagle->layers.v[i] >= model->n_layer)
            return error_set(error, HEARTH_INVALID,
                             "the EAGLE-3 head reads the input of layer %d, and the model has %d layers, from 0 on",
                             eagle->layers.v[i], model->n_layer);
    if (model->n_embd_out != model->n_embd)
        return error_set(error, HEARTH_UNSUPPORTED,
                         "an EAGLE-3 head cannot read a model whose output is %d wide, of %d", model->n_embd_out,
                         model->n_embd);
    if (eagle->borrows && (head->n_embd != model->n_embd || head->n_vocab != model->n_vocab))
        return error_set(
            error, HEARTH_INVALID,
            "the EAGLE-3 head uses the model's embedding or output, but is %d wide with %d tokens, and the "
            "model %d with %d",
            head->n_embd, head->n_vocab, model->n_embd, model->n_vocab);
    return HEARTH_OK;
}

/* ---- Rows ---- */

void llm_keep_rows(struct llm_context *context, const struct llm_context_params *params)
{
    struct llama_context *handle = context->handle.v;
    context->hidden_layers = params->hidden_layers;
    assert(params->hidden_layers.n == 0 || (params->unified && !context->recurrent));
    for (int32_t i = 0; i < params->hidden_layers.n; i++) llm_keep_layer_inputs(handle, params->hidden_layers.v[i]);
    if (params->hidden_layers.n > 0)
        context->hidden = mem_alloc((size_t)(params->hidden_layers.n * context->n_row) * sizeof *context->hidden);
    /* An MTP head's graph has them of all tokens: llama.cpp would take the first ones for those that were asked for. */
    if (params->head != LLM_HEAD_NONE || (params->hidden_rows && params->hidden_layers.n == 0))
        llm_keep_hidden_rows(handle, params->head == LLM_HEAD_MTP);
}

static const float *join_layer_inputs(struct llm_context *context, int32_t index)
{
    size_t n = (size_t)context->n_row;
    for (int32_t i = 0; i < context->hidden_layers.n; i++) {
        const float *inputs = llm_layer_inputs(context->handle.v, context->hidden_layers.v[i]);
        memcpy(context->hidden + (size_t)i * n, inputs + (size_t)index * n, n * sizeof(float));
    }
    return context->hidden;
}

const float *llm_hidden_row(struct llm_context *context, int32_t index)
{
    if (context->hidden_layers.n > 0) return join_layer_inputs(context, index);
    const float *row = llm_hidden_row_of(context->handle.v, index);
    assert(row != NULL);
    return row;
}

bool llm_encode_rows(struct llm_context *context, const float *rows, int32_t n, float *encoded)
{
    assert(context->head == LLM_HEAD_EAGLE && n > 0 && n <= context->capacity);
    struct llama_batch batch = {.n_tokens = n, .embd = (float *)(uintptr_t)rows};
    if (llm_handle_run(&context->handle, batch, true, true) != LLM_DECODED) return false;
    const float *out = llm_encoded_rows(context->handle.v);
    memcpy(encoded, out, (size_t)n * (size_t)context->n_row * sizeof *encoded);
    return true;
}
