/* Digests of weights are known at a second start (instance/models/fingerprint.h), and never for other
 * weights: the file's text alone, the thread that uses it, and an instance that is started again and again. The wall
 * clock of this program may be ahead of the machine's. */
#include "support.h"

#include "base/clock.h"
#include "instance/models/fingerprint.h"
#include "instance/models/instance_store.h"
#include "llm/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <gguf.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The wall clock ---- */

static int64_t ahead_ms;

int64_t __real_clock_unix_ms(void);
int64_t __wrap_clock_unix_ms(void);

int64_t __wrap_clock_unix_ms(void)
{
    return __real_clock_unix_ms() + ahead_ms;
}

/* ---- The file's text ---- */

struct weights {
    struct llm_file_signs signs;
    uint8_t digest[SHA256_BYTES];
};

static struct weights weights_number(uint8_t number)
{
    struct weights weights = {.signs = {.changed_s = 0}};
    memset(weights.signs.stamp, number, SHA256_BYTES);
    memset(weights.signs.spots, number + 1, SHA256_BYTES);
    memset(weights.digest, number + 2, SHA256_BYTES);
    return weights;
}

static bool add(struct buf *file, struct weights weights)
{
    return known_digests_add(file, &weights.signs, weights.digest);
}

static bool finds(const struct buf *file, struct weights weights)
{
    uint8_t digest[SHA256_BYTES] = {0};
    if (!known_digests_find(file, &weights.signs, digest)) return false;
    assert_memory_equal(digest, weights.digest, SHA256_BYTES);
    return true;
}

static void a_digest_is_found_only_where_stamp_and_spots_are_equal(void **state)
{
    (void)state;
    struct buf file = {0};
    struct weights a = weights_number(1), b = weights_number(50);
    assert_false(finds(&file, a));
    assert_true(add(&file, a));
    assert_true(add(&file, b));
    assert_true(finds(&file, a) && finds(&file, b));
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        struct weights stamp = a, spots = a;
        stamp.signs.stamp[i] ^= 1;
        spots.signs.spots[i] ^= 1;
        assert_false(finds(&file, stamp));
        assert_false(finds(&file, spots));
    }
    struct weights mixed = a;
    memcpy(mixed.signs.spots, b.signs.spots, SHA256_BYTES);
    assert_false(finds(&file, mixed));
    buf_release(&file);
}

static void of_one_stamp_the_last_digest_counts(void **state)
{
    (void)state;
    struct buf file = {0};
    struct weights former = weights_number(1), now = former, other_spots = former;
    now.digest[0] ^= 1;
    other_spots.signs.spots[0] ^= 1;
    assert_true(add(&file, former));
    assert_true(add(&file, now));
    assert_true(finds(&file, now));
    assert_true(add(&file, other_spots));
    assert_true(finds(&file, other_spots));
    assert_false(finds(&file, now));
    buf_release(&file);
}

static void the_64_that_were_used_last_are_kept(void **state)
{
    (void)state;
    struct buf file = {0};
    for (uint8_t i = 0; i < 64; i++) assert_true(add(&file, weights_number(i)));
    size_t full = file.len;
    assert_true(add(&file, weights_number(0))); /* used again: 1 is the oldest now */
    assert_false(add(&file, weights_number(0)));
    assert_true(add(&file, weights_number(100)));
    assert_int_equal(file.len, full);
    assert_false(finds(&file, weights_number(1)));
    assert_true(finds(&file, weights_number(0)) && finds(&file, weights_number(2)) &&
                finds(&file, weights_number(100)));
    for (int i = 0; i < 1000; i++) add(&file, weights_number((uint8_t)(i * 7)));
    assert_int_equal(file.len, full);
    assert_true(full < 16384);
    buf_release(&file);
}

static void copy_of(const struct buf *from, struct buf *to)
{
    buf_clear(to);
    buf_append(to, from->v, from->len);
}

