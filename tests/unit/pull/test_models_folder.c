/* The models folder: manifests, locks, removal, and room on the disk. */
#include "fakes/cmocka_all.h"

#include "base/memory.h"
#include "pull/download.h"
#include "pull/models_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char root[] = "/tmp/hearth-models-XXXXXX";
static char folder[64];

/* ---- The disk ---- */

static struct statvfs disk;

int __wrap_fstatvfs(int fd, struct statvfs *out);
int __wrap_fstatvfs(int fd, struct statvfs *out)
{
    (void)fd;
    *out = disk;
    return 0;
}

static void what_does_not_fit_is_refused_before_it_is_fetched(void **state)
{
    (void)state;
    const int64_t spare = (int64_t)64 << 20, room = (int64_t)1000 << 20;
    hearth_error error;
    disk = (struct statvfs){.f_bavail = 1000, .f_bfree = 100000, .f_frsize = 1 << 20, .f_bsize = 4096};
    assert_int_equal(pull_check_space(0, room - spare, &error), HEARTH_OK);
    assert_int_equal(pull_check_space(0, room - spare + 1, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "has 1.05 GB free, and 1.05 GB are needed"));
    assert_non_null(strstr(error.message, "HEARTH_MODELS"));
    assert_int_equal(pull_check_space(0, (int64_t)1 << 60, &error), HEARTH_IO);
}

/* ---- Models ---- */

