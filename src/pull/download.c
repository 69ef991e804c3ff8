/* One download: see download.h. Several requests run at once in a curl_multi, each for a run of pieces (journal.c) that
 * are missing; one that fails goes on where it was. A source that sends no ranges, or whose file could not be told from
 * another one, is asked for the whole file in one request, which a failure begins anew. */
#include "pull/download.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RUN_MOST     8                   /* pieces that one request asks for */
#define WAIT_MS      100                 /* for something to happen, between two looks at tasks that pause */
#define REPORT_MS    100                 /* between two reports */
#define RATE_MS      1000                /* over which the rate is measured */
#define FRESH_ENOUGH (1 << 20)           /* bytes after which a failure is no repetition of the one before */
#define CHANGES_MOST 3                   /* times that a file is begun anew */
#define SPARE        ((int64_t)64 << 20) /* bytes of a disk that stay free */
#define SIZE_MOST    ((int64_t)1 << 50)  /* bytes of a file: sums of what a thousand sources say do not overflow */
#define BLOCK        ((size_t)1 << 20)   /* bytes read at once */

struct download;

/* One request after the other, for bytes from `at` to `end` of the file; -1: to an end that is not known. */
struct task {
    struct download *download;
    struct pull_request request;
    char range[64];
    int64_t at, end;
    size_t piece;  /* the first that is not done */
    int64_t fresh; /* bytes since the last failure */
    int failures;  /* in a row */
    int64_t not_before;
    bool wanted, running, judged; /* it has something to do; it does it; the answer's head was looked at */
};

struct download {
    struct pull_file *file;
    const struct pull_place *place;
    const struct pull_how *how;
    char *part, *journal_name;
    int fd; /* of the part */
    bool in_ranges;
    struct pull_journal journal;
    CURLM *multi;
    struct task *tasks;
    int n_tasks;
    bool changed; /* at the source, since it was probed */
    int64_t done;
    int64_t unchecked; /* bytes that came since the disk was last asked for its room */
    struct meter {
        int64_t reported, measured, done; /* when; `done` at that time */
        double rate;
    } meter;
};

void pull_file_release(struct pull_file *file)
{
    free(file->name);
    free(file->source);
    free(file->etag);
    *file = (struct pull_file){0};
}

static char *part_of(const struct pull_file *file)
{
    return mem_format("%s.part", file->name);
}

static char *journal_of(const struct pull_file *file)
{
    return mem_format("%s.journal", file->name);
}

static struct pull_binding binding_of(const struct pull_file *file)
{
    return (struct pull_binding){file->size, file->has_sha ? file->sha : NULL, file->etag};
}

/* ---- Reports ---- */

/* HEARTH_CANCELLED where the pull is not to go on. */
static int report(struct download *d, int64_t done, bool checking, hearth_error *error)
{
    int64_t now = clock_now(clock_monotonic());
    struct meter *meter = &d->meter;
    double seconds = clock_to_ms(now - meter->measured) / 1e3;
    bool begins = meter->measured == 0 || done < meter->done;
    if (!begins && seconds * 1e3 >= RATE_MS) {
        double rate = (double)(done - meter->done) / seconds;
        meter->rate = meter->rate > 0 ? 0.7 * meter->rate + 0.3 * rate : rate;
    }
    if (begins || seconds * 1e3 >= RATE_MS) {
        meter->measured = now;
        meter->done = done;
    }
    bool is_end = done == d->file->size;
    int rc = pull_web_check(&d->how->web, error);
    bool is_due = is_end || now - meter->reported >= clock_from_ms(REPORT_MS);
    if (rc != HEARTH_OK || d->how->report == NULL || !is_due) return rc;
    meter->reported = now;
    struct pull_progress progress = {.file = d->file->name,
                                     .index = d->how->index,
                                     .n_files = d->how->n_files,
                                     .sha = d->file->has_sha ? d->file->sha : NULL,
                                     .checking = checking,
                                     .done = done,
                                     .total = d->file->size,
                                     .rate = meter->rate};
    d->how->report(d->how->ud, &progress);
    return HEARTH_OK;
}

