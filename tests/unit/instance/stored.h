/* Folders with stored entries, for the tests of listing, verifying and cleaning them: entries are published as a server
 * publishes them, with keys of their own tokens. Include it after cmocka.h. */
#ifndef UNIT_INSTANCE_STORED_H
#define UNIT_INSTANCE_STORED_H

#include "base/error.h"
#include "base/memory.h"
#include "hearth.h"
#include "store/backends/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two folders of one test; neither exists yet. */
struct stored {
    char root[64], disk[96], ram_file[96];
};

static inline int stored_setup(void **state)
{
    struct stored *stored = calloc(1, sizeof *stored);
    strcpy(stored->root, "/tmp/hearth-kv-XXXXXX");
    if (mkdtemp(stored->root) == NULL) return -1;
    snprintf(stored->disk, sizeof stored->disk, "%s/disk", stored->root);
    snprintf(stored->ram_file, sizeof stored->ram_file, "%s/ram_file", stored->root);
    *state = stored;
    return 0;
}

static inline int stored_teardown(void **state)
{
    struct stored *stored = *state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", stored->root);
    int status = system(command);
    free(stored);
    return status;
}

/* The plan of an entry; zeroed fields are defaults. */
struct plan {
    enum slab_kind kind; /* 0: rows */
    int32_t branch;      /* tokens differ with it from the 4th on */
    int32_t start, end;
    int32_t parent_end; /* end of its parent, where start > 0; 0: start */
    int32_t parent_branch;
    uint64_t row_bytes; /* 0: 8 */
    int64_t used_ms;
    bool wrong_key;
};

static inline struct identity plan_identity(void)
{
    struct identity identity = {.quant = quant_code("q8_0")};
    memset(identity.model, 0xaa, sizeof identity.model);
    memset(identity.context, 0xbb, sizeof identity.context);
    return identity;
}

static inline struct tokens plan_tokens(int32_t branch, int32_t end)
{
    struct tokens tokens = {0};
    for (int32_t i = 0; i < end; i++) tokens_push(&tokens, i < 3 ? i + 10 : i + 100 * branch);
    return tokens;
}

static inline struct slab_key plan_key(int32_t branch, int32_t end)
{
    struct identity identity = plan_identity();
    struct tokens tokens = plan_tokens(branch, end);
    struct slab_key key = slab_key_of(&identity, tokens.v, tokens.len);
    tokens_release(&tokens);
    return key;
}

static inline void plan_regions(struct slab_head *head, uint64_t row_bytes)
{
    uint32_t rows = head->kind == SLAB_ROWS ? (uint32_t)head->tokens.len : 1;
    head->n_regions = 2;
    head->regions = mem_alloc(head->n_regions * sizeof *head->regions);
    for (uint16_t layer = 0; layer < 2; layer++)
        head->regions[layer] = (struct slab_region){.what = head->kind == SLAB_ROWS ? 'K' : 'R',
                                                    .layer = layer,
                                                    .rows = rows,
                                                    .row_bytes = row_bytes,
                                                    .offset = layer * rows * row_bytes,
                                                    .size = rows * row_bytes};
    head->payload_size = 2 * rows * row_bytes;
}

/* Publishes it into an open folder and returns its key. */
static inline struct slab_key publish(struct folder *folder, const struct plan *plan)
{
    struct tokens all = plan_tokens(plan->branch, plan->end);
    struct slab_head head = {.kind = plan->kind == 0 ? SLAB_ROWS : plan->kind,
                             .reason = SLAB_FINISH,
                             .identity = plan_identity(),
                             .key = plan_key(plan->branch, plan->end),
                             .start = plan->start,
                             .end = plan->end,
                             .created_ms = 1700000000000,
                             .used_ms = plan->used_ms,
                             .hits = 5};
    if (plan->wrong_key) head.key.v[0] ^= 1;
    if (plan->start > 0)
        head.parent = plan_key(plan->parent_branch, plan->parent_end > 0 ? plan->parent_end : plan->start);
    tokens_append(&head.tokens, all.v + plan->start, (size_t)(plan->end - plan->start));
    plan_regions(&head, plan->row_bytes > 0 ? plan->row_bytes : 8);
    uint8_t *payload = mem_alloc(head.payload_size);
    for (uint64_t i = 0; i < head.payload_size; i++) payload[i] = (uint8_t)(i * 13);
    hearth_error error;
    if (folder_publish(folder, &head, payload, &error) != 0) fail_msg("%s", error.message);
    struct slab_key key = head.key;
    slab_head_release(&head);
    tokens_release(&all);
    free(payload);
    return key;
}

static inline struct folder *take_folder(const char *path)
{
    hearth_error error;
    struct folder *folder = folder_open(files_machine(), path, &error);
    if (folder == NULL) fail_msg("%s", error.message);
    return folder;
}

static inline void publish_all(const char *path, const struct plan *plans, size_t n, struct slab_key *keys)
{
    struct folder *folder = take_folder(path);
    for (size_t i = 0; i < n; i++) {
        struct slab_key key = publish(folder, &plans[i]);
        if (keys != NULL) keys[i] = key;
    }
    folder_close(folder);
}

/* The path of its file; the caller frees it. */
static inline char *file_of(const char *folder, const struct slab_key *key, enum slab_kind kind)
{
    char hex[65];
    sha256_to_hex(key->v, hex);
    return mem_format("%s/%s.%s", folder, hex, kind == SLAB_STATE ? "state" : "rows");
}

static inline bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static inline bool is_stored(const char *folder, const struct slab_key *key)
{
    char *path = file_of(folder, key, SLAB_ROWS);
    bool is = exists(path);
    free(path);
    return is;
}

/* Flips a byte of a file, counted from its end where `at` is negative. */
static inline void flip(const char *path, off_t at)
{
    char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t offset = lseek(fd, at, at < 0 ? SEEK_END : SEEK_SET);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static inline uint64_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (uint64_t)info.st_size;
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif
