/* The machine's resources: cores, memory, GPUs, and the CPU features that llama.cpp's kernels were built to use. Every
 * function may be called from any thread after llm_init(). */
#include "base/buf.h"
#include "base/memory.h"
#include "base/os.h"
#include "llm/backends.h"
#include "llm/context.h"
#include "llm/placement.h"

#include <ggml-backend.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cores ---- */

int llm_count_cores(const bool *cpus, size_t n_cpus)
{
    long *cores = mem_alloc((n_cpus + 1) * sizeof *cores);
    int n = 0;
    for (size_t cpu = 0; cpu < n_cpus; cpu++) {
        if (!cpus[cpu]) continue;
        long core = os_core_of(cpu);
        int known = 0;
        while (known < n && cores[known] != core) known++;
        if (known == n) cores[n++] = core;
    }
    free(cores);
    return n;
}

/* ---- GPUs ---- */

bool llm_is_gpu(ggml_backend_dev_t device)
{
    enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

bool llm_has_gpu(void)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++)
        if (llm_is_gpu(ggml_backend_dev_get(i))) return true;
    return false;
}

void llm_describe_gpus(struct buf *out)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (llm_is_gpu(device))
            buf_printf(out, "gpu %s %s\n", ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)),
                       ggml_backend_dev_description(device));
    }
}

bool llm_is_same_card(ggml_backend_dev_t a, ggml_backend_dev_t b)
{
    struct ggml_backend_dev_props of_a, of_b;
    ggml_backend_dev_get_props(a, &of_a);
    ggml_backend_dev_get_props(b, &of_b);
    return of_a.device_id != NULL && of_b.device_id != NULL && strcmp(of_a.device_id, of_b.device_id) == 0;
}

/* Whether a device before the i-th is the same card. */
static bool was_seen(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (llm_is_same_card(ggml_backend_dev_get(k), ggml_backend_dev_get(i))) return true;
    return false;
}

uint64_t llm_free_memory(bool on_gpu)
{
    if (!on_gpu) return os_free_memory();
    uint64_t sum = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        size_t available = 0, total = 0;
        if (llm_is_gpu(device) && !was_seen(i)) ggml_backend_dev_memory(device, &available, &total);
        sum += available;
    }
    return sum;
}

/* ---- CPU features ---- */

/* Not the processor's. */
static bool is_of_build(const char *name)
{
    static const char *const names[] = {"LLAMAFILE", "ACCELERATE", "CPU_HBM", "OPENMP", "KLEIDIAI", "REPACK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static struct buf feature_list;

static void list_features(void)
{
    ggml_backend_get_features_t get_features;
    llm_init();
    if (!llm_find_function("CPU", "ggml_backend_get_features", &get_features)) return;
    for (const struct ggml_backend_feature *f = get_features(llm_processor()); f->name != NULL; f++)
        if (strcmp(f->value, "1") == 0 && !is_of_build(f->name))
            buf_printf(&feature_list, "%s%s", feature_list.len > 0 ? " " : "", f->name);
}

const char *llm_build(void)
{
    return HEARTH_LLAMA_BUILD;
}

const char *llm_cpu_features(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_features);
    return buf_text(&feature_list);
}
