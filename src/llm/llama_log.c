/* Starts llama.cpp's backends and receives its log: every line goes to hearth's log, and failures and buffer sizes into
 * the capture of the thread that logged them (llm_log_capture_begin). Lines come on any thread; all state here is
 * thread-local. All that reads the texts of llama.cpp's log is here. */
#include "llm/llama_log.h"

#include "base/log.h"
#include "base/memory.h"
#include "llm/backends.h"
#include "llm/model.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The log ---- */

/* llama.cpp may log a line in several calls: it is complete at its newline. Longer lines are truncated. */
struct pending_line {
    char text[1024];
    size_t len;
    enum ggml_log_level level;
};

static _Thread_local struct pending_line pending;
static _Thread_local struct llm_log_capture *capture;
static _Thread_local bool quiet;

void llm_log_capture_begin(struct llm_log_capture *captured)
{
    assert(captured != NULL && capture == NULL);
    *captured = (struct llm_log_capture){0};
    capture = captured;
}

void llm_log_capture_end(void)
{
    capture = NULL;
}

void llm_log_quiet(bool on)
{
    quiet = on;
}

static void parse_buffer_size(struct llm_log_capture *captured, const char *line)
{
    static const struct {
        const char *phrase;
        size_t member;
    } sizes[] = {
        {"model buffer size = ", offsetof(struct llm_log_capture, weights)},
        {"KV buffer size = ", offsetof(struct llm_log_capture, cells)},
        {"RS buffer size = ", offsetof(struct llm_log_capture, cells)},
        {"state buffer size = ", offsetof(struct llm_log_capture, cells)},
        {"compute buffer size = ", offsetof(struct llm_log_capture, compute)},
        {"output buffer size = ", offsetof(struct llm_log_capture, compute)},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *at = strstr(line, sizes[i].phrase);
        if (at == NULL) continue;
        uint64_t *sum = (uint64_t *)(void *)((char *)captured + sizes[i].member);
        *sum += (uint64_t)(strtod(at + strlen(sizes[i].phrase), NULL) * 1024 * 1024);
        return;
    }
}

/* Layers are logged one by one, first those that attend to the whole window, then those with a sliding window. */
static void parse_layer(struct llm_log_capture *captured, const char *line)
{
    static const char start[] = "llama_kv_cache: layer ";
    if (strstr(line, " SWA KV cache, size") != NULL) captured->in_swa = true;
    if (strstr(line, " non-SWA KV cache, size") != NULL) captured->in_swa = false;
    if (strncmp(line, start, strlen(start)) != 0 || strstr(line, ": dev = ") == NULL) return;
    long layer = strtol(line + strlen(start), NULL, 10);
    if (layer < 0 || layer >= captured->layers->n_layer) return;
    captured->layers->cells[layer] = true;
    captured->layers->is_swa[layer] = captured->in_swa;
}

static void parse_number(const char *line, const char *name, double *number)
{
    const char *at = strstr(line, name);
    const char *equals = at == NULL ? NULL : strchr(at, '=');
    if (equals != NULL) *number = strtod(equals + 1, NULL);
}

static void parse_line(struct llm_log_capture *captured, enum ggml_log_level level, const char *line)
{
    if (level == GGML_LOG_LEVEL_ERROR && captured->reason[0] == '\0') {
        /* "llama_kv_cache: failed to …" without the function's name, which means nothing to a user. */
        const char *colon = strstr(line, ": "), *reason = line;
        if (colon != NULL && memchr(line, ' ', (size_t)(colon - line)) == NULL) reason = colon + 2;
        static const char verb[] = "error loading model: ";
        if (strncmp(reason, verb, strlen(verb)) == 0) reason += strlen(verb);
        snprintf(captured->reason, sizeof captured->reason, "%.*s", (int)sizeof captured->reason - 1, reason);
        captured->no_memory = strstr(captured->reason, "alloc") != NULL;
        captured->unknown_architecture = strstr(captured->reason, "unknown model architecture") != NULL;
    }
    if (strstr(line, "Flash Attention not supported") != NULL || strstr(line, "flash_attn is not compatible") != NULL)
        captured->flash_attention_refused = true;
    parse_buffer_size(captured, line);
    if (captured->layers != NULL) parse_layer(captured, line);
    parse_number(line, "llama_context: freq_base ", &captured->freq_base);
    parse_number(line, "llama_context: freq_scale ", &captured->freq_scale);
}

