/* "generation_settings": see native.h. */
#include "serve/native/native.h"

#include "base/utf8.h"
#include "serve/core/pieces.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* llama-server's value for a random seed. */
#define RANDOM_SEED 4294967295

static void put_strings(struct buf *out, const char *name, const char *const *list, size_t n)
{
    buf_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        utf8_put_json_string(out, list[i], strlen(list[i]));
    }
    buf_puts(out, "]");
}

/* ---- Sampling ---- */

#define AT(member) offsetof(hearth_sampling, member)

static const struct {
    const char *name;
    size_t offset;
    bool whole; /* an int32_t; else a double */
} members[] = {
#define NUMBER(name, ...)  {#name, AT(name), false},
#define INTEGER(name, ...) {#name, AT(name), true},
    HEARTH_SAMPLING_TABLE(NUMBER, INTEGER)};

/* `null` forbids the token, as llama-server writes it: JSON has no infinity. */
static void put_bias(struct buf *out, const hearth_bias *bias, bool first)
{
    buf_puts(out, first ? "{\"bias\":" : ",{\"bias\":");
    if (isfinite(bias->bias))
        buf_printf(out, "%.9g", (double)bias->bias);
    else
        buf_puts(out, "null");
    buf_printf(out, ",\"token\":%d}", bias->token);
}

void settings_put_sampling(struct buf *out, const hearth_sampling *sampling)
{
    buf_printf(out, "\"seed\":%lld", sampling->seed < 0 ? (long long)RANDOM_SEED : (long long)sampling->seed);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *at = (const char *)sampling + members[i].offset;
        int32_t whole = 0;
        double real = 0;
        if (members[i].whole)
            memcpy(&whole, at, sizeof whole);
        else
            memcpy(&real, at, sizeof real);
        if (members[i].whole && whole != HEARTH_UNSET) buf_printf(out, ",\"%s\":%d", members[i].name, whole);
        if (!members[i].whole && isfinite(real)) buf_printf(out, ",\"%s\":%.9g", members[i].name, real);
    }
    if (sampling->dry_breakers != NULL)
        put_strings(out, "dry_sequence_breakers", sampling->dry_breakers, sampling->n_dry_breakers);
    if (sampling->samplers != NULL) put_strings(out, "samplers", sampling->samplers, sampling->n_samplers);
    buf_printf(out, ",\"ignore_eos\":%s", sampling->ignore_eos ? "true" : "false");
    buf_puts(out, ",\"logit_bias\":[");
    for (size_t i = 0; i < sampling->n_logit_bias; i++) put_bias(out, &sampling->logit_bias[i], i == 0);
    for (size_t i = 0; i < sampling->n_ending; i++)
        put_bias(out, &(hearth_bias){.token = sampling->ending[i], .bias = -INFINITY},
                 i == 0 && sampling->n_logit_bias == 0);
    buf_puts(out, "]");
}

/* ---- Other parameters ---- */

static void put_bool(struct buf *out, const char *name, bool value)
{
    buf_printf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

/* Parameters of llama-server that hearth lacks have the value that turns them off. */
void settings_put_request(struct buf *out, const struct fields *fields)
{
    const hearth_params *p = &fields->params;
    int32_t most = p->max_tokens == HEARTH_UNSET ? -1 : p->max_tokens;
    buf_printf(out, "\"max_tokens\":%d,\"n_predict\":%d,\"n_keep\":0,\"n_discard\":0,\"n_probs\":%d", most, most,
               p->top_logprobs < 0 ? 0 : p->top_logprobs);
    put_strings(out, "stop", p->stop, p->n_stop);
    put_bool(out, "stream", fields->stream);
    put_bool(out, "timings_per_token", fields->timings_per_token);
    put_bool(out, "post_sampling_probs", p->post_sampling_probs);
    put_bool(out, "backend_sampling", false);
    member_puts(out, "grammar", p->grammar == NULL ? "" : p->grammar);
    put_bool(out, "grammar_lazy", false);
    buf_puts(out, ",\"grammar_triggers\":[],\"preserved_tokens\":[],\"chat_format\":\"Content-only\","
                  "\"reasoning_format\":\"none\",\"reasoning_in_content\":false,\"generation_prompt\":\"\","
                  "\"speculative.types\":\"none\"");
    buf_puts(out, ",\"lora\":[");
    for (size_t i = 0; i < p->n_lora; i++)
        buf_printf(out, "%s{\"id\":%d,\"scale\":%.9g}", i == 0 ? "" : ",", p->lora[i].id, p->lora[i].scale);
    buf_puts(out, "]");
}
