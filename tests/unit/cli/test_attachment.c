/* Paths of attached files as terminals write them, and which lines are pasted files. */
#include "base/memory.h"
#include "cli/chat/conversation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void paths_are_written_in_many_ways(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"a.png", "a.png"},
                                          {"  /tmp/a.png \n", "/tmp/a.png"},
                                          {"'/tmp/my cat.png'", "/tmp/my cat.png"},
                                          {"\"/tmp/my cat.png\" ", "/tmp/my cat.png"},
                                          {"/tmp/my\\ cat\\(1\\).png", "/tmp/my cat(1).png"},
                                          {"file:///tmp/my%20cat%2B.png", "/tmp/my cat+.png"},
                                          {"file:///tmp/100%.png", "/tmp/100%.png"},
                                          {"~/a.png", "/home/someone/a.png"},
                                          {"~a.png", "~a.png"},
                                          {"'", "'"},
                                          {"a\\", "a\\"},
                                          {"", ""}};
    setenv("HOME", "/home/someone", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = attachment_path(rows[i][0]);
        assert_string_equal(path, rows[i][1]);
        free(path);
    }
}

static void a_pasted_file_is_one_that_is_there(void **state)
{
    (void)state;
    char folder[] = "/tmp/hearth-attached-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = mem_format("%s/my cat.PNG", folder), *text = mem_format("%s/words.txt", folder);
    char *quoted = mem_format(" '%s'", path), *words = mem_format("what is %s", path),
         *gone = mem_format("%s/no.png", folder);
    char *bare = mem_format("%s/.png", folder);
    FILE *file = fopen(path, "w");
    fputs("bytes", file);
    fclose(file);
    fclose(fopen(text, "w"));
    assert_true(attachment_is_pasted(path));
    assert_true(attachment_is_pasted(quoted));
    assert_false(attachment_is_pasted(words));
    assert_false(attachment_is_pasted(text));
    assert_false(attachment_is_pasted(gone));
    assert_false(attachment_is_pasted(bare));
    assert_false(attachment_is_pasted("my cat.PNG"));
    assert_false(attachment_is_pasted(""));
    struct buf bytes = {0};
    hearth_error error;
    assert_int_equal(attachment_read(path, &bytes, &error), HEARTH_OK);
    assert_int_equal(bytes.len, 5);
    assert_memory_equal(bytes.v, "bytes", 5);
    assert_int_equal(attachment_read(folder, &bytes, &error), HEARTH_IO);
    assert_int_equal(attachment_read(gone, &bytes, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, gone));
    buf_release(&bytes);
    unlink(path);
    unlink(text);
    rmdir(folder);
    char *const made[] = {path, text, quoted, words, gone, bare};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) free(made[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(paths_are_written_in_many_ways),
                                       cmocka_unit_test(a_pasted_file_is_one_that_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
