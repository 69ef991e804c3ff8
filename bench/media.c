/* hearth_bench_media: what an image costs in each turn of a conversation about it, what it costs agents that ask about
 * the same one at once, and what it costs somebody else's stream. Runs against hearth and llama-server. One thread.
 *
 * How often hearth encodes, its log says, which `--log` names. */
#include "base/base64.h"
#include "base/error.h"
#include "base/memory.h"
#include "client.h"
#include "options.h"
#include "report.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGENTS = 6, TURNS = 3, REPLY = 16, STREAM = 200 };

struct options {
    const char *url, *model, *log;
    long side, words;
    bool json, help;
};

struct bench {
    const struct options *options;
    struct client *client;
    struct report *report;
    uint64_t seed; /* of the last image: no two are alike */
};

/* ---- Images ---- */

/* Appends the URL of an image that no request had before. Noise, which no server can make smaller. */
static void put_image(struct bench *b, struct buf *url)
{
    const long side = b->options->side;
    const size_t n = (size_t)(side * side) * 3;
    uint8_t *pixels = mem_alloc(n);
    uint64_t state = ++b->seed * 0x9e3779b97f4a7c15U;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        pixels[i] = (uint8_t)(state >> 56);
    }
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)side,
                     .height = (png_uint_32)side,
                     .format = PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
    uint8_t *file = mem_alloc(size);
    if (png_image_write_to_memory(&png, file, &size, 0, pixels, 0, NULL) == 0) abort(); /* its arguments are fixed */
    buf_puts(url, "data:image/png;base64,");
    base64_put(url, file, size);
    free(file);
    free(pixels);
}

static void put_question(struct buf *messages, const char *image, const char *words, int number)
{
    buf_printf(messages,
               "{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
               "\"image_url\":{\"url\":\"%s\"}},{\"type\":\"text\",\"text\":\"Question %d: what is this?\"}]}",
               words, image, number);
}

/* Encodings that the log has; -1: it has none, as llama-server's usual one. */
static long encodings(const struct bench *b)
{
    FILE *log = b->options->log == NULL ? NULL : fopen(b->options->log, "re");
    char *line = NULL;
    size_t cap = 0;
    long n = 0;
    while (log != NULL && getline(&line, &cap, log) > 0) n += strstr(line, "encoding-image-chunk") != NULL;
    free(line);
    if (log != NULL) fclose(log);
    return n > 0 ? n : -1;
}

static void note_encodings(struct bench *b, const char *figure, long before)
{
    if (before >= 0) report_add(b->report, figure, "", (double)(encodings(b) - before));
}

/* ---- A conversation ---- */

static struct stream *ask(struct bench *b, const struct buf *messages, int32_t reply, hearth_error *error)
{
    char *list = mem_format("[%s]", messages->v);
    struct wish wish = {.messages = list, .max_tokens = reply, .from_cache = true};
    struct stream *stream = client_stream(b->client, &wish, error);
    free(list);
    return stream;
}

static int take_turn(struct bench *b, struct buf *messages, int turn, hearth_error *error)
{
    static const char *const firsts[TURNS] = {"first turn on an image: time to first token",
                                              "second turn: time to first token", "third turn: time to first token"};
    static const char *const counts[TURNS] = {"first turn on an image: encoded", "second turn: encoded",
                                              "third turn: encoded"};
    long before = encodings(b);
    struct stream *stream = ask(b, messages, REPLY, error);
    int rc = stream == NULL ? error->code : client_finish(b->client, stream, error);
    if (rc == HEARTH_OK) {
        report_add(b->report, firsts[turn], "ms", client_first_ms(stream));
        note_encodings(b, counts[turn], before);
        buf_printf(messages,
                   ",{\"role\":\"assistant\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"And what else?\"}",
                   buf_text(&stream->text));
    }
    client_drop(b->client, stream);
    return rc;
}

static int converse(struct bench *b, const char *words, hearth_error *error)
{
    struct buf image = {0}, messages = {0};
    put_image(b, &image);
    put_question(&messages, image.v, words, 0);
    int rc = HEARTH_OK;
    for (int turn = 0; turn < TURNS && rc == HEARTH_OK; turn++) rc = take_turn(b, &messages, turn, error);
    buf_release(&messages);
    buf_release(&image);
    return rc;
}

/* ---- Agents ---- */

