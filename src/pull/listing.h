/* The files of a repository, and which of them make up a model: the weights in one quantisation, all their shards, and
 * the projector that belongs to them. Names in a listing are data of a stranger. Pure functions; any thread. */
#ifndef PULL_LISTING_H
#define PULL_LISTING_H

#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>
#include <stddef.h>

struct pull_entry {
    char *path; /* in the repository, with folders */
    int64_t size;
    bool has_sha;
    uint8_t sha[SHA256_BYTES];
};

struct pull_listing {
    struct pull_entry *v; /* GGUF files alone */
    size_t n;
};

/* Adds the files of a page of Hugging Face's tree API. HEARTH_IO: it is none. */
int pull_listing_add(struct pull_listing *listing, const char *json, size_t len, hearth_error *error);
void pull_listing_release(struct pull_listing *listing);

/* Entries of a listing, whose strings they share: the weights' shards in order, then the projector. */
struct pull_choice {
    struct pull_entry *v;
    size_t n;
    bool has_projector; /* it is the last */
};

/* `quant` is a quantisation ("Q4_K_M"), the name or path of a file, or NULL: the usual ones are tried.
 * HEARTH_NOT_FOUND: there is none, or HEARTH_INVALID: several; the message lists what there is. */
int pull_choose(const struct pull_listing *listing, const char *quant, struct pull_choice *choice, hearth_error *error);
void pull_choice_release(struct pull_choice *choice);

/* Where a name has the ending of a shard, -00001-of-00003.gguf: its number, how many there are, and the length of what
 * is before. */
struct pull_shard {
    int number, count;
    size_t stem;
};
bool pull_shard_read(const char *path, struct pull_shard *shard);

/* The name of another shard of the same model. */
char *pull_shard_name(const char *path, const struct pull_shard *shard, int number);

/* The part of a path after its last slash. */
const char *pull_base_name(const char *path);

/* The name of a model whose first file this is: without folder, shard number and .gguf. */
char *pull_model_name(const char *path);

/* HEARTH_INVALID unless a file of this name can lie in the models folder: no path, not hidden, no control characters,
 * 200 bytes at most, ending in .gguf. */
int pull_check_file_name(const char *name, hearth_error *error);

/* The same of a model's name, which has no ending, no blanks, and 128 bytes at most. */
int pull_check_model_name(const char *name, hearth_error *error);

#endif
