/* Fuzzes bodies of POST /api/chat and /api/generate. */
#include "fuzz_body.h"
#include "serve/ollama/ollama.h"

/* Checks that each line of a stream is an object. */
static void require_lines(const struct dialect *dialect, void *state)
{
    static const hearth_delta deltas[] = {{.type = HEARTH_DELTA_CALL, .id = "c", .name = "d"},
                                          {.type = HEARTH_DELTA_ARGUMENTS, .text = "{}", .len = 2},
                                          {.type = HEARTH_DELTA_CONTENT, .text = "a\"", .len = 2}};
    struct answer reply = {0};
    struct buf out = {0};
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
        struct exchange_piece piece = {.delta = &deltas[i], .token = -1, .answer = &reply};
        answer_add(&reply, &deltas[i]);
        dialect->more(state, &piece, &out);
    }
    dialect->ping(state, &out);
    dialect->done(state, 0, &reply, &out);
    for (char *line = out.v, *end; line < out.v + out.len; line = end + 1) {
        struct buf object = {0};
        end = strchr(line, '\n');
        require(end != NULL);
        buf_append(&object, line, (size_t)(end - line));
        require_json(&object);
        buf_release(&object);
    }
    buf_release(&out);
    answer_release(&reply);
}

static void answer_request(struct ollama_request *request)
{
    const char *model = request->model == NULL ? "" : request->model;
    size_t n;
    if (request->fields != NULL) {
        hearth_params *choices = fields_choices(request->fields, &n);
        require(n == 1);
        check_choice(&choices[0]);
        free(choices);
    }
    require(ollama_size(request) > 0);
    void *state = ollama_state(model, request->is_chat);
    require_lines(&ollama_dialect, state);
    ollama_dialect.release(state);
    answer(&ollama_dialect, ollama_state(model, request->is_chat), 1, request->is_chat);
    ollama_close(request);
}

static void read_as(bool is_chat, const uint8_t *data, size_t size)
{
    hearth_error error = {0};
    struct buf out = {0};
    json_t *body = fields_parse((const char *)data, size, &error);
    struct ollama_request *request = body == NULL ? NULL : ollama_read(body, is_chat, &error);
    if (request != NULL) {
        answer_request(request);
        return;
    }
    require(error.code != HEARTH_OK && error.message[0] != '\0');
    ollama_put_error(&out, &error, NULL);
    require_json(&out);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as(true, data, size);
    read_as(false, data, size);
    return 0;
}
