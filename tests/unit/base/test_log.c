/* The log, written to a file: the form of its lines, levels, rotation, and lines of several threads. */
#include "base/buf.h"
#include "base/log.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct fixture {
    char *folder, *path, *moved;
};

static int set_up(void **state)
{
    const char *build = getenv("HEARTH_BUILD");
    if (build == NULL) return -1;
    struct fixture *fixture = mem_alloc(sizeof *fixture);
    fixture->folder = mem_format("%s/unit-log-XXXXXX", build);
    if (mkdtemp(fixture->folder) == NULL) return -1;
    fixture->path = mem_format("%s/log", fixture->folder);
    fixture->moved = mem_format("%s/log.1", fixture->folder);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error;
    int rc = log_open(NULL, "error", "text", &error);
    unlink(fixture->path);
    unlink(fixture->moved);
    rmdir(fixture->folder);
    free(fixture->folder);
    free(fixture->path);
    free(fixture->moved);
    free(fixture);
    return rc;
}

static void open_log(const struct fixture *fixture, const char *level, const char *format)
{
    hearth_error error;
    if (log_open(fixture->path, level, format, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

static char *content(const char *path)
{
    struct buf text = {0};
    char chunk[4096];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((n = read(fd, chunk, sizeof chunk)) > 0) buf_append(&text, chunk, (size_t)n);
    close(fd);
    return buf_take(&text);
}

/* Checks that the text begins with the current time, and returns the rest. */
static const char *after_time(const char *text)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    assert_non_null(rest);
    assert_true(labs((long)(timegm(&tm) - time(NULL))) < 100);
    assert_int_equal(rest[0], '.');
    assert_int_equal(strspn(rest + 1, "0123456789"), 3);
    assert_int_equal(rest[4], 'Z');
    return rest + 5;
}

static void a_text_line_has_time_level_group_text_and_fields(void **state)
{
    struct fixture *fixture = *state;
    open_log(fixture, "info", "text");
    log_event(LOG_INFO, "batch-engine", "started", log_int("slots", 4), log_num("took_ms", 1.5),
              log_bool("unified", true), log_str("model", "demo"));
    log_event(LOG_WARN, "g", "odd values", log_str("spaced", "a b"), log_str("empty", ""), log_str("none", NULL),
              log_str("quote", "\"\n"));
    log_event(LOG_ERROR, "g", "no fields", log_nothing());
    char *text = content(fixture->path), *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    second[-1] = third[-1] = '\0';
    assert_string_equal(after_time(text), " info  batch-engine: started slots=4 took_ms=1.500 unified=true model=demo");
    assert_string_equal(after_time(second),
                        " warn  g: odd values spaced=\"a b\" empty=\"\" none=\"\" quote=\"\\\"\\n\"");
    assert_string_equal(after_time(third), " error g: no fields\n");
    free(text);
}

static void a_json_line_is_an_object_with_typed_fields(void **state)
{
    struct fixture *fixture = *state;
    open_log(fixture, "info", "json");
    log_event(LOG_WARN, "spc", "say \"x\"\n", log_int("tokens", -7), log_num("took_ms", 0.25), log_bool("ok", false),
              log_nothing(), log_str("name", "a\tb\xFF"));
    char *text = content(fixture->path);
    assert_int_equal(strcspn(text, "\n") + 1, strlen(text));
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_null(json_object_get(line, "")); /* what stands for no field */
    assert_string_equal(after_time(json_string_value(json_object_get(line, "time"))), "");
    assert_string_equal(json_string_value(json_object_get(line, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(line, "group")), "spc");
    assert_string_equal(json_string_value(json_object_get(line, "text")), "say \"x\"\n");
    assert_int_equal(json_integer_value(json_object_get(line, "tokens")), -7);
    assert_true(json_real_value(json_object_get(line, "took_ms")) == 0.25);
    assert_true(json_is_false(json_object_get(line, "ok")));
    assert_string_equal(json_string_value(json_object_get(line, "name")), "a\tb\xEF\xBF\xBD");
    json_decref(line);
    free(text);
}

static void events_below_the_level_are_left_out(void **state)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    struct fixture *fixture = *state;
    for (int level = 0; level < 4; level++) {
        unlink(fixture->path);
        open_log(fixture, levels[level], "text");
        int lines = 0;
        for (int event = 0; event < 4; event++) {
            log_event((enum log_level)event, "g", "said");
            assert_int_equal(log_enabled((enum log_level)event), event <= level);
        }
        char *text = content(fixture->path);
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) lines++;
        assert_int_equal(lines, level + 1);
        free(text);
    }
}

static void a_rotated_log_is_opened_anew_and_appended_to(void **state)
{
    struct fixture *fixture = *state;
    open_log(fixture, "info", "text");
    log_event(LOG_INFO, "g", "before");
    assert_int_equal(rename(fixture->path, fixture->moved), 0);
    log_event(LOG_INFO, "g", "meanwhile");
    open_log(fixture, "info", "text");
    log_event(LOG_INFO, "g", "after");
    open_log(fixture, "info", "text");
    log_event(LOG_INFO, "g", "appended");
    char *old = content(fixture->moved), *new = content(fixture->path);
    assert_non_null(strstr(old, "before"));
    assert_non_null(strstr(old, "meanwhile"));
    assert_null(strstr(old, "after"));
    assert_non_null(strstr(new, "after"));
    assert_non_null(strstr(new, "appended"));
    struct stat info;
    assert_int_equal(stat(fixture->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    free(old);
    free(new);
}

static void a_wrong_level_format_or_file_is_refused_and_the_log_stays(void **state)
{
    struct fixture *fixture = *state;
    hearth_error error;
    open_log(fixture, "info", "text");
    assert_int_equal(log_open(fixture->path, "loud", "text", &error), HEARTH_INVALID);
    assert_string_equal(error.param, "level");
    assert_int_equal(log_open(fixture->path, "info", "xml", &error), HEARTH_INVALID);
    assert_string_equal(error.param, "format");
    assert_int_equal(log_open("/nowhere/at/all", "info", "text", &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    log_event(LOG_INFO, "g", "still here");
    char *text = content(fixture->path);
    assert_non_null(strstr(text, "still here"));
    free(text);
}

enum { THREADS = 4, LINES = 500 };

static void *chatter(void *ud)
{
    char long_text[300];
    memset(long_text, 'a' + *(int *)ud, sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    for (int i = 0; i < LINES; i++) log_event(LOG_INFO, "g", "said", log_int("line", i), log_str("text", long_text));
    return NULL;
}

static void lines_of_several_threads_do_not_mix(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[THREADS];
    int ids[THREADS], next[THREADS] = {0};
    open_log(fixture, "info", "json");
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        pthread_create(&threads[i], NULL, chatter, &ids[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    char *text = content(fixture->path), *save = NULL;
    for (char *at = strtok_r(text, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save)) {
        json_t *line = json_loads(at, 0, NULL);
        assert_non_null(line);
        const char *said = json_string_value(json_object_get(line, "text"));
        json_decref(line);
        assert_non_null(said);
        int who = at[strlen(at) - 3] - 'a'; /* the last field is the long text */
        assert_in_range(who, 0, THREADS - 1);
        next[who]++;
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(next[i], LINES);
    free(text);
}

static void what_a_terminal_would_act_on_is_escaped(void **state)
{
    static const struct {
        const char *given, *shown;
    } cases[] = {
        {"/a\x1b[2J", "\"/a\\u001b[2J\""},
        {"/\r\nfaked", "\"/\\r\\nfaked\""},
        {"\x7f", "\"\\u007f\""},
        {"\xC2\x9B"
         "31m",
         "\"\\u009b31m\""},          /* CSI as one character */
        {"\xC2\x85", "\"\\u0085\""}, /* NEL, a line end to some terminals */
        {"a\xE2\x80\xA8"
         "b",
         "\"a\\u2028b\""},
        {"\xE2\x80\xAE"
         "txt.exe",
         "\"\\u202etxt.exe\""}, /* changes the direction of writing */
        {"\xFF", "\"\xEF\xBF\xBD\""},
        {"caf\xC3\xA9", "\"caf\xC3\xA9\""},
        {"a\\b", "\"a\\\\b\""},
        {"plain/1.2:3", "plain/1.2:3"},
    };
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_log(fixture, "info", "text");
        log_event(LOG_INFO, "g", "said", log_str("field", cases[i].given));
        char *text = content(fixture->path), *expected = mem_format(" info  g: said field=%s\n", cases[i].shown);
        assert_string_equal(after_time(text), expected);
        free(text);
        free(expected);
        unlink(fixture->path);
    }
    open_log(fixture, "info", "text");
    log_event(LOG_INFO, "llama.cpp", "name = \"x\x1b[0m\ny\"");
    char *text = content(fixture->path);
    assert_string_equal(after_time(text), " info  llama.cpp: name = \"x\\u001b[0m\\ny\"\n");
    free(text);
    unlink(fixture->path);
    open_log(fixture, "info", "json");
    log_event(LOG_INFO, "g", "\xC2\x9B", log_str("field", "\xE2\x80\xA9\x1b"));
    text = content(fixture->path);
    assert_non_null(strstr(text, "\"text\":\"\\u009b\",\"field\":\"\\u2029\\u001b\"}"));
    free(text);
}

/* ---- */

#define log_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(a_text_line_has_time_level_group_text_and_fields),
        log_test(a_json_line_is_an_object_with_typed_fields),
        log_test(events_below_the_level_are_left_out),
        log_test(a_rotated_log_is_opened_anew_and_appended_to),
        log_test(a_wrong_level_format_or_file_is_refused_and_the_log_stays),
        log_test(lines_of_several_threads_do_not_mix),
        log_test(what_a_terminal_would_act_on_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