static void write_file(const char *model, const char *name, const char *text)
{
    char *path = pull_file_path(folder, model, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    free(path);
}

static bool is_there(const char *model, const char *name)
{
    char *path = pull_file_path(folder, model, name);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

/* Two files of five bytes, and the manifest. */
static void make_model(const char *name, const char *reference)
{
    struct pull_place place;
    hearth_error error;
    if (pull_place_open(folder, name, &place, &error) != HEARTH_OK) fail_msg("%s", error.message);
    struct pull_model model = {
        .name = mem_strdup(name), .reference = mem_strdup(reference), .pulled_ms = 1700000000000};
    struct pull_stored weights = {.name = mem_strdup("m.gguf"), .size = 5, .sha = SHA, .etag = mem_strdup("\"e\"")};
    struct pull_stored projector = {.name = mem_strdup("mmproj.gguf"), .size = 5, .sha = SHA, .is_projector = true};
    pull_model_add_file(&model, &weights);
    pull_model_add_file(&model, &projector);
    write_file(name, "m.gguf", "12345");
    write_file(name, "mmproj.gguf", "12345");
    if (pull_place_prepare(&place, &model, &error) != HEARTH_OK) fail_msg("%s", error.message);
    if (pull_place_list(&place, &error) != HEARTH_OK) fail_msg("%s", error.message);
    pull_model_release(&model);
    pull_place_close(&place);
}

struct seen {
    struct buf names, faults;
};

static void see(void *ud, const struct pull_model *model)
{
    struct seen *seen = ud;
    buf_printf(&seen->names, "%s=%s ", model->name, model->reference);
}

static void see_fault(void *ud, const char *name, const char *why)
{
    struct seen *seen = ud;
    buf_printf(&seen->faults, "%s: %s\n", name, why);
}

static void expect_list(const char *names, const char *faults)
{
    struct seen seen = {0};
    hearth_error error;
    const struct pull_visitor visitor = {see, see_fault, &seen};
    assert_int_equal(pull_folder_list(folder, &visitor, &error), HEARTH_OK);
    assert_string_equal(buf_text(&seen.names), names);
    assert_string_equal(buf_text(&seen.faults), faults);
    buf_release(&seen.names);
    buf_release(&seen.faults);
}

static void expect_removed(const char *name, int code, const char *says)
{
    hearth_error error = {0};
    int rc = pull_folder_remove(folder, name, &error);
    if (rc != code || (says != NULL && strstr(error.message, says) == NULL)) fail_msg("%d %s", rc, error.message);
}

static void models_are_listed_and_found(void **state)
{
    (void)state;
    struct pull_model model;
    hearth_error error;
    expect_list("", "");
    make_model("b", "hf:x/b:Q8_0");
    make_model("a", "https://h/a.gguf");
    expect_list("a=https://h/a.gguf b=hf:x/b:Q8_0 ", "");
    assert_int_equal(pull_folder_find(folder, "b", NULL, &model, &error), HEARTH_OK);
    assert_int_equal(model.n_files, 2);
    assert_string_equal(model.files[0].name, "m.gguf");
    assert_string_equal(model.files[0].etag, "\"e\"");
    assert_string_equal(model.files[1].sha, SHA);
    assert_true(model.files[1].is_projector && !model.files[0].is_projector);
    assert_int_equal(pull_model_bytes(&model), 10);
    pull_model_release(&model);
    assert_int_equal(pull_folder_find(folder, NULL, "https://h/a.gguf", &model, &error), HEARTH_OK);
    assert_string_equal(model.name, "a");
    pull_model_release(&model);
    assert_int_equal(pull_folder_find(folder, "c", NULL, &model, &error), HEARTH_NOT_FOUND);
    expect_removed("a", HEARTH_OK, NULL);
    expect_removed("b", HEARTH_OK, NULL);
    expect_list("", "");
}

static void a_model_that_is_not_whole_is_no_model(void **state)
{
    (void)state;
    static const struct {
        const char *manifest, *why;
    } rows[] = {
        {"", "the manifest of m is damaged: pull it again"},
        {"{", "the manifest of m is damaged: pull it again"},
        {"{\"reference\":\"r\",\"files\":[]}", "the manifest of m is damaged: pull it again"},
        {"{\"reference\":\"r\",\"files\":[{\"name\":\"../m.gguf\",\"size\":5,\"sha256\":\"" SHA "\"}]}",
         "the manifest of m is damaged: pull it again"},
        {"{\"reference\":\"r\",\"files\":[{\"name\":\"lock\",\"size\":0,\"sha256\":\"" SHA "\"}]}",
         "the manifest of m is damaged: pull it again"},
        {"{\"reference\":\"r\",\"files\":[{\"name\":\"m.gguf\",\"size\":5,\"sha256\":\"1\"}]}",
         "the manifest of m is damaged: pull it again"},
        {"{\"reference\":\"r\",\"files\":[{\"name\":\"m.gguf\",\"size\":6,\"sha256\":\"" SHA "\"}]}",
         "a file of it has another size than it was pulled with"},
        {"{\"reference\":\"r\",\"files\":[{\"name\":\"n.gguf\",\"size\":5,\"sha256\":\"" SHA "\"}]}",
         "a file of it is missing"},
    };
    make_model("m", "hf:x/m");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf fault = {0};
        write_file("m", PULL_MANIFEST, rows[i].manifest);
        buf_printf(&fault, "m: %s\n", rows[i].why);
        expect_list("", fault.v);
        buf_release(&fault);
    }
    char *manifest = pull_file_path(folder, "m", PULL_MANIFEST), *prepared = mem_format("%s.part", manifest);
    assert_int_equal(rename(manifest, prepared), 0);
    expect_list("", "m: its pull or its removal was interrupted: pull it again, or remove it\n");
    assert_int_equal(unlink(prepared), 0);
    free(manifest);
    free(prepared);
    expect_list("", ""); /* it is being pulled, or was not pulled to its end */
    make_model("m", "hf:x/m");
    expect_removed("m", HEARTH_OK, NULL);
}

static void only_files_of_the_manifest_are_removed(void **state)
{
    (void)state;
    make_model("m", "hf:x/m");
    write_file("m", "mine.gguf", "");
    write_file("m", "n.gguf.part", "");
    write_file("m", "n.gguf.journal", "");
    expect_removed("m", HEARTH_OK, NULL);
    assert_true(is_there("m", "mine.gguf"));
    assert_false(is_there("m", "m.gguf"));
    assert_false(is_there("m", "mmproj.gguf"));
    assert_false(is_there("m", "n.gguf.part"));
    assert_false(is_there("m", PULL_MANIFEST));
    expect_removed("m", HEARTH_NOT_FOUND, "was not pulled");
    assert_true(is_there("m", "mine.gguf"));
    assert_false(is_there("m", PULL_LOCK));
    write_file("m", "n.gguf.part", ""); /* of a pull that was interrupted */
    expect_removed("m", HEARTH_OK, NULL);
    char *path = mem_format("rm -r '%s/m'", folder);
    assert_int_equal(system(path), 0);
    free(path);
    expect_removed("m", HEARTH_NOT_FOUND, "is not in the models folder");
    expect_removed("../m", HEARTH_INVALID, "is refused");
}

static void a_locked_model_is_neither_pulled_nor_removed(void **state)
{
    (void)state;
    struct pull_place place, second;
    hearth_error error;
    make_model("m", "hf:x/m");
    assert_int_equal(pull_place_open(folder, "m", &place, &error), HEARTH_OK);
    assert_int_equal(pull_place_open(folder, "m", &second, &error), HEARTH_BUSY);
    assert_non_null(strstr(error.message, "by another process"));
    expect_removed("m", HEARTH_BUSY, "by another process");
    assert_true(is_there("m", "m.gguf"));
    pull_place_close(&place);
    expect_removed("m", HEARTH_OK, NULL);
}

/* What another process does between the opening of the lock and the locking of it: it removes the model with its lock,
 * or that and begins to pull it anew. */
static enum other { NOTHING, REMOVES, REPLACES } other;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    char *lock = pull_file_path(folder, "m", PULL_LOCK), *own = mem_format("%s/m", folder);
    if (other != NOTHING) assert_int_equal(unlink(lock), 0);
    if (other == REMOVES) assert_int_equal(rmdir(own), 0);
    if (other == REPLACES) write_file("m", PULL_LOCK, "");
    other = NOTHING;
    free(lock);
    free(own);
    return __real_flock(fd, operation);
}

