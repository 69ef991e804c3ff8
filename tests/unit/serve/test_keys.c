/* The file of API keys: its syntax, its errors, and looking up a key. */
#include "base/error.h"
#include "base/log.h"
#include "serve/core/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ALICE "alice-0123456789abcdef"
#define BOB   "bob-0123456789abcdefgh"

static struct keys *parsed(const char *text)
{
    hearth_error error = {0};
    struct keys *keys = keys_parse("keys", text, strlen(text), &error);
    if (keys == NULL) fail_msg("%s", error.message);
    return keys;
}

static void a_line_is_a_key_a_name_and_grants(void **state)
{
    static const struct {
        const char *line, *name;
        int grants;
    } rows[] = {
        {ALICE, "", KEYS_ALL},
        {"  " ALICE "\t", "", KEYS_ALL},
        {ALICE " alice", "alice", KEYS_ALL},
        {ALICE " alice *", "alice", KEYS_ALL},
        {ALICE " a.b-c_d@e+1 chat", "a.b-c_d@e+1", KEYS_CHAT},
        {ALICE "\talice  models,chat,status\r\n", "alice", KEYS_MODELS | KEYS_CHAT | KEYS_STATUS},
        {ALICE " alice completions,embeddings,rerank,cache,admin # of the lab", "alice",
         KEYS_COMPLETIONS | KEYS_EMBEDDINGS | KEYS_RERANK | KEYS_CACHE | KEYS_ADMIN},
        {"# keys\n\n   \n \t# more\n" ALICE "# alice", "", 0}, /* no blank before it: part of the key */
        {ALICE " # alice", "", KEYS_ALL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keys *keys = parsed(rows[i].line);
        const struct key *key = keys_find(keys, ALICE);
        assert_int_equal(key != NULL, rows[i].grants != 0);
        if (key != NULL) assert_string_equal(key->name, rows[i].name);
        if (key != NULL) assert_int_equal(key->grants, rows[i].grants);
        keys_close(keys);
    }
}

static void of_many_keys_the_one_given_is_found(void **state)
{
    (void)state;
    char text[8000], given[64];
    size_t len = 0;
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "key-number-%04d-of-100 name%d\n", i, i % 50);
    struct keys *keys = parsed(text);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(given, sizeof given, "key-number-%04d-of-100", i);
        snprintf(name, sizeof name, "name%d", i % 50);
        assert_string_equal(keys_find(keys, given)->name, name);
    }
    static const char *const others[] = {"",
                                         "key-number-0000-of-10",
                                         "key-number-0000-of-1000",
                                         "KEY-number-0000-of-100",
                                         "key-number-0000-of-100 ",
                                         "key-number-0100-of-100",
                                         "name1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_null(keys_find(keys, others[i]));
    keys_close(keys);
}

static void a_fault_names_file_and_line_and_never_the_key(void **state)
{
#define LONG_NAME "n123456789012345678901234567890123456789012345678901234567890123456789"
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "keys holds no key"},
        {"# nothing\n\n", "keys holds no key"},
        {ALICE "\n" BOB " b\n" ALICE " a", "keys:3: this key stands on an earlier line too"},
        {ALICE " alice chat,models rpm=1 more", "keys:1: a line has four words at most"},
        {ALICE " alice chat more", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=0", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=-1", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=1.5", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=1000000001", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * tpm=99999999999999999999999", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * rpm=1,rpm=2", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * slots=1,", "keys:1: the limits, the fourth word, are"},
        {ALICE " alice * RPM=1", "keys:1: the limits, the fourth word, are"},
        {ALICE " rpm=1", "keys:1: the name, the second word, has letters"},
        {ALICE " alice rpm=1", "keys:1: the grants, the third word, are"},
        {"\n" ALICE " alice chta", "keys:2: the grants, the third word, are"},
        {ALICE " alice chat,", "keys:1: the grants, the third word, are"},
        {ALICE " alice ,chat", "keys:1: the grants, the third word, are"},
        {ALICE " alice chat, models", "keys:1: the grants, the third word, are"},
        {ALICE " alice CHAT", "keys:1: the grants, the third word, are"},
        {ALICE " chat,models", "keys:1: the name, the second word, has letters"},
        {ALICE " " LONG_NAME, "keys:1: the name, the second word, has 64"},
        {"secr\xc3\xa9t-0123456789abcdef", "keys:1: a key has printable ASCII characters only"},
        {ALICE "\n\x01" BOB, "keys:2: a key has printable ASCII characters only"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error = {0};
        assert_null(keys_parse("keys", rows[i].text, strlen(rows[i].text), &error));
        assert_int_equal(error.code, HEARTH_INVALID);
        if (strstr(error.message, rows[i].message) != error.message) fail_msg("%s", error.message);
        assert_null(strstr(error.message, "0123456789"));
    }
    char text[600];
    hearth_error error = {0};
    memset(text, 'k', sizeof text);
    assert_null(keys_parse("keys", text, sizeof text, &error));
    assert_string_equal(error.message, "keys:1: a key has 512 characters at most");
    assert_null(keys_parse("keys", "a\0b", 3, &error));
    assert_string_equal(error.message, "keys:1: a key has printable ASCII characters only");
}

