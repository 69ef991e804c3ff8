/* Uploads within bodies: see upload.h. */
#include "serve/fields/upload.h"

#include "base/base64.h"
#include "base/error.h"
#include "base/memory.h"
#include "serve/fields/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- The list ---- */

static void add(struct uploads *uploads, const hearth_medium *medium)
{
    uploads->v = mem_room(uploads->v, uploads->n, &uploads->cap, sizeof *uploads->v);
    hearth_medium *added = &uploads->v[uploads->n++];
    *added = *medium;
    added->field = mem_strdup(medium->field);
    added->fault = mem_strdup(medium->fault);
    added->url = mem_strdup(medium->url);
}

void uploads_release(struct uploads *uploads)
{
    for (size_t i = 0; i < uploads->n; i++) {
        free((void *)uploads->v[i].bytes);
        free((void *)uploads->v[i].field);
        free((void *)uploads->v[i].fault);
        free((void *)uploads->v[i].url);
    }
    free(uploads->v);
    *uploads = (struct uploads){0};
}

size_t uploads_size(const struct uploads *uploads)
{
    size_t bytes = uploads->cap * sizeof *uploads->v;
    for (size_t i = 0; i < uploads->n; i++) bytes += uploads->v[i].len + strlen(uploads->v[i].field);
    return bytes;
}

/* ---- Data URLs and others ---- */

static bool begins(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

/* Finds the base64 of a data URL, "data:TYPE;NAME=VALUE;base64,…". */
static int find_in_data_url(const char *url, size_t *from, const char *field, hearth_error *error)
{
    static const char mark[] = ";base64";
    const char *comma = strchr(url, ',');
    if (comma == NULL)
        return error_at(error, HEARTH_INVALID, field, "'%s' is a data URL without a comma: data:TYPE;base64,DATA",
                        field);
    *from = (size_t)(comma + 1 - url);
    if (comma - url >= (ptrdiff_t)strlen(mark) && begins(comma - strlen(mark), mark)) return HEARTH_OK;
    return error_at(error, HEARTH_UNSUPPORTED, field,
                    "'%s' is a data URL without \";base64\": percent-encoded data is not read here, send base64",
                    field);
}

static int read_text(const json_t *text, struct base64_bytes *bytes, const char *field, hearth_error *error)
{
    const char *given = json_string_value(text);
    size_t from = 0;
    int rc = HEARTH_OK;
    if (given == NULL)
        return error_at(error, HEARTH_INVALID, field, "'%s' must be a string: base64, or a data URL with it", field);
    if (begins(given, "data:")) rc = find_in_data_url(given, &from, field, error);
    if (rc != HEARTH_OK) return rc;
    const char *whole = json_string_value(text);
    enum base64_fault fault = base64_get(bytes, whole + from, json_string_length(text) - from);
    if (fault == BASE64_CHARACTER && whole[from + bytes->wrong] == '%')
        return error_at(error, HEARTH_UNSUPPORTED, field,
                        "'%s' is percent-encoded, which is not read here: send the data as plain base64", field);
    if (fault == BASE64_CHARACTER)
        return error_at(error, HEARTH_INVALID, field,
                        "'%s' is not base64: its byte %zu is not of that alphabet. Send base64, or a data URL with it",
                        field, from + bytes->wrong + 1);
    if (fault == BASE64_END)
        return error_at(error, HEARTH_INVALID, field,
                        "'%s' is not base64: the padding (\"=\") at its end is wrong, or characters are missing",
                        field);
    if (bytes->len > 0) return HEARTH_OK;
    return error_at(error, HEARTH_INVALID, field, "'%s' is empty: send base64, or a data URL with it", field);
}

void uploads_take(struct uploads *uploads, json_t *text, const char *field)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    struct base64_bytes bytes = {0};
    hearth_error error;
    const char *given = json_string_value(text);
    /* A URL begins as "https://" does: with letters, and "+", "-", "." among them. */
    const size_t scheme = given == NULL ? 0 : strspn(given, letters);
    if (scheme > 0 && strncmp(given + scheme, "://", 3) == 0) {
        add(uploads, &(hearth_medium){.field = field, .url = given});
        return;
    }
    bool good = read_text(text, &bytes, field, &error) == HEARTH_OK;
    if (json_is_string(text)) json_string_setn_nocheck(text, "", 0);
    add(uploads, &(hearth_medium){.bytes = good ? bytes.v : NULL,
                                  .len = good ? bytes.len : 0,
                                  .field = field,
                                  .fault = good ? NULL : error.message});
}

