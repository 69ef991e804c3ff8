/* Backends of llama.cpp in files of their own: which of a folder's are loaded, and what is said of the others. The
 * files are those of tests/fakes/backend_module.c. The program under test has llama.cpp's own backends within itself.
 */
#include "support.h"

#include "base/buf.h"
#include "llm/backends.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/hearth-backends-XXXXXX";

static void put(const char *file, const char *as)
{
    char *from = mem_format("%s/bin/%s", env("HEARTH_BUILD"), file), *to = mem_format("%s/%s", folder, as);
    assert_int_equal(access(from, R_OK), 0);
    assert_int_equal(symlink(from, to), 0);
    free(from);
    free(to);
}

static void write_file(const char *name)
{
    char *path = mem_format("%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no library", file);
    fclose(file);
    free(path);
}

static void nothing_is_looked_for_where_they_are_part_of_the_program(void **state)
{
    (void)state;
    assert_string_equal(llm_backends(), "");
    assert_non_null(llm_processor());
}

static void of_those_for_processors_the_best_is_loaded_and_last(void **state)
{
    (void)state;
    put("hearth-backend-slow.so", "libggml-cpu-a.so");
    put("hearth-backend-fast.so", "libggml-cpu-b.so");
    put("hearth-backend-foreign.so", "libggml-cpu-z.so"); /* for another processor: it is not even mentioned */
    put("hearth-backend-card.so", "libggml-fake.so");
    put("hearth-backend-old.so", "libggml-old.so");
    put("hearth-backend-card.so",
        "libggml.so"); /* no backends: llama.cpp's other libraries, and what else may lie there */
    put("hearth-backend-card.so", "libllama.so");
    write_file("libggml-base.so");
    write_file("libggml-broken.so");
    write_file("libggml-cpu-broken.so");
    write_file("libggml-vulkan.so.bak");
    llm_load_backends(folder);
    assert_non_null(strstr(llm_backends(), "backend broken: not loaded: "));
    assert_non_null(strstr(llm_backends(), "backend cpu-broken: not loaded: "));
    assert_non_null(strstr(llm_backends(), "backend fake: loaded, 0 devices\n"));
    assert_non_null(strstr(llm_backends(), "backend old: not loaded: it is of another version of llama.cpp, or finds "
                                           "no device that it can use\n"));
    const char *end = "backend cpu-b: loaded, 0 devices\n", *text = llm_backends();
    assert_true(strlen(text) > strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0);
    assert_null(strstr(text, "cpu-a:"));
    assert_null(strstr(text, "cpu-z"));
    assert_null(strstr(text, "base"));
    assert_null(strstr(text, folder)); /* reasons are said without the path */
    int lines = 0;
    for (const char *c = text; *c != '\0'; c++) lines += *c == '\n';
    assert_int_equal(lines, 5);
}

static void their_functions_are_found_by_name(void **state)
{
    int (*twice)(int) = NULL;
    (void)state;
    assert_true(llm_find_function("card", "twice", &twice));
    assert_int_equal(twice(21), 42);
    assert_false(llm_find_function("card", "thrice", &twice));
    assert_false(llm_find_function("nobody", "twice", &twice));
}

static void a_folder_that_is_not_there_has_none(void **state)
{
    (void)state;
    size_t before = strlen(llm_backends());
    llm_load_backends("/nonexistent/folder");
    assert_int_equal(strlen(llm_backends()), before);
}

static int set_up(void **state)
{
    (void)state;
    llm_init();
    if (llm_backends()[0] != '\0') {
        print_error("a portable build has loaded its own: this is a test of the usual one\n");
        return -1;
    }
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"libggml-cpu-a.so",      "libggml-cpu-b.so",     "libggml-cpu-z.so",
                                        "libggml-fake.so",       "libggml-old.so",       "libggml.so",
                                        "libllama.so",           "libggml-base.so",      "libggml-broken.so",
                                        "libggml-cpu-broken.so", "libggml-vulkan.so.bak"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = mem_format("%s/%s", folder, names[i]);
        unlink(path);
        free(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_looked_for_where_they_are_part_of_the_program),
        cmocka_unit_test(of_those_for_processors_the_best_is_loaded_and_last),
        cmocka_unit_test(their_functions_are_found_by_name),
        cmocka_unit_test(a_folder_that_is_not_there_has_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