static void limits_are_numbers_by_their_names(void **state)
{
    static const struct {
        const char *line;
        struct key_limits limits;
    } rows[] = {
        {ALICE, {0}},
        {ALICE " alice chat", {0}},
        {ALICE " alice * rpm=60", {.requests = 60}},
        {ALICE " alice * tpm=1000000000", {.tokens = 1000000000}},
        {ALICE " alice chat slots=2,tpm=7,rpm=1 # of the lab", {.requests = 1, .tokens = 7, .slots = 2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keys *keys = parsed(rows[i].line);
        const struct key *key = keys_find(keys, ALICE);
        assert_int_equal(key->limits.requests, rows[i].limits.requests);
        assert_int_equal(key->limits.tokens, rows[i].limits.tokens);
        assert_int_equal(key->limits.slots, rows[i].limits.slots);
        keys_close(keys);
    }
}

static void two_owners_are_distinguished_from_two_keys_of_one(void **state)
{
    static const struct {
        const char *lines;
        bool several;
    } rows[] = {
        {ALICE "\n", false},
        {ALICE " a\n", false},
        {ALICE " a\n" BOB " a\n", false},
        {ALICE " a\n" BOB " b\n", true},
        {ALICE "\n" BOB "\n", true},
        {ALICE " a\n" BOB "\n", true},
        {ALICE "\n" BOB " b\n", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keys *keys = parsed(rows[i].lines);
        if (keys_have_several_owners(keys) != rows[i].several) fail_msg("%s", rows[i].lines);
        keys_close(keys);
    }
}

static void grants_have_names(void **state)
{
    (void)state;
    assert_string_equal(keys_grant_name(KEYS_CHAT), "chat");
    assert_string_equal(keys_grant_name(KEYS_ADMIN), "admin");
}

/* ---- The file ---- */

struct scene {
    char folder[32], keys[64], log[64];
};

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    strcpy(s->folder, "/tmp/test-keys-XXXXXX");
    if (mkdtemp(s->folder) == NULL) return -1;
    snprintf(s->keys, sizeof s->keys, "%s/keys", s->folder);
    snprintf(s->log, sizeof s->log, "%s/log", s->folder);
    *state = s;
    return log_open(s->log, "info", "text", NULL);
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    log_open(NULL, "info", "text", NULL);
    unlink(s->keys);
    unlink(s->log);
    rmdir(s->folder);
    free(s);
    return 0;
}

static void write_keys(const struct scene *s, const char *text, mode_t mode)
{
    FILE *file = fopen(s->keys, "we");
    fputs(text, file);
    fclose(file);
    chmod(s->keys, mode);
}

static bool logged(const struct scene *s, const char *text)
{
    char log[4096] = "";
    FILE *file = fopen(s->log, "re");
    size_t n = fread(log, 1, sizeof log - 1, file);
    log[n] = '\0';
    fclose(file);
    assert_null(strstr(log, "0123456789"));
    return strstr(log, text) != NULL;
}

static void a_file_that_others_may_read_is_used_with_a_warning(void **state)
{
    struct scene *s = *state;
    hearth_error error;
    write_keys(s, ALICE "\n", 0600);
    keys_close(keys_open(s->keys, &error));
    assert_false(logged(s, "warn"));
    write_keys(s, ALICE "\n", 0640);
    struct keys *keys = keys_open(s->keys, &error);
    assert_non_null(keys_find(keys, ALICE));
    assert_true(logged(s, "others than its owner may read the API keys"));
    keys_close(keys);
}

static void a_short_key_is_used_with_a_warning(void **state)
{
    struct scene *s = *state;
    hearth_error error;
    write_keys(s, "# a\nhunter2\n", 0600);
    struct keys *keys = keys_open(s->keys, &error);
    assert_non_null(keys_find(keys, "hunter2"));
    assert_true(logged(s, "short enough to be guessed"));
    assert_true(logged(s, "line=2"));
    assert_false(logged(s, "hunter2"));
    keys_close(keys);
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
    struct scene *s = *state;
    hearth_error error;
    assert_null(keys_open(s->keys, &error));
    assert_non_null(strstr(error.message, "/keys: No such file or directory"));
    assert_null(keys_open(s->folder, &error));
    assert_non_null(strstr(error.message, "Is a directory"));
    assert_null(keys_open("/dev/zero", &error));
    assert_non_null(strstr(error.message, "/dev/zero is larger than 1 MiB"));
}

#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_key_a_name_and_grants),
        cmocka_unit_test(of_many_keys_the_one_given_is_found),
        cmocka_unit_test(a_fault_names_file_and_line_and_never_the_key),
        cmocka_unit_test(limits_are_numbers_by_their_names),
        cmocka_unit_test(two_owners_are_distinguished_from_two_keys_of_one),
        cmocka_unit_test(grants_have_names),
        IN_SCENE(a_file_that_others_may_read_is_used_with_a_warning),
        IN_SCENE(a_short_key_is_used_with_a_warning),
        IN_SCENE(a_file_that_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
