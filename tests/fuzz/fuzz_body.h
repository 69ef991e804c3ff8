/* Shared by the fuzzers of request bodies: parses the input as a body, and answers it if it is a valid request.
 * Parsed values must be within the ranges of the table of fields, and answers must be JSON. */
#ifndef FUZZ_FUZZ_BODY_H
#define FUZZ_FUZZ_BODY_H

#include "base/json_text.h"
#include "serve/openai/openai.h"

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

/* Checks that each medium has a field, and either bytes, a fault or a URL, and that the parts name them in order, each
 * once. */
static inline void check_media(const hearth_params *p)
{
    const json_t *messages = json_text_tree(p->messages);
    json_t *message, *part;
    json_int_t next = 0;
    size_t i, k;
    for (size_t m = 0; m < p->n_media; m++) {
        require((p->media[m].len > 0) + (p->media[m].fault != NULL) + (p->media[m].url != NULL) == 1);
        require(p->media[m].field[0] != '\0');
        require((p->media[m].bytes != NULL) == (p->media[m].len > 0));
    }
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "content"), k, part)
        {
            const json_t *medium = json_object_get(part, "media");
            if (medium == NULL) continue;
            require(json_is_integer(medium) && json_integer_value(medium) == next++);
        }
    }
    require(next == (json_int_t)p->n_media);
}

static inline void check_choice(const hearth_params *p)
{
    check_media(p);
    require((p->messages != NULL) + (p->text != NULL) + (p->tokens != NULL) + (p->parts != NULL) == 1);
    require(!(p->sampling.temperature < 0) && !(p->sampling.temperature > 100));
    require(!(p->sampling.top_p < 0) && !(p->sampling.top_p > 1));
    require(p->n_stop <= FIELDS_STOP_MAX);
    require(p->max_tokens >= 0 || p->max_tokens == HEARTH_UNSET);
    for (size_t i = 0; i < p->n_stop; i++) require(p->stop[i][0] != '\0');
    for (size_t i = 0; i < p->n_tokens; i++) require(p->tokens[i] >= 0);
    for (size_t i = 0; i < p->sampling.n_logit_bias; i++)
        require(p->sampling.logit_bias[i].token >= 0 && p->sampling.logit_bias[i].bias <= 100);
}

/* Checks that each line of a stream is an event name, JSON, or empty. */
static inline void require_events(const struct buf *out)
{
    for (const char *line = out->v; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        size_t len = strcspn(line, "\n");
        struct buf data = {0};
        require(line[len] == '\n');
        if (strncmp(line, "data: ", 6) != 0 || strncmp(line, "data: [DONE]", 12) == 0) continue;
        buf_append(&data, line + 6, len - 6);
        require_json(&data);
        buf_release(&data);
    }
}

/* Answers with a reply that has each kind of delta, streamed and whole. */
static inline void answer(const struct dialect *dialect, void *state, size_t n, bool is_chat)
{
    static const hearth_delta deltas[] = {{.type = HEARTH_DELTA_CONTENT, .text = "a\"", .len = 2},
                                          {.type = HEARTH_DELTA_REASONING, .text = "b", .len = 1},
                                          {.type = HEARTH_DELTA_CALL, .id = "c", .name = "d"},
                                          {.type = HEARTH_DELTA_ARGUMENTS, .text = "{\"", .len = 2}};
    static const hearth_sampling picks;
    struct answer *answers = calloc(n, sizeof *answers), *last = &answers[n - 1];
    for (size_t i = 0; i < n; i++) answers[i].sampling = &picks;
    struct buf out = {0};
    dialect->started(state, n - 1, &last->result, &out);
    for (size_t i = 0; i < (is_chat ? 4 : 1); i++) {
        struct exchange_piece piece = {.index = n - 1, .delta = &deltas[i], .token = -1, .answer = last};
        answer_add(last, &deltas[i]);
        dialect->more(state, &piece, &out);
    }
    last->done = true;
    dialect->done(state, n - 1, last, &out);
    dialect->ended(state, answers, n, &out);
    require_events(&out);
    buf_clear(&out);
    dialect->whole(state, answers, n, &out);
    require_json(&out);
    dialect->release(state);
    answer_release(last);
    buf_release(&out);
    free(answers);
}

/* An API under test: its body converter and its dialect. */
struct fuzz_api {
    int route;
    const struct fields_api *fields; /* NULL: the body is OpenAI's */
    const struct dialect *dialect;
    void *(*open)(const struct fields *fields,
                  const json_t *given); /* `given`: the client's JSON; NULL if the body is OpenAI's */
};

static inline int fuzz_body(const struct fuzz_api *api, const uint8_t *data, size_t size)
{
    hearth_error error = {0};
    json_t *body = fields_parse((const char *)data, size, &error);
    struct fields *fields = body == NULL ? NULL : fields_open_tree(json_incref(body), api->route, api->fields, &error);
    if (fields == NULL) {
        json_decref(body);
        struct buf out = {0};
        require(error.code != HEARTH_OK && error.message[0] != '\0');
        api->dialect->error(&out, &error, "req-1");
        require_json(&out);
        buf_release(&out);
        return 0;
    }
    size_t n;
    hearth_params *choices = fields_choices(fields, &n);
    require(n >= 1 && n <= FIELDS_CHOICES_MAX);
    require(n == 1 || api->fields == NULL);
    for (size_t i = 0; i < n; i++) check_choice(&choices[i]);
    free(choices);
    answer(api->dialect, api->open(fields, body), n, api->route == FIELDS_CHAT);
    fields_close(fields);
    json_decref(body);
    return 0;
}

#endif
