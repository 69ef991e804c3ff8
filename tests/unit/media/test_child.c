/* Programs run on uploads: what they see, and that none takes more than it may; and the text of a PDF file. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/memory.h"
#include "media/child.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct media_bytes hello = {(const uint8_t *)"hello", 5};

static void append(void *ud, const char *bytes, size_t n)
{
    buf_append(ud, bytes, n);
}

static int run_for(int seconds, const char *script, struct buf *output, hearth_error *error)
{
    const char *const args[] = {"-c", script, NULL};
    const struct media_program program = {.name = "sh",
                                          .package = "dash",
                                          .args = args,
                                          .seconds = seconds,
                                          .most_memory = 256 << 20,
                                          .most_output = 1 << 20};
    buf_clear(output);
    return media_child_run(&program, &hello, &(struct media_sink){append, output}, error);
}

static int run(const char *script, struct buf *output, hearth_error *error)
{
    return run_for(20, script, output, error);
}

static void a_program_sees_the_upload_and_nothing_else(void **state)
{
    (void)state;
    struct buf output = {0};
    hearth_error error;
    assert_int_equal(run("exec cat " MEDIA_CHILD_INPUT " -", &output, &error), HEARTH_OK);
    assert_string_equal(buf_text(&output), "hellohello");
    setenv("HEARTH_SECRET", "key", 1);
    assert_int_equal(run("exec env", &output, &error), HEARTH_OK);
    assert_null(strstr(output.v, "SECRET"));
    assert_int_equal(
        run("for i in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/self/fd/$i ] && echo $i; done; :", &output, &error),
        HEARTH_OK);
    assert_string_equal(output.v, "0\n1\n2\n");
    buf_release(&output);
}

/* ---- Where it cannot be confined ---- */

/* In a process of its own, which has not tried yet what the kernel can do: run() answers `code` and says `says`. */
struct kernel {
    bool without_landlock, without_seccomp;
    bool unconfined; /* the program's */
    int code;
    const char *says;
};

/* From now on these calls fail as they do on a kernel without. */
static void lose(const struct kernel *kernel)
{
    const uint32_t landlock = kernel->without_landlock ? SYS_landlock_create_ruleset : UINT32_MAX;
    const uint32_t option = kernel->without_seccomp ? PR_SET_SECCOMP : UINT32_MAX;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, landlock, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, option, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
}

static void check_on(const struct kernel *kernel)
{
    static const char *const args[] = {MEDIA_CHILD_INPUT, NULL};
    const struct media_program program = {.name = "cat",
                                          .args = args,
                                          .seconds = 5,
                                          .most_memory = 256 << 20,
                                          .most_output = 1 << 20,
                                          .unconfined = kernel->unconfined};
    struct buf output = {0};
    hearth_error error = {.message = ""};
    lose(kernel);
    int code = media_child_run(&program, &hello, &(struct media_sink){append, &output}, &error);
    bool agrees = media_child_can_run(&program) == (code == HEARTH_OK);
    const char *said = code == HEARTH_OK ? buf_text(&output) : error.message;
    bool is_right = code == kernel->code && agrees && strstr(said, kernel->says) != NULL;
    if (!is_right) fprintf(stderr, "%d: %s\n", code, said);
    _exit(is_right ? 0 : 1);
}

static void where_it_cannot_be_confined_it_is_not_run_unless_that_is_allowed(void **state)
{
    (void)state;
    static const struct kernel rows[] = {
        {false, false, false, HEARTH_OK, "hello"},
        {true, false, false, HEARTH_UNSUPPORTED, "has no Landlock to confine it: see models.*.media_unconfined"},
        {false, true, false, HEARTH_UNSUPPORTED, "has no seccomp to confine it"},
        {true, true, false, HEARTH_UNSUPPORTED, "has neither Landlock nor seccomp to confine it"},
        {true, false, true, HEARTH_OK, "hello"},
        {false, true, true, HEARTH_OK, "hello"},
        {true, true, true, HEARTH_OK, "hello"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) check_on(&rows[i]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0) fail_msg("row %zu", i);
    }
}

/* ---- What it may not do ---- */

static char folder[] = "/tmp/hearth-child-XXXXXX";

