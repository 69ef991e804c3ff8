/* hearth-mkmodel: parses the command line into a struct model, a struct lora or a struct projector, and writes the
 * file. One thread. */
#include "adapter.h"
#include "base/error.h"
#include "base/memory.h"
#include "model.h"
#include "projector.h"

#include <errno.h>
#include <getopt.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_BAD_USAGE = 2 };

enum option_id {
    OPTION_ARCH = 1000,
    OPTION_VOCAB,
    OPTION_SEED,
    OPTION_TYPE,
    OPTION_POOLING,
    OPTION_TEMPLATE,
    OPTION_LORA,
    OPTION_RANK,
    OPTION_MMPROJ,
    OPTION_FOR,
    OPTION_HOLLOW,
    OPTION_HELP
};

/* Options that set a size have the size's number. */
static const struct option options[] = {
    {"arch", required_argument, NULL, OPTION_ARCH},
    {"vocab", required_argument, NULL, OPTION_VOCAB},
    {"layers", required_argument, NULL, SIZE_LAYERS},
    {"embd", required_argument, NULL, SIZE_EMBD},
    {"heads", required_argument, NULL, SIZE_HEADS},
    {"kv-heads", required_argument, NULL, SIZE_KV_HEADS},
    {"head-dim", required_argument, NULL, SIZE_HEAD_DIM},
    {"ff", required_argument, NULL, SIZE_FF},
    {"ctx", required_argument, NULL, SIZE_CTX},
    {"experts", required_argument, NULL, SIZE_EXPERTS},
    {"swa", required_argument, NULL, SIZE_SWA},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"type", required_argument, NULL, OPTION_TYPE},
    {"pooling", required_argument, NULL, OPTION_POOLING},
    {"template", required_argument, NULL, OPTION_TEMPLATE},
    {"lora-for", required_argument, NULL, OPTION_LORA},
    {"rank", required_argument, NULL, OPTION_RANK},
    {"mmproj", required_argument, NULL, OPTION_MMPROJ},
    {"for", required_argument, NULL, OPTION_FOR},
    {"hollow", no_argument, NULL, OPTION_HOLLOW},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, OPTION_HELP},
    {0},
};

/* llama.cpp's own limits, else what fits its 32-bit sizes. */
static const long long size_limits[SIZE_VOCAB] = {
    [SIZE_LAYERS] = 512, [SIZE_EMBD] = 1 << 16, [SIZE_HEADS] = 1024,  [SIZE_KV_HEADS] = 1024, [SIZE_HEAD_DIM] = 1024,
    [SIZE_FF] = 1 << 18, [SIZE_CTX] = 1 << 24,  [SIZE_EXPERTS] = 512, [SIZE_SWA] = 1 << 24,
};

static void print_help(void)
{
    puts("hearth-mkmodel - write a random-weight model with a real tokenizer, for tests\n"
         "\n"
         "usage: hearth-mkmodel --arch A --vocab V [options] -o OUT.gguf\n"
         "       hearth-mkmodel --lora-for MODEL.gguf [--rank N] [--seed N] -o OUT.gguf\n"
         "       hearth-mkmodel --mmproj K --for MODEL.gguf [options] -o OUT.gguf\n"
         "\n"
         "  --arch A         architecture, see below\n"
         "  --vocab V        a GGUF file with a tokenizer (a path or a name that ends in .gguf), or NAME for\n"
         "                   llama.cpp's models/ggml-vocab-NAME.gguf; HEARTH_VOCAB_DIR names another folder\n"
         "  -o, --output F   the file to write\n"
         "\n"
         "  --layers N       layers                      --ctx N          context length it claims\n"
         "  --embd N         length of an embedding      --experts N      experts, two of them used per token\n"
         "  --heads N        attention heads             --swa N          sliding window, in tokens\n"
         "  --kv-heads N     key and value heads         --seed N         another seed, other weights (default 1)\n"
         "  --head-dim N     length of a head            --type T         f32 (default), f16 or q8_0\n"
         "  --ff N           inner length of the feed-forward part (of one expert)\n"
         "  --pooling P      mean, cls or last: marks the model as one for embeddings, with this pooling\n"
         "  --template FILE  chat template (default: the vocabulary's own, if it has one)\n"
         "  --hollow         leave the numbers out: a file of full size without blocks on the disk\n"
         "\n"
         "  --lora-for F     write a LoRA adapter for that model, of rank N (default 4)\n"
         "  --mmproj K       write a projector for images or sound, of kind K (see below), for the model --for;\n"
         "                   --layers, --embd, --heads and --ff are its encoder's, --seed its own\n"
         "\n"
         "The same arguments give the same bytes. Control tokens such as end-of-text are never the most likely.\n"
         "\n"
         "architectures (defaults: layers, embedding, window):");
    for (const struct arch *arch = arch_table; arch->name != NULL; arch++) {
        char window[32] = "";
        if (arch->sizes[SIZE_SWA] > 0) snprintf(window, sizeof window, ", %d", arch->sizes[SIZE_SWA]);
        printf("  %-10s %s (%d, %d%s)\n", arch->name, arch->about, arch->sizes[SIZE_LAYERS], arch->sizes[SIZE_EMBD],
               window);
    }
    puts("\n"
         "kinds of projectors:");
    for (const struct projector_kind *kind = projector_kinds; kind->name != NULL; kind++) {
        printf("  %-10s %s\n", kind->name, kind->about);
    }
    puts("\n"
         "examples:\n"
         "  hearth-mkmodel --arch llama --vocab models/demo.gguf -o tiny.gguf\n"
         "  hearth-mkmodel --arch gemma3 --vocab gemma-4 --swa 64 --type f16 -o window.gguf\n"
         "  hearth-mkmodel --arch qwen3 --vocab qwen2 --layers 28 --embd 1024 --heads 16 --kv-heads 8 \\\n"
         "      --head-dim 128 --ff 3072 --ctx 40960 --type q8_0 -o qwen3-0.6b-shaped.gguf\n"
         "  hearth-mkmodel --mmproj llava --for tiny.gguf -o tiny-mmproj.gguf");
}