void uploads_take_file(struct uploads *uploads, void *bytes, size_t len, const char *field)
{
    add(uploads, &(hearth_medium){.bytes = bytes, .len = len, .field = field});
}

/* ---- Content parts ---- */

json_t *uploads_part(const struct uploads *uploads, const char *as)
{
    return json_pack("{s:s,s:I}", "type", as, "media", (json_int_t)uploads->n - 1);
}

const struct upload_form *upload_form_of(const struct upload_form *forms, size_t n, const json_t *type)
{
    const char *text = json_string_value(type);
    for (size_t i = 0; text != NULL && i < n; i++)
        if (strcmp(forms[i].type, text) == 0) return &forms[i];
    return NULL;
}

/* Where a part has its data. */
struct place {
    json_t *text; /* NULL: there is none */
    char path[sizeof((hearth_error *)NULL)->param];
};

static struct place find_data(const struct upload_form *form, const json_t *part, const char *at)
{
    struct place place = {.text = NULL};
    json_t *holder = form->holder == NULL ? (json_t *)part : body_find(part, form->holder);
    const char *name = form->members[0];
    if (json_is_string(holder)) {
        place.text = holder;
        snprintf(place.path, sizeof place.path, "%s.%s", at, form->holder);
        return place;
    }
    for (size_t i = 0; i < 2 && place.text == NULL; i++)
        if ((place.text = body_find(holder, form->members[i])) != NULL) name = form->members[i];
    const char *dot = form->holder == NULL ? "" : ".", *within = form->holder == NULL ? "" : form->holder;
    snprintf(place.path, sizeof place.path, "%s%s%s.%s", at, dot, within, name);
    return place;
}

bool upload_is_elsewhere(const struct upload_form *form, const json_t *part)
{
    const json_t *holder = form->holder == NULL ? NULL : body_find(part, form->holder);
    bool has_id = body_find(part, "file_id") != NULL || body_find(holder, "file_id") != NULL;
    return has_id && find_data(form, part, "").text == NULL;
}

json_t *upload_read(struct uploads *uploads, const struct upload_form *form, const json_t *part, const char *at)
{
    struct place data = find_data(form, part, at);
    if (data.text != NULL) uploads_take(uploads, data.text, data.path);
    /* The part has no data. */
    else {
        const char *why = upload_is_elsewhere(form, part)
                              ? "a file_id names a file that was uploaded before, and none are kept here"
                              : "base64, or a data URL with it";
        char *fault = mem_format("'%s' is missing: %s", data.path, why);
        add(uploads, &(hearth_medium){.field = data.path, .fault = fault});
        free(fault);
    }
    return uploads_part(uploads, form->as);
}

/* ---- Images without a part ---- */

bool upload_is_image(const json_t *text)
{
    enum { LEAST = 64 };
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const struct {
        const char *head, *more; /* `more` stands at 12 characters: byte 9 */
    } files[] = {{"iVBORw0KGgo", ""}, {"/9j/", ""}, {"R0lGODlh", ""}, {"R0lGODdh", ""}, {"UklGR", "RUJQ"}};
    const char *given = json_string_value(text);
    const size_t len = json_string_length(text);
    bool known = false;
    if (len < LEAST || len % 4 != 0) return false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        known = known || (strncmp(given, files[i].head, strlen(files[i].head)) == 0 &&
                          strncmp(given + 12, files[i].more, strlen(files[i].more)) == 0);
    if (!known) return false;
    size_t n = strspn(given, alphabet);
    return n + 2 >= len && n + strspn(given + n, "=") == len;
}
