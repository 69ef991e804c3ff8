/* Forms: what clients send, what is malformed, the bounds, and random bodies against a naive parser. */
#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "http/multipart.h"

#include <stdlib.h>
#include <string.h>

#define TYPE        "multipart/form-data; boundary=b"
#define NAMED       "Content-Disposition: form-data; name=\"a\"\r\n"
#define FIRST       "--b\r\n" NAMED "\r\n"
#define LAST        "\r\n--b--\r\n"
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* All parts as "name=value;"; what fails ends with "!CODE". */
static char *parts_of(const char *type, const char *body, size_t len, hearth_error *error)
{
    struct multipart form;
    struct multipart_part part;
    struct buf all = {0};
    int rc = multipart_open(&form, type, (struct multipart_bytes){body, len}, error);
    if (rc == HEARTH_OK) rc = 1;
    while (rc == 1 && (rc = multipart_next(&form, &part, error)) == 1) {
        buf_append(&all, part.name.v, part.name.len);
        buf_puts(&all, "=");
        buf_append(&all, part.value.v, part.value.len);
        buf_puts(&all, ";");
    }
    if (rc != HEARTH_OK) buf_printf(&all, "!%d", rc);
    return buf_take(&all);
}

static void expect_parts(const char *type, const char *body, const char *expected)
{
    hearth_error error = {0};
    char *copy = malloc(strlen(body)); /* without a byte behind it that could be read */
    memcpy(copy, body, strlen(body));
    char *parts = parts_of(type, copy, strlen(body), &error);
    if (strcmp(parts, expected) != 0) fail_msg("%s\nis %s (%s)", body, parts, error.message);
    free(parts);
    free(copy);
}

static void what_clients_send_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *body, *parts;
    } rows[] = {
        {FIRST "one" LAST, "a=one;"},
        {FIRST "one\r\n--b--", "a=one;"},
        {FIRST "one\r\n--b\r\nContent-Disposition: form-data; name=c\r\n\r\ntwo" LAST, "a=one;c=two;"},
        {FIRST LAST, "a=;"},
        {"--b\r\n" NAMED "\r\n--b--\r\n", "a=;"}, /* a break for both the empty line and the delimiter */
        {"--b\r\n" NAMED "\r\n--b\r\n" NAMED "\r\nx" LAST, "a=;a=x;"},
        {"--b--\r\n", ""},
        {"--b \t\r\n" NAMED "\r\none\r\n--b-- \t\r\n", "a=one;"},
        {FIRST "\r\n\r\n-\r\n--\r\n-b" LAST, "a=\r\n\r\n-\r\n--\r\n-b;"},
        {FIRST "x--b\r\n\n--b\n\r--b" LAST, "a=x--b\r\n\n--b\n\r--b;"},
        {"--b\r\nContent-Type: audio/wav\r\nCONTENT-DISPOSITION:form-data;name=\"f\";filename=\"x\\\"; "
         "name=y.wav\"\r\n\r\n1" LAST,
         "f=1;"},
        {"--b\r\nContent-Disposition: form-data; filename*=UTF-8''%e2%82%ac.wav; NAME=\"f g\" ;\r\n\r\n1" LAST,
         "f g=1;"},
        {"--b\r\nContent-Disposition: form-data; name=\"l[]\"\r\nContent-Transfer-Encoding: BINARY \r\n\r\n1" LAST,
         "l[]=1;"},
        {"--b\r\nX-Own: \r\n" NAMED "\r\n1" LAST, "a=1;"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) expect_parts(TYPE, rows[i].body, rows[i].parts);
}