/* No damage leads to another digest than the one that was added: mostly to none. */
static void whatever_happens_to_the_file_no_other_digest_is_found(void **state)
{
    (void)state;
    struct buf file = {0}, damaged = {0};
    for (uint8_t i = 0; i < 3; i++) add(&file, weights_number((uint8_t)(10 * i)));
    for (size_t at = 0; at < file.len; at++) {
        for (int bit = 0; bit < 8; bit++) {
            copy_of(&file, &damaged);
            damaged.v[at] = (char)(damaged.v[at] ^ 1 << bit);
            for (uint8_t i = 0; i < 3; i++)
                if (finds(&damaged, weights_number((uint8_t)(10 * i)))) assert_true(damaged.v[at] + 32 == file.v[at]);
        }
        copy_of(&file, &damaged);
        damaged.len = at;
        damaged.v[at] = '\0';
        assert_false(finds(&damaged, weights_number(10)));
    }
    copy_of(&file, &damaged);
    buf_puts(&damaged, "x");
    assert_false(finds(&damaged, weights_number(10)));
    copy_of(&file, &damaged); /* twice */
    buf_append(&damaged, file.v, file.len);
    assert_false(finds(&damaged, weights_number(10)));
    buf_release(&file);
    buf_release(&damaged);
}

static void a_damaged_file_is_begun_anew(void **state)
{
    (void)state;
    static const char *const texts[] = {"x", "hearth digests ", "hearth digests 1\n", "hearth digests 0\n", "\n\n\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buf file = {0};
        buf_puts(&file, texts[i]);
        assert_false(finds(&file, weights_number(1)));
        assert_true(add(&file, weights_number(1)));
        assert_true(finds(&file, weights_number(1)));
        buf_release(&file);
    }
}

static void a_file_of_a_newer_version_is_not_used_and_left_alone(void **state)
{
    (void)state;
    struct buf file = {0}, before = {0};
    add(&file, weights_number(1));
    file.v[strlen("hearth digests ")] = '2';
    copy_of(&file, &before);
    assert_false(finds(&file, weights_number(1)));
    assert_false(add(&file, weights_number(1)));
    assert_string_equal(file.v, before.v);
    buf_release(&file);
    buf_release(&before);
}

/* docs/format.md */
static void the_text_is_the_documented_one(void **state)
{
    (void)state;
    struct buf file = {0};
    struct weights weights = weights_number(0xa0);
    add(&file, weights);
    assert_string_equal(file.v, "hearth digests 1\n"
                                "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 "
                                "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 "
                                "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2\n"
                                "sha256 4f4a01e4a033bbe27337926a4c13d380e238f668ef279c19caae2da9bd2cb018\n");
    buf_release(&file);
}

static void files_that_were_changed_within_the_last_minute_are_not_added(void **state)
{
    (void)state;
    const struct llm_file_signs signs = {.changed_s = 1000000};
    assert_false(known_digests_may_add(&signs, 999000)); /* a time to come */
    assert_false(known_digests_may_add(&signs, 1000000));
    assert_false(known_digests_may_add(&signs, 1000060));
    assert_true(known_digests_may_add(&signs, 1000061));
    const struct llm_file_signs never = {.changed_s = INT64_MAX}, always = {.changed_s = INT64_MIN};
    assert_false(known_digests_may_add(&never, 1000000));
    assert_true(known_digests_may_add(&always, 1000000));
}

/* ---- Instances ---- */

static char *folder, *cache, *path, *sidecar, *log_path;

static void run_command(char *command)
{
    if (system(command) != 0) fail_msg("failed: %s", command);
    free(command);
}

/* How the weights of the starts since the last look were come by. */
struct looks {
    int known, hashed, unusable, unread, unwritten, errors;
};

static struct looks take_looks(void)
{
    char line[2048];
    struct looks looks = {0};
    assert_int_equal(hearth_log_open(NULL, "error", "text", NULL), HEARTH_OK);
    FILE *file = fopen(log_path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        looks.known += strstr(line, "weights known") != NULL;
        looks.hashed += strstr(line, "weights hashed") != NULL;
        looks.unusable += strstr(line, "known digests cannot be used") != NULL;
        looks.unread += strstr(line, "known digests cannot be read") != NULL;
        looks.unwritten += strstr(line, "known digests cannot be written") != NULL;
        looks.errors += strstr(line, " error ") != NULL;
    }
    fclose(file);
    assert_int_equal(truncate(log_path, 0), 0);
    assert_int_equal(looks.errors, 0);
    return looks;
}

static hearth_config *config_of(const char *model)
{
    hearth_config *config = DEMO("path", model);
    set(config, "cache.tiers.disk.quota_mb", "64");
    set(config, "cache.tiers.disk.path", cache);
    return config;
}

