/* Stored entries without an instance: listing, showing, verifying, cleaning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stored.h"

static void set_key(hearth_config *config, const char *key, const char *value)
{
    hearth_error error;
    if (hearth_config_set(config, key, value, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

/* Both tiers on, the disk's quota given in mebibytes. */
static hearth_config *config_of(const struct stored *stored, const char *quota)
{
    hearth_config *config = hearth_config_new();
    set_key(config, "cache.tiers.disk.path", stored->disk);
    set_key(config, "cache.tiers.ram_file.path", stored->ram_file);
    set_key(config, "cache.tiers.ram_file.quota_mb", "1");
    set_key(config, "cache.tiers.disk.quota_mb", quota);
    return config;
}

/* ---- What was reported ---- */

struct told {
    size_t n, n_damaged;
    uint64_t bytes;
    char keys[16][65], tiers[16][16], damage[16][256];
    hearth_kv_entry last; /* without its strings */
};

static void note(void *ud, const hearth_kv_entry *entry)
{
    struct told *told = ud;
    assert_true(told->n < 16);
    snprintf(told->keys[told->n], 65, "%s", entry->key);
    snprintf(told->tiers[told->n], 16, "%s", entry->tier);
    snprintf(told->damage[told->n], 256, "%s", entry->damage != NULL ? entry->damage : "");
    told->n_damaged += entry->damage != NULL;
    told->bytes += entry->bytes;
    told->last = *entry;
    told->n++;
}

