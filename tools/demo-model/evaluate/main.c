/* hearth-demo-evaluate: how often a model file answers right, by kind of question, and what it says from a damaged
 * cache. Prints Markdown tables, of which the documents have a copy. One thread, beside libhearth's. */
#include "ask.h"
#include "base/error.h"
#include "damage.h"
#include "rows.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_BAD_USAGE = 2, SEED = 7000 };

static const char usage[] = "Usage: hearth-demo-evaluate [options] MODEL.gguf\n\n"
                            "Asks the model what the demo model should know, and prints how many replies are right.\n\n"
                            "Options:\n"
                            "  --n N       conversations of each kind (40)\n"
                            "  --wrong     print wrong replies to stderr\n"
                            "  --help      this text\n";

struct options {
    const char *path;
    int n;
    bool wrong;
};

static void print_wrong(const char *row, const struct conversation *conversation, const char *wanted, const char *reply)
{
    char *messages = conversation_messages_json(conversation, conversation->n_messages - 1);
    fprintf(stderr, "%s\n  %s\n  wanted: %s\n  reply:  %s\n", row, messages, wanted, reply);
    free(messages);
}

/* Whether the i-th conversation's reply is right; negative: an error. */
static int try_one(hearth *instance, const struct row *row, int i, double temperature, const struct options *options,
                   hearth_error *error)
{
    struct conversation conversation = {0};
    struct random random = random_of(SEED + (uint64_t)(row - rows), (uint64_t)i);
    struct scene scene;
    struct buf wanted = {0};
    const struct asking asking = {temperature, i};
    scene_open(&scene, &random, &conversation);
    row->make(&scene, i);
    scene_close(&scene);
    conversation_spoken(&conversation.messages[conversation.n_messages - 1], &wanted);
    char *reply = ask_reply(instance, &conversation, conversation.n_messages - 1, &asking, error);
    int right = reply == NULL ? (int)error->code
                              : strcmp(reply, buf_text(&wanted)) == 0 ||
                                    (row->contains && strstr(reply, buf_text(&wanted)) != NULL);
    if (right == 0 && options->wrong) print_wrong(row->name, &conversation, buf_text(&wanted), reply);
    free(reply);
    buf_release(&wanted);
    conversation_release(&conversation);
    return right;
}

/* How many of n are right; negative: an error. */
static int try_row(hearth *instance, const struct row *row, int n, double temperature, const struct options *options,
                   hearth_error *error)
{
    int right = 0;
    for (int i = 0; i < n; i++) {
        int one = try_one(instance, row, i, temperature, options, error);
        if (one < 0) return one;
        right += one;
    }
    return right;
}

static int print_table(hearth *instance, const struct options *options, hearth_error *error)
{
    printf("| exact replies, fresh names and codes | of | greedy | temperature 0.7 |\n| --- | ---: | ---: | ---: |\n");
    for (int i = 0; i < n_rows; i++) {
        int n = rows[i].n > 0 ? rows[i].n : options->n;
        int greedy = try_row(instance, &rows[i], n, 0.0, options, error);
        int sampled = greedy < 0 ? greedy : try_row(instance, &rows[i], n, 0.7, options, error);
        if (sampled < 0) return sampled;
        printf("| %s | %d | %d | %d |\n", rows[i].name, n, greedy, sampled);
        fflush(stdout);
    }
    return 0;
}

/* Returns an exit status, or -1: go on. */
static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"n", required_argument, NULL, 'n'}, {"wrong", no_argument, NULL, 'w'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool good = true;
    for (int option; good && (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == 'h') {
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (option == 'n') options->n = (int)strtol(optarg, NULL, 10);
        if (option == 'w') options->wrong = true;
        good = option != '?' && options->n > 1 && options->n < 100000;
    }
    options->path = argv[optind];
    if (good && optind + 1 == argc) return -1;
    fputs(usage, stderr);
    return EXIT_BAD_USAGE;
}

int main(int argc, char **argv)
{
    struct options options = {.n = 40};
    int status = read_options(argc, argv, &options);
    if (status >= 0) return status;
    hearth_error error = {0};
    hearth_log_open(NULL, "error", "text", NULL);
    hearth *instance = ask_open(options.path, &error);
    int code = instance == NULL ? (int)error.code : print_table(instance, &options, &error);
    hearth_close(instance);
    if (code == 0) code = damage_table(options.path, options.n, &error);
    if (code != 0) fprintf(stderr, "hearth-demo-evaluate: %s\n", error.message);
    return code == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
