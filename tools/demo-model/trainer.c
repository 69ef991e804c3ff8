#include "trainer.h"

#include "base/memory.h"
#include "crew.h"
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

/* What each thread works with. */
struct worker {
    struct workspace *workspace;
    struct batch batch;
    float *gradient, *scratch;
    struct step_report report;
};

struct trainer_parts {
    struct crew *crew;
    struct documents documents;
    struct worker *workers;
};

enum { SLICES = 32 }; /* of the gradient, when it is added up */

/* ---- Opening ---- */

static int longest_room(const struct plan *plan)
{
    int room = 0;
    for (int i = 0; i < plan->n_stages; i++) room = plan->stages[i].mix.room > room ? plan->stages[i].mix.room : room;
    return room;
}

static void open_worker(struct worker *worker, const struct trainer *trainer)
{
    *worker = (struct worker){.workspace = workspace_open(&trainer->layout, longest_room(trainer->plan)),
                              .gradient = mem_alloc(trainer->layout.size * sizeof(float)),
                              .scratch = optimizer_scratch(&trainer->layout)};
}

int trainer_open(struct trainer *trainer, const struct plan *plan, const struct tokenizer *tokenizer, int threads,
                 hearth_error *error)
{
    struct crew *crew = crew_open(threads, error);
    if (crew == NULL) return error != NULL ? (int)error->code : HEARTH_NO_MEMORY;
    *trainer = (struct trainer){.plan = plan, .parts = mem_alloc(sizeof *trainer->parts)};
    layout_make(&trainer->layout, &plan->shape);
    trainer->weights = mem_alloc(trainer->layout.size * sizeof(float));
    layout_fill(&trainer->layout, trainer->weights, plan->seed);
    optimizer_open(&trainer->optimizer, &trainer->layout);
    *trainer->parts = (struct trainer_parts){.crew = crew,
                                             .documents = {tokenizer, plan->seed},
                                             .workers = mem_alloc((size_t)threads * sizeof(struct worker))};
    for (int i = 0; i < threads; i++) open_worker(&trainer->parts->workers[i], trainer);
    return 0;
}

void trainer_close(struct trainer *trainer)
{
    struct trainer_parts *parts = trainer->parts;
    for (int i = 0; i < crew_size(parts->crew); i++) {
        struct worker *worker = &parts->workers[i];
        workspace_close(worker->workspace);
        batch_release(&worker->batch);
        free(worker->gradient);
        free(worker->scratch);
    }
    crew_close(parts->crew);
    free(parts->workers);
    free(parts);
    optimizer_close(&trainer->optimizer);
    free(trainer->weights);
}

/* ---- The jobs of a step ---- */

/* A batch: its documents, its loss, its gradient. */
static void learn_batch(void *ud, int number, int job)
{
    struct trainer *trainer = ud;
    struct worker *worker = &trainer->parts->workers[number];
    const struct stage *stage = &trainer->plan->stages[trainer->stage];
    uint64_t batch =
        ((uint64_t)(trainer->stage + 1) << 40) + (uint64_t)trainer->step * (uint64_t)stage->batches + (uint64_t)job;
    documents_fill(&trainer->parts->documents, batch, &stage->mix, &worker->batch);
    model_forward(worker->workspace, trainer->weights, &worker->batch);
    model_loss(worker->workspace, &worker->batch, &worker->report.loss);
    model_backward(worker->workspace, trainer->weights, &worker->batch, worker->gradient);
    worker->report.tokens += worker->batch.n_tokens;
    for (int i = 0; i < worker->batch.n_documents; i++) {
        double length = worker->batch.starts[i + 1] - worker->batch.starts[i];
        worker->report.cost += length * model_cost(&trainer->layout, length);
    }
}

/* A slice of the workers' gradients: their sum becomes the first worker's, the others are 0 again. */
static void add_slice(void *ud, int number, int slice)
{
    (void)number;
    struct trainer *trainer = ud;
    size_t size = trainer->layout.size, begin = size * (size_t)slice / SLICES,
           end = size * (size_t)(slice + 1) / SLICES;
    struct worker *workers = trainer->parts->workers;
    for (int i = 1; i < crew_size(trainer->parts->crew); i++) {
        add_to(workers[0].gradient + begin, workers[i].gradient + begin, end - begin);
        memset(workers[i].gradient + begin, 0, (end - begin) * sizeof(float));
    }
}

struct move {
    struct trainer *trainer;
    float rate, scale;
};

static void move_tensor(void *ud, int number, int tensor)
{
    const struct move *move = ud;
    struct trainer *trainer = move->trainer;
    const struct tensor *t = &trainer->layout.tensors[tensor];
    float *gradient = trainer->parts->workers[0].gradient;
    const struct update update = {trainer->weights, gradient, move->scale, move->rate};
    optimizer_update(&trainer->optimizer, tensor, &update, trainer->parts->workers[number].scratch);
    memset(gradient + t->at, 0, (size_t)t->rows * (size_t)t->columns * sizeof(float));
}

/* ---- Steps ---- */

float trainer_rate(const struct plan *plan, int stage, int step)
{
    const struct stage *s = &plan->stages[stage];
    float rate = s->rate;
    if (s->falls) rate *= (float)(s->steps - step) / (float)s->steps;
    if (step < plan->warm_up) rate *= (float)(step + 1) / (float)plan->warm_up;
    return rate;
}

static struct step_report take_reports(struct trainer *trainer)
{
    struct step_report sum = {0};
    for (int i = 0; i < crew_size(trainer->parts->crew); i++) {
        struct step_report *one = &trainer->parts->workers[i].report;
        sum.loss.loss += one->loss.loss;
        sum.loss.weight += one->loss.weight;
        sum.loss.spoken_loss += one->loss.spoken_loss;
        sum.loss.spoken += one->loss.spoken;
        sum.tokens += one->tokens;
        sum.cost += one->cost;
        *one = (struct step_report){0};
    }
    return sum;
}

struct step_report trainer_step(struct trainer *trainer)
{
    const struct plan *plan = trainer->plan;
    const struct stage *stage = &plan->stages[trainer->stage];
    struct crew *crew = trainer->parts->crew;
    if (trainer->step == 0) optimizer_reset(&trainer->optimizer);
    crew_run(crew, stage->batches, learn_batch, trainer);
    crew_run(crew, SLICES, add_slice, trainer);
    struct step_report report = take_reports(trainer);
    struct move move = {trainer, trainer_rate(plan, trainer->stage, trainer->step),
                        (float)(1.0 / (report.loss.weight > 0 ? report.loss.weight : 1.0))};
    crew_run(crew, trainer->layout.n_tensors, move_tensor, &move);
    trainer->optimizer.steps++;
    if (++trainer->step == stage->steps) {
        trainer->stage++;
        trainer->step = 0;
    }
    return report;
}

double trainer_cost_left(const struct trainer *trainer)
{
    double left = 0;
    for (int i = trainer->stage; i < trainer->plan->n_stages; i++) {
        const struct stage *stage = &trainer->plan->stages[i];
        int steps = stage->steps - (i == trainer->stage ? trainer->step : 0);
        double tokens = (double)stage->batches * stage->mix.room * 0.78; /* batches are not quite full */
        left += steps * tokens * model_cost(&trainer->layout, stage->mix.longest * 0.55);
    }
    return left;
}
