/* Starts llama.cpp and listens to its log: every line goes to ours, and what it says about failures and buffer sizes
 * goes to the thread that asked for it (llm_listen). Lines come on any thread; what is collected is per thread. */
#include "base/log.h"
#include "llm/llm_parts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* llama.cpp sends a line in several pieces at times: it is complete at its newline. What does not fit is cut off. */
struct pending_line {
    char text[1024];
    size_t len;
    enum ggml_log_level level;
};

static _Thread_local struct pending_line pending;
static _Thread_local struct llm_heard *listener;
static _Thread_local bool hushed;

void llm_listen(struct llm_heard *heard)
{
    *heard = (struct llm_heard){0};
    listener = heard;
}

void llm_listen_end(void)
{
    listener = NULL;
}

void llm_hush(bool on)
{
    hushed = on;
}

/* "llama_kv_cache: failed to …" without the function, which says nothing to a user. */
static const char *without_function(const char *line)
{
    const char *colon = strstr(line, ": ");
    if (colon == NULL || memchr(line, ' ', (size_t)(colon - line)) != NULL) return line;
    return colon + 2;
}

static void hear_size(struct llm_heard *heard, const char *line)
{
    static const struct {
        const char *phrase;
        size_t member;
    } sizes[] = {
        {"model buffer size = ", offsetof(struct llm_heard, weights)},
        {"KV buffer size = ", offsetof(struct llm_heard, cells)},
        {"RS buffer size = ", offsetof(struct llm_heard, cells)},
        {"state buffer size = ", offsetof(struct llm_heard, cells)},
        {"compute buffer size = ", offsetof(struct llm_heard, compute)},
        {"output buffer size = ", offsetof(struct llm_heard, compute)},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *at = strstr(line, sizes[i].phrase);
        if (at == NULL) continue;
        uint64_t *sum = (uint64_t *)(void *)((char *)heard + sizes[i].member);
        *sum += (uint64_t)(strtod(at + strlen(sizes[i].phrase), NULL) * 1024 * 1024);
        return;
    }
}

/* Layers are told one by one, first those that look at the whole window, then those with a sliding one. */
static void hear_layer(struct llm_heard *heard, const char *line)
{
    static const char start[] = "llama_kv_cache: layer ";
    if (strstr(line, " SWA KV cache, size") != NULL) heard->sliding = true;
    if (strstr(line, " non-SWA KV cache, size") != NULL) heard->sliding = false;
    if (strncmp(line, start, strlen(start)) != 0 || strstr(line, ": dev = ") == NULL) return;
    long layer = strtol(line + strlen(start), NULL, 10);
    if (layer < 0 || layer >= heard->kept->n_layer) return;
    heard->kept->cells[layer] = true;
    heard->kept->slides[layer] = heard->sliding;
}

static void hear_number(const char *line, const char *name, double *number)
{
    const char *at = strstr(line, name);
    const char *equals = at == NULL ? NULL : strchr(at, '=');
    if (equals != NULL) *number = strtod(equals + 1, NULL);
}

static void hear(struct llm_heard *heard, enum ggml_log_level level, const char *line)
{
    if (level == GGML_LOG_LEVEL_ERROR && heard->reason[0] == '\0') {
        const char *reason = without_function(line);
        static const char verb[] = "error loading model: ";
        if (strncmp(reason, verb, strlen(verb)) == 0) reason += strlen(verb);
        snprintf(heard->reason, sizeof heard->reason, "%.*s", (int)sizeof heard->reason - 1, reason);
    }
    if (strstr(line, "Flash Attention not supported") != NULL || strstr(line, "flash_attn is not compatible") != NULL)
        heard->flash_attention_refused = true;
    hear_size(heard, line);
    if (heard->kept != NULL) hear_layer(heard, line);
    hear_number(line, "llama_context: freq_base ", &heard->freq_base);
    hear_number(line, "llama_context: freq_scale ", &heard->freq_scale);
}

/* What goes wrong while somebody listens, or in a decode, is reported by hearth itself, once and in its own words. */
static enum log_level level_of(enum ggml_log_level level)
{
    if (listener != NULL || hushed) return LOG_DEBUG;
    if (level == GGML_LOG_LEVEL_ERROR) return LOG_ERROR;
    return level == GGML_LOG_LEVEL_WARN ? LOG_WARN : LOG_DEBUG;
}

static void finish_line(void)
{
    pending.text[pending.len] = '\0';
    if (pending.len > 0) {
        log_event(level_of(pending.level), "llama.cpp", pending.text);
        if (listener != NULL) hear(listener, pending.level, pending.text);
    }
    pending.len = 0;
}

static void on_log(enum ggml_log_level level, const char *text, void *ud)
{
    (void)ud;
    if (level != GGML_LOG_LEVEL_CONT) {
        finish_line();
        pending.level = level;
    }
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            finish_line();
        else if (pending.len < sizeof pending.text - 1)
            pending.text[pending.len++] = *text;
    }
}

static void start(void)
{
    llama_log_set(on_log, NULL);
    llama_backend_init();
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
