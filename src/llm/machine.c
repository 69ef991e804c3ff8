/* The machine's resources: cores, memory, GPUs, and the CPU features that llama.cpp's kernels were built to use. Every
 * function may be called from any thread after llm_init(). */
#include "base/buf.h"
#include "base/memory.h"
#include "llm/backends.h"
#include "llm/context.h"
#include "llm/placement.h"

#include <ggml-backend.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cores ---- */

/* The number in a small file of /sys; -1 where there is none. */
static long read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    char text[32] = "", *end;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    long number = strtol(text, &end, 10);
    return len == 0 || end == text ? -1 : number;
}

int llm_count_cores(const bool *cpus, size_t n_cpus)
{
    char path[96];
    long *cores = mem_alloc((n_cpus + 1) * sizeof *cores);
    int n = 0;
    for (size_t cpu = 0; cpu < n_cpus; cpu++) {
        if (!cpus[cpu]) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/core_id", cpu);
        long core = read_number(path);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/physical_package_id", cpu);
        long package = read_number(path);
        core = core < 0 ? -1 - (long)cpu : package * 65536 + core; /* equal for the threads of one core */
        int known = 0;
        while (known < n && cores[known] != core) known++;
        if (known == n) cores[n++] = core;
    }
    free(cores);
    return n;
}

/* ---- Memory ---- */

/* The number after a word at the start of a line, as in /proc/meminfo and memory.stat; 0 where there is none. */
static uint64_t read_entry(const char *path, const char *word)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    char line[256];
    uint64_t number = 0;
    size_t len = strlen(word);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, word, len) != 0) continue;
        number = strtoull(line + len, NULL, 10);
        break;
    }
    fclose(file);
    return number;
}

/* The two versions of control groups (cgroups) differ in names only. "max" and v1's huge number both mean no limit. */
struct group_version {
    const char *line; /* identifies this version's line of /proc/self/cgroup */
    const char *root, *limit, *usage, *reclaimable;
};

static const struct group_version group_versions[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

/* Bytes that one group can still allocate: its limit less what it uses and cannot reclaim at once. */
static uint64_t free_in_group(const struct group_version *version, const char *group)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s/%s", version->root, group, version->limit);
    long limit = read_number(path);
    if (limit < 0) return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s/%s", version->root, group, version->usage);
    long usage = read_number(path);
    snprintf(path, sizeof path, "%s%s/memory.stat", version->root, group);
    uint64_t held = usage < 0 ? 0 : (uint64_t)usage;
    uint64_t reclaimable = read_entry(path, version->reclaimable);
    held -= reclaimable < held ? reclaimable : held;
    return (uint64_t)limit > held ? (uint64_t)limit - held : 0;
}

/* The least free memory of a group and all its parents. Inside a container a group may not be visible under its name,
 * but is mounted as the root, where the walk ends in any case. */
static uint64_t free_in_groups(const struct group_version *version)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL) return UINT64_MAX;
    char line[512];
    uint64_t room = UINT64_MAX;
    while (fgets(line, sizeof line, file) != NULL) {
        char *group = strstr(line, version->line);
        if (group == NULL) continue;
        group += strlen(version->line);
        group[strcspn(group, "\n")] = '\0';
        for (;;) {
            uint64_t here = free_in_group(version, group);
            if (here < room) room = here;
            char *slash = strrchr(group, '/');
            if (slash == NULL) break;
            *slash = '\0';
        }
        break;
    }
    fclose(file);
    return room;
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
    if (!on_gpu) {
        uint64_t bytes = read_entry("/proc/meminfo", "MemAvailable:") * 1024;
        for (size_t i = 0; i < sizeof group_versions / sizeof group_versions[0]; i++) {
            uint64_t room = free_in_groups(&group_versions[i]);
            if (room < bytes) bytes = room;
        }
        return bytes;
    }
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