static int parse_number(const char *option, const char *text, long long limit, long long *value, hearth_error *error)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *value < 1 || *value > limit) {
        return error_at(error, HEARTH_INVALID, option, "--%s must be a number from 1 to %lld, not '%s'", option, limit,
                        text);
    }
    return 0;
}

static int parse_arch(const char *text, struct model *model, hearth_error *error)
{
    model->arch = arch_find(text);
    if (model->arch != NULL) return 0;
    return error_at(error, HEARTH_INVALID, "arch", "unknown architecture '%s': --help lists the known ones", text);
}

static int parse_type(const char *text, struct model *model, hearth_error *error)
{
    model->type = weight_type_find(text);
    if (model->type != NULL) return 0;
    return error_at(error, HEARTH_INVALID, "type", "unknown type '%s': use f32, f16 or q8_0", text);
}

static int parse_kind(const char *text, struct projector *projector, hearth_error *error)
{
    projector->kind = projector_find(text);
    if (projector->kind != NULL) return 0;
    return error_at(error, HEARTH_INVALID, "mmproj", "unknown kind of projector '%s': --help lists the known ones",
                    text);
}

/* Reranking needs a head, which is an architecture of its own. */
static int parse_pooling(const char *text, struct model *model, hearth_error *error)
{
    static const char *const names[] = {[1] = "mean", [2] = "cls", [3] = "last"};
    for (int i = 1; i <= 3; i++) {
        if (strcmp(names[i], text) != 0) continue;
        model->pooling = i;
        return 0;
    }
    return error_at(error, HEARTH_INVALID, "pooling",
                    "unknown pooling '%s': use mean, cls or last; to rank, --arch reranker", text);
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && !strcmp(text + len - end_len, end);
}

/* A path as it is; a name becomes the path of llama.cpp's vocabulary file of that name. */
static char *vocab_path(const char *vocab)
{
    if (strchr(vocab, '/') != NULL || ends_with(vocab, ".gguf")) return mem_strdup(vocab);
    const char *folder = getenv("HEARTH_VOCAB_DIR");
    return mem_format("%s/ggml-vocab-%s.gguf", folder != NULL ? folder : HEARTH_VOCAB_DIR, vocab);
}

/* The parsed command line. */
struct arguments {
    struct model model; /* its strings are borrowed from argv, but for vocab_path */
    const char *vocab;
    struct lora lora;           /* model_path NULL: none is to be written */
    struct projector projector; /* kind and model_path NULL: none is to be written */
    bool help;
};

