/* hearth-demo-model: makes the demo model in a folder of its own. The vocabulary, a checkpoint and the model are files
 * there; what is there already is not made again. Ctrl-C saves a checkpoint first. One thread, beside the trainer's. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint.h"
#include "corpus/corpus.h"
#include "export.h"
#include "plan.h"
#include "progress.h"
#include "tokenizer.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_BAD_USAGE = 2, CHECKPOINT_SECONDS = 60 };

struct options {
    const char *folder;
    uint64_t seed;
    int threads;
    double minutes; /* 0: until it is complete */
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- The command line ---- */

static const char usage[] =
    "Usage: hearth-demo-model [options]\n\n"
    "Makes the model models/demo.gguf from nothing: conversations, a vocabulary, the training, the GGUF file.\n"
    "An interrupted training is resumed.\n\n"
    "Options:\n"
    "  --folder DIR    where its files lie (demo-model)\n"
    "  --seed N        of conversations and first weights (1)\n"
    "  --threads N     threads that train (one a CPU)\n"
    "  --minutes N     stop after so many minutes; the next call resumes\n"
    "  --help          this text\n";

static bool read_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= least && *number <= most;
}

/* Returns an exit status, or -1: go on. */
static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"folder", required_argument, NULL, 'f'},  {"seed", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'}, {"minutes", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},          {0}};
    double number = 1;
    bool good = true;
    for (int option; good && (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == 'h') {
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        good = option == 'f' || (strchr("stm", option) != NULL &&
                                 read_number(optarg, option == 't' ? 1 : 0, option == 't' ? 256 : 1e9, &number));
        if (option == 'f') options->folder = optarg;
        if (option == 's') options->seed = (uint64_t)number;
        if (option == 't') options->threads = (int)number;
        if (option == 'm') options->minutes = number;
    }
    if (good && optind == argc) return -1;
    fputs(usage, stderr);
    return EXIT_BAD_USAGE;
}

/* ---- The vocabulary ---- */

static void count_words(struct sample *sample, uint64_t seed, uint64_t number)
{
    struct conversation conversation = {0};
    corpus_make(&conversation, seed, number, PLAN_SAMPLE_LENGTH);
    for (size_t i = 0; i < conversation.n_messages; i++)
        sample_add(sample, conversation.messages[i].content, strlen(conversation.messages[i].content));
    for (size_t i = 0; i < conversation.n_tools; i++)
        sample_add(sample, conversation.tools[i], strlen(conversation.tools[i]));
    conversation_release(&conversation);
}

static int make_vocabulary(const char *path, const struct plan *plan, hearth_error *error)
{
    fprintf(stderr, "making the vocabulary\n");
    struct sample *sample = sample_open();
    struct vocabulary vocabulary;
    for (uint64_t i = 0; i < PLAN_SAMPLE; i++) count_words(sample, plan->seed, i);
    vocabulary_make(&vocabulary, sample, PLAN_VOCABULARY, PLAN_LEAST);
    int code = export_vocabulary(path, &vocabulary, &plan->shape, error);
    vocabulary_release(&vocabulary);
    sample_close(sample);
    return code;
}

/* ---- The training ---- */

struct paths {
    char *vocabulary, *checkpoint, *model;
};

/* Trains until the plan is done, the time is over, or Ctrl-C. */
static int train(struct trainer *trainer, const struct options *options, const char *checkpoint, hearth_error *error)
{
    struct clock *clock = clock_monotonic();
    int64_t begun = clock_now(clock), saved = begun;
    struct progress progress;
    int code = 0;
    progress_open(&progress);
    while (code == 0 && trainer->stage < trainer->plan->n_stages && !interrupted) {
        int stage = trainer->stage, step = trainer->step;
        struct step_report report = trainer_step(trainer);
        progress_step(&progress, trainer, stage, step, &report);
        int64_t now = clock_now(clock);
        bool over = options->minutes > 0 && clock_to_ms(now - begun) > options->minutes * 60000.0;
        if (over) interrupted = 1;
        if (clock_to_ms(now - saved) < CHECKPOINT_SECONDS * 1000.0) continue;
        code = checkpoint_save(trainer, checkpoint, error);
        saved = now;
    }
    progress_close(&progress);
    return code == 0 ? checkpoint_save(trainer, checkpoint, error) : code;
}

static int train_and_export(struct trainer *trainer, const struct options *options, const struct paths *paths,
                            hearth_error *error)
{
    int code = checkpoint_load(trainer, paths->checkpoint, error);
    if (code == HEARTH_NOT_FOUND) code = 0;
    if (code == 0) code = train(trainer, options, paths->checkpoint, error);
    if (code != 0) return code;
    const struct export export = {.vocabulary_path = paths->vocabulary,
                                  .path = paths->model,
                                  .layout = &trainer->layout,
                                  .weights = trainer->weights};
    code = export_model(&export, error);
    if (code != 0) return code;
    bool complete = trainer->stage == trainer->plan->n_stages;
    printf("%s: %zu weights%s\n", paths->model, trainer->layout.size,
           complete ? "" : ", not trained to the end: run the same command again");
    return 0;
}

static int make_model(const struct options *options, const struct paths *paths, hearth_error *error)
{
    struct plan plan = plan_demo(options->seed);
    struct tokenizer tokenizer;
    struct trainer trainer;
    int code = access(paths->vocabulary, F_OK) == 0 ? 0 : make_vocabulary(paths->vocabulary, &plan, error);
    if (code == 0) code = tokenizer_open(&tokenizer, paths->vocabulary, error);
    if (code != 0) return code;
    plan.shape.vocabulary = tokenizer.n_tokens;
    code = trainer_open(&trainer, &plan, &tokenizer, options->threads, error);
    if (code == 0) {
        code = train_and_export(&trainer, options, paths, error);
        trainer_close(&trainer);
    }
    tokenizer_close(&tokenizer);
    return code;
}

int main(int argc, char **argv)
{
    struct options options = {.folder = "demo-model", .seed = 1, .threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    int status = read_options(argc, argv, &options);
    if (status >= 0) return status;
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    hearth_error error = {0};
    struct paths paths = {mem_format("%s/vocabulary.gguf", options.folder), mem_format("%s/checkpoint", options.folder),
                          mem_format("%s/demo.gguf", options.folder)};
    int code = mkdir(options.folder, 0777) == 0 || errno == EEXIST
                   ? make_model(&options, &paths, &error)
                   : error_set(&error, HEARTH_IO, "cannot create the folder %s: %s", options.folder, strerror(errno));
    if (code != 0) fprintf(stderr, "hearth-demo-model: %s\n", error.message);
    free(paths.vocabulary);
    free(paths.checkpoint);
    free(paths.model);
    return code == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