static hearth *begin(const char *model)
{
    assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
    return start(config_of(model));
}

/* Starts and ends an instance: what it noted is written then. */
static struct looks start_once(const char *model)
{
    hearth_close(begin(model));
    return take_looks();
}

static void assert_hashed(const char *model)
{
    struct looks looks = start_once(model);
    assert_int_equal(looks.known, 0);
    assert_int_equal(looks.hashed, 1);
    assert_int_equal(looks.unusable + looks.unread + looks.unwritten, 0);
}

static void assert_known(const char *model)
{
    struct looks looks = start_once(model);
    assert_int_equal(looks.known, 1);
    assert_int_equal(looks.hashed, 0);
    assert_int_equal(looks.unusable + looks.unread + looks.unwritten, 0);
}

static char *digests_path(void)
{
    return mem_format("%s/digests", cache);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_second_start_does_not_hash_the_weights(void **state)
{
    (void)state;
    assert_hashed(path);
    assert_known(path);
    assert_known(path);
}

static void a_file_that_has_just_been_written_is_hashed_again(void **state)
{
    (void)state;
    ahead_ms = 0;
    assert_hashed(path);
    assert_hashed(path);
    ahead_ms = 120000;
    assert_hashed(path);
    assert_known(path);
}

/* One byte of the weights, after which the file has its old length and time. */
static void a_file_that_was_edited_in_place_is_hashed(void **state)
{
    (void)state;
    struct stat st;
    assert_hashed(path);
    assert_known(path);
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, st.st_size - 1), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 1), 1);
    assert_int_equal(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}), 0);
    close(fd);
    assert_hashed(path);
    assert_known(path);
}

static void models_and_adapters_have_a_line_each(void **state)
{
    (void)state;
    char *other = mem_format("%s/other.gguf", folder), *adapter = mem_format("%s/lora.gguf", folder);
    char *lora = mem_format("[{\"path\": \"%s\"}]", adapter);
    run_command(mem_format("cp '%s' '%s'", path, other));
    run_command(mem_format("'%s/bin/hearth-mkmodel' --lora-for '%s' -o '%s' >/dev/null", getenv("HEARTH_BUILD"), path,
                           adapter));
    assert_hashed(path);
    assert_hashed(other);
    assert_known(path);
    for (int i = 0; i < 2; i++) {
        hearth_config *config = config_of(other);
        set(config, "models.demo.lora", lora);
        assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
        hearth_close(start(config));
        struct looks looks = take_looks();
        assert_int_equal(looks.known, 1 + i);
        assert_int_equal(looks.hashed, 1 - i);
    }
    free(other);
    free(adapter);
    free(lora);
}

/* `hearth chat` beside a server. */
static void beside_the_owner_of_the_folder_digests_are_read_and_not_written(void **state)
{
    (void)state;
    char *other = mem_format("%s/other.gguf", folder);
    run_command(mem_format("cp '%s' '%s'", path, other));
    assert_hashed(path);
    hearth *owner = begin(path);
    assert_int_equal(take_looks().known, 1);
    assert_known(path);
    assert_hashed(other);
    assert_hashed(other);
    hearth_close(owner);
    assert_hashed(other);
    assert_known(other);
    free(other);
}

static void without_a_folder_nothing_is_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        hearth_config *config = config_of(path);
        set(config, "cache.tiers.disk.quota_mb", "0");
        set(config, "cache.save_tier", "ram");
        assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
        hearth_close(start(config));
        struct looks looks = take_looks();
        assert_int_equal(looks.hashed, 1);
    }
    char *digests = digests_path();
    assert_int_equal(access(digests, F_OK), -1);
    free(digests);
}

static void a_file_that_cannot_be_used_costs_one_line_and_the_time_of_hashing(void **state)
{
    (void)state;
    char *digests = digests_path();
    assert_hashed(path);
    write_file(digests, "nonsense");
    struct looks looks = start_once(path);
    assert_int_equal(looks.hashed, 1);
    assert_int_equal(looks.unusable + looks.unread + looks.unwritten, 1);
    assert_known(path);
    write_file(digests, "hearth digests 2\nof tomorrow");
    for (int i = 0; i < 2; i++) {
        looks = start_once(path);
        assert_int_equal(looks.hashed, 1);
        assert_int_equal(looks.unusable + looks.unread + looks.unwritten, 1);
    }
    assert_int_equal(unlink(digests), 0);
    char *blocked = mem_format("%s/digests.new/x", cache);
    run_command(mem_format("mkdir -p '%s'", blocked));
    looks = start_once(path);
    assert_int_equal(looks.hashed, 1);
    assert_int_equal(looks.unusable + looks.unread + looks.unwritten, 1);
    free(blocked);
    free(digests);
}