static struct told list(const hearth_config *config)
{
    struct told told = {0};
    hearth_error error;
    if (hearth_kv_list(config, note, &told, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return told;
}

static struct told verify(const hearth_config *config)
{
    struct told told = {0};
    hearth_error error;
    if (hearth_kv_verify(config, note, &told, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return told;
}

static void assert_says(const char *text, const char *expected)
{
    if (strstr(text, expected) == NULL) fail_msg("'%s' does not say '%s'", text, expected);
}

/* What hearth_kv_verify() reports of one entry; KV rows and a state may have the same key. */
static void assert_damaged(const struct told *told, const struct slab_key *key, const char *expected)
{
    char hex[65];
    bool said = false;
    sha256_to_hex(key->v, hex);
    for (size_t i = 0; i < told->n; i++)
        said = said || (strcmp(told->keys[i], hex) == 0 && strstr(told->damage[i], expected) != NULL);
    if (!said) fail_msg("%s is not said to be damaged: %s", hex, expected);
}

/* A turn, its next turn, one that diverges in the middle of that, and a state at the end of the second. */
enum { TURN, NEXT, BRANCH, STATE, N_CHAIN };

static const struct plan chain[N_CHAIN] = {
    [TURN] = {.end = 3, .used_ms = 4000},
    [NEXT] = {.start = 3, .end = 8, .used_ms = 3000},
    [BRANCH] = {.branch = 1, .start = 3, .end = 6, .used_ms = 1000},
    [STATE] = {.kind = SLAB_STATE, .start = 8, .end = 8, .used_ms = 2000},
};

/* ---- Listing ---- */

static void entries_are_listed_with_the_oldest_use_first(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN], other;
    publish_all(stored->disk, chain, N_CHAIN, keys);
    publish_all(stored->ram_file, &(struct plan){.branch = 7, .end = 4, .used_ms = 2500}, 1, &other);
    hearth_config *config = config_of(stored, "8");
    struct told told = list(config);
    const struct slab_key order[] = {keys[BRANCH], keys[STATE], other, keys[NEXT], keys[TURN]};
    assert_int_equal(told.n, 5);
    for (size_t i = 0; i < 5; i++) {
        char hex[65];
        sha256_to_hex(order[i].v, hex);
        assert_string_equal(told.keys[i], hex);
        assert_string_equal(told.tiers[i], i == 2 ? "ram_file" : "disk");
        assert_string_equal(told.damage[i], "");
    }
    assert_int_equal(told.last.start, 0);
    assert_int_equal(told.last.end, 3);
    assert_int_equal(told.last.hits, 5);
    assert_int_equal(told.last.used_ms, 4000);
    assert_int_equal(told.last.created_ms, 1700000000000);
    char *path = file_of(stored->disk, &keys[TURN], SLAB_ROWS);
    assert_int_equal(told.last.bytes, size_of(path));
    free(path);
    hearth_config_free(config);
}

static void check_strings(void *ud, const hearth_kv_entry *entry)
{
    size_t *n = ud;
    char parent[65];
    struct slab_key key = plan_key(0, 3);
    sha256_to_hex(key.v, parent);
    bool begins = entry->start == 0;
    assert_string_equal(entry->parent, begins ? "" : parent);
    assert_string_equal(entry->kind, "rows");
    assert_string_equal(entry->reason, "finish");
    assert_string_equal(entry->quant, "q8_0");
    assert_memory_equal(entry->model, "aaaaaaaa", 8);
    assert_int_equal(strlen(entry->model), 64);
    assert_memory_equal(entry->context, "bbbbbbbb", 8);
    (*n)++;
}

static void an_entry_tells_what_it_belongs_to_and_its_parent(void **state)
{
    const struct stored *stored = *state;
    size_t n = 0;
    publish_all(stored->disk, chain, 2, NULL);
    hearth_config *config = config_of(stored, "8");
    assert_int_equal(hearth_kv_list(config, check_strings, &n, NULL), HEARTH_OK);
    assert_int_equal(n, 2);
    hearth_config_free(config);
}

static void folders_that_are_not_there_are_empty_and_are_not_made(void **state)
{
    const struct stored *stored = *state;
    hearth_config *config = config_of(stored, "8");
    hearth_kv_removed removed = {1, 1, 1};
    hearth_error error;
    assert_int_equal(list(config).n, 0);
    assert_int_equal(verify(config).n, 0);
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files + removed.bytes + removed.kept, 0);
    assert_int_equal(hearth_kv_clear(config, &removed, &error), HEARTH_OK);
    assert_null(hearth_kv_show(config, "0", &error));
    assert_int_equal(error.code, HEARTH_NOT_FOUND);
    assert_false(exists(stored->disk) || exists(stored->ram_file));
    hearth_config_free(config);
}

static void a_folder_that_cannot_be_had_is_an_error_unless_its_tier_is_off(void **state)
{
    const struct stored *stored = *state;
    struct told told = {0};
    hearth_error error;
    publish_all(stored->ram_file, chain, 1, NULL);
    write_text(stored->disk, "a file in place of the folder");
    hearth_config *config = config_of(stored, "8");
    assert_int_equal(hearth_kv_list(config, note, &told, &error), HEARTH_IO);
    assert_says(error.message, stored->disk);
    set_key(config, "cache.tiers.disk.quota_mb", "0");
    assert_int_equal(list(config).n, 1);
    hearth_config_free(config);
}

/* ---- Showing ---- */

static void an_entry_is_shown_by_the_first_digits_of_its_key(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN];
    char hex[65], parent[65], *expected;
    publish_all(stored->disk, chain, N_CHAIN, keys);
    hearth_config *config = config_of(stored, "8");
    sha256_to_hex(keys[BRANCH].v, hex);
    sha256_to_hex(keys[TURN].v, parent);
    char digits[17] = "";
    memcpy(digits, hex, 16);
    hearth_error error;
    char *whole = hearth_kv_show(config, hex, &error), *some = hearth_kv_show(config, digits, &error);
    assert_non_null(whole);
    assert_non_null(some);
    assert_string_equal(whole, some);
    char *file = file_of(stored->disk, &keys[BRANCH], SLAB_ROWS);
    expected = mem_format("key        %s\ntier       disk\nkind       rows\nparent     %s\nreason     finish\nmodel ",
                          hex, parent);
    assert_memory_equal(whole, expected, strlen(expected));
    free(expected);
    expected =
        mem_format("\nbytes      %llu\ncreated    2023-11-14T22:13:20Z\nused       1970-01-01T00:00:01Z\nhits       5\n"
                   "payload    48 bytes, 2 regions\n",
                   (unsigned long long)size_of(file));
    assert_says(whole, expected);
    assert_says(whole, "tokens     3 to 6, 3 here\n  103 104 105\n");
    assert_says(whole, "  K        1    0        3          8           24           24 ");
    free(expected);
    free(file);
    hearth_free(whole);
    hearth_free(some);
    hearth_config_free(config);
}

static void rows_and_state_of_one_key_are_shown_together(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN];
    char hex[65];
    hearth_error error;
    publish_all(stored->disk, chain, N_CHAIN, keys);
    hearth_config *config = config_of(stored, "8");
    sha256_to_hex(keys[STATE].v, hex);
    char *text = hearth_kv_show(config, hex, &error);
    assert_non_null(text);
    assert_says(text, "kind       rows\n");
    assert_says(text, "kind       state\n");
    assert_says(text, "tokens     8 to 8, 0 here\n");
    hearth_free(text);
    hearth_config_free(config);
}

