/* Forms: see multipart.h. */
#include "http/multipart.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FORM_TYPE "multipart/form-data"

/* ---- Bytes ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The characters of tokens (RFC 9110): names of headers and parameters, and values without quotation marks. */
static bool is_token(char c)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(marks, c) != NULL);
}

static void skip_blanks(struct multipart_bytes *rest)
{
    while (rest->len > 0 && is_blank(*rest->v)) rest->v++, rest->len--;
}

/* Cuts the first `n` bytes off. */
static struct multipart_bytes cut(struct multipart_bytes *rest, size_t n)
{
    struct multipart_bytes first = {rest->v, n};
    rest->v += n;
    rest->len -= n;
    return first;
}

static struct multipart_bytes cut_token(struct multipart_bytes *rest)
{
    size_t n = 0;
    while (n < rest->len && is_token(rest->v[n])) n++;
    return cut(rest, n);
}

static bool is_word(struct multipart_bytes bytes, const char *word)
{
    return bytes.len == strlen(word) && strncasecmp(bytes.v, word, bytes.len) == 0;
}

/* Cuts off one character; false if it is another. */
static bool cut_mark(struct multipart_bytes *rest, char mark)
{
    if (rest->len == 0 || *rest->v != mark) return false;
    cut(rest, 1);
    return true;
}

/* ---- Parameters: "; name=value; name=\"value\"" ---- */

/* Cuts off a token, or a text between quotation marks, which a backslash escapes. False: there is none, they are not
 * closed, or hold a control character. */
static bool cut_value(struct multipart_bytes *rest, struct multipart_bytes *value)
{
    size_t n = 0;
    bool escaped = false;
    if (!cut_mark(rest, '"')) {
        *value = cut_token(rest);
        return value->len > 0;
    }
    for (; n < rest->len && (escaped || rest->v[n] != '"'); n++) {
        if ((unsigned char)rest->v[n] < ' ' && rest->v[n] != '\t') return false;
        escaped = !escaped && rest->v[n] == '\\';
    }
    if (n == rest->len) return false;
    *value = cut(rest, n);
    return cut_mark(rest, '"');
}

/* Finds the value of a parameter; its `v` is NULL if there is none. False: the list is malformed, or has it twice. */
static bool find_parameter(struct multipart_bytes rest, const char *name, struct multipart_bytes *found)
{
    *found = (struct multipart_bytes){0};
    skip_blanks(&rest);
    while (cut_mark(&rest, ';')) {
        struct multipart_bytes value;
        skip_blanks(&rest);
        if (rest.len == 0) break; /* a semicolon at the end */
        struct multipart_bytes its_name = cut_token(&rest);
        if (its_name.len == 0 || !cut_mark(&rest, '=') || !cut_value(&rest, &value)) return false;
        skip_blanks(&rest);
        if (!is_word(its_name, name)) continue;
        if (found->v != NULL) return false;
        *found = value;
    }
    return rest.len == 0;
}

/* ---- Delimiters ---- */

bool multipart_is_form(const char *content_type)
{
    const size_t len = strlen(FORM_TYPE);
    if (content_type == NULL || strncasecmp(content_type, FORM_TYPE, len) != 0) return false;
    return strchr("; \t", content_type[len]) != NULL; /* strchr() finds the end of the string too */
}

int multipart_open(struct multipart *form, const char *content_type, struct multipart_bytes body, hearth_error *error)
{
    struct multipart_bytes boundary;
    *form = (struct multipart){.at = body.v, .end = body.v + body.len};
    if (!multipart_is_form(content_type))
        return error_set(error, HEARTH_INVALID, "the body must be a form, with 'Content-Type: " FORM_TYPE "'");
    const char *parameters = content_type + strlen(FORM_TYPE);
    /* The characters of boundaries (RFC 2046), of which a space may not be the last. */
    static const char marks[] = "'()+_,-./:=? ";
    bool is_good = find_parameter((struct multipart_bytes){parameters, strlen(parameters)}, "boundary", &boundary) &&
                   boundary.len > 0 && boundary.len <= MULTIPART_BOUNDARY_MAX && boundary.v[boundary.len - 1] != ' ';
    for (size_t i = 0; is_good && i < boundary.len; i++)
        is_good = is_token(boundary.v[i]) || (boundary.v[i] != '\0' && strchr(marks, boundary.v[i]) != NULL);
    if (!is_good)
        return error_set(error, HEARTH_INVALID,
                         "the Content-Type of the body must name its boundary, of up to %d characters: " FORM_TYPE
                         "; boundary=…",
                         MULTIPART_BOUNDARY_MAX);
    snprintf(form->delimiter, sizeof form->delimiter, "\r\n--%.*s", (int)boundary.len, boundary.v);
    const size_t len = strlen(form->delimiter) - 2; /* the line break belongs to what precedes: here nothing does */
    if (body.len >= len && memcmp(body.v, form->delimiter + 2, len) == 0) {
        form->at += len;
        return HEARTH_OK;
    }
    return error_set(error, HEARTH_INVALID, "the body does not begin with the boundary that its Content-Type names");
}

