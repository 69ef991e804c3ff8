/* Sampling parameters: see sampling.h. One table has of each number its member of hearth_sampling, its range, its
 * configuration key and its GGUF key. */
#include "instance/parameters/parameters.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "config/table.h"
#include "llm/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "models.*.sampling." name
static const struct number {
    size_t offset;
    bool whole;                /* int32_t, else double */
    bool advised;              /* a model's file may say it */
    double low, top;           /* its range */
    const char *key, *in_file; /* of the configuration, and of the model's file */
} numbers[] = {
#define ROW(whole_, name, low_, top_, in_file_)                                                                        \
    {.offset = offsetof(hearth_sampling, name),                                                                        \
     .whole = (whole_),                                                                                                \
     .low = (low_),                                                                                                    \
     .top = (top_),                                                                                                    \
     .key = KEY(#name),                                                                                                \
     .advised = sizeof(in_file_) > 1,                                                                                  \
     .in_file = "general.sampling." in_file_},
#define NUMBER(name, default_, low, top, in_file, meaning)  ROW(false, name, low, top, in_file)
#define INTEGER(name, default_, low, top, in_file, meaning) ROW(true, name, low, top, in_file)
    HEARTH_SAMPLING_TABLE(NUMBER, INTEGER)};

#define N_NUMBERS (sizeof numbers / sizeof *numbers)

/* ---- Checks ---- */

static const char *name_of(const struct number *number)
{
    return number->key + strlen(KEY(""));
}

/* False: it is not given. */
static bool given_number(const struct number *number, const hearth_sampling *sampling, double *value)
{
    const void *field = (const char *)sampling + number->offset;
    const int32_t *whole = field;
    const double *real = field;
    *value = number->whole ? (double)*whole : *real;
    return number->whole ? *whole != HEARTH_UNSET : !isnan(*real);
}

static int check_biases(const hearth_sampling *s, int32_t n_vocab, hearth_error *error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const hearth_bias *bias = &s->logit_bias[i];
        bytes += bias->text == NULL ? 0 : strlen(bias->text);
        if (bias->text == NULL && (bias->token < 0 || bias->token >= n_vocab))
            return error_at(error, HEARTH_INVALID, "logit_bias", "token %d is not in the vocabulary (0 to %d)",
                            bias->token, n_vocab - 1);
    }
    if (bytes <= HEARTH_BIAS_BYTES) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, "logit_bias", "the texts of 'logit_bias' have %zu bytes: at most %d", bytes,
                    HEARTH_BIAS_BYTES);
}

int sampling_check(const hearth_sampling *sampling, int32_t n_vocab, hearth_error *error)
{
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct number *number = &numbers[i];
        double value;
        if (!given_number(number, sampling, &value) || (value >= number->low && value <= number->top)) continue;
        return error_at(error, HEARTH_INVALID, name_of(number), "'%s' must be a number from %g to %g", name_of(number),
                        number->low, number->top);
    }
    int rc = check_biases(sampling, n_vocab, error);
    if (rc != HEARTH_OK) return rc;
    /* Each once: some go through the whole vocabulary, on the engine's thread. */
    for (size_t i = 0; i < sampling->n_samplers; i++) {
        const char *name = llm_sampler_name(sampling->samplers[i]);
        if (name == NULL)
            return error_at(error, HEARTH_INVALID, "samplers", "there is no sampler '%s': docs/sampling.md lists them",
                            sampling->samplers[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(llm_sampler_name(sampling->samplers[k]), name) == 0)
                return error_at(error, HEARTH_INVALID, "samplers", "the sampler '%s' is named twice", name);
    }
    return HEARTH_OK;
}

int sampling_check_config(const struct config_model *config, hearth_error *error)
{
    const struct config_strings *names = &config->sampling.samplers;
    for (size_t i = 0; i < names->len; i++) {
        if (llm_sampler_name(names->v[i]) != NULL) continue;
        error_at(error, HEARTH_INVALID, "",
                 "models.%s.sampling.samplers: there is no sampler '%s': docs/sampling.md lists "
                 "them",
                 config->name, names->v[i]);
        snprintf(error->param, sizeof error->param, "models.%s.sampling.samplers", config->name);
        return HEARTH_INVALID;
    }
    return HEARTH_OK;
}

