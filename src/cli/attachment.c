/* Attached files: see attachment.h. */
#include "cli/attachment.h"

#include "base/error.h"
#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Bytes of a file at most. */
#define FILE_MOST (64u << 20)

/* ---- Paths ---- */

/* Takes quotes away, or backslashes where there are no quotes: the ways in which terminals write special characters. */
static void put_unquoted(struct buf *out, const char *text, size_t len)
{
    const char quote = len >= 2 && (text[0] == '\'' || text[0] == '"') && text[len - 1] == text[0] ? text[0] : '\0';
    if (quote != '\0') {
        buf_append(out, text + 1, len - 2);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\' && i + 1 < len) i++;
        buf_append(out, &text[i], 1);
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A file URL has %20 for a blank. */
static char *path_of_url(const char *url)
{
    struct buf path = {0};
    for (; *url != '\0'; url++) {
        const int high = *url == '%' ? hex_digit(url[1]) : -1, low = high < 0 ? -1 : hex_digit(url[2]);
        const char byte = low < 0 ? *url : (char)(high * 16 + low);
        buf_append(&path, &byte, 1);
        if (low >= 0) url += 2;
    }
    return buf_take(&path);
}

char *attachment_path(const char *text)
{
    static const char scheme[] = "file://";
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)*text)) text++, len--;
    while (len > 0 && isspace((unsigned char)text[len - 1])) len--;
    struct buf plain = {0};
    put_unquoted(&plain, text, len);
    char *path = buf_take(&plain), *home = getenv("HOME"), *whole = NULL;
    if (strncmp(path, scheme, strlen(scheme)) == 0)
        whole = path_of_url(path + strlen(scheme));
    else if (strncmp(path, "~/", 2) == 0 && home != NULL)
        whole = mem_format("%s%s", home, path + 1);
    if (whole == NULL) return path;
    free(path);
    return whole;
}

bool attachment_is_pasted(const char *line)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".wav", ".mp3", ".flac"};
    char *path = attachment_path(line);
    const size_t len = strlen(path);
    struct stat st;
    bool known = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        known = known || (len > strlen(endings[i]) && strcasecmp(path + len - strlen(endings[i]), endings[i]) == 0);
    const bool pasted = known && strchr(path, '/') != NULL && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    return pasted;
}

/* ---- Files ---- */

int attachment_read(const char *path, struct buf *bytes, hearth_error *error)
{
    char block[1 << 16];
    struct stat st;
    FILE *file = fopen(path, "rbe");
    if (file == NULL || fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        const char *why = file == NULL ? strerror(errno) : "it is not a regular file";
        error_at(error, HEARTH_IO, path, "%s: %s", path, why);
        if (file != NULL) fclose(file);
        return HEARTH_IO;
    }
    for (size_t n; bytes->len <= FILE_MOST && (n = fread(block, 1, sizeof block, file)) > 0;)
        buf_append(bytes, block, n);
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) return error_at(error, HEARTH_IO, path, "%s cannot be read", path);
    if (bytes->len <= FILE_MOST) return HEARTH_OK;
    return error_at(error, HEARTH_TOO_LONG, path, "%s has more than %u MiB", path, FILE_MOST >> 20);
}