static void boundaries_are_what_the_type_says(void **state)
{
    (void)state;
#define LONGEST "0123456789012345678901234567890123456789012345678901234567890123456789"
    expect_parts("Multipart/Form-Data;charset=utf-8; Boundary=\"b\"", FIRST "1" LAST, "a=1;");
    expect_parts("multipart/form-data; boundary=\"b c'()+_,-./:=?\"",
                 "--b c'()+_,-./:=?\r\n" NAMED "\r\n1\r\n--b c'()+_,-./:=?--", "a=1;");
    expect_parts("multipart/form-data; boundary=" LONGEST, "--" LONGEST "\r\n" NAMED "\r\n1\r\n--" LONGEST "--",
                 "a=1;");
    static const char *const types[] = {"multipart/form-data",
                                        "multipart/form-data;",
                                        "multipart/form-data; boundary",
                                        "multipart/form-data; boundary=",
                                        "multipart/form-data; boundary=\"\"",
                                        "multipart/form-data; boundary=\"b",
                                        "multipart/form-data; boundary=\"b \"",
                                        "multipart/form-data; boundary=b boundary",
                                        "multipart/form-data; boundary=b; boundary=b",
                                        "multipart/form-data; boundary=\xc3\xa4",
                                        "multipart/form-data; boundary=\"\\b\"",
                                        "multipart/form-data; boundary=" LONGEST "0",
                                        "multipart/form-data2; boundary=b",
                                        "multipart/mixed; boundary=b",
                                        "application/json",
                                        "",
                                        NULL};
    for (size_t i = 0; i < COUNT(types); i++) {
        hearth_error error = {0};
        char *parts = parts_of(types[i], FIRST "1" LAST, strlen(FIRST "1" LAST), &error);
        if (parts[0] != '!' || strstr(error.message, "multipart/form-data") == NULL)
            fail_msg("%s: %s", types[i] == NULL ? "none" : types[i], parts);
        free(parts);
    }
}

static void what_is_malformed_is_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *says;
    } rows[] = {
        {"", "", "does not begin with the boundary"},
        {"--", "", "does not begin with the boundary"},
        {"\r\n" FIRST "1" LAST, "", "does not begin with the boundary"},
        {"text\r\n" FIRST "1" LAST, "", "does not begin with the boundary"},
        {"--b", "", "breaks off"},
        {"--b\n" NAMED "\r\n1" LAST, "", "after part 0"},
        {"--bb\r\n" NAMED "\r\n1" LAST, "", "after part 0"},
        {"--b\r\n", "", "part 1 of the form breaks off within its headers"},
        {"--b\r\n" NAMED, "a", "'a' breaks off within its headers"},
        {FIRST, "a", "'a' breaks off: the boundary at its end is missing"},
        {FIRST "one\n--b--\r\n", "a", "the boundary at its end is missing"},
        {FIRST "one\r\n--b", "", "after part 1"},
        {FIRST "one\r\n--b-", "", "after part 1"},
        {FIRST "one\r\n--bc\r\n" LAST, "", "after part 1"},
        {FIRST "one\r\n--b--\r\nmore", "", "after part 1"},
        {FIRST "one\r\n--b--\n", "", "after part 1"},
        {"--b\r\n\r\n1" LAST, "", "part 1 of the form must have a header"},
        {"--b\r\nContent-Type: text/plain\r\n\r\n1" LAST, "", "part 1 of the form must have a header"},
        {"--b\r\n" NAMED NAMED "\r\n1" LAST, "a", "two headers"},
        {"--b\r\n" NAMED " folded: x\r\n\r\n1" LAST, "a", "'a' has a malformed header"},
        {"--b\r\n" NAMED "nothing\r\n\r\n1" LAST, "a", "'a' has a malformed header"},
        {"--b\r\n: x\r\n\r\n1" LAST, "", "part 1 of the form has a malformed header"},
        {"--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1" LAST, "", "form-data"},
        {"--b\r\nContent-Disposition: form-data\r\n\r\n1" LAST, "", "has no name"},
        {"--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1" LAST, "", "has no name"},
        {"--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1" LAST, "", "malformed header Content-Disposition"},
        {"--b\r\nContent-Disposition: form-data; name=\"a\\\"\r\n\r\n1" LAST, "",
         "malformed header Content-Disposition"},
        {"--b\r\nContent-Disposition: form-data; name=\"a\nb\"\r\n\r\n1" LAST, "",
         "malformed header Content-Disposition"},
        {"--b\r\nContent-Disposition: form-data; name=\"a\\\nb\"\r\n\r\n1" LAST, "",
         "malformed header Content-Disposition"},
        {"--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n1" LAST, "",
         "malformed header Content-Disposition"},
        {"--b\r\nContent-Disposition: form-data; name=a b\r\n\r\n1" LAST, "", "malformed header Content-Disposition"},
        {"--b\r\n" NAMED "Content-Transfer-Encoding: base64\r\n\r\nMQ==" LAST, "a", "Content-Transfer-Encoding"},
        {FIRST "1\r\n--b\r\nx\r\n\r\n" LAST, "", "part 2 of the form has a malformed header"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        hearth_error error = {0};
        char *parts = parts_of(TYPE, rows[i].body, strlen(rows[i].body), &error);
        if (strchr(parts, '!') == NULL || strcmp(error.param, rows[i].param) != 0 ||
            strstr(error.message, rows[i].says) == NULL)
            fail_msg("%s\nis %s: %s: %s", rows[i].body, parts, error.param, error.message);
        free(parts);
    }
}