static void commands_for_the_cache_leave_the_file_alone(void **state)
{
    (void)state;
    hearth_kv_removed removed;
    hearth_error error;
    assert_hashed(path);
    hearth_config *config = config_of(path);
    assert_int_equal(hearth_kv_gc(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 0);
    assert_int_equal(hearth_kv_clear(config, &removed, &error), HEARTH_OK);
    assert_int_equal(removed.files, 0);
    hearth_config_free(config);
    assert_known(path);
}

/* ---- Sidecars ---- */

static void a_known_digest_verifies_the_sidecar_of_a_model_in_one_file(void **state)
{
    (void)state;
    hearth_error error;
    run_command(mem_format("cd '%s' && sha256sum m.gguf >m.gguf.sha256", folder));
    assert_hashed(path);
    assert_known(path);
    write_file(sidecar, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef  m.gguf\n");
    hearth_config *config = config_of(path);
    assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
    hearth *instance = hearth_open(config, &error);
    assert_int_equal(hearth_load(instance, NULL, NULL, &error), HEARTH_INVALID);
    assert_says(error.message, "is damaged or another file: its SHA-256 begins with ");
    hearth_close(instance);
    hearth_config_free(config);
    take_looks();
    config = config_of(path);
    set(config, "models.demo.ignore_integrity_check", "true");
    assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
    hearth_close(start(config));
    assert_int_equal(take_looks().known, 1);
}

/* ---- Fingerprints ---- */

/* Two files that are parts of one model; what else is in them does not matter here. The caller frees the path. */
static char *make_parts(void)
{
    char *first = NULL;
    for (uint16_t i = 0; i < 2; i++) {
        char *part = mem_format("%s/parts-%05d-of-00002.gguf", folder, i + 1);
        struct gguf_context *out = gguf_init_empty();
        gguf_set_val_u16(out, "split.no", i);
        gguf_set_val_u16(out, "split.count", 2);
        assert_true(gguf_write_to_file(out, part, false));
        gguf_free(out);
        if (i == 0)
            first = part;
        else
            free(part);
    }
    return first;
}

static struct store *open_store(void)
{
    struct store *store = NULL;
    hearth_error error;
    hearth_config *config = config_of(path);
    if (instance_store_open(config, &store, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_true(store_wait_ready(store, clock_now(clock_monotonic()) + clock_from_ms(30000)));
    hearth_config_free(config);
    return store;
}

/* As at a start of the process, after which the store is closed. */
static struct looks fingerprint_once(const char *model, bool verify)
{
    hearth_error error;
    struct fingerprint fingerprint = {.path = NULL};
    assert_int_equal(hearth_log_open(log_path, "info", "text", NULL), HEARTH_OK);
    struct store *store = open_store();
    const struct fingerprint_source source = {.path = model, .store = store, .verify = verify};
    assert_int_equal(fingerprint_start(&fingerprint, &source, &error), HEARTH_OK);
    if (!fingerprint_finish(&fingerprint)) fail_msg("%s", fingerprint.error.message);
    store_close(store, CLOCK_NEVER);
    return take_looks();
}

/* The sidecars are those of single files; the digest that is known is that of all files together. */
static void sidecars_of_a_split_model_are_verified_by_reading_it_again(void **state)
{
    (void)state;
    llm_init();
    char *first = make_parts();
    run_command(mem_format("cd '%s' && for part in parts-*.gguf; do sha256sum $part >$part.sha256; done", folder));
    assert_int_equal(fingerprint_once(first, true).hashed, 1);
    assert_int_equal(fingerprint_once(first, true).hashed, 1);
    assert_int_equal(fingerprint_once(first, false).known, 1);
    free(first);
}

/* A file that is replaced while it is read: nothing is noted of it. */
static void what_was_changed_while_it_was_read_is_not_noted(void **state)
{
    (void)state;
    hearth_error error;
    llm_init();
    struct fingerprint fingerprint = {.path = NULL};
    struct store *store = open_store();
    const struct fingerprint_source source = {.path = path, .store = store};
    assert_int_equal(fingerprint_start(&fingerprint, &source, &error), HEARTH_OK);
    run_command(mem_format("cp '%s' '%s.copy' && mv '%s.copy' '%s'", path, path, path, path));
    assert_false(fingerprint_finish(&fingerprint));
    assert_says(fingerprint.error.message, "was changed while it was loaded");
    store_close(store, CLOCK_NEVER);
    char *digests = digests_path();
    assert_int_equal(access(digests, F_OK), -1);
    free(digests);
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    (void)state;
    char *demo = source_path("models/demo.gguf");
    folder = mem_format("%s/unit-lib-XXXXXX", getenv("HEARTH_BUILD"));
    assert_non_null(mkdtemp(folder));
    cache = mem_format("%s/kv", folder);
    path = mem_format("%s/m.gguf", folder);
    sidecar = mem_format("%s.sha256", path);
    log_path = mem_format("%s/log", folder);
    run_command(mem_format("cp '%s' '%s'", demo, path));
    write_file(log_path, "");
    ahead_ms = 120000; /* the copy is older than a minute */
    free(demo);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_command(mem_format("rm -r '%s'", folder));
    free(folder);
    free(cache);
    free(path);
    free(sidecar);
    free(log_path);
    return 0;
}

/* While a model is loaded: instance/models/fingerprint.h. */
static void every_file_that_states_depend_on_is_watched(void **state)
{
    (void)state;
    char *first = make_parts(), *second = mem_format("%s/parts-00002-of-00002.gguf", folder);
    char *lora = mem_format("%s/a.lora", folder), *mmproj = mem_format("%s/a.mmproj", folder);
    const char *const files[] = {first, second, lora, mmproj};
    hearth_config *config = config_of(first);
    for (size_t i = 2; i < 4; i++) {
        char *command = mem_format("cp %s %s", first, files[i]);
        assert_int_equal(system(command), 0);
        free(command);
    }
    set(config, "models.demo.lora", lora);
    set(config, "models.demo.mmproj", mmproj);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct file_watch *watch = model_watch_open(&config->models[0], NULL, NULL, NULL);
        assert_int_equal(file_watch_check(watch), FILES_SAME);
        assert_int_equal(utimensat(AT_FDCWD, files[i], NULL, 0), 0);
        assert_int_equal(file_watch_check(watch), FILES_CHANGED);
        file_watch_close(watch);
    }
    hearth_config_free(config);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) free((void *)(uintptr_t)files[i]);
}

#define STARTED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_is_found_only_where_stamp_and_spots_are_equal),
        cmocka_unit_test(of_one_stamp_the_last_digest_counts),
        cmocka_unit_test(the_64_that_were_used_last_are_kept),
        cmocka_unit_test(whatever_happens_to_the_file_no_other_digest_is_found),
        cmocka_unit_test(a_damaged_file_is_begun_anew),
        cmocka_unit_test(a_file_of_a_newer_version_is_not_used_and_left_alone),
        cmocka_unit_test(the_text_is_the_documented_one),
        cmocka_unit_test(files_that_were_changed_within_the_last_minute_are_not_added),
        STARTED(a_second_start_does_not_hash_the_weights),
        STARTED(a_file_that_has_just_been_written_is_hashed_again),
        STARTED(a_file_that_was_edited_in_place_is_hashed),
        STARTED(models_and_adapters_have_a_line_each),
        STARTED(beside_the_owner_of_the_folder_digests_are_read_and_not_written),
        STARTED(without_a_folder_nothing_is_kept),
        STARTED(a_file_that_cannot_be_used_costs_one_line_and_the_time_of_hashing),
        STARTED(commands_for_the_cache_leave_the_file_alone),
        STARTED(a_known_digest_verifies_the_sidecar_of_a_model_in_one_file),
        STARTED(sidecars_of_a_split_model_are_verified_by_reading_it_again),
        STARTED(what_was_changed_while_it_was_read_is_not_noted),
        STARTED(every_file_that_states_depend_on_is_watched),
    };
    hearth_log_open(NULL, "error", "text", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