static int parse_option(int id, const char *name, const char *text, struct arguments *args, hearth_error *error)
{
    long long number = 0;
    struct model *model = &args->model;
    switch (id) {
    case OPTION_ARCH:
        return parse_arch(text, model, error);
    case OPTION_TYPE:
        return parse_type(text, model, error);
    case OPTION_POOLING:
        return parse_pooling(text, model, error);
    case OPTION_VOCAB:
        args->vocab = text;
        return 0;
    case OPTION_TEMPLATE:
        model->template_path = text;
        return 0;
    case OPTION_LORA:
        args->lora.model_path = text;
        return 0;
    case OPTION_RANK: {
        int code = parse_number(name, text, 1024, &number, error);
        args->lora.rank = number;
        return code;
    }
    case OPTION_MMPROJ:
        return parse_kind(text, &args->projector, error);
    case OPTION_FOR:
        args->projector.model_path = text;
        return 0;
    case OPTION_HOLLOW:
        model->hollow = true;
        return 0;
    case OPTION_HELP:
        args->help = true;
        return 0;
    case 'o':
        model->out_path = args->lora.out_path = args->projector.out_path = text;
        return 0;
    case OPTION_SEED: {
        int code = parse_number(name, text, INT64_MAX, &number, error);
        model->seed = args->lora.seed = args->projector.seed = (uint64_t)number;
        return code;
    }
    default: {
        int code = parse_number(name, text, size_limits[id], &number, error);
        model->sizes[id] = number;
        return code;
    }
    }
}

static bool wants_projector(const struct arguments *args)
{
    return args->projector.kind != NULL || args->projector.model_path != NULL;
}

/* The first option that is missing for what is wanted; NULL: none. */
static const char *missing_option(const struct arguments *args)
{
    if (args->model.out_path == NULL) return "-o OUT.gguf";
    if (args->lora.model_path != NULL) return NULL;
    if (wants_projector(args)) {
        if (args->projector.kind == NULL) return "--mmproj K";
        return args->projector.model_path == NULL ? "--for MODEL.gguf" : NULL;
    }
    if (args->model.arch == NULL) return "--arch A";
    return args->vocab[0] == '\0' ? "--vocab V" : NULL;
}

static int check_complete(const struct arguments *args, hearth_error *error)
{
    const char *missing = missing_option(args);
    if (missing == NULL) return 0;
    return error_set(error, HEARTH_INVALID, "%s is missing: --help shows examples", missing);
}

static int parse_arguments(int argc, char **argv, struct arguments *args, hearth_error *error)
{
    opterr = 0;
    int id, which = 0;
    while ((id = getopt_long(argc, argv, ":o:", options, &which)) != -1) {
        if (id == '?') {
            return error_set(error, HEARTH_INVALID, "unknown option %s: --help lists them", argv[optind - 1]);
        }
        if (id == ':') return error_set(error, HEARTH_INVALID, "%s needs a value", argv[optind - 1]);
        int code = parse_option(id, options[which].name, optarg, args, error);
        if (code != 0 || args->help) return code;
    }
    if (optind < argc) {
        return error_set(error, HEARTH_INVALID, "unexpected argument '%s': --help shows the usage", argv[optind]);
    }
    return check_complete(args, error);
}

static int write_what_is_wanted(struct arguments *args, hearth_error *error)
{
    if (args->lora.model_path != NULL) return adapter_write(&args->lora, error);
    if (wants_projector(args)) {
        const int64_t *sizes = args->model.sizes;
        args->projector.layers = sizes[SIZE_LAYERS];
        args->projector.embd = sizes[SIZE_EMBD];
        args->projector.heads = sizes[SIZE_HEADS];
        args->projector.ff = sizes[SIZE_FF];
        return projector_write(&args->projector, error);
    }
    char *path = vocab_path(args->vocab);
    args->model.vocab_path = path;
    int code = model_write(&args->model, error);
    free(path);
    return code;
}

static void stay_quiet(enum ggml_log_level level, const char *text, void *ud)
{
    (void)level;
    (void)text;
    (void)ud;
}

int main(int argc, char **argv)
{
    struct arguments args = {.vocab = "",
                             .model = {.type = &weight_types[0], .seed = 1, .pooling = -1},
                             .lora = {.rank = 4, .seed = 1},
                             .projector = {.seed = 1}};
    hearth_error error = {0};
    ggml_log_set(stay_quiet, NULL); /* hearth-mkmodel itself reports errors, in one line on stderr */
    int code = parse_arguments(argc, argv, &args, &error);
    if (code == 0 && args.help) {
        print_help();
        return EXIT_SUCCESS;
    }
    if (code == 0) code = write_what_is_wanted(&args, &error);
    if (code == 0) return EXIT_SUCCESS;
    fprintf(stderr, "hearth-mkmodel: %s\n", error.message);
    return code == HEARTH_INVALID ? EXIT_BAD_USAGE : EXIT_FAILURE;
}
