/* Fuzzes the bodies of all routes that take one, over a real socket: the first byte chooses the route. The server
 * must answer every input with JSON, a stream of events or a text, and with a status that the route may have. */
#include "unit/serve/harness.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const routes[] = {"/v1/chat/completions",
                                     "/v1/completions",
                                     "/v1/responses",
                                     "/v1/messages",
                                     "/v1/messages/count_tokens",
                                     "/v1/embeddings",
                                     "/embedding",
                                     "/v1/rerank",
                                     "/v2/rerank",
                                     "/completion",
                                     "/infill",
                                     "/tokenize",
                                     "/detokenize",
                                     "/apply-template",
                                     "/v1/chat/completions/input_tokens",
                                     "/responses/input_tokens",
                                     "/v1/chat/completions/render",
                                     "/v1/completions/render",
                                     "/cache/lookup",
                                     "/lora-adapters",
                                     "/models/load",
                                     "/models/unload",
                                     "/props",
                                     "/slots/0",
                                     "/api/chat",
                                     "/api/generate",
                                     "/api/embed",
                                     "/api/embeddings",
                                     "/api/show",
                                     "/api/pull",
                                     "/v1/audio/transcriptions"};

/* Routes that take JSON do not look at the type. */
#define FORM     "Content-Type: multipart/form-data; boundary=b\r\n"

#define N_ROUTES (sizeof routes / sizeof *routes)

static struct client client;

/* One server for all inputs. */
static void start(void)
{
    static const char *const texts[] = {"~rHm", "a\"b", "~clook", "~a{\"at\":1}"};
    static const struct fake_script script = {.texts = texts, .n_texts = 4, .result = {.cache_n = 1, .prompt_n = 2}};
    static struct harness harness;
    fake_reset();
    fake_take_sounds(true);
    fake_play(&script);
    harness.limits = exchange_limits_default;
    hearth_error error;
    hearth_log_open("/dev/null", "error", "text", &error);
    client = harness_start(&harness);
}

static struct response post(const char *route, const uint8_t *body, size_t size)
{
    struct buf out = {0};
    buf_printf(&out, "POST %s HTTP/1.1\r\nHost: localhost\r\n" FORM "Content-Length: %zu\r\n\r\n", route, size);
    buf_append(&out, body, size);
    if (send(client.fd, out.v, out.len, MSG_NOSIGNAL) != (ssize_t)out.len) abort();
    buf_release(&out);
    return client_read(&client, true);
}

static void check(const struct response *response)
{
    static const int known[] = {200, 400, 404, 501, 503};
    const char *type = response_header(response, "Content-Type");
    bool good = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) good = good || response->status == known[i];
    if (!good || type == NULL) abort();
    static const char *const others[] = {"text/event-stream", "application/x-ndjson", "text/plain"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(type, others[i], strlen(others[i])) == 0) return;
    json_t *json = json_loadb(response->body.v, response->body.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (json == NULL) abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (client.fd == 0) start();
    struct response response = post(routes[data[0] % N_ROUTES], data + 1, size - 1);
    check(&response);
    response_release(&response);
    return 0;
}
