#include "checkpoint.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a file begins with; weights, momentum and squares follow. */
struct header {
    char magic[8];
    uint8_t plan[SHA256_BYTES]; /* what the training is: another one cannot resume it */
    int32_t stage, step, optimizer_steps;
};

static const char magic[8] = "HEARTHT1";

static struct header header_of(const struct trainer *trainer)
{
    const struct plan *plan = trainer->plan;
    struct header header = {
        .stage = trainer->stage, .step = trainer->step, .optimizer_steps = trainer->optimizer.steps};
    memcpy(header.magic, magic, sizeof magic);
    struct sha256 *hash = sha256_open();
    sha256_feed(hash, &plan->shape, sizeof plan->shape);
    sha256_feed(hash, &plan->seed, sizeof plan->seed);
    for (int i = 0; i < plan->n_stages; i++) {
        const struct stage *stage = &plan->stages[i];
        const int32_t numbers[] = {stage->steps,      stage->mix.longest, stage->mix.room,
                                   stage->mix.drills, stage->batches,     stage->falls};
        sha256_feed(hash, numbers, sizeof numbers);
        sha256_feed(hash, &stage->rate, sizeof stage->rate);
    }
    sha256_so_far(hash, header.plan);
    sha256_close(hash);
    return header;
}

/* Reads or writes the three arrays; false: it failed. */
static bool each_array(const struct trainer *trainer, FILE *file, bool write)
{
    float *const arrays[] = {trainer->weights, trainer->optimizer.momentum, trainer->optimizer.square};
    size_t n = trainer->layout.size;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        size_t done = write ? fwrite(arrays[i], sizeof(float), n, file) : fread(arrays[i], sizeof(float), n, file);
        if (done != n) return false;
    }
    return true;
}

int checkpoint_save(const struct trainer *trainer, const char *path, hearth_error *error)
{
    struct header header = header_of(trainer);
    char *part = mem_format("%s.part", path);
    FILE *file = fopen(part, "wbe");
    bool written = file != NULL && fwrite(&header, sizeof header, 1, file) == 1 && each_array(trainer, file, true);
    if (file != NULL && fclose(file) != 0) written = false;
    written = written && rename(part, path) == 0;
    int code = written ? 0 : error_set(error, HEARTH_IO, "cannot write %s: %s", path, strerror(errno));
    if (!written) remove(part);
    free(part);
    return code;
}

static int read_file(struct trainer *trainer, FILE *file, const char *path, hearth_error *error)
{
    struct header expected = header_of(trainer), header;
    if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, magic, sizeof magic) != 0 ||
        memcmp(header.plan, expected.plan, sizeof header.plan) != 0)
        return error_set(error, HEARTH_INVALID, "%s is of another training: remove it to begin anew", path);
    if (!each_array(trainer, file, false) || fgetc(file) != EOF)
        return error_set(error, HEARTH_INVALID, "%s is damaged: remove it to begin anew", path);
    trainer->stage = header.stage;
    trainer->step = header.step;
    trainer->optimizer.steps = header.optimizer_steps;
    return 0;
}

int checkpoint_load(struct trainer *trainer, const char *path, hearth_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) return error_set(error, HEARTH_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
    int code = read_file(trainer, file, path, error);
    fclose(file);
    return code;
}