static void end_line(void)
{
    pending.text[pending.len] = '\0';
    if (pending.len > 0) {
        /* Failures during a capture or a decode are reported by hearth itself, once and in its own words. */
        bool reported = capture != NULL || quiet;
        enum log_level level = LOG_DEBUG;
        if (!reported && pending.level == GGML_LOG_LEVEL_ERROR) level = LOG_ERROR;
        if (!reported && pending.level == GGML_LOG_LEVEL_WARN) level = LOG_WARN;
        log_event(level, "llama.cpp", pending.text);
        if (capture != NULL) parse_line(capture, pending.level, pending.text);
    }
    pending.len = 0;
}

void llm_on_log(enum ggml_log_level level, const char *text, void *ud)
{
    (void)ud;
    if (level != GGML_LOG_LEVEL_CONT) {
        end_line();
        pending.level = level;
    }
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            end_line();
        else if (pending.len < sizeof pending.text - 1)
            pending.text[pending.len++] = *text;
    }
}

/* ---- Starting ---- */

/* ggml would write the message to standard error, and have a debugger, if one is installed, look at the process. */
static void on_abort(const char *message)
{
    log_event(LOG_ERROR, "llama.cpp", "cannot go on", log_str("reason", message));
}

static void start(void)
{
    llama_log_set(llm_on_log, NULL);
    ggml_set_abort_callback(on_abort);
    if (ggml_backend_reg_count() == 0) llm_load_backends(NULL); /* a portable build */
    /* Without any it would look for some in the working directory. */
    if (ggml_backend_reg_count() > 0) llama_backend_init();
}

void llm_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

const char *llm_version(void)
{
    return llama_version();
}

/* ---- Asking by trying ---- */

/* How much memory a token and a sequence need is found by opening the smallest possible context. Model files name these
 * sizes differently in each architecture, or leave them to llama.cpp's code. No function of its C interface returns
 * them. */

/* Bytes of the checkpoint of an empty sequence, in this order (llm/state_layout.h):
 *
 *     header 8 | with a sliding window: an empty window 8 | with recurrent layers: 12, then for each state an entry of
 * 12
 *
 * The last 4 bytes of an entry are the size of its state. */
enum { CHECKPOINT_HEADER = 8, EMPTY_WINDOW = 8, BEFORE_ENTRIES = 12, ENTRY = 12, SIZE_IN_ENTRY = 4 };

static uint64_t sum_states(struct llama_context *context, bool has_window)
{
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    size_t size = llama_state_seq_get_size_ext(context, 0, flags), at = CHECKPOINT_HEADER + BEFORE_ENTRIES;
    uint8_t *bytes = mem_alloc(size + 1);
    uint64_t sum = 0, of_one;
    if (has_window) at += EMPTY_WINDOW;
    bool known = llama_state_seq_get_data_ext(context, bytes, size, 0, flags) == size && at < size;
    for (known = known && (size - at) % ENTRY == 0; known && at < size; at += ENTRY) {
        memcpy(&of_one, bytes + at + SIZE_IN_ENTRY, sizeof of_one);
        sum += of_one;
    }
    free(bytes);
    return sum;
}

bool llm_probe(struct llama_model *handle, struct llm_layer_memory *layers)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_seq_max = 1;
    params.kv_unified = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.no_perf = true;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    captured.layers = layers;
    struct llama_context *context = llama_init_from_model(handle, params);
    llm_log_capture_end();
    if (context == NULL) return false;
    bool recurrent = llama_model_is_recurrent(handle) || llama_model_is_hybrid(handle);
    if (recurrent) layers->state_bytes = sum_states(context, llama_model_n_swa(handle) > 0);
    llama_free(context);
    return true;
}
