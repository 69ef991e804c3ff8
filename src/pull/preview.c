/* A model's files without their bytes, for `hearth fit`'s arithmetic: see pull_preview() in pull.h.
 *
 * Of each part of the weights a prefix is fetched, in ranges that grow, until its header is whole. It is written into a
 * file whose length is the true one; the rest is a hole. Code that reads headers and sizes alone cannot tell it from
 * the model. A source without ranges sends the file from its beginning, and is left once the header has come. Of a
 * projector the size counts, and nothing is fetched. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pull/gguf_header.h"
#include "pull/pull.h"
#include "pull/pull_plan.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST       ((size_t)1 << 20)   /* bytes that are asked for first; then four times as many in all */
#define MOST        ((size_t)64 << 20)  /* of one file: no header that is known has half of it */
#define MOST_IN_ALL ((size_t)256 << 20) /* of all parts */
#define SECONDS     60                  /* for all of it */

struct preview {
    const struct pull_options *asked;
    struct pull_plan plan;
    int64_t deadline;
    size_t fetched;          /* bytes of all files */
    char *folder, *files_in; /* the temporary one; in it that of the model */
    struct pull_model model;
};

/* ---- Bounds ---- */

static bool is_late(const struct preview *p)
{
    return clock_now(clock_monotonic()) >= p->deadline;
}

static bool is_over(void *ud)
{
    const struct preview *p = ud;
    return is_late(p) || (p->asked->is_cancelled != NULL && p->asked->is_cancelled(p->asked->ud));
}

/* ---- The beginning of a file ---- */

struct prefix {
    const struct pull_file *file;
    struct buf bytes;
    size_t goal, most;  /* bytes that are asked for, now and at the end */
    bool whole, judged; /* the header is; the answer's head was looked at */
};

static bool grow(struct prefix *prefix)
{
    size_t next = prefix->goal == 0 ? FIRST : prefix->goal * 4;
    if (next > prefix->most) next = prefix->most;
    if ((int64_t)next > prefix->file->size) next = (size_t)prefix->file->size;
    bool has_grown = next > prefix->goal;
    prefix->goal = next;
    return has_grown;
}

static bool continues(const struct prefix *prefix, const struct pull_head *head)
{
    int64_t at = (int64_t)prefix->bytes.len;
    return head->status == 200 ? at == 0 : head->range_first == at && head->total == prefix->file->size;
}

/* Takes as much as was asked for. Of a whole file, which a source without ranges sends, as much as it turns out to
 * take. */
static bool take_prefix(struct pull_request *request, const char *bytes, size_t len)
{
    struct prefix *prefix = request->ud;
    if (!prefix->judged && !continues(prefix, &request->head)) {
        error_set(&request->error, HEARTH_IO, "%s sends another part of %s than it was asked for, or it has changed",
                  request->at.origin, prefix->file->name);
        return false;
    }
    prefix->judged = true;
    for (;;) {
        size_t room = prefix->goal - prefix->bytes.len, n = len < room ? len : room;
        buf_append(&prefix->bytes, bytes, n);
        bytes += n;
        len -= n;
        if (prefix->bytes.len < prefix->goal) return true;
        prefix->whole = gguf_header_is_whole(prefix->bytes.v, prefix->bytes.len);
        request->enough = prefix->whole || request->head.status == 206 || !grow(prefix);
        if (request->enough) return len == 0 && request->head.status == 206; /* its connection is used again */
    }
}

/* Fetches the header, and perhaps some of what follows. A file that ends before its header does comes as it is:
 * hearth_model_check() says what is wrong with it. */
static int fetch_prefix(struct preview *p, struct prefix *prefix, hearth_error *error)
{
    struct pull_web web = p->plan.how.web;
    char range[64];
    struct pull_request request = {.web = &web,
                                   .url = prefix->file->source,
                                   .range = range,
                                   .etag = prefix->file->etag,
                                   .take = take_prefix,
                                   .ud = prefix};
    int rc = HEARTH_OK;
    web.retries = 0; /* what came of one that has failed would be taken twice */
    prefix->most = p->fetched + MOST < MOST_IN_ALL ? MOST : MOST_IN_ALL - p->fetched;
    while (rc == HEARTH_OK && !prefix->whole && grow(prefix)) {
        size_t at = prefix->bytes.len;
        snprintf(range, sizeof range, "%zu-%zu", at, prefix->goal - 1);
        prefix->judged = false;
        rc = pull_web_get(&request, error);
        if (rc == HEARTH_OK && request.head.status == 200) break;
        if (rc == HEARTH_OK && prefix->bytes.len < prefix->goal)
            rc = error_set(error, HEARTH_IO, "%s sends less of %s than it was asked for", request.at.origin,
                           prefix->file->name);
    }
    p->fetched += prefix->bytes.len;
    bool is_cut = prefix->bytes.len == prefix->most && (int64_t)prefix->most < prefix->file->size;
    if (rc == HEARTH_OK && !prefix->whole && is_cut)
        rc = error_set(error, HEARTH_IO,
                       "what precedes the weights in %s is larger than any model's: whether it fits is known once it "
                       "was pulled",
                       prefix->file->name);
    pull_request_release(&request);
    return rc;
}