static void a_key_that_is_none_unknown_or_ambiguous_is_told_apart(void **state)
{
    const struct stored *stored = *state;
    struct plan plans[17];
    for (int32_t i = 0; i < 17; i++) plans[i] = (struct plan){.branch = i + 1, .end = 4};
    publish_all(stored->disk, plans, 17, NULL); /* of 17 keys two begin with the same digit */
    hearth_config *config = config_of(stored, "8");
    size_t n_ambiguous = 0;
    for (int digit = 0; digit < 16; digit++) {
        char prefix[2] = {"0123456789abcdef"[digit], '\0'};
        hearth_error error = {0};
        char *text = hearth_kv_show(config, prefix, &error);
        if (text == NULL && error.code == HEARTH_INVALID) {
            assert_says(error.message, "several keys begin with");
            n_ambiguous++;
        } else if (text == NULL) {
            assert_int_equal(error.code, HEARTH_NOT_FOUND);
        }
        hearth_free(text);
    }
    assert_true(n_ambiguous > 0);
    static const char *const wrong[] = {"", "xyz", "0A",
                                        "01234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hearth_error error = {0};
        assert_null(hearth_kv_show(config, wrong[i], &error));
        assert_int_equal(error.code, HEARTH_INVALID);
        assert_string_equal(error.param, "key");
    }
    hearth_config_free(config);
}

/* ---- Verifying ---- */

static void entries_that_are_whole_are_found_whole(void **state)
{
    const struct stored *stored = *state;
    /* A state without rows, and a child of it; a branch from the middle of an entry. */
    static const struct plan more[] = {
        {.kind = SLAB_STATE, .branch = 2, .end = 5},
        {.kind = SLAB_STATE, .branch = 2, .start = 5, .end = 9, .parent_branch = 2},
        {.branch = 3, .end = 9},
        {.branch = 3, .start = 5, .end = 7, .parent_branch = 3, .parent_end = 9},
    };
    publish_all(stored->disk, chain, N_CHAIN, NULL);
    publish_all(stored->ram_file, more, 4, NULL);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config), listed = list(config);
    assert_int_equal(told.n, 8);
    for (size_t i = 0; i < told.n; i++)
        if (told.damage[i][0] != '\0') fail_msg("%s: %s", told.keys[i], told.damage[i]);
    assert_int_equal(told.bytes, listed.bytes);
    hearth_config_free(config);
}

static void a_flipped_byte_is_named_by_its_region(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN];
    publish_all(stored->disk, chain, N_CHAIN, keys);
    char *path = file_of(stored->disk, &keys[NEXT], SLAB_ROWS); /* payload: 2 regions of 5 x 8 bytes */
    char *other = file_of(stored->disk, &keys[STATE], SLAB_STATE);
    flip(path, -SLAB_TRAILER_BYTES - 1);
    flip(other, -SLAB_TRAILER_BYTES - 16);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config);
    assert_int_equal(told.n, N_CHAIN);
    assert_int_equal(told.n_damaged, 2);
    assert_damaged(&told, &keys[NEXT], "keys of layer 1");
    assert_damaged(&told, &keys[NEXT], path);
    assert_damaged(&told, &keys[STATE], "recurrent state (r) of layer 0");
    assert_true(exists(path) && exists(other)); /* only reported */
    free(path);
    free(other);
    hearth_config_free(config);
}

static void every_flipped_byte_is_found(void **state)
{
    const struct stored *stored = *state;
    struct slab_key key;
    publish_all(stored->disk, chain, 1, &key);
    char *path = file_of(stored->disk, &key, SLAB_ROWS);
    hearth_config *config = config_of(stored, "8");
    for (uint64_t at = 0, size = size_of(path); at < size; at++) {
        if (at >= SLAB_USE_OFFSET && at < SLAB_USE_OFFSET + SLAB_USE_BYTES) continue; /* under no checksum */
        flip(path, (off_t)at);
        struct told told = verify(config);
        /* A higher version is not damage: it is left alone. */
        if (told.n != 1 || told.n_damaged != 1) fail_msg("byte %d: %zu entries", (int)at, told.n);
        flip(path, (off_t)at);
    }
    assert_int_equal(verify(config).n_damaged, 0);
    free(path);
    hearth_config_free(config);
}

