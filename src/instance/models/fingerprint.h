/* The fingerprint (SHA-256) of a model's or an adapter's files tells them from others. It is found on a thread of its
 * own while another thread loads the weights. It is the digest of an earlier start, if the files are recognised, else
 * that of every byte. The files' stamp is compared before and after, which shows that both threads read the same. A
 * watch sees them change later.
 *
 * A struct fingerprint is zeroed at first and belongs to the thread that loads the model. Its digest is kept for later
 * loads as long as the stamp stays the same. */
#ifndef INSTANCE_MODELS_FINGERPRINT_H
#define INSTANCE_MODELS_FINGERPRINT_H

#include "base/buf.h"
#include "base/file_watch.h"
#include "base/sha256.h"
#include "config/config.h"
#include "hearth.h"
#include "llm/model_identity.h"
#include "store/store.h"

#include <pthread.h>

/* ---- Known digests ---- */

/* Looks up the digest of the weights of files with these signs. False: it is not known. A file that cannot be used is
 * logged, and knows nothing. */
bool known_digests_find(const struct buf *file, const struct llm_file_signs *signs, uint8_t digest[SHA256_BYTES]);

/* Adds a digest, or makes a known one the last to be dropped: the file holds the 64 that were used last. A damaged file
 * is begun anew. False: nothing has changed, or the file is of a newer version and must be left alone. */
bool known_digests_add(struct buf *file, const struct llm_file_signs *signs, const uint8_t digest[SHA256_BYTES]);

/* Whether a digest may be added of files that had these signs when reading them began, in seconds since 1970. Not of
 * files that were changed less than a minute before that: a change while they are read could leave them the same time.
 * That happens where a file system counts in seconds, and where a program writes through a mapping. Its pages have the
 * time at which they were first written to since they went to the disk, which is half a minute ago at most. */
bool known_digests_may_add(const struct llm_file_signs *signs, int64_t began_s);

/* ---- The watch ---- */

/* Opened before any of the files is read. A faulty one is reported when it is loaded. `report` and `ud` as in
 * file_watch.h. */
struct file_watch *model_watch_open(const struct config_model *config, void (*report)(void *ud, const char *reason),
                                    void *ud, hearth_error *error);

/* ---- The fingerprint ---- */

struct fingerprint {
    const char *path;
    struct store *store; /* keeps known digests; NULL: there are none */
    bool verify;         /* compare the digest with the file's sidecar */
    bool running, known; /* the thread was started; `digest` is that of `stamp` */
    _Atomic bool stop;   /* any thread's: ends a computation, now or later, since its digest is not wanted any more */
    pthread_t thread;
    int rc;
    uint8_t stamp[SHA256_BYTES], digest[SHA256_BYTES];
    hearth_error error;
    /* The thread's: */
    struct llm_file_signs signs;
    bool may_note; /* the digest is that of `signs`, and may become a known one */
};

/* The files to be fingerprinted, and how. */
struct fingerprint_source {
    const char *path; /* outlives the fingerprint */
    struct store *store;
    bool verify;
};

/* Fails only where no thread can be started; errors of the file are reported by fingerprint_finish(). */
int fingerprint_start(struct fingerprint *fingerprint, const struct fingerprint_source *source, hearth_error *error);

/* Joins the thread; called after the model was loaded. False: there is no digest, and fingerprint->error says why. */
bool fingerprint_finish(struct fingerprint *fingerprint);

/* Aborts the computation and joins the thread. Another one may be started. */
void fingerprint_stop(struct fingerprint *fingerprint);

#endif
