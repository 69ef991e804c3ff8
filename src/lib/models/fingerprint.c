/* Fingerprints of files: see fingerprint.h. The thread reads; the thread that loads the model decides whether what was
 * read still holds, and notes it. */
#include "lib/models/fingerprint.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "lib/models/known_digests.h"

#include <string.h>

/* How long a cache folder on a disk that hangs may delay a load: milliseconds. */
#define DIGESTS_WAIT_MS 2000

/* ---- The thread ---- */

/* A known digest that is not the one in a sidecar proves nothing about it: every byte is read, as always for a model in
 * several files, whose sidecars are of one file each. */
static bool is_known(struct fingerprint *f)
{
    struct buf file = {0};
    store_digests(f->store, clock_now(clock_monotonic()) + clock_from_ms(DIGESTS_WAIT_MS), &file);
    bool known = known_digests_find(&file, &f->signs, f->digest);
    buf_release(&file);
    return known && (!f->verify || llm_file_matches_sidecar(f->path, f->digest));
}

/* Files whose signs cannot be read are hashed, which says why. */
static bool find_known(struct fingerprint *f)
{
    hearth_error unwanted;
    int64_t began_s = clock_unix_ms() / 1000;
    if (f->store == NULL || llm_file_signs(f->path, &f->signs, &unwanted) != HEARTH_OK) return false;
    bool known = is_known(f);
    f->may_note = known || known_digests_may_add(&f->signs, began_s);
    return known;
}

static void *compute_fingerprint(void *ud)
{
    struct fingerprint *f = ud;
    int64_t began = clock_now(clock_monotonic());
    struct llm_reading how = {.stop = &f->stop, .verify = f->verify};
    f->may_note = false;
    bool known = find_known(f);
    f->rc = known ? HEARTH_OK : llm_file_fingerprint(f->path, &how, f->digest, &f->error);
    if (f->rc == HEARTH_OK)
        log_event(LOG_INFO, "model", known ? "weights known" : "weights hashed", log_str("path", f->path),
                  log_num("took_ms", clock_to_ms(clock_now(clock_monotonic()) - began)));
    return NULL;
}

/* ---- The thread that loads ---- */

int fingerprint_start(struct fingerprint *fingerprint, const struct fingerprint_source *source, hearth_error *error)
{
    uint8_t former[SHA256_BYTES];
    memcpy(former, fingerprint->stamp, sizeof former);
    bool known = fingerprint->known && (fingerprint->verify || !source->verify);
    fingerprint->path = source->path;
    fingerprint->store = source->store;
    fingerprint->verify = source->verify;
    fingerprint->known = false;
    fingerprint->rc = llm_file_stamp(fingerprint->path, fingerprint->stamp, &fingerprint->error);
    if (fingerprint->rc != HEARTH_OK) return HEARTH_OK;
    fingerprint->known = known && memcmp(former, fingerprint->stamp, sizeof former) == 0;
    if (fingerprint->known) return HEARTH_OK;
    int rc = thread_start(&fingerprint->thread, compute_fingerprint, fingerprint, "reads the model's file", error);
    fingerprint->running = rc == HEARTH_OK;
    return rc;
}

static bool is_unchanged(struct fingerprint *fingerprint)
{
    uint8_t stamp[SHA256_BYTES];
    if (llm_file_stamp(fingerprint->path, stamp, &fingerprint->error) != HEARTH_OK) return false;
    if (memcmp(stamp, fingerprint->stamp, sizeof stamp) == 0) return true;
    error_at(&fingerprint->error, HEARTH_INVALID, fingerprint->path, "%s was changed while it was loaded",
             fingerprint->path);
    return false;
}

/* Also of a known digest, whose use is its latest. */
static void note_digest(const struct fingerprint *fingerprint)
{
    struct buf file = {0};
    if (memcmp(fingerprint->signs.stamp, fingerprint->stamp, SHA256_BYTES) != 0) return;
    store_digests(fingerprint->store, 0, &file);
    if (known_digests_add(&file, &fingerprint->signs, fingerprint->digest))
        store_keep_digests(fingerprint->store, &file);
    buf_release(&file);
}

bool fingerprint_finish(struct fingerprint *fingerprint)
{
    bool computed = fingerprint->running;
    if (computed) {
        pthread_join(fingerprint->thread, NULL);
        fingerprint->known = fingerprint->rc == HEARTH_OK;
    }
    fingerprint->running = false;
    if (fingerprint->known && !is_unchanged(fingerprint)) fingerprint->known = false;
    if (computed && fingerprint->known && fingerprint->may_note) note_digest(fingerprint);
    return fingerprint->known;
}

void fingerprint_stop(struct fingerprint *fingerprint)
{
    atomic_store(&fingerprint->stop, true);
    fingerprint_finish(fingerprint);
    atomic_store(&fingerprint->stop, false);
}
