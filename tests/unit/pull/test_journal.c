/* Journals: what is resumed, and what is begun anew. */
#include "fakes/cmocka_all.h"

#include "base/memory.h"
#include "pull/download.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((int64_t)3 * PULL_PIECE + 5)
#define NAME "m.gguf.journal"

static char folder[] = "/tmp/hearth-journal-XXXXXX";
static int at;
static const uint8_t sha[SHA256_BYTES] = {1, 2, 3}, other_sha[SHA256_BYTES] = {1, 2, 4};
static const struct pull_binding binding = {SIZE, sha, "\"v1\""};

static bool open_it(struct pull_journal *journal, const struct pull_binding *to, int64_t part)
{
    bool fresh;
    hearth_error error;
    if (pull_journal_open(journal, at, NAME, to, part, &fresh, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return fresh;
}

/* A journal with the pieces 1 and 3. */
static void write_two(void)
{
    struct pull_journal journal;
    hearth_error error;
    unlinkat(at, NAME, 0);
    assert_true(open_it(&journal, &binding, -1));
    assert_int_equal(journal.n, 4);
    assert_int_equal(pull_journal_enter(&journal, 1, &error), HEARTH_OK);
    assert_int_equal(pull_journal_enter(&journal, 3, &error), HEARTH_OK);
    pull_journal_close(&journal);
}

static void append(const char *text)
{
    int fd = openat(at, NAME, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void what_was_entered_is_there_again(void **state)
{
    (void)state;
    struct pull_journal journal;
    size_t first;
    write_two();
    assert_false(open_it(&journal, &binding, SIZE));
    assert_int_equal(pull_journal_bytes(&journal), PULL_PIECE + 5);
    assert_int_equal(pull_journal_take(&journal, 8, &first), 1);
    assert_int_equal(first, 0);
    assert_int_equal(pull_journal_take(&journal, 8, &first), 1);
    assert_int_equal(first, 2);
    assert_int_equal(pull_piece_end(&journal, 2), 3 * (int64_t)PULL_PIECE);
    assert_int_equal(pull_journal_take(&journal, 8, &first), 0);
    pull_journal_close(&journal);
}

static void runs_are_as_long_as_asked_for_and_end_at_what_is_there(void **state)
{
    (void)state;
    struct pull_journal journal;
    hearth_error error;
    size_t first;
    unlinkat(at, NAME, 0);
    assert_true(open_it(&journal, &binding, SIZE));
    assert_int_equal(pull_journal_enter(&journal, 2, &error), HEARTH_OK);
    assert_int_equal(pull_journal_take(&journal, 8, &first), 2);
    assert_int_equal(first, 0);
    assert_int_equal(pull_journal_take(&journal, 1, &first), 1);
    assert_int_equal(first, 3);
    assert_int_equal(pull_piece_end(&journal, 3), SIZE);
    pull_journal_close(&journal);
}

static void another_file_is_begun_anew(void **state)
{
    (void)state;
    const struct {
        struct pull_binding binding;
        int64_t part;
    } rows[] = {
        {{SIZE, sha, "\"v2\""}, SIZE},  {{SIZE, other_sha, "\"v1\""}, SIZE}, {{SIZE + 1, sha, "\"v1\""}, SIZE + 1},
        {{SIZE, NULL, "\"v1\""}, SIZE}, {{SIZE, sha, NULL}, SIZE},           {{SIZE, sha, "\"v1\""}, SIZE - 1},
        {{SIZE, sha, "\"v1\""}, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_journal journal;
        write_two();
        assert_true(open_it(&journal, &rows[i].binding, rows[i].part));
        assert_int_equal(pull_journal_bytes(&journal), 0);
        pull_journal_close(&journal);
        /* And what it says now is bound to that. */
        if (rows[i].part == rows[i].binding.size) assert_false(open_it(&journal, &rows[i].binding, rows[i].part));
        if (rows[i].part == rows[i].binding.size) pull_journal_close(&journal);
    }
}

static void a_file_that_cannot_be_told_from_another_is_not_resumed(void **state)
{
    (void)state;
    const struct pull_binding loose = {SIZE, NULL, NULL};
    struct pull_journal journal;
    hearth_error error;
    assert_false(pull_binding_is_firm(&loose));
    unlinkat(at, NAME, 0);
    assert_true(open_it(&journal, &loose, SIZE));
    assert_int_equal(pull_journal_enter(&journal, 1, &error), HEARTH_OK);
    pull_journal_close(&journal);
    assert_true(open_it(&journal, &loose, SIZE));
    pull_journal_close(&journal);
}

static void half_a_line_and_rubbish_count_for_nothing(void **state)
{
    (void)state;
    static const char *const rows[] = {"done 2",   "done ", "done -1\n", "done 2x\n", "done 99999999999999999999\n",
                                       "done 4\n", "don",   "\n\n",      "done 2 \n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pull_journal journal;
        hearth_error error;
        write_two();
        append(rows[i]);
        assert_false(open_it(&journal, &binding, SIZE));
        if (pull_journal_bytes(&journal) != PULL_PIECE + 5) fail_msg("'%s' counts", rows[i]);
        /* What is entered next is not spoilt by it, and does not complete it. */
        assert_int_equal(pull_journal_enter(&journal, 0, &error), HEARTH_OK);
        pull_journal_close(&journal);
        assert_false(open_it(&journal, &binding, SIZE));
        if (pull_journal_bytes(&journal) != 2 * PULL_PIECE + 5) fail_msg("after '%s'", rows[i]);
        pull_journal_close(&journal);
    }
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    at = open(folder, O_RDONLY | O_DIRECTORY);
    return at < 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlinkat(at, NAME, 0);
    close(at);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_entered_is_there_again),
        cmocka_unit_test(runs_are_as_long_as_asked_for_and_end_at_what_is_there),
        cmocka_unit_test(another_file_is_begun_anew),
        cmocka_unit_test(a_file_that_cannot_be_told_from_another_is_not_resumed),
        cmocka_unit_test(half_a_line_and_rubbish_count_for_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
