/* Pulling from a command line: see pulling.h. On a terminal progress is one line that changes; elsewhere a line for
 * every tenth of a file. */
#include "cli/pulling.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/terminal.h"
#include "pull/declare.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINES         10        /* of a file's progress, where there is no terminal */
#define COLUMNS_USUAL 79        /* of a terminal that does not say how wide it is, but for the last */
#define LINE_BYTES    100000000 /* between two of them, where its size is not known */

/* ---- Progress ---- */

struct meter {
    bool is_terminal;
    size_t index; /* of the last report */
    bool checking;
    int64_t lines; /* that the file has got so far */
};

void pulling_put_size(struct buf *out, int64_t bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1000;
    buf_printf(out, unit == 0 ? "%.0f %s" : value < 10 ? "%.2f %s" : "%.1f %s", value, units[unit]);
}

static void put_time(struct buf *out, double seconds)
{
    long whole = seconds < 359999 ? (long)seconds : 359999;
    if (whole >= 3600)
        buf_printf(out, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        buf_printf(out, "%ld:%02ld", whole / 60, whole % 60);
}

/* "45 % of 2.71 GB, 35.2 MB/s, 0:42 left" */
static void put_figures(struct buf *out, const struct pull_progress *p)
{
    if (p->checking) buf_puts(out, "checking, ");
    if (p->total > 0) buf_printf(out, "%d %% of ", (int)((double)p->done * 100 / (double)p->total));
    pulling_put_size(out, p->total > 0 ? p->total : p->done);
    if (p->rate <= 0) return;
    buf_puts(out, ", ");
    pulling_put_size(out, (int64_t)p->rate);
    buf_puts(out, "/s");
    if (p->total <= 0 || p->checking) return;
    buf_puts(out, ", ");
    put_time(out, (double)(p->total - p->done) / p->rate);
    buf_puts(out, " left");
}

/* "[1/2] Qwen3-8B-Q4_K_M.gguf: " and the figures: where that is wider than so many columns, the name is cut. */
static void put_progress(struct buf *out, const struct pull_progress *p, size_t columns)
{
    struct buf before = {0}, figures = {0};
    if (p->n_files > 1) buf_printf(&before, "[%zu/%zu] ", p->index + 1, p->n_files);
    put_figures(&figures, p);
    size_t taken = before.len + strlen(": ") + figures.len, room = columns > taken ? columns - taken : 0,
           shown = strlen(p->file);
    if (shown > room) shown = room - utf8_incomplete_tail(p->file, room);
    buf_printf(out, "%s%.*s: %s", buf_text(&before), (int)shown, p->file, buf_text(&figures));
    buf_release(&before);
    buf_release(&figures);
}

static size_t columns_of_terminal(void)
{
    struct winsize size = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : COLUMNS_USUAL;
}

static void report(void *ud, const struct pull_progress *p)
{
    struct meter *meter = ud;
    struct buf text = {0};
    int64_t lines = p->total > 0 ? p->done * LINES / p->total : p->done / LINE_BYTES;
    bool is_new = meter->index != p->index || meter->checking != p->checking;
    bool is_due = is_new ? !p->checking : lines > meter->lines && !p->checking;
    size_t columns = meter->is_terminal ? columns_of_terminal() : SIZE_MAX;
    put_progress(&text, p, columns);
    if (meter->is_terminal)
        fprintf(stderr, "\r\033[K%.*s", (int)columns, text.v);
    else if (is_due)
        fprintf(stderr, "%s\n", text.v);
    fflush(stderr);
    if (is_new || is_due) meter->lines = lines;
    meter->index = p->index;
    meter->checking = p->checking;
    buf_release(&text);
}

/* ---- Options ---- */

static int read_number(const char *name, const char *text, int least, int most, int *out, hearth_error *error)
{
    char *end = NULL;
    if (text == NULL) return HEARTH_OK;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        return error_at(error, HEARTH_INVALID, name, "--%s %s: write a whole number from %d to %d", name, text, least,
                        most);
    *out = (int)value;
    return HEARTH_OK;
}

int pulling_read(const char *text, struct pull_reference *reference, hearth_error *error)
{
    char *names = pull_names_path();
    int rc = pull_reference_read(text, names, reference, error);
    free(names);
    return rc;
}

int pulling_get(const struct pulling *pulling, const hearth_config *config, const struct pull_reference *reference,
                struct pull_model *model, hearth_error *error)
{
    struct meter meter = {.is_terminal = isatty(STDERR_FILENO), .index = SIZE_MAX};
    struct pull_options options = pull_options_default();
    options.name = pulling->name;
    options.allow_http = pulling->http;
    options.report = report;
    options.ud = &meter;
    int rc = read_number("connections", pulling->connections, 1, PULL_CONNECTIONS_MAX, &options.connections, error);
    if (rc == HEARTH_OK) rc = read_number("stall", pulling->stall, 1, 3600, &options.stall_seconds, error);
    if (rc == HEARTH_OK) rc = read_number("retries", pulling->retries, 0, 1000, &options.retries, error);
    struct pull_reference projector = {0};
    if (rc == HEARTH_OK && pulling->mmproj != NULL) rc = pulling_read(pulling->mmproj, &projector, error);
    options.projector = pulling->mmproj != NULL ? &projector : NULL;
    char *folder = rc == HEARTH_OK ? pull_folder_of(config, error) : NULL;
    if (folder == NULL) {
        pull_reference_release(&projector);
        return (int)error->code;
    }
    options.folder = folder;
    signal(SIGPIPE, SIG_IGN); /* a connection that breaks off while it is written to is tried again */
    rc = pull_model(reference, &options, model, error);
    terminal_clear_line();
    pull_reference_release(&projector);
    free(folder);
    return rc;
}