/* ---- Files ---- */

static int write_hole(const char *path, const struct prefix *prefix, hearth_error *error)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t done = 0;
    bool fine = fd >= 0;
    while (fine && done < prefix->bytes.len) {
        ssize_t n = write(fd, prefix->bytes.v + done, prefix->bytes.len - done);
        if (n > 0) done += (size_t)n;
        fine = n > 0 || (n < 0 && errno == EINTR);
    }
    fine = fine && ftruncate(fd, (off_t)prefix->file->size) == 0;
    if (!fine) error_set(error, HEARTH_IO, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return fine ? HEARTH_OK : (int)error->code;
}

static char *path_of(const struct preview *p, const struct pull_file *file)
{
    return mem_format("%s/%s", p->files_in, file->name);
}

/* An error about a file names the source's, not the temporary one's path. */
static void name_source(const struct preview *p, hearth_error *error)
{
    char *at = strstr(error->message, p->files_in);
    size_t len = strlen(p->files_in) + 1;
    if (at != NULL) memmove(at, at + len, strlen(at + len) + 1);
}

static int put_file(struct preview *p, struct pull_file *file, hearth_error *error)
{
    struct prefix prefix = {.file = file};
    char *path = path_of(p, file);
    int rc = pull_probe(file, &p->plan.how, error);
    if (rc == HEARTH_OK && file->size < 0)
        rc = error_set(error, HEARTH_IO, "its source does not say how large %s is: that is known once it was pulled",
                       file->name);
    if (rc == HEARTH_OK && !file->is_projector) rc = fetch_prefix(p, &prefix, error);
    if (rc == HEARTH_OK) rc = write_hole(path, &prefix, error);
    if (rc == HEARTH_OK && !file->is_projector && (rc = hearth_model_check(path, error)) != HEARTH_OK) {
        struct buf source = {0};
        pull_url_put(&source, file->source);
        error_prefix(error, "what comes from %s is no whole model: ", source.v);
        buf_release(&source);
    }
    struct pull_stored stored = {
        .name = mem_strdup(file->name), .size = file->size, .is_projector = file->is_projector};
    pull_model_add_file(&p->model, &stored);
    buf_release(&prefix.bytes);
    free(path);
    return rc;
}

static int open_folder(struct preview *p, hearth_error *error)
{
    const char *temporary = getenv("TMPDIR");
    p->folder = mem_format("%s/hearth-preview-XXXXXX", temporary == NULL || temporary[0] == '\0' ? "/tmp" : temporary);
    bool made = mkdtemp(p->folder) != NULL;
    if (made) p->files_in = mem_format("%s/%s", p->folder, p->plan.name);
    if (made && mkdir(p->files_in, 0700) == 0) return HEARTH_OK;
    return error_set(error, HEARTH_IO, "cannot make a folder %s: %s: set TMPDIR to one where it can lie", p->folder,
                     strerror(errno));
}

static void remove_folder(const struct preview *p)
{
    for (size_t i = 0; i < p->plan.n_files; i++) {
        char *path = path_of(p, &p->plan.files[i]);
        unlink(path);
        free(path);
    }
    rmdir(p->files_in);
    rmdir(p->folder);
}

/* ---- All of it ---- */

static int preview(struct preview *p, hearth_error *error)
{
    int rc = open_folder(p, error);
    p->model.name = mem_strdup(p->plan.name);
    p->model.reference = mem_strdup(p->plan.reference->text);
    for (size_t i = 0; i < p->plan.n_files && rc == HEARTH_OK; i++) rc = put_file(p, &p->plan.files[i], error);
    return rc;
}

int pull_preview(const struct pull_reference *reference, const struct pull_options *options,
                 int (*use)(void *ud, const char *folder, const struct pull_model *model, hearth_error *error),
                 void *ud, hearth_error *error)
{
    assert(reference->kind != PULL_FILE);
    struct pull_options own = *options;
    struct preview p = {.asked = options,
                        .deadline = clock_now(clock_monotonic()) + clock_from_ms((int64_t)SECONDS * 1000)};
    own.is_cancelled = is_over;
    own.ud = &p;
    own.report = NULL;
    int rc = pull_plan_make(&p.plan, reference, &own, error);
    if (rc == HEARTH_OK) rc = preview(&p, error);
    if (rc == HEARTH_CANCELLED && is_late(&p))
        rc = error_set(error, HEARTH_IO, "its source does not send the file's header within %d s: try again later",
                       SECONDS);
    if (rc == HEARTH_OK) rc = use(ud, p.folder, &p.model, error);
    if (p.files_in != NULL) {
        if (rc != HEARTH_OK) name_source(&p, error);
        remove_folder(&p);
    }
    pull_plan_release(&p.plan);
    pull_model_release(&p.model);
    free(p.folder);
    free(p.files_in);
    return rc;
}
