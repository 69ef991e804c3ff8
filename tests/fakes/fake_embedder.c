/* One mutex guards everything. A held call polls its abort callback every millisecond, as llama.cpp does at every node
 * of its graph. */
#include "fakes/fake_embedder.h"

#include "base/memory.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_CALLS = 4096 };

struct llm_embedder {
    struct llm_context_params params;
    float vectors[256][FAKE_EMBEDDER_WIDTH];
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t rows, inputs;
    bool hold;
    int n_held, n_calls, n_open;
    int call_inputs[MAX_CALLS];
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void fake_embedder_reset(int32_t rows, int32_t inputs)
{
    pthread_mutex_lock(&fake.mutex);
    fake.rows = rows;
    fake.inputs = inputs;
    fake.hold = false;
    fake.n_calls = 0;
    pthread_mutex_unlock(&fake.mutex);
}

void fake_embedder_hold(bool hold)
{
    pthread_mutex_lock(&fake.mutex);
    fake.hold = hold;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
}

void fake_embedder_wait_held(int n)
{
    pthread_mutex_lock(&fake.mutex);
    while (fake.n_held < n) pthread_cond_wait(&fake.changed, &fake.mutex);
    pthread_mutex_unlock(&fake.mutex);
}

static int read_locked(const int *value)
{
    pthread_mutex_lock(&fake.mutex);
    int copy = *value;
    pthread_mutex_unlock(&fake.mutex);
    return copy;
}

int fake_embedder_calls(void)
{
    return read_locked(&fake.n_calls);
}

int fake_embedder_call_inputs(int call)
{
    return read_locked(&fake.call_inputs[call]);
}

int fake_embedder_open(void)
{
    return read_locked(&fake.n_open);
}

struct llm_embedder *llm_embedder_open(struct llm_model *model, const struct llm_context_params *params,
                                       hearth_pooling pooling, hearth_error *error)
{
    (void)model, (void)pooling, (void)error;
    struct llm_embedder *embedder = mem_alloc(sizeof *embedder);
    embedder->params = *params;
    pthread_mutex_lock(&fake.mutex);
    fake.n_open++;
    pthread_mutex_unlock(&fake.mutex);
    return embedder;
}

void llm_embedder_close(struct llm_embedder *embedder)
{
    if (embedder == NULL) return;
    pthread_mutex_lock(&fake.mutex);
    fake.n_open--;
    pthread_mutex_unlock(&fake.mutex);
    free(embedder);
}

int32_t llm_embedder_max_tokens(const struct llm_embedder *embedder)
{
    (void)embedder;
    return fake.rows;
}

void llm_embedder_begin_computing(const struct llm_embedder *embedder)
{
    (void)embedder;
}

int32_t llm_embedder_max_inputs(const struct llm_embedder *embedder)
{
    (void)embedder;
    return fake.inputs;
}

int32_t llm_embedder_width(const struct llm_embedder *embedder)
{
    (void)embedder;
    return FAKE_EMBEDDER_WIDTH;
}

/* Called with the mutex locked. False: the call was aborted. */
static bool pass_gate(const struct llm_embedder *embedder)
{
    bool aborted = false;
    fake.n_held++;
    pthread_cond_broadcast(&fake.changed);
    while (fake.hold && !aborted) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 1000000;
        if (soon.tv_nsec >= 1000000000) soon = (struct timespec){soon.tv_sec + 1, soon.tv_nsec - 1000000000};
        pthread_cond_timedwait(&fake.changed, &fake.mutex, &soon);
        aborted = embedder->params.abort(embedder->params.ud);
    }
    fake.n_held--;
    return !aborted;
}

static bool fill(float *vector, const struct llm_input *input)
{
    float sum = 0;
    for (int32_t i = 0; i < input->n; i++) {
        if (input->tokens[i] == FAKE_POISON) return false;
        sum += input->tokens[i] == FAKE_NOT_A_NUMBER ? NAN : (float)input->tokens[i];
    }
    vector[0] = sum;
    vector[1] = (float)input->n;
    return true;
}

enum llm_decoded llm_embed(struct llm_embedder *embedder, const struct llm_input *inputs, int32_t n)
{
    pthread_mutex_lock(&fake.mutex);
    fake.call_inputs[fake.n_calls++ % MAX_CALLS] = n;
    bool passed = pass_gate(embedder);
    pthread_mutex_unlock(&fake.mutex);
    if (!passed) return LLM_ABORTED;
    for (int32_t i = 0; i < n; i++)
        if (!fill(embedder->vectors[i], &inputs[i])) return LLM_FAILED;
    return LLM_DECODED;
}

const float *llm_embedding(struct llm_embedder *embedder, int32_t input, int32_t at)
{
    (void)at;
    return embedder->vectors[input];
}