/* ---- Completing what is not given ---- */

void sampling_take(hearth_sampling *sampling, const hearth_sampling *others)
{
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct number *number = &numbers[i];
        double value;
        if (given_number(number, sampling, &value) || !given_number(number, others, &value)) continue;
        memcpy((char *)sampling + number->offset, (const char *)others + number->offset,
               number->whole ? sizeof(int32_t) : sizeof(double));
    }
    if (sampling->seed < 0) sampling->seed = others->seed;
}

static void complete_lists(hearth_sampling *all, const struct config_model *config, const struct llm_model *model)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const struct llm_model_info *info = llm_model_info(model);
    const struct config_strings *breakers = &config->sampling.dry_sequence_breakers,
                                *order = &config->sampling.samplers;
    if (all->dry_breakers == NULL) {
        all->dry_breakers = breakers->len > 0 ? (const char *const *)breakers->v : usual;
        all->n_dry_breakers = breakers->len > 0 ? breakers->len : sizeof usual / sizeof *usual;
    }
    if (all->samplers != NULL) return;
    bool advised = info->samplers != NULL && !config_is_set(config->notes, KEY("samplers"));
    all->samplers = advised ? info->samplers : (const char *const *)order->v;
    all->n_samplers = advised ? info->n_samplers : order->len;
}

hearth_sampling sampling_complete(const hearth_sampling *given, const struct config_model *config,
                                  const struct llm_model *model)
{
    hearth_sampling all = *given;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct number *number = &numbers[i];
        void *field = (char *)&all + number->offset;
        double value;
        if (given_number(number, given, &value)) continue;
        bool advised = number->advised && !config_is_set(config->notes, number->key);
        if (!advised || !llm_model_number(model, number->in_file, &value)) {
            const struct config_row *row = config_row_find(number->key);
            const void *configured = config_field(row, config);
            value = row->type == CONFIG_INT ? (double)*(const int64_t *)configured : *(const double *)configured;
        }
        if (number->whole)
            *(int32_t *)field = value >= INT32_MAX ? INT32_MAX : value <= -1 ? -1 : (int32_t)value;
        else
            *(double *)field = value;
    }
    complete_lists(&all, config, model);
    const struct llm_model_info *info = llm_model_info(model);
    all.ending = all.ignore_eos ? info->ending : NULL;
    all.n_ending = all.ignore_eos ? info->n_ending : 0;
    if (all.temperature < 0) all.temperature = 0; /* means the same, and has the same range around it */
    if (all.seed < 0) all.seed = config->sampling.seed;
    if (all.seed < 0) {
        uint32_t random = 0;
        os_random(&random, sizeof random);
        all.seed = random;
    }
    return all;
}

/* ---- Biases of texts ---- */

hearth_bias *sampling_spell_biases(hearth_sampling *sampling, const struct llm_model *model)
{
    struct tokens tokens = {0};
    hearth_bias *all = NULL;
    size_t n = 0;
    bool has_texts = false;
    for (size_t i = 0; i < sampling->n_logit_bias; i++) has_texts = has_texts || sampling->logit_bias[i].text != NULL;
    if (!has_texts) return NULL;
    for (size_t i = 0; i < sampling->n_logit_bias; i++) {
        const hearth_bias *given = &sampling->logit_bias[i];
        tokens.len = 0;
        if (given->text == NULL)
            tokens_push(&tokens, given->token);
        else
            llm_tokenize(model, given->text, strlen(given->text), false, false, &tokens);
        all = mem_grow(all, n + tokens.len + 1, sizeof *all);
        for (size_t k = 0; k < tokens.len; k++) all[n++] = (hearth_bias){.token = tokens.v[k], .bias = given->bias};
    }
    tokens_release(&tokens);
    sampling->logit_bias = all;
    sampling->n_logit_bias = n;
    return all;
}