static int ask_at_once(struct bench *b, const char *words, hearth_error *error)
{
    struct stream *streams[AGENTS] = {NULL};
    struct buf image = {0}, messages = {0};
    struct samples firsts = {0};
    int rc = HEARTH_OK;
    long before = encodings(b);
    put_image(b, &image);
    for (int i = 0; i < AGENTS && rc == HEARTH_OK; i++) {
        buf_clear(&messages);
        put_question(&messages, image.v, words, i);
        streams[i] = ask(b, &messages, REPLY, error);
        if (streams[i] == NULL) rc = error->code;
    }
    for (int i = 0; i < AGENTS && rc == HEARTH_OK; i++) rc = client_finish(b->client, streams[i], error);
    for (int i = 0; i < AGENTS && rc == HEARTH_OK; i++) samples_add(&firsts, client_first_ms(streams[i]));
    if (rc == HEARTH_OK) {
        report_add(b->report, "six agents, one image: time to first token", "ms", samples_median(&firsts));
        report_add(b->report, "six agents, one image: last first token", "ms", samples_max(&firsts));
        note_encodings(b, "six agents, one image: encoded", before);
    }
    for (int i = 0; i < AGENTS; i++) client_drop(b->client, streams[i]);
    samples_release(&firsts);
    buf_release(&messages);
    buf_release(&image);
    return rc;
}

/* ---- Somebody else's stream ---- */

/* The largest gap between two tokens of a stream while a question about a new image is answered. */
static int look_beside_stream(struct bench *b, const char *words, hearth_error *error)
{
    struct buf image = {0}, question = {0}, text = {0};
    put_image(b, &image);
    put_question(&question, image.v, words, 0);
    buf_puts(&text, "{\"role\":\"user\",\"content\":\"Tell me a story.\"}");
    struct stream *stream = ask(b, &text, STREAM, error), *other = NULL;
    int rc = stream == NULL ? error->code : client_wait(b->client, stream, 4, error);
    if (rc == HEARTH_OK && (other = ask(b, &question, REPLY, error)) == NULL) rc = error->code;
    if (rc == HEARTH_OK) rc = client_finish(b->client, other, error);
    double most = 0;
    for (size_t i = 1; rc == HEARTH_OK && i < stream->n_times; i++) {
        double gap = (double)(stream->times[i] - stream->times[i - 1]) / 1e6;
        if (gap > most) most = gap;
    }
    if (rc == HEARTH_OK) report_add(b->report, "largest gap of a stream beside an image", "ms", most);
    if (rc == HEARTH_OK) report_add(b->report, "that image's first token", "ms", client_first_ms(other));
    client_drop(b->client, other);
    client_drop(b->client, stream);
    buf_release(&text);
    buf_release(&question);
    buf_release(&image);
    return rc;
}

/* ---- Measuring ---- */

/* The server's first image takes longer than later ones: one precedes all. */
static int measure(struct bench *b, hearth_error *error)
{
    struct buf words = {0}, first = {0}, image = {0};
    client_words(&words, b->options->words, 1);
    b->report = report_open("media", (size_t)b->options->words);
    put_image(b, &image);
    put_question(&first, image.v, "Be brief.", 0);
    struct stream *stream = ask(b, &first, REPLY, error);
    int rc = stream == NULL ? error->code : client_finish(b->client, stream, error);
    client_drop(b->client, stream);
    if (rc == HEARTH_OK) rc = converse(b, words.v, error);
    if (rc == HEARTH_OK) rc = ask_at_once(b, words.v, error);
    if (rc == HEARTH_OK) rc = look_beside_stream(b, "Be brief.", error);
    buf_release(&image);
    buf_release(&first);
    buf_release(&words);
    return rc;
}

static int run(const struct options *options)
{
    hearth_error error = {0};
    struct bench b = {.options = options};
    b.client = client_open(options->url, options->model, &error);
    if (b.client != NULL) measure(&b, &error);
    client_close(b.client);
    return report_conclude(b.report, options->json, "hearth_bench_media", &error);
}

/* ---- Command line ---- */

static void print_help(void)
{
    puts("hearth_bench_media - what an image costs: in each turn, for several who ask about it, for somebody's stream\n"
         "\n"
         "usage: hearth_bench_media --url URL [options]\n"
         "\n"
         "  --url URL      a running hearth or llama-server with a projector and six slots, http://127.0.0.1:8080\n"
         "  --model NAME   the model to name in requests; needed where the server has several\n"
         "  --log FILE     the server's log, which says how often it encodes\n"
         "  --side N       pixels of an image's side (448)\n"
         "  --words N      words of the system prompt (400)\n"
         "  --json         print JSON, for bench/compare.mjs\n"
         "\n"
         "example:\n"
         "  hearth_bench_media --url http://127.0.0.1:8080");
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct option_row rows[] = {
        {"url", .text = &o->url},       {"model", .text = &o->model},
        {"log", .text = &o->log},       {"side", .number = &o->side},
        {"words", .number = &o->words}, {"json", .flag = &o->json},
        {"help", .flag = &o->help},     {0},
    };
    int end = options_parse(argc, argv, rows);
    if (end < 0 || o->help) return end >= 0;
    if (end == argc && o->url != NULL) return true;
    fputs("hearth_bench_media: give --url, and nothing but options; --help lists them\n", stderr);
    return false;
}

int main(int argc, char **argv)
{
    struct options options = {.side = 448, .words = 400};
    if (!parse(argc, argv, &options)) return EXIT_BAD_USAGE;
    if (!options.help) return run(&options);
    print_help();
    return EXIT_SUCCESS;
}
