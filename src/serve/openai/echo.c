/* Echoes: see openai.h. A prompt that was sent as text comes back as it was; of one that was sent as tokens the library
 * tells the text. */
#include "serve/openai/openai.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "serve/fields/convert.h"

#include <stdlib.h>
#include <string.h>

/* Of one prompt, or of the message that a chat's reply continues. */
struct echoed {
    struct buf reasoning, text;
    bool is_text; /* else the text is that of the prompt's tokens */
};

struct echo {
    struct echoed *v;    /* of each prompt */
    size_t n_prompts, n; /* choices for each prompt */
    bool logprobs;
};

/* ---- What is echoed ---- */

static void echo_last_message(const struct fields *fields, struct echoed *echo)
{
    const json_t *last = json_array_get(fields->messages, json_array_size(fields->messages) - 1);
    const json_t *reasoning = json_object_get(last, "reasoning_content");
    bool continues = convert_is(json_object_get(last, "role"), "assistant") &&
                     json_array_size(json_object_get(last, "tool_calls")) == 0 &&
                     fields->params.continue_final != HEARTH_CONTINUE_NEVER;
    if (continues && !fields->hides_reasoning)
        buf_append(&echo->reasoning, json_string_value(reasoning), json_string_length(reasoning));
    if (continues && fields->params.continue_final != HEARTH_CONTINUE_REASONING) {
        /* The message's text: a string, or parts, which are joined as in the prompt that continues them. */
        const json_t *content = json_object_get(last, "content");
        size_t i;
        json_t *part;
        buf_append(&echo->text, json_string_value(content), json_string_length(content));
        json_array_foreach(content, i, part)
        {
            const json_t *one = json_object_get(part, "text");
            if (i > 0) buf_puts(&echo->text, "\n\n");
            buf_append(&echo->text, json_string_value(one), json_string_length(one));
        }
    }
}

struct echo *echo_open(const struct fields *fields)
{
    if (!fields->echo && !fields->repeats) return NULL;
    struct echo *echo = mem_alloc(sizeof *echo);
    echo->n_prompts = fields->n_prompts;
    echo->n = (size_t)fields->n;
    echo->logprobs = fields->echo && fields->params.prompt_logprobs >= 0 && fields->params.top_logprobs >= 0;
    echo->v = mem_alloc(echo->n_prompts * sizeof *echo->v);
    for (size_t i = 0; i < echo->n_prompts; i++) {
        echo->v[i].is_text = fields->repeats || fields->prompts[i].text != NULL;
        if (fields->echo) buf_append(&echo->v[i].text, fields->prompts[i].text, fields->prompts[i].len);
    }
    if (fields->repeats) echo_last_message(fields, &echo->v[0]);
    return echo;
}

void echo_close(struct echo *echo)
{
    if (echo == NULL) return;
    for (size_t i = 0; i < echo->n_prompts; i++) {
        buf_release(&echo->v[i].reasoning);
        buf_release(&echo->v[i].text);
    }
    free(echo->v);
    free(echo);
}

static const struct echoed *echoed_of(const struct echo *echo, size_t choice)
{
    static const struct echoed nothing = {.is_text = true};
    return echo == NULL ? &nothing : &echo->v[choice / echo->n];
}

bool echo_waits(const struct echo *echo, size_t choice)
{
    return (echo != NULL && echo->logprobs) || !echoed_of(echo, choice)->is_text;
}

const struct buf *echo_reasoning(const struct echo *echo, size_t choice)
{
    return &echoed_of(echo, choice)->reasoning;
}

void echo_put_text(const struct echo *echo, size_t choice, const struct answer *answer, struct buf *out)
{
    const struct echoed *echoed = echoed_of(echo, choice);
    if (echoed->is_text)
        buf_append(out, echoed->text.v, echoed->text.len);
    else
        utf8_put_clean(out, answer->prompt.text, answer->prompt.len);
}

/* ---- Tokens and their places ---- */

static void add(struct echo_tokens *tokens, struct token_logprobs *logprobs, size_t offset)
{
    tokens->v[tokens->n] = logprobs;
    tokens->offsets[tokens->n++] = offset;
}

static void reserve(struct echo_tokens *tokens, size_t n)
{
    tokens->v = mem_grow(tokens->v, tokens->n + n, sizeof(struct token_logprobs *));
    tokens->offsets = mem_grow(tokens->offsets, tokens->n + n, sizeof *tokens->offsets);
}

struct echo_tokens echo_tokens_of(const struct echo *echo, const struct answer *answer, const struct buf *text)
{
    struct echo_tokens tokens = {0};
    if (echo == NULL || !echo->logprobs || answer->prompt.n_tokens == 0) return tokens;
    const hearth_prompt *prompt = &answer->prompt;
    tokens.at = utf8_count(text->v, text->len);
    reserve(&tokens, answer->n_prompt_logprobs + 1);
    tokens.first = token_logprobs_without(prompt->tokens[0], prompt->text, prompt->ends[0]);
    add(&tokens, tokens.first, 0);
    /* Characters of the tokens' text before that of the prompt: a BOS token, or the space that some vocabularies put
     * before a text. */
    const char *begin = text->len == 0 ? NULL : memmem(prompt->text, prompt->len, text->v, text->len);
    size_t before = begin == NULL ? 0 : utf8_count(prompt->text, (size_t)(begin - prompt->text));
    size_t at = utf8_count(prompt->text, prompt->ends[0]);
    for (size_t i = 0; i < answer->n_prompt_logprobs; i++) {
        struct token_logprobs *logprobs = answer->prompt_logprobs[i];
        size_t offset = at < before ? 0 : at - before;
        add(&tokens, logprobs, offset < tokens.at ? offset : tokens.at);
        at += utf8_count(logprobs->v[0].bytes, logprobs->v[0].n_bytes);
    }
    return tokens;
}

void echo_tokens_add(struct echo_tokens *tokens, struct token_logprobs *const *logprobs, size_t n)
{
    reserve(tokens, n);
    for (size_t i = 0; i < n; i++) {
        add(tokens, logprobs[i], tokens->at);
        tokens->at += utf8_count(logprobs[i]->v[0].bytes, logprobs[i]->v[0].n_bytes);
    }
}

void echo_tokens_release(struct echo_tokens *tokens)
{
    free(tokens->first);
    free(tokens->v);
    free(tokens->offsets);
}