/* Whoever holds the lock of a file that has lost its name holds nothing: the next one locks another file. */
static void a_lock_that_was_removed_is_none(void **state)
{
    (void)state;
    for (int i = REMOVES; i <= REPLACES; i++) {
        struct pull_place place, second;
        hearth_error error;
        other = (enum other)i;
        assert_int_equal(pull_place_open(folder, "m", &place, &error), HEARTH_OK);
        assert_int_equal(other, NOTHING);
        assert_true(is_there("m", PULL_LOCK));
        assert_int_equal(pull_place_open(folder, "m", &second, &error), HEARTH_BUSY);
        pull_place_abandon(&place);
        assert_false(is_there("m", ""));
    }
}

static void links_are_not_followed(void **state)
{
    (void)state;
    struct pull_place place;
    hearth_error error;
    char *link = mem_format("%s/m", folder), *lock = mem_format("%s/n/" PULL_LOCK, folder);
    char *own = mem_format("%s/n", folder);
    mkdir(folder, 0755);
    assert_int_equal(symlink("/tmp", link), 0);
    assert_int_equal(pull_place_open(folder, "m", &place, &error), HEARTH_IO);
    assert_int_equal(mkdir(own, 0755), 0);
    assert_int_equal(symlink("/tmp/none", lock), 0);
    assert_int_equal(pull_place_open(folder, "n", &place, &error), HEARTH_IO);
    assert_int_not_equal(access("/tmp/none", F_OK), 0);
    expect_list("", "");
    assert_int_equal(unlink(link) + unlink(lock) + rmdir(own), 0);
    free(link);
    free(lock);
    free(own);
}

static void the_folder_is_found_by_configuration_and_environment(void **state)
{
    (void)state;
    static const char *const variables[] = {"HEARTH_MODELS", "XDG_DATA_HOME", "HOME"};
    static const struct {
        const char *configured, *values[3], *path;
    } rows[] = {{"/k", {"/m", "/d", "/h"}, "/k"},
                {NULL, {"/m", "/d", "/h"}, "/m"},
                {NULL, {"", "/d", "/h"}, "/d/hearth/models"},
                {NULL, {"", "relative", "/h"}, "/h/.local/share/hearth/models"},
                {NULL, {"", "", ""}, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < 3; k++) setenv(variables[k], rows[i].values[k], 1);
        char *path = pull_folder_path(rows[i].configured);
        assert_int_equal(path == NULL, rows[i].path == NULL);
        if (path != NULL) assert_string_equal(path, rows[i].path);
        free(path);
    }
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL) return -1;
    snprintf(folder, sizeof folder, "%s/deep/models", root);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", root);
    int rc = system(command);
    free(command);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_before_it_is_fetched),
        cmocka_unit_test(models_are_listed_and_found),
        cmocka_unit_test(a_model_that_is_not_whole_is_no_model),
        cmocka_unit_test(only_files_of_the_manifest_are_removed),
        cmocka_unit_test(a_locked_model_is_neither_pulled_nor_removed),
        cmocka_unit_test(a_lock_that_was_removed_is_none),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(the_folder_is_found_by_configuration_and_environment),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