/* ---- Probing ---- */

static bool take_probe(struct pull_request *request, const char *bytes, size_t len)
{
    (void)bytes, (void)len;
    request->enough = true;
    return request->head.status == 206; /* one byte, after which the connection can be used again */
}

static int judge_probe(struct pull_file *file, const struct pull_head *head, const char *origin, hearth_error *error)
{
    bool is_range = head->status == 206 && head->range_first == 0 && head->range_last == 0 && head->total > 0;
    int64_t size = is_range ? head->total : head->status == 200 ? head->length : -1;
    if (size == 0) return error_set(error, HEARTH_IO, "%s sends an empty file for %s", origin, file->name);
    if (file->is_listed && size > 0 && file->size >= 0 && size != file->size)
        return error_set(error, HEARTH_IO,
                         "%s contradicts itself: %s has %lld bytes in its list, and %lld when it is asked for", origin,
                         file->name, (long long)file->size, (long long)size);
    if (!file->is_listed || file->size < 0) file->size = size;
    if (file->size > SIZE_MOST)
        return error_set(error, HEARTH_IO, "%s says that %s has %lld bytes: no model has so many", origin, file->name,
                         (long long)file->size);
    free(file->etag);
    file->etag = mem_strdup(head->etag);
    struct pull_binding binding = binding_of(file);
    file->has_ranges = is_range && pull_binding_is_firm(&binding);
    return HEARTH_OK;
}

int pull_probe(struct pull_file *file, const struct pull_how *how, hearth_error *error)
{
    if (file->is_local) {
        struct stat is;
        if (stat(file->source, &is) != 0)
            return error_set(error, HEARTH_NOT_FOUND, "cannot read %s: %s", file->source, strerror(errno));
        if (!S_ISREG(is.st_mode)) return error_set(error, HEARTH_INVALID, "%s is not a file", file->source);
        file->size = is.st_size;
        return HEARTH_OK;
    }
    struct pull_request request = {.web = &how->web, .url = file->source, .range = "0-0", .take = take_probe};
    int rc = pull_web_get(&request, error);
    if (rc == HEARTH_OK) rc = judge_probe(file, &request.head, request.at.origin, error);
    pull_request_release(&request);
    return rc;
}

/* ---- Room ---- */

int64_t pull_missing(const struct pull_file *file, const struct pull_place *place)
{
    struct stat is;
    char *part = part_of(file);
    int64_t have = fstatat(place->fd, part, &is, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t)is.st_blocks * 512 : 0;
    free(part);
    if (file->size < 0) return -1;
    return have < file->size ? file->size - have : 0;
}

int pull_check_space(int folder, int64_t bytes, hearth_error *error)
{
    struct statvfs disk;
    if (fstatvfs(folder, &disk) != 0)
        return error_set(error, HEARTH_IO, "cannot tell how much room the disk has: %s", strerror(errno));
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)bytes + (double)SPARE <= room) return HEARTH_OK;
    return error_set(error, HEARTH_IO,
                     "the disk of the models folder has %.2f GB free, and %.2f GB are needed: make room, or set "
                     "HEARTH_MODELS to a folder elsewhere",
                     room / 1e9, ((double)bytes + (double)SPARE) / 1e9);
}

/* ---- What comes ---- */

static int fail_part(const struct download *d, hearth_error *error)
{
    return error_set(error, HEARTH_IO, "cannot write %s/%s: %s", d->place->path, d->part, strerror(errno));
}

