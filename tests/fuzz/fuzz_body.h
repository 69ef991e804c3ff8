/* What the fuzzers of request bodies share: a body is read, and where it is a request, it is answered. What is read
 * has to be within the ranges of the table, and what is written has to be JSON. */
#ifndef FUZZ_FUZZ_BODY_H
#define FUZZ_FUZZ_BODY_H

#include "serve/openai.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(int holds)
{
    if (!holds) abort();
}

static inline void require_json(const struct buf *text)
{
    json_t *json = json_loadb(text->v, text->len, JSON_ALLOW_NUL, NULL);
    require(json != NULL);
    json_decref(json);
}

static inline void check_choice(const hearth_params *p)
{
    require((p->messages_json != NULL) + (p->text != NULL) + (p->tokens != NULL) == 1);
    require(!(p->temperature < 0) && !(p->temperature > 100));
    require(!(p->top_p < 0) && !(p->top_p > 1));
    require(p->n_stop <= FIELDS_STOP_MAX);
    require(p->max_tokens >= 0 || p->max_tokens == HEARTH_UNSET);
    for (size_t i = 0; i < p->n_stop; i++) require(p->stop[i][0] != '\0');
    for (size_t i = 0; i < p->n_tokens; i++) require(p->tokens[i] >= 0);
    for (size_t i = 0; i < p->n_logit_bias; i++) require(p->logit_bias[i].token >= 0 && p->logit_bias[i].bias <= 100);
}

static inline void answer(const struct openai_form *form, const struct fields *fields, size_t n)
{
    struct openai_names names = {fields->params.model != NULL ? fields->params.model : "demo", "id", 1};
    struct exchange_reply *replies = calloc(n, sizeof *replies);
    struct buf out = {0};
    void *state = openai_state(form, fields, &names);
    openai_dialect.started(state, n - 1, &out);
    openai_dialect.done(state, n - 1, &replies[n - 1].result, &out);
    openai_dialect.ended(state, replies, n, &out);
    buf_clear(&out);
    openai_dialect.whole(state, replies, n, &out);
    require_json(&out);
    openai_dialect.release(state);
    buf_release(&out);
    free(replies);
}

static inline int fuzz_body(const struct openai_form *form, const uint8_t *data, size_t size)
{
    struct fields fields;
    hearth_error error = {0};
    if (fields_read(&fields, form->route, (const char *)data, size, &error) != HEARTH_OK) {
        struct buf out = {0};
        require(error.code < 0 && error.message[0] != '\0');
        openai_dialect.error(&out, &error);
        require_json(&out);
        buf_release(&out);
        return 0;
    }
    size_t n;
    hearth_params *choices = fields_choices(&fields, &n);
    require(n >= 1 && n <= FIELDS_CHOICES_MAX);
    for (size_t i = 0; i < n; i++) check_choice(&choices[i]);
    free(choices);
    answer(form, &fields, n);
    fields_release(&fields);
    return 0;
}

#endif