/* After a delimiter: whether the body ends, or a part begins. False: neither. */
static bool read_line_end(struct multipart *form, bool *ends)
{
    struct multipart_bytes rest = {form->at, (size_t)(form->end - form->at)};
    *ends = rest.len >= 2 && memcmp(rest.v, "--", 2) == 0;
    if (*ends) cut(&rest, 2);
    skip_blanks(&rest);
    form->at = rest.v;
    if (*ends && rest.len == 0) return true;
    if (rest.len < 2 || memcmp(rest.v, "\r\n", 2) != 0) return false;
    form->at += 2;
    return !*ends || rest.len == 2;
}

/* ---- Headers of a part ---- */

struct reading_part {
    struct multipart_part *part;
    size_t number;
    hearth_error *error;
};

static int refuse_part(const struct reading_part *reading, int code, const char *what)
{
    enum { NAME_BYTES = 64 };
    const struct multipart_bytes *name = &reading->part->name;
    char shown[NAME_BYTES + 1];
    if (name->v == NULL) return error_set(reading->error, code, "part %zu of the form %s", reading->number, what);
    snprintf(shown, sizeof shown, "%.*s", (int)name->len, name->v);
    return error_at(reading->error, code, shown, "'%s' %s", shown, what);
}

static int read_disposition(const struct reading_part *reading, struct multipart_bytes text)
{
    struct multipart_part *part = reading->part;
    struct multipart_bytes name;
    if (part->name.v != NULL) return refuse_part(reading, HEARTH_INVALID, "has two headers Content-Disposition");
    if (!is_word(cut_token(&text), "form-data"))
        return refuse_part(reading, HEARTH_INVALID, "must have a header 'Content-Disposition: form-data; name=\"…\"'");
    if (!find_parameter(text, "name", &name))
        return refuse_part(reading, HEARTH_INVALID, "has a malformed header Content-Disposition");
    if (name.len == 0)
        return refuse_part(reading, HEARTH_INVALID, "has no name: Content-Disposition: form-data; name=\"…\"");
    part->name = name;
    return HEARTH_OK;
}

/* All lines up to an empty one. */
static int read_headers(const struct reading_part *reading, struct multipart *form)
{
    struct multipart_bytes rest = {form->at, (size_t)(form->end - form->at)};
    if (rest.len > MULTIPART_HEAD_MAX) rest.len = MULTIPART_HEAD_MAX;
    for (;;) {
        const char *end = memmem(rest.v, rest.len, "\r\n", 2);
        if (end == NULL)
            return refuse_part(reading, HEARTH_INVALID,
                               rest.len > 0 && rest.v + rest.len < form->end ? "has headers that are too long"
                                                                             : "breaks off within its headers");
        struct multipart_bytes line = cut(&rest, (size_t)(end - rest.v));
        cut(&rest, 2);
        form->at = rest.v;
        if (line.len == 0) break;
        struct multipart_bytes name = cut_token(&line);
        if (name.len == 0 || !cut_mark(&line, ':'))
            return refuse_part(reading, HEARTH_INVALID, "has a malformed header");
        skip_blanks(&line);
        while (line.len > 0 && is_blank(line.v[line.len - 1])) line.len--;
        int rc = is_word(name, "Content-Disposition") ? read_disposition(reading, line) : HEARTH_OK;
        if (rc != HEARTH_OK) return rc;
        /* RFC 7578 has none of the encodings of mail: bytes are sent as they are. */
        bool is_plain = is_word(line, "binary") || is_word(line, "8bit") || is_word(line, "7bit");
        if (is_word(name, "Content-Transfer-Encoding") && !is_plain)
            return refuse_part(reading, HEARTH_UNSUPPORTED,
                               "has a Content-Transfer-Encoding, which is not read here: send its bytes as they are");
    }
    if (reading->part->name.v != NULL) return HEARTH_OK;
    return refuse_part(reading, HEARTH_INVALID, "must have a header 'Content-Disposition: form-data; name=\"…\"'");
}

/* ---- Parts ---- */

int multipart_next(struct multipart *form, struct multipart_part *part, hearth_error *error)
{
    bool ends;
    *part = (struct multipart_part){0};
    const struct reading_part reading = {part, form->n + 1, error};
    if (!read_line_end(form, &ends))
        return error_set(error, HEARTH_INVALID,
                         "the form breaks off, or has its boundary where no part ends, after part %zu", form->n);
    if (ends) return 0;
    if (form->n++ == MULTIPART_PARTS_MAX)
        return error_set(error, HEARTH_INVALID, "the form has more than %d parts", MULTIPART_PARTS_MAX);
    int rc = read_headers(&reading, form);
    if (rc != HEARTH_OK) return rc;
    /* Without a value the line break of the empty line may be the delimiter's. */
    const size_t len = strlen(form->delimiter);
    const char *from = form->at - 2, *value_end = memmem(from, (size_t)(form->end - from), form->delimiter, len);
    if (value_end == NULL)
        return refuse_part(&reading, HEARTH_INVALID, "breaks off: the boundary at its end is missing");
    part->value = (struct multipart_bytes){form->at, value_end < form->at ? 0 : (size_t)(value_end - form->at)};
    form->at = value_end + len;
    return 1;
}