static void put(const char *name, const char *text, mode_t mode)
{
    char *path = mem_format("%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
    free(path);
}

static void make_folder(void)
{
    assert_non_null(mkdtemp(folder));
    char *empty = mem_format("%s/empty", folder);
    assert_int_equal(mkdir(empty, 0700), 0);
    put("file", "words", 0600);
    put("victim", "words", 0600);
    put("script", "#!/bin/sh\nexit 0\n", 0700);
    free(empty);
}

static void remove_folder(void)
{
    char *command = mem_format("rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    free(command);
}

/* What the trespasser tells when it is run as ffmpeg is. */
static void trespass(struct buf *output)
{
    const char *const args[] = {folder, NULL};
    const struct media_program program = {.name = "hearth-trespasser",
                                          .package = "of the tests",
                                          .args = args,
                                          .seconds = 10,
                                          .most_memory = (size_t)1 << 30,
                                          .most_output = 1 << 20};
    hearth_error error;
    char *path = mem_format("%s/bin:%s", getenv("HEARTH_BUILD"), getenv("PATH"));
    setenv("PATH", path, 1);
    if (media_child_run(&program, &hello, &(struct media_sink){append, output}, &error) != HEARTH_OK)
        fail_msg("%s; it told: %s", error.message, buf_text(output));
    free(path);
}

static void it_can_do_nothing_but_read_the_upload_and_answer(void **state)
{
    (void)state;
    struct buf output = {0}, left = {0};
    make_folder();
    trespass(&output);
    for (char *rest = output.v, *line; (line = strtok_r(rest, "\n", &rest)) != NULL;)
        if (strstr(line, ": refused") == NULL) buf_printf(&left, "%s\n", line);
    assert_string_equal(buf_text(&left), "done: all\n");
    remove_folder();
    buf_release(&output);
    buf_release(&left);
}

/* Else its being refused would show nothing. */
static void a_program_that_is_not_confined_can(void **state)
{
    (void)state;
    if (getenv("HEARTH_UNDER_UNIT") != NULL) skip(); /* there nothing is unconfined */
    make_folder();
    char *command = mem_format("echo upload | '%s/bin/hearth-trespasser' '%s'", getenv("HEARTH_BUILD"), folder);
    char line[256], last[256] = "";
    FILE *out = popen(command, "re");
    assert_non_null(out);
    while (fgets(line, sizeof line, out) != NULL) {
        if (strstr(line, ": refused\n") != NULL) fail_msg("%s", line);
        memcpy(last, line, sizeof last);
    }
    assert_int_equal(pclose(out), 0);
    assert_string_equal(last, "done: all\n");
    remove_folder();
    free(command);
}

static void whoever_takes_too_much_is_ended(void **state)
{
    (void)state;
    static const struct {
        const char *script, *says;
        int code, seconds;
    } rows[] = {{"exec sleep 30", "takes sh more than 1 seconds", HEARTH_TOO_LONG, 1},
                {"exec cat /dev/zero", "is more than 1024 KiB when sh has read it", HEARTH_TOO_LONG, 20},
                {"while :; do :; done", "takes sh more than 1 seconds", HEARTH_TOO_LONG, 1},
                {"exec sleep 30 >&-", "takes sh more than 1 seconds", HEARTH_TOO_LONG, 1},
                {"exit 3", "cannot be read by sh", HEARTH_INVALID, 20},
                {"kill -SEGV $$", "cannot be read by sh", HEARTH_INVALID, 20},
                {"exec sort -S 500m /dev/zero", "cannot be read", HEARTH_INVALID, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf output = {0};
        hearth_error error;
        int64_t began_at = clock_now(clock_monotonic());
        if (run_for(rows[i].seconds, rows[i].script, &output, &error) != rows[i].code)
            fail_msg("%s: %d: %s", rows[i].script, (int)error.code, error.message);
        if (strstr(error.message, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].script, error.message);
        assert_true(clock_to_ms(clock_now(clock_monotonic()) - began_at) < 20000);
        buf_release(&output);
    }
}

static bool at_fourth_look(void *ud)
{
    int *looks = ud;
    return ++*looks >= 4;
}

static void a_program_ends_with_the_request(void **state)
{
    (void)state;
    static const char *const args[] = {"-c", "exec sleep 30", NULL};
    int looks = 0;
    const struct media_stop stop = {at_fourth_look, &looks};
    const struct media_program program = {.name = "sh",
                                          .package = "dash",
                                          .args = args,
                                          .seconds = 20,
                                          .most_memory = 256 << 20,
                                          .most_output = 1,
                                          .stop = &stop};
    struct buf output = {0};
    hearth_error error;
    int64_t began_at = clock_now(clock_monotonic());
    for (int i = 0; i < 2; i++) /* the second before it begins */
        assert_int_equal(media_child_run(&program, &hello, &(struct media_sink){append, &output}, &error),
                         HEARTH_CANCELLED);
    assert_true(clock_to_ms(clock_now(clock_monotonic()) - began_at) < 5000);
}

static void what_is_not_installed_is_named_with_its_package(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    const struct media_program program = {
        .name = "hearth-no-such-program", .package = "nothing-brings-it", .args = none};
    struct buf output = {0};
    hearth_error error;
    assert_int_equal(media_child_run(&program, &hello, &(struct media_sink){append, &output}, &error),
                     HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "hearth-no-such-program"));
    assert_non_null(strstr(error.message, "nothing-brings-it"));
}

/* ---- PDF ---- */

static void a_pdf_document_has_text(void **state)
{
    (void)state;
    static const char file[] =
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R"
        "/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
        "4 0 obj<</Length 43>>stream\nBT /F1 12 Tf 20 50 Td (The code is 42.) Tj ET\nendstream endobj\n"
        "trailer<</Root 1 0 R>>\n";
    static const struct media_document_limits roomy = {.most_bytes = 1 << 20}, tight = {.most_bytes = 10};
    const struct media_bytes pdf = {(const uint8_t *)file, sizeof file - 1};
    struct buf text = {0};
    hearth_error error;
    assert_int_equal(media_format_of(&pdf), MEDIA_PDF);
    if (media_document_text(&pdf, &roomy, NULL, &text, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_non_null(strstr(buf_text(&text), "The code is 42."));
    buf_release(&text);
    assert_int_equal(media_document_text(&pdf, &tight, NULL, &text, &error), HEARTH_TOO_LONG);
    buf_release(&text);
    const struct media_bytes broken = {(const uint8_t *)"%PDF-1.4\njunk", 13};
    assert_int_equal(media_document_text(&broken, &roomy, NULL, &text, &error), HEARTH_INVALID);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_cannot_be_confined_it_is_not_run_unless_that_is_allowed), /* first: see there */
        cmocka_unit_test(a_program_sees_the_upload_and_nothing_else),
        cmocka_unit_test(it_can_do_nothing_but_read_the_upload_and_answer),
        cmocka_unit_test(a_program_that_is_not_confined_can),
        cmocka_unit_test(whoever_takes_too_much_is_ended),
        cmocka_unit_test(a_program_ends_with_the_request),
        cmocka_unit_test(what_is_not_installed_is_named_with_its_package),
        cmocka_unit_test(a_pdf_document_has_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