static void files_cut_short_and_foreign_to_their_name_are_found(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN], none = plan_key(9, 9);
    publish_all(stored->disk, chain, N_CHAIN, keys);
    char *cut = file_of(stored->disk, &keys[NEXT], SLAB_ROWS), *named = file_of(stored->disk, &none, SLAB_ROWS);
    char *branch = file_of(stored->disk, &keys[BRANCH], SLAB_ROWS);
    assert_int_equal(truncate(cut, (off_t)size_of(cut) - 1), 0);
    assert_int_equal(rename(branch, named), 0);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config);
    assert_int_equal(told.n, N_CHAIN);
    assert_damaged(&told, &keys[NEXT], cut);
    assert_damaged(&told, &none, "another slab than its name says");
    /* The state has lost the rows that it completes. */
    assert_damaged(&told, &keys[STATE], "parent entry is missing");
    assert_int_equal(told.n_damaged, 3);
    assert_int_equal(list(config).n, 2);
    free(cut);
    free(named);
    free(branch);
    hearth_config_free(config);
}

static void entries_without_a_parent_are_found(void **state)
{
    const struct stored *stored = *state;
    /* The parent is another tier's, and other trees do not count. */
    static const struct plan orphan = {.branch = 4, .start = 3, .end = 5, .parent_branch = 4};
    struct slab_key keys[2], lost;
    publish_all(stored->disk, chain, 2, keys);
    publish_all(stored->ram_file, &orphan, 1, &lost);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config);
    assert_int_equal(told.n_damaged, 1);
    assert_damaged(&told, &lost, "parent entry is missing");
    char *path = file_of(stored->disk, &keys[0], SLAB_ROWS);
    assert_int_equal(unlink(path), 0);
    told = verify(config);
    assert_int_equal(told.n_damaged, 2);
    assert_damaged(&told, &keys[1], "parent entry is missing");
    free(path);
    hearth_config_free(config);
}

static void a_key_that_is_not_that_of_its_tokens_is_found(void **state)
{
    const struct stored *stored = *state;
    static const struct plan plans[] = {
        {.end = 8, .wrong_key = true},
        {.branch = 1, .end = 8},
        /* Whole by itself, under a parent whose tokens are others. */
        {.branch = 2, .start = 6, .end = 9, .parent_branch = 1, .parent_end = 8},
    };
    struct slab_key keys[3];
    publish_all(stored->disk, plans, 3, keys);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config);
    assert_int_equal(told.n_damaged, 2);
    assert_damaged(&told, &keys[0], "key is not that of its tokens");
    assert_damaged(&told, &keys[2], "key is not that of its tokens");
    hearth_config_free(config);
}

/* ---- Beside a server ---- */

static void a_server_is_not_disturbed_and_loses_nothing(void **state)
{
    const struct stored *stored = *state;
    struct slab_key key, other;
    char hex[65];
    hearth_error error;
    hearth_kv_removed removed;
    publish_all(stored->disk, chain, 1, &other);
    publish_all(stored->ram_file, chain, 1, NULL);
    struct folder *server = take_folder(stored->ram_file);
    key = publish(server, &(struct plan){.branch = 5, .end = 6});
    hearth_config *config = config_of(stored, "8");
    assert_int_equal(list(config).n, 3);
    assert_int_equal(verify(config).n_damaged, 0);
    sha256_to_hex(key.v, hex);
    char *text = hearth_kv_show(config, hex, &error);
    assert_non_null(text);
    hearth_free(text);
    int (*const cleaning[])(const hearth_config *, hearth_kv_removed *, hearth_error *) = {hearth_kv_gc,
                                                                                           hearth_kv_clear};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(cleaning[i](config, &removed, &error), HEARTH_UNAVAILABLE);
        assert_says(error.message, stored->ram_file);
        assert_says(error.message, "stop it first");
        assert_int_equal(removed.files, 0);
    }
    assert_true(is_stored(stored->disk, &other)); /* the other tier's folder was free */
    assert_int_equal(list(config).n, 3);
    folder_close(server);
    assert_int_equal(hearth_kv_clear(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 3);
    hearth_config_free(config);
}

/* ---- Cleaning ---- */

