/* Builds fill-in-the-middle prompts as llama-server does, so that editors made for it get the same replies:
 *
 *     [repository] project  [file] name, text of each snippet  [file] name  (begin)  [prefix] … [suffix] … [middle]
 *
 * A model without a token for files gets a separator line between snippets instead. */
#include "lib/requests/infill.h"

#include "base/error.h"

#include <string.h>

/* Names that llama-server uses, since requests do not give them. */
#define PROJECT   "myproject\n"
#define OPEN_FILE "filename\n"
#define SEPARATOR "\n\n--- snippet ---\n\n"

/* An editor's text stays text, even where it spells a special token. */
static void append(const struct llm_model *weights, const char *text, size_t len, struct tokens *out)
{
    llm_tokenize(weights, text, len, false, false, out);
}

static void append_file(const struct llm_model *weights, int32_t file, const char *name, struct tokens *out)
{
    struct buf line = {0};
    buf_printf(&line, "%s\n", name);
    tokens_push(out, file);
    append(weights, line.v, line.len, out);
    buf_release(&line);
}

static void append_snippets(const struct llm_model *weights, const struct llm_fim_tokens *fim,
                            const hearth_params *params, struct tokens *out)
{
    if (fim->repository >= 0) {
        tokens_push(out, fim->repository);
        append(weights, PROJECT, strlen(PROJECT), out);
    }
    for (size_t i = 0; i < params->n_snippets; i++) {
        const hearth_snippet *snippet = &params->snippets[i];
        if (fim->file >= 0)
            append_file(weights, fim->file, snippet->name, out);
        else
            append(weights, SEPARATOR, strlen(SEPARATOR), out);
        append(weights, snippet->text, strlen(snippet->text), out);
    }
    if (fim->file < 0) return;
    tokens_push(out, fim->file);
    append(weights, OPEN_FILE, strlen(OPEN_FILE), out);
}

static size_t least(size_t a, int64_t b)
{
    return b < 0 ? 0 : a < (size_t)b ? a : (size_t)b;
}

static void append_last(const struct tokens *list, size_t n, struct tokens *out)
{
    if (n > 0) tokens_append(out, list->v + (list->len - n), n);
}

/* Tokens that the snippets may take: the window less prefix and suffix and less twice the reply's length. */
static int64_t room_beside(const struct infill_model *model, size_t n, const hearth_params *params)
{
    int64_t core = (int64_t)n + 1 > model->n_batch ? (int64_t)n + 1 : model->n_batch;
    int64_t reply = params->max_tokens == HEARTH_UNSET ? 0 : params->max_tokens;
    return model->window - core - 2 * reply;
}

/* BOS, prefix, typed text, suffix, and the token that the reply follows. */
static void append_core(const struct llm_model *weights, int32_t n_batch, const hearth_params *params,
                        const struct tokens *prefix, struct tokens *out)
{
    struct llm_fim_tokens fim = llm_fim_tokens(weights);
    struct tokens typed = {0}, suffix = {0};
    if (params->typed != NULL) llm_tokenize(weights, params->typed, params->typed_len, false, true, &typed);
    append(weights, params->suffix, params->suffix_len, &suffix);
    size_t before = least(prefix->len, 3 * (int64_t)(n_batch / 4));
    size_t after = least(suffix.len, n_batch / 4 - 2 - (int64_t)typed.len);
    if (fim.begin >= 0) tokens_push(out, fim.begin);
    tokens_push(out, fim.prefix);
    append_last(prefix, before, out);
    tokens_append(out, typed.v, typed.len);
    tokens_push(out, fim.suffix);
    tokens_append(out, suffix.v, after);
    tokens_push(out, fim.middle);
    tokens_release(&typed);
    tokens_release(&suffix);
}

int infill_prompt(const struct infill_model *model, const hearth_params *params, struct tokens *prompt,
                  hearth_error *error)
{
    struct llm_fim_tokens fim = llm_fim_tokens(model->weights);
    if (fim.prefix < 0 || fim.suffix < 0 || fim.middle < 0)
        return error_at(
            error, HEARTH_UNSUPPORTED, "suffix",
            "model '%s' cannot fill in the middle: its vocabulary has no token for the %s. Leave the suffix "
            "out, or name a model for code in 'model'",
            model->name,
            fim.prefix < 0   ? "prefix"
            : fim.suffix < 0 ? "suffix"
                             : "middle");
    struct tokens core = {0}, whole = {0};
    append_core(model->weights, model->n_batch, params, prompt, &core);
    append_snippets(model->weights, &fim, params, &whole);
    size_t beside = least(whole.len, room_beside(model, core.len, params));
    tokens_truncate(prompt, 0);
    append_last(&whole, beside, prompt);
    tokens_append(prompt, core.v, core.len);
    tokens_release(&core);
    tokens_release(&whole);
    return HEARTH_OK;
}
