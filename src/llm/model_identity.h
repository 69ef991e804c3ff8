/* Identity of a model and a context: the digest of the weights and every context parameter that a saved state depends
 * on without containing it. The store's slab keys include it; whatever is missing here lets one model's states be
 * loaded into another. */
#ifndef LLM_MODEL_IDENTITY_H
#define LLM_MODEL_IDENTITY_H

#include "base/buf.h"
#include "llm/context.h"

/* Appends, line by line, everything that states of this context depend on beside weights and tokens and do not contain.
 * These are the version and build of llama.cpp, resolved flash attention, types of keys and values, and rotation of
 * quantised cells. RoPE and YaRN are among them, with the class of the window where LongRoPE factors depend on it. Not
 * the layout of cells: slices do not depend on it. */
void llm_context_describe(const struct llm_context *context, struct buf *out);

/* Appends a line with the version and build of llama.cpp, whose kernels round in their own way. */
void llm_describe_build(struct buf *out);

/* How a model's files are read. */
struct llm_reading {
    const _Atomic bool *stop; /* once set, reading ends with HEARTH_CANCELLED; may be NULL */
    bool verify;              /* each file that has a sidecar FILE.sha256 must match the digest in it */
};

/* SHA-256 over the content of the model's file, or files where it is split: every byte. Slow (as fast as the disk, or
 * about 1 GB/s); any thread. */
int llm_file_fingerprint(const char *path, const struct llm_reading *how, uint8_t digest[32], hearth_error *error);

/* Whether there is a FILE.sha256 beside the file, as sha256sum writes it. Of a split model: beside its first part. */
bool llm_file_has_sidecar(const char *path);

/* Whether this is the digest in the file's sidecar. That of a split model never is: its sidecars are of one file each.
 */
bool llm_file_matches_sidecar(const char *path, const uint8_t digest[32]);

/* One file of a model, and of how many. */
struct llm_part {
    const char *path;
    int32_t n;
};

/* Calls `each` for every file of the model, in order, until one of these calls fails. */
int llm_file_each_part(const char *path, int (*each)(void *ud, const struct llm_part *part, hearth_error *error),
                       void *ud, hearth_error *error);

/* A digest of the stamps of the model's files (base/file_watch.h): while it stays equal, so does their content. */
int llm_file_stamp(const char *path, uint8_t stamp[32], hearth_error *error);

/* By what the files of a model are recognised at a later start without being read whole. */
struct llm_file_signs {
    uint8_t stamp[32]; /* llm_file_stamp() */
    uint8_t spots[32]; /* SHA-256 of 64 spots of 64 KiB, evenly spread, each file's first and last bytes among them */
    int64_t changed_s; /* seconds since 1970: when one of the files was last changed, as the file system has it */
};

/* Reads some 4 MiB; any thread. */
int llm_file_signs(const char *path, struct llm_file_signs *signs, hearth_error *error);

/* The type of most weights as its file says: "q8_0", "q4_k_m", …; "unknown". */
const char *llm_file_quant(const char *path);

#endif