static void gc_removes_what_is_of_no_use(void **state)
{
    const struct stored *stored = *state;
    static const struct plan orphan = {.branch = 4, .start = 5, .end = 7, .parent_branch = 4};
    struct slab_key keys[N_CHAIN], lost, bad;
    uint64_t bytes = 0;
    publish_all(stored->disk, chain, N_CHAIN, keys);
    publish_all(stored->disk, &orphan, 1, &lost);
    publish_all(stored->disk, &(struct plan){.branch = 6, .end = 5}, 1, &bad);
    char *paths[] = {file_of(stored->disk, &lost, SLAB_ROWS), file_of(stored->disk, &bad, SLAB_ROWS),
                     mem_format("%s/%064d.rows.3.tmp", stored->disk, 7), mem_format("%s/quarantine/1-x", stored->disk)};
    char *quarantine = mem_format("%s/quarantine", stored->disk);
    assert_int_equal(mkdir(quarantine, 0700), 0);
    flip(paths[1], SLAB_HEADER_BYTES);
    write_text(paths[2], "half");
    write_text(paths[3], "set aside");
    for (size_t i = 0; i < 4; i++) bytes += size_of(paths[i]);
    hearth_config *config = config_of(stored, "8");
    hearth_kv_removed removed;
    hearth_error error;
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 4);
    assert_int_equal(removed.bytes, bytes);
    struct told told = verify(config);
    assert_int_equal(told.n, N_CHAIN);
    assert_int_equal(told.n_damaged, 0);
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files + removed.bytes, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_false(exists(paths[i]));
        free(paths[i]);
    }
    assert_int_equal(rmdir(quarantine), 0); /* empty */
    free(quarantine);
    hearth_config_free(config);
}

/* Three entries of 400 KiB and a child of the one used last. */
static const struct plan large[] = {
    {.branch = 1, .end = 4, .row_bytes = 51200, .used_ms = 3000},
    {.branch = 2, .end = 4, .row_bytes = 51200, .used_ms = 1000},
    {.branch = 3, .end = 4, .row_bytes = 51200, .used_ms = 2000},
    {.branch = 2, .start = 4, .end = 5, .parent_branch = 2, .used_ms = 4000},
};

static void gc_keeps_to_the_quota_and_to_the_order_of_use(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[4];
    publish_all(stored->disk, large, 4, keys);
    hearth_config *config = config_of(stored, "1");
    hearth_kv_removed removed;
    hearth_error error;
    char *path = file_of(stored->disk, &keys[2], SLAB_ROWS);
    uint64_t bytes = size_of(path);
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 1);
    assert_int_equal(removed.bytes, bytes);
    /* The least recently used of the three stays because of its child, which was used last. */
    assert_false(is_stored(stored->disk, &keys[2]));
    assert_true(is_stored(stored->disk, &keys[0]) && is_stored(stored->disk, &keys[1]));
    assert_true(list(config).bytes <= 1 << 20);
    free(path);
    hearth_config_free(config);
}

/* Damage to a payload, a head, a key, a name and a parent; and the children of the damaged ones. */
static void gc_removes_whatever_verifying_names(void **state)
{
    const struct stored *stored = *state;
    static const struct plan more[] = {
        {.branch = 2, .end = 8, .wrong_key = true},
        {.branch = 3, .end = 8},
        {.branch = 3, .start = 8, .end = 9, .parent_branch = 3},
        {.branch = 4, .start = 5, .end = 7, .parent_branch = 4},
        {.branch = 5, .end = 6},
    };
    struct slab_key keys[N_CHAIN], others[5];
    publish_all(stored->disk, chain, N_CHAIN, keys);
    publish_all(stored->disk, more, 5, others);
    char *payload = file_of(stored->disk, &keys[NEXT], SLAB_ROWS),
         *front = file_of(stored->disk, &others[1], SLAB_ROWS);
    flip(payload, -SLAB_TRAILER_BYTES - 1);
    flip(front, SLAB_HEADER_BYTES);
    hearth_config *config = config_of(stored, "8");
    struct told told = verify(config);
    assert_int_equal(told.n_damaged, 5); /* NEXT, and others but the last */
    hearth_kv_removed removed;
    hearth_error error;
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 6); /* also the state that NEXT had the rows of */
    assert_int_equal(removed.kept, 0);
    told = verify(config);
    assert_int_equal(told.n_damaged, 0);
    assert_int_equal(told.n, 3);
    assert_true(is_stored(stored->disk, &keys[TURN]) && is_stored(stored->disk, &keys[BRANCH]));
    assert_true(is_stored(stored->disk, &others[4]));
    free(payload);
    free(front);
    hearth_config_free(config);
}