static void parts_and_headers_are_bounded(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        hearth_error error = {0};
        struct buf body = {0};
        for (int i = 0; i < MULTIPART_PARTS_MAX + over; i++) buf_puts(&body, i == 0 ? FIRST : "\r\n" FIRST);
        buf_puts(&body, LAST);
        char *parts = parts_of(TYPE, body.v, body.len, &error);
        assert_int_equal(strchr(parts, '!') != NULL, over);
        if (over) assert_string_equal(error.message, "the form has more than 64 parts");
        free(parts);
        buf_clear(&body);
        buf_puts(&body, "--b\r\n" NAMED "X: ");
        while (body.len < strlen("--b\r\n") + MULTIPART_HEAD_MAX - strlen("\r\n\r\n") + (size_t)over)
            buf_puts(&body, "x");
        buf_puts(&body, "\r\n\r\n1" LAST);
        parts = parts_of(TYPE, body.v, body.len, &error);
        assert_int_equal(strchr(parts, '!') != NULL, over);
        if (over) assert_string_equal(error.message, "'a' has headers that are too long");
        free(parts);
        buf_release(&body);
    }
}

/* ---- Against a naive parser: line by line ---- */

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

struct line {
    const char *v;
    size_t len;
};

/* Without the blanks at its end. */
static bool is_line(struct line line, const char *text)
{
    while (line.len > 0 && strchr(" \t", line.v[line.len - 1]) != NULL && line.v[line.len - 1] != '\0') line.len--;
    return line.len == strlen(text) && memcmp(line.v, text, line.len) == 0;
}

static bool begins(struct line line, const char *text)
{
    return line.len >= strlen(text) && memcmp(line.v, text, strlen(text)) == 0;
}

#define DISPOSITION "Content-Disposition:"

/* Whether a line is a header; `is_name`: NAMED. Others of Content-Disposition are not judged here. */
static bool is_header(struct line line, bool *is_name)
{
    size_t n = 0;
    *is_name = is_line(line, "Content-Disposition: form-data; name=\"a\"");
    while (n < line.len && strchr(": \r\n\";=", line.v[n]) == NULL) n++;
    return n > 0 && n < line.len && line.v[n] == ':';
}

