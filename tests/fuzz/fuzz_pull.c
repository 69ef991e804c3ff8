/* Fuzzes what sources of models send and what users name them by: a list of files, from which a choice is made, the
 * header of a file, or a reference. What is chosen has the shards in order; a file name that is taken stays in its
 * folder and can be shown; a header that is whole stays so, whatever follows. */
#include "base/memory.h"
#include "pull/gguf_header.h"
#include "pull/listing.h"
#include "pull/pull.h"
#include "pull/web.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

static void check_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    if (pull_check_file_name(name, NULL) != HEARTH_OK) return;
    require(strchr(name, '/') == NULL && name[0] != '.' && strlen(name) <= 200);
    for (const char *c = name; *c != '\0'; c++) require((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void check_choice(const struct pull_choice *choice)
{
    struct pull_shard shard;
    size_t weights = choice->n - choice->has_projector;
    require(weights > 0);
    bool in_parts = pull_shard_read(choice->v[0].path, &shard);
    require(weights == (in_parts ? (size_t)shard.count : 1));
    for (size_t i = 0; in_parts && i < weights; i++)
        require(pull_shard_read(choice->v[i].path, &shard) && shard.number == (int)i + 1);
}

static void try_listing(const char *json, size_t len)
{
    static const char *const quants[] = {NULL, "Q4_K_M", "a.gguf"};
    struct pull_listing listing = {0};
    if (pull_listing_add(&listing, json, len, NULL) == HEARTH_OK)
        for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
            struct pull_choice choice;
            if (pull_choose(&listing, quants[i], &choice, NULL) == HEARTH_OK) check_choice(&choice);
            pull_choice_release(&choice);
        }
    for (size_t i = 0; i < listing.n; i++) check_name(listing.v[i].path);
    pull_listing_release(&listing);
}

static void try_reference(const char *text)
{
    struct pull_reference reference;
    struct buf shown = {0};
    hearth_error error;
    int rc = pull_reference_read(text, NULL, &reference, &error);
    if (rc == HEARTH_OK && reference.kind == PULL_URL) {
        pull_url_put(&shown, reference.place);
        require(strpbrk(buf_text(&shown), "?#\033\n") == NULL && strpbrk(reference.text, "?#") == NULL);
    }
    if (rc == HEARTH_OK && reference.kind == PULL_REPOSITORY)
        require(strchr(reference.owner, '/') == NULL && strcmp(reference.repo, "..") != 0);
    require(rc == HEARTH_OK || strpbrk(error.message, "\033\n") == NULL);
    buf_release(&shown);
    pull_reference_release(&reference);
}

static void try_header(const char *bytes, size_t len)
{
    bool half = gguf_header_is_whole(bytes, len / 2), whole = gguf_header_is_whole(bytes, len);
    require(whole || !half);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == '[') {
        try_listing((const char *)data, size);
    } else if (size > 0 && data[0] == 'G') {
        try_header((const char *)data, size);
    } else {
        char *text = mem_strndup((const char *)data, size);
        try_reference(text);
        free(text);
    }
    return 0;
}