static void gc_says_what_stays_although_verifying_names_it(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[2];
    publish_all(stored->disk, chain, 2, keys);
    char *parent = file_of(stored->disk, &keys[0], SLAB_ROWS);
    int fd = open(parent, O_WRONLY);
    assert_int_equal(pwrite(fd, "\2", 1, 4), 1); /* of a newer version */
    close(fd);
    hearth_config *config = config_of(stored, "8");
    hearth_kv_removed removed;
    hearth_error error;
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 0);
    assert_int_equal(removed.kept, 1);
    struct told told = verify(config);
    assert_int_equal(told.n_damaged, 1);
    assert_damaged(&told, &keys[1], "parent entry is missing");
    free(parent);
    hearth_config_free(config);
}

static void gc_leaves_the_entries_of_a_tier_that_is_off(void **state)
{
    const struct stored *stored = *state;
    struct slab_key lost;
    publish_all(stored->disk, large, 4, NULL);
    publish_all(stored->disk, &(struct plan){.branch = 8, .start = 5, .end = 7, .parent_branch = 8}, 1, &lost);
    hearth_config *config = config_of(stored, "0");
    hearth_kv_removed removed;
    hearth_error error;
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 1);
    assert_false(is_stored(stored->disk, &lost));
    assert_int_equal(list(config).n, 4);
    assert_int_equal(hearth_kv_clear(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 4);
    assert_int_equal(list(config).n, 0);
    hearth_config_free(config);
}

static void clearing_removes_all_but_what_is_not_this_versions(void **state)
{
    const struct stored *stored = *state;
    struct slab_key keys[N_CHAIN], newer;
    publish_all(stored->disk, chain, N_CHAIN, keys);
    publish_all(stored->disk, &(struct plan){.branch = 6, .end = 5}, 1, &newer);
    publish_all(stored->ram_file, chain, 1, NULL);
    char *path = file_of(stored->disk, &newer, SLAB_ROWS), *foreign = mem_format("%s/notes.txt", stored->disk);
    char *damaged = file_of(stored->disk, &keys[BRANCH], SLAB_ROWS);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\2", 1, 4), 1);
    close(fd);
    flip(damaged, SLAB_HEADER_BYTES);
    write_text(foreign, "mine");
    hearth_config *config = config_of(stored, "8");
    hearth_kv_removed removed;
    hearth_error error;
    assert_int_equal(hearth_kv_clear(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, N_CHAIN + 1);
    assert_int_equal(verify(config).n, 0);
    assert_false(exists(damaged));
    assert_true(exists(path) && exists(foreign));
    free(path);
    free(foreign);
    free(damaged);
    hearth_config_free(config);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, stored_setup, stored_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(entries_are_listed_with_the_oldest_use_first),
        ROW(an_entry_tells_what_it_belongs_to_and_its_parent),
        ROW(folders_that_are_not_there_are_empty_and_are_not_made),
        ROW(a_folder_that_cannot_be_had_is_an_error_unless_its_tier_is_off),
        ROW(an_entry_is_shown_by_the_first_digits_of_its_key),
        ROW(rows_and_state_of_one_key_are_shown_together),
        ROW(a_key_that_is_none_unknown_or_ambiguous_is_told_apart),
        ROW(entries_that_are_whole_are_found_whole),
        ROW(a_flipped_byte_is_named_by_its_region),
        ROW(every_flipped_byte_is_found),
        ROW(files_cut_short_and_foreign_to_their_name_are_found),
        ROW(entries_without_a_parent_are_found),
        ROW(a_key_that_is_not_that_of_its_tokens_is_found),
        ROW(a_server_is_not_disturbed_and_loses_nothing),
        ROW(gc_removes_what_is_of_no_use),
        ROW(gc_keeps_to_the_quota_and_to_the_order_of_use),
        ROW(gc_removes_whatever_verifying_names),
        ROW(gc_says_what_stays_although_verifying_names_it),
        ROW(gc_leaves_the_entries_of_a_tier_that_is_off),
        ROW(clearing_removes_all_but_what_is_not_this_versions),
    };
    hearth_log_open(NULL, "error", "text", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