/* The parts as parts_of() writes them; "!" alone: malformed; NULL: not judged. */
static char *parts_naively(const char *body, size_t len)
{
    enum { START, HEADERS, VALUE, END } at = START;
    struct line lines[512];
    struct buf all = {0};
    size_t n = 0, n_names = 0, n_value = 0;
    bool good = true, is_name;
    for (const char *end; (end = memmem(body, len, "\r\n", 2)) != NULL; len -= (size_t)(end + 2 - body), body = end + 2)
        lines[n++] = (struct line){body, (size_t)(end - body)};
    lines[n++] = (struct line){body, len};
    for (size_t i = 0; good && i < n; i++) {
        struct line line = lines[i];
        bool is_delimiter = begins(line, "--b") && (at == START || at == VALUE);
        if (is_delimiter && at == VALUE) buf_puts(&all, ";");
        if (is_delimiter && is_line(line, "--b")) {
            at = HEADERS;
            n_names = 0;
        } else if (is_delimiter) {
            good = is_line(line, "--b--");
            at = END;
        } else if (at == HEADERS && line.len > 0) {
            good = is_header(line, &is_name);
            n_names += is_name;
            if (!is_name && begins(line, DISPOSITION)) {
                buf_release(&all);
                return NULL;
            }
        } else if (at == HEADERS) {
            good = n_names == 1;
            at = VALUE;
            n_value = 0;
            buf_puts(&all, "a=");
        } else if (at == VALUE) {
            if (n_value++ > 0) buf_puts(&all, "\r\n");
            buf_append(&all, line.v, line.len);
        } else {
            good = at == END && line.len == 0 && i == n - 1 && lines[i - 1].v + lines[i - 1].len + 2 == line.v;
        }
    }
    good = good && at == END && (is_line(lines[n - 1], "--b--") || lines[n - 1].len == 0);
    if (!good) buf_clear(&all);
    if (!good) buf_puts(&all, "!");
    return buf_take(&all);
}

static const char *const pieces[] = {"\r\n", "\r\n--b", "--b", "--b--", "\r", "\n",       "-",
                                     "b",    " ",       "x",   "x: y",  ":",  "\r\n\r\n", NAMED};

/* A body of up to three parts, with up to two faults. */
static void put_random(struct buf *body, uint32_t *seed)
{
    struct buf whole = {0};
    for (uint32_t n = random_below(seed, 4), i = 0; i < n; i++) {
        buf_puts(&whole, i == 0 ? "--b\r\n" : "\r\n--b\r\n");
        if (random_below(seed, 2) == 0) buf_puts(&whole, "x: y\r\n");
        buf_puts(&whole, NAMED "\r\n");
        for (uint32_t m = random_below(seed, 5); m > 0; m--) buf_puts(&whole, pieces[4 + random_below(seed, 8)]);
    }
    buf_puts(&whole, whole.len == 0 ? "--b--\r\n" : LAST);
    for (uint32_t n = random_below(seed, 3); n > 0; n--) {
        struct buf next = {0};
        size_t at = random_below(seed, (uint32_t)whole.len + 1), gone = random_below(seed, 3);
        if (gone > whole.len - at) gone = whole.len - at;
        buf_append(&next, whole.v, at);
        buf_puts(&next, pieces[random_below(seed, COUNT(pieces))]);
        buf_append(&next, whole.v + at + gone, whole.len - at - gone);
        buf_release(&whole);
        whole = next;
    }
    buf_append(body, whole.v, whole.len);
    buf_release(&whole);
}

static void random_bodies_are_read_as_a_naive_parser_does(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t n_good = 0, n_bad = 0;
    for (int i = 0; i < 200000; i++) {
        struct buf body = {0};
        hearth_error error = {0};
        put_random(&body, &seed);
        char *parts = parts_of(TYPE, body.v, body.len, &error), *expected = parts_naively(body.v, body.len);
        bool is_bad = strchr(parts, '!') != NULL;
        if (expected != NULL && (is_bad != (expected[0] == '!') || (!is_bad && strcmp(parts, expected) != 0)))
            fail_msg("%s\nis %s (%s), not %s", body.v, parts, error.message, expected);
        n_good += expected != NULL && !is_bad;
        n_bad += expected != NULL && is_bad;
        free(parts);
        free(expected);
        buf_release(&body);
    }
    assert_true(n_good > 50000 && n_bad > 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_clients_send_is_read),
        cmocka_unit_test(boundaries_are_what_the_type_says),
        cmocka_unit_test(what_is_malformed_is_refused_and_named),
        cmocka_unit_test(parts_and_headers_are_bounded),
        cmocka_unit_test(random_bodies_are_read_as_a_naive_parser_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
