/* What a state depends on beside its tokens: the weights' content and everything about the context that the state does
 * not tell by itself. The store's keys are made of it; whatever is missing here lets one model's states be taken for
 * another's. */
#ifndef LLM_MODEL_IDENTITY_H
#define LLM_MODEL_IDENTITY_H

#include "base/buf.h"
#include "llm/context.h"

/* Appends, line by line, everything that states of this context depend on beside weights and tokens, and that they do
 * not tell: resolved flash attention, types of keys and values, RoPE and YaRN, class of the window where the factors
 * depend on it, rotation of quantised cells, version and build of llama.cpp. Not the layout: pieces do not depend on
 * it. */
void llm_context_describe(const struct llm_context *context, struct buf *out);

/* How a file is read. */
struct llm_reading {
    const _Atomic bool *stop; /* ends it early, with HEARTH_CANCELLED; NULL: nothing does */
    bool verify;              /* each file that has a sidecar must have the digest that is written there */
};

/* SHA-256 over the content of the model's file, or files where it is split: every byte. Slow (as fast as the disk, or
 * about 1 GB/s); any thread. */
int llm_file_fingerprint(const char *path, const struct llm_reading *how, uint8_t digest[32], hearth_error *error);

/* Whether there is a FILE.sha256 beside the file, as sha256sum writes it. Of a split model: beside its first part. */
bool llm_file_has_sidecar(const char *path);

/* Which files these are, and when they last changed: equal before and after is the same content in between. */
int llm_file_stamp(const char *path, uint8_t stamp[32], hearth_error *error);

/* The type of most weights as its file says: "q8_0", "q4_k_m", …; "unknown". */
const char *llm_file_quant(const char *path);

#endif
