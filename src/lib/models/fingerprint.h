/* The fingerprint (SHA-256) of the files of a model or of an adapter, found on a thread of its own while another thread
 * loads the weights: the digest of an earlier start, if the files are recognised (known_digests.h), else that of every
 * byte. The files' stamp is compared before and after, which shows that both threads read the same.
 *
 * A struct fingerprint is zeroed at first and belongs to the thread that loads the model; its digest is kept for later
 * loads as long as the stamp stays the same. */
#ifndef LIB_MODELS_FINGERPRINT_H
#define LIB_MODELS_FINGERPRINT_H

#include "base/sha256.h"
#include "hearth.h"
#include "llm/model_identity.h"
#include "store/store.h"

#include <pthread.h>

struct fingerprint {
    const char *path;
    struct store *store; /* keeps known digests; NULL: there are none */
    bool verify;         /* compare the digest with the file's sidecar */
    bool running, known; /* the thread was started; `digest` is that of `stamp` */
    _Atomic bool stop;   /* any thread's: what is computed, now or later, is not wanted any more */
    pthread_t thread;
    int rc;
    uint8_t stamp[SHA256_BYTES], digest[SHA256_BYTES];
    hearth_error error;
    /* The thread's: */
    struct llm_file_signs signs;
    bool may_note; /* the digest is that of `signs`, and may become a known one */
};

/* What is to be fingerprinted, and how. */
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