static bool write_at(const struct download *d, const char *bytes, size_t len, int64_t at, hearth_error *error)
{
    while (len > 0) {
        ssize_t n = pwrite(d->fd, bytes, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_part(d, error) == HEARTH_OK;
        bytes += n;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

/* The file at the source is another one than was probed: all is begun anew. */
static bool note_change(struct task *task)
{
    task->download->changed = true;
    task->request.enough = true;
    return false;
}

static bool refuse_head(struct task *task, const char *why)
{
    error_set(&task->request.error, HEARTH_IO, "%s %s", task->request.at.origin, why);
    return false;
}

static bool judge_range(struct task *task)
{
    const struct pull_head *head = &task->request.head;
    const struct pull_file *file = task->download->file;
    bool is_other = file->etag != NULL && head->etag != NULL && strcmp(file->etag, head->etag) != 0;
    if (head->status != 206 || head->total != file->size || is_other) return note_change(task);
    bool fits = head->range_first == task->at && head->range_last >= task->at && head->range_last < task->end;
    if (!fits) return refuse_head(task, "sends another range than it was asked for");
    if (head->length >= 0 && head->length != head->range_last - head->range_first + 1)
        return refuse_head(task, "contradicts itself about the length of a range");
    return true;
}

static bool judge_whole(struct task *task)
{
    const struct pull_head *head = &task->request.head;
    const struct pull_file *file = task->download->file;
    if (head->status != 200) return refuse_head(task, "sends a range, and was asked for the whole file");
    if (head->length < 0 && !head->has_end)
        return refuse_head(task,
                           "says neither how long the file is nor where it ends (chunked): it cannot be told whether "
                           "it is whole");
    return head->length < 0 || file->size < 0 || head->length == file->size || note_change(task);
}

static bool take_body(struct pull_request *request, const char *bytes, size_t len)
{
    struct task *task = request->ud;
    struct download *d = task->download;
    if (!task->judged && !(d->in_ranges ? judge_range(task) : judge_whole(task))) return false;
    task->judged = true;
    if (task->end >= 0 && (int64_t)len > task->end - task->at)
        return refuse_head(task, "sends more bytes than it has said");
    /* A source may send more than it has said, or not say how much it will send. */
    d->unchecked += (int64_t)len;
    if (d->unchecked >= SPARE / 2) {
        d->unchecked = 0;
        if (pull_check_space(d->place->fd, 0, &request->error) != HEARTH_OK) return false;
    }
    if (!write_at(d, bytes, len, task->at, &request->error)) return false;
    task->at += (int64_t)len;
    task->fresh += (int64_t)len;
    d->done += (int64_t)len;
    /* The pieces that are whole are entered. Their bytes are synced first, or a loss of power would leave entries
     * without. */
    while (d->in_ranges && task->piece < d->journal.n && pull_piece_end(&d->journal, task->piece) <= task->at) {
        if (os_sync(d->fd) != 0) return fail_part(d, &request->error) == HEARTH_OK;
        if (pull_journal_enter(&d->journal, task->piece++, &request->error) != HEARTH_OK) return false;
    }
    return true;
}

/* ---- Tasks ---- */

/* Gives an idle task a run of missing pieces, if there are any. */
static void assign(struct task *task)
{
    struct download *d = task->download;
    size_t share = (d->journal.n + (size_t)d->n_tasks - 1) / (size_t)d->n_tasks, first = 0;
    size_t n = pull_journal_take(&d->journal, share < RUN_MOST ? share : RUN_MOST, &first);
    if (n == 0) return;
    task->piece = first;
    task->at = (int64_t)first * PULL_PIECE;
    task->end = pull_piece_end(&d->journal, first + n - 1);
    task->wanted = true;
}

static int start(struct task *task, hearth_error *error)
{
    struct download *d = task->download;
    task->request.web = &d->how->web;
    task->request.url = d->file->source;
    task->request.take = take_body;
    task->request.ud = task;
    if (d->in_ranges) {
        snprintf(task->range, sizeof task->range, "%lld-%lld", (long long)task->at, (long long)task->end - 1);
        task->request.range = task->range;
        task->request.etag = d->file->etag;
    }
    int rc = pull_request_begin(&task->request, error);
    if (rc != HEARTH_OK) return rc;
    task->judged = false;
    task->running = true;
    curl_multi_add_handle(d->multi, task->request.curl);
    return HEARTH_OK;
}

static int note_failure(struct task *task, const hearth_error *error)
{
    struct download *d = task->download;
    task->failures = task->fresh >= FRESH_ENOUGH ? 1 : task->failures + 1;
    task->fresh = 0;
    if (task->failures > d->how->web.retries) return (int)error->code;
    task->not_before = clock_now(clock_monotonic()) +
                       clock_from_ms((int64_t)(pull_request_pause(&task->request, task->failures) * 1e3));
    if (d->in_ranges) return HEARTH_OK;
    task->at = d->done = 0;
    return ftruncate(d->fd, 0) == 0 ? HEARTH_OK : (int)error->code;
}

static int end_task(struct task *task, CURLcode code, hearth_error *error)
{
    task->judged = false;
    switch (pull_request_end(&task->request, code, error)) {
    case PULL_REDIRECTED:
        curl_multi_add_handle(task->download->multi, task->request.curl);
        return HEARTH_OK;
    case PULL_FINE:
        task->running = false;
        /* The answer has ended well; whether it was all that was asked for. */
        task->wanted = !task->download->changed && task->end >= 0 && task->at < task->end;
        if (!task->wanted) return HEARTH_OK;
        error_set(error, HEARTH_IO, "%s ends the file early: it sent %lld of %lld bytes", task->request.at.origin,
                  (long long)task->at, (long long)task->end);
        return note_failure(task, error);
    case PULL_AGAIN:
        task->running = false;
        return note_failure(task, error);
    default:
        task->running = false;
        return (int)error->code;
    }
}

static int take_ends(struct download *d, hearth_error *error)
{
    int left, rc = HEARTH_OK;
    for (CURLMsg *message; rc == HEARTH_OK && (message = curl_multi_info_read(d->multi, &left)) != NULL;) {
        char *its = NULL;
        CURL *curl = message->easy_handle;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(curl, CURLINFO_PRIVATE, &its);
        const struct pull_request *request = (const void *)its;
        curl_multi_remove_handle(d->multi, curl);
        rc = end_task(request->ud, code, error);
    }
    return rc;
}

static int run_tasks(struct download *d, hearth_error *error)
{
    int running, rc = HEARTH_OK;
    while (rc == HEARTH_OK && !d->changed) {
        bool any = false; /* something is running, or will */
        for (int i = 0; i < d->n_tasks && rc == HEARTH_OK; i++) {
            struct task *task = &d->tasks[i];
            if (!task->wanted && d->in_ranges) assign(task);
            any = any || task->wanted;
            if (task->wanted && !task->running && task->not_before <= clock_now(clock_monotonic()))
                rc = start(task, error);
        }
        if (rc != HEARTH_OK || !any) break;
        curl_multi_perform(d->multi, &running);
        rc = take_ends(d, error);
        if (rc == HEARTH_OK) rc = report(d, d->done, false, error);
        if (rc == HEARTH_OK) curl_multi_poll(d->multi, NULL, 0, WAIT_MS, NULL);
    }
    return rc;
}

/* ---- The part ---- */

static int64_t size_of_part(const struct download *d)
{
    struct stat is;
    return fstat(d->fd, &is) == 0 && S_ISREG(is.st_mode) ? is.st_size : -1;
}

static int open_journal(struct download *d, hearth_error *error)
{
    struct pull_binding binding = binding_of(d->file);
    bool fresh = false;
    int rc = pull_journal_open(&d->journal, d->place->fd, d->journal_name, &binding, size_of_part(d), &fresh, error);
    if (rc == HEARTH_OK && fresh && (ftruncate(d->fd, 0) != 0 || ftruncate(d->fd, (off_t)d->file->size) != 0))
        rc = fail_part(d, error);
    d->done = rc == HEARTH_OK ? pull_journal_bytes(&d->journal) : 0;
    return rc;
}

/* Fetches the file's bytes into the part, as it was when it was probed. */
static int fetch_once(struct download *d, hearth_error *error)
{
    int rc = HEARTH_OK;
    d->changed = false;
    d->done = 0;
    d->in_ranges = d->file->has_ranges;
    if (d->in_ranges)
        rc = open_journal(d, error);
    else if (ftruncate(d->fd, 0) != 0 || (unlinkat(d->place->fd, d->journal_name, 0) != 0 && errno != ENOENT))
        rc = fail_part(d, error);
    if (rc == HEARTH_OK) {
        d->multi = curl_multi_init();
        d->n_tasks = d->in_ranges ? d->how->connections : 1;
        d->tasks = mem_alloc((size_t)d->n_tasks * sizeof *d->tasks);
        for (int i = 0; i < d->n_tasks; i++) d->tasks[i].download = d;
        if (!d->in_ranges) d->tasks[0].end = d->file->size;
        d->tasks[0].wanted = !d->in_ranges;
        rc = run_tasks(d, error);
        if (rc == HEARTH_OK && !d->changed && !d->in_ranges) d->file->size = d->tasks[0].at;
        for (int i = 0; i < d->n_tasks; i++) {
            if (d->tasks[i].running) curl_multi_remove_handle(d->multi, d->tasks[i].request.curl);
            pull_request_release(&d->tasks[i].request);
        }
        curl_multi_cleanup(d->multi);
        free(d->tasks);
        d->multi = NULL;
        d->tasks = NULL;
        d->n_tasks = 0;
    }
    if (d->in_ranges) pull_journal_close(&d->journal);
    return rc;
}

static int fetch(struct download *d, hearth_error *error)
{
    int rc = fetch_once(d, error);
    for (int i = 0; rc == HEARTH_OK && d->changed; i++) {
        unlinkat(d->place->fd, d->journal_name, 0);
        if (i == CHANGES_MOST)
            return error_set(error, HEARTH_IO, "%s changes at its source while it is pulled: try again later",
                             d->file->name);
        if (!d->file->is_listed) d->file->size = -1;
        rc = pull_probe(d->file, d->how, error);
        if (rc == HEARTH_OK) rc = fetch_once(d, error);
    }
    return rc;
}

static int copy_local(struct download *d, hearth_error *error)
{
    char *block = mem_alloc(BLOCK);
    ssize_t n = 0;
    int rc = HEARTH_OK, from = open(d->file->source, O_RDONLY | O_CLOEXEC);
    if (from < 0 || ftruncate(d->fd, 0) != 0)
        rc = error_set(error, HEARTH_IO, "cannot copy %s: %s", d->file->source, strerror(errno));
    while (rc == HEARTH_OK && (n = read(from, block, BLOCK)) > 0) {
        if (!write_at(d, block, (size_t)n, d->done, error)) rc = HEARTH_IO;
        d->done += n;
        if (rc == HEARTH_OK) rc = report(d, d->done, false, error);
    }
    if (rc == HEARTH_OK && n < 0)
        rc = error_set(error, HEARTH_IO, "cannot read %s: %s", d->file->source, strerror(errno));
    if (rc == HEARTH_OK && d->done != d->file->size)
        rc = error_set(error, HEARTH_IO, "%s changes while it is copied: try again", d->file->source);
    if (from >= 0) close(from);
    free(block);
    return rc;
}

/* ---- The end ---- */

static int digest(struct download *d, uint8_t sha[SHA256_BYTES], hearth_error *error)
{
    struct sha256 *hash = sha256_open();
    char *block = mem_alloc(BLOCK);
    int64_t at = 0;
    ssize_t n = 0;
    int rc = HEARTH_OK;
    d->meter = (struct meter){0};
    while (rc == HEARTH_OK && (n = pread(d->fd, block, BLOCK, (off_t)at)) > 0) {
        sha256_feed(hash, block, (size_t)n);
        at += n;
        rc = report(d, at, true, error);
    }
    if (rc == HEARTH_OK && n < 0) rc = error_set(error, HEARTH_IO, "cannot read %s: %s", d->part, strerror(errno));
    sha256_so_far(hash, sha);
    sha256_close(hash);
    free(block);
    return rc;
}

/* A file that is wrong stays wrong, so it is removed, and the next pull begins anew. */
static int check_bytes(struct download *d, const uint8_t sha[SHA256_BYTES], hearth_error *error)
{
    struct buf source = {0};
    char *path = mem_format("%s/%s", d->place->path, d->part);
    int rc = HEARTH_OK;
    if (d->file->is_local)
        buf_puts(&source, d->file->source);
    else
        pull_url_put(&source, d->file->source);
    if (d->file->has_sha && !sha256_equal(sha, d->file->sha))
        rc =
            error_set(error, HEARTH_IO,
                      "what came from %s has another SHA-256 than its source says: it is damaged, or has just changed; "
                      "pull it again",
                      source.v);
    else if ((rc = hearth_model_check(path, error)) != HEARTH_OK)
        error_prefix(error, "what came from %s is no whole model: ", source.v);
    if (rc != HEARTH_OK) {
        unlinkat(d->place->fd, d->part, 0);
        unlinkat(d->place->fd, d->journal_name, 0);
    }
    buf_release(&source);
    free(path);
    return rc;
}

int pull_download(struct pull_file *file, const struct pull_place *place, const struct pull_how *how,
                  struct pull_stored *stored, hearth_error *error)
{
    struct download d = {.file = file, .place = place, .how = how, .journal.fd = -1, .fd = -1};
    uint8_t sha[SHA256_BYTES] = {0};
    d.part = part_of(file);
    d.journal_name = journal_of(file);
    d.fd = openat(place->fd, d.part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    bool is_file = d.fd >= 0 && size_of_part(&d) >= 0;
    if (d.fd >= 0 && !is_file) errno = EINVAL;
    int rc = is_file ? HEARTH_OK : fail_part(&d, error);
    if (rc == HEARTH_OK) rc = file->is_local ? copy_local(&d, error) : fetch(&d, error);
    if (rc == HEARTH_OK) rc = digest(&d, sha, error);
    if (rc == HEARTH_OK) rc = check_bytes(&d, sha, error);
    if (rc == HEARTH_OK && fsync(d.fd) != 0) rc = fail_part(&d, error);
    if (rc == HEARTH_OK) {
        file->is_here = true;
        *stored = (struct pull_stored){.name = mem_strdup(file->name),
                                       .size = file->size,
                                       .etag = mem_strdup(file->etag),
                                       .is_projector = file->is_projector};
        sha256_to_hex(sha, stored->sha);
    }
    /* Half a file that cannot be gone on with only takes room. */
    if (rc != HEARTH_OK && d.fd >= 0 && !d.in_ranges) unlinkat(place->fd, d.part, 0);
    if (d.fd >= 0) close(d.fd);
    free(d.part);
    free(d.journal_name);
    return rc;
}

int pull_name_file(const struct pull_file *file, const struct pull_place *place, hearth_error *error)
{
    char *part = part_of(file), *journal = journal_of(file);
    int rc = HEARTH_OK;
    if (renameat(place->fd, part, place->fd, file->name) != 0 || fsync(place->fd) != 0)
        rc = error_set(error, HEARTH_IO, "cannot write %s/%s: %s", place->path, file->name, strerror(errno));
    else
        unlinkat(place->fd, journal, 0);
    free(part);
    free(journal);
    return rc;
}
