/* Parses the file of API keys and looks keys up. A file with a single error is refused as a whole: with half of the
 * keys loaded, the holders of the others could not tell why they are refused. */
#include "serve/core/keys.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "serve/core/errors.h"
#include "serve/core/server.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FILE_MAX  (1 << 20)
#define KEY_MAX   512
#define KEY_SHORT 16 /* characters below which a key can be guessed by brute force */
#define LIMIT_MAX 1000000000

struct keys {
    struct key *v;
    size_t len, cap;
};

static const struct {
    const char *name;
    int grants;
} grants[] = {
    {"chat", KEYS_CHAT},
    {"completions", KEYS_COMPLETIONS},
    {"embeddings", KEYS_EMBEDDINGS},
    {"rerank", KEYS_RERANK},
    {"models", KEYS_MODELS},
    {"status", KEYS_STATUS},
    {"cache", KEYS_CACHE},
    {"admin", KEYS_ADMIN},
    {"*", KEYS_ALL},
};

#define N_GRANTS (sizeof grants / sizeof *grants)

const char *keys_grant_name(int wanted)
{
    size_t i = 0;
    while (i + 1 < N_GRANTS && (grants[i].grants & wanted) == 0) i++;
    return grants[i].name;
}

/* ---- One line ---- */

/* A slice of the file's text. */
struct word {
    const char *at;
    size_t len;
};

/* The line that is being parsed. */
struct line {
    const char *file;
    int number;
    struct word rest;
    hearth_error *error;
};

static int line_error(const struct line *line, const char *message)
{
    return error_at(line->error, HEARTH_INVALID, line->file, "%s:%d: %s", line->file, line->number, message);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next blank-separated word; empty at the end of the line. '#' at the beginning of a word starts a comment. */
static struct word next_word(struct line *line)
{
    struct word *rest = &line->rest;
    while (rest->len > 0 && is_blank(*rest->at)) rest->at++, rest->len--;
    if (rest->len > 0 && *rest->at == '#') rest->len = 0;
    struct word word = {rest->at, 0};
    while (word.len < rest->len && !is_blank(word.at[word.len])) word.len++;
    rest->at += word.len;
    rest->len -= word.len;
    return word;
}

static int read_key(struct line *line, struct word word, struct key *key)
{
    for (size_t i = 0; i < word.len; i++)
        if (word.at[i] <= ' ' || word.at[i] > '~') return line_error(line, "a key has printable ASCII characters only");
    if (word.len > KEY_MAX) return line_error(line, "a key has 512 characters at most");
    if (word.len < KEY_SHORT)
        log_event(LOG_WARN, "http", "an API key is short enough to be guessed", log_str("file", line->file),
                  log_int("line", line->number), log_int("advised_characters", 32));
    sha256_of(word.at, word.len, key->digest);
    return HEARTH_OK;
}

/* The message does not repeat the word: it may be a key in the wrong column. */
static int read_name(struct line *line, struct word word, struct key *key)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+";
    if (word.len > KEYS_NAME_MAX) return line_error(line, "the name, the second word, has 64 characters at most");
    for (size_t i = 0; i < word.len; i++)
        if (memchr(allowed, word.at[i], sizeof allowed - 1) == NULL)
            return line_error(line, "the name, the second word, has letters, digits and -_.@+ only");
    snprintf(key->name, sizeof key->name, "%.*s", (int)word.len, word.at);
    return HEARTH_OK;
}

/* Removes the item before the next comma from a list. A trailing comma stays part of its item, which makes that
 * invalid. */
static struct word next_item(struct word *list)
{
    const char *comma = memchr(list->at, ',', list->len), *end = list->at + list->len;
    bool is_last = comma == NULL || comma + 1 == end;
    struct word word = {list->at, is_last ? list->len : (size_t)(comma - list->at)};
    list->at = is_last ? end : comma + 1;
    list->len = (size_t)(end - list->at);
    return word;
}

static int read_grants(struct line *line, struct word list, struct key *key)
{
    key->grants = list.len == 0 ? KEYS_ALL : 0;
    while (list.len > 0) {
        struct word word = next_item(&list);
        int granted = 0;
        for (size_t i = 0; i < N_GRANTS; i++)
            if (strlen(grants[i].name) == word.len && memcmp(grants[i].name, word.at, word.len) == 0)
                granted = grants[i].grants;
        if (granted == 0)
            return line_error(line, "the grants, the third word, are * or some of chat,completions,embeddings,rerank,"
                                    "models,status,cache,admin, with commas between and no blanks");
        key->grants |= granted;
    }
    return HEARTH_OK;
}

/* Decimal digits, from 1 to LIMIT_MAX; 0 for anything else. */
static int64_t read_count(struct word word)
{
    int64_t count = 0;
    for (size_t i = 0; i < word.len; i++) {
        if (word.at[i] < '0' || word.at[i] > '9' || count > LIMIT_MAX) return 0;
        count = count * 10 + (word.at[i] - '0');
    }
    return count <= LIMIT_MAX ? count : 0;
}

/* "rpm=60"; none may be repeated. */
static int read_limits(struct line *line, struct word list, struct key *key)
{
    const struct {
        const char *name;
        int64_t *limit;
    } known[] = {{"rpm=", &key->limits.requests}, {"tpm=", &key->limits.tokens}, {"slots=", &key->limits.slots}};
    while (list.len > 0) {
        struct word word = next_item(&list);
        bool is_good = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            size_t len = strlen(known[i].name);
            if (word.len <= len || memcmp(word.at, known[i].name, len) != 0 || *known[i].limit != 0) continue;
            *known[i].limit = read_count((struct word){word.at + len, word.len - len});
            is_good = *known[i].limit != 0;
        }
        if (!is_good)
            return line_error(line,
                              "the limits, the fourth word, are some of rpm=N,tpm=N,slots=N, with commas between and "
                              "no blanks, and N from 1 to 1000000000");
    }
    return HEARTH_OK;
}

static int read_line(struct keys *keys, struct line *line)
{
    struct key key = {0};
    struct word word = next_word(line);
    if (word.len == 0) return HEARTH_OK;
    int rc = read_key(line, word, &key);
    if (rc == HEARTH_OK) rc = read_name(line, next_word(line), &key);
    if (rc == HEARTH_OK) rc = read_grants(line, next_word(line), &key);
    if (rc == HEARTH_OK) rc = read_limits(line, next_word(line), &key);
    if (rc == HEARTH_OK && next_word(line).len > 0)
        rc = line_error(line, "a line has four words at most: the key, a name, the grants, the limits");
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < keys->len; i++)
        if (sha256_equal(keys->v[i].digest, key.digest))
            return line_error(line, "this key stands on an earlier line too");
    keys->v = mem_room(keys->v, keys->len, &keys->cap, sizeof *keys->v);
    keys->v[keys->len++] = key;
    return HEARTH_OK;
}

/* ---- The file ---- */

struct keys *keys_parse(const char *file, const char *text, size_t len, hearth_error *error)
{
    struct keys *keys = mem_alloc(sizeof *keys);
    struct line line = {.file = file, .error = error};
    int rc = HEARTH_OK;
    for (size_t at = 0; rc == HEARTH_OK && at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        line.rest = (struct word){text + at, end == NULL ? len - at : (size_t)(end - text) - at};
        line.number++;
        at += line.rest.len + 1;
        rc = read_line(keys, &line);
    }
    if (rc == HEARTH_OK && keys->len == 0)
        rc = error_at(error, HEARTH_INVALID, file, "%s holds no key: every request would be refused", file);
    if (rc == HEARTH_OK) return keys;
    keys_close(keys);
    return NULL;
}

static int read_file(const char *path, struct buf *text, hearth_error *error)
{
    char piece[4096];
    size_t n;
    FILE *file = fopen(path, "re");
    int number = errno;
    if (file != NULL) {
        /* A reader of the file has the keys, so others than its owner are worth a warning. */
        struct stat info;
        if (fstat(fileno(file), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0)
            log_event(LOG_WARN, "http", "others than its owner may read the API keys: chmod 600",
                      log_str("file", path));
        while (text->len <= FILE_MAX && (n = fread(piece, 1, sizeof piece, file)) > 0) buf_append(text, piece, n);
        number = ferror(file) ? errno : 0;
        fclose(file);
        OPENSSL_cleanse(piece, sizeof piece);
    }
    if (file == NULL || number != 0)
        return error_at(error, HEARTH_IO, path, "cannot read %s: %s", path, os_error_text(number));
    if (text->len > FILE_MAX) return error_at(error, HEARTH_INVALID, path, "%s is larger than 1 MiB", path);
    return HEARTH_OK;
}

struct keys *keys_open(const char *path, hearth_error *error)
{
    struct buf text = {0};
    struct keys *keys = NULL;
    if (read_file(path, &text, error) == HEARTH_OK)
        keys = keys_parse(path, text.v == NULL ? "" : text.v, text.len, error);
    if (text.v != NULL) OPENSSL_cleanse(text.v, text.len);
    buf_release(&text);
    return keys;
}

void keys_close(struct keys *keys)
{
    if (keys == NULL) return;
    free(keys->v);
    free(keys);
}

bool keys_have_several_owners(const struct keys *keys)
{
    for (size_t i = 1; i < keys->len; i++)
        if (keys->v[i].name[0] == '\0' || strcmp(keys->v[i].name, keys->v[0].name) != 0) return true;
    return false;
}

/* ---- What a request may do ---- */

const struct key *keys_find(const struct keys *keys, const char *given)
{
    uint8_t digest[SHA256_BYTES];
    const struct key *found = NULL;
    sha256_of(given, strlen(given), digest);
    for (size_t i = 0; i < keys->len; i++)
        if (sha256_equal(keys->v[i].digest, digest)) found = &keys->v[i];
    return found;
}

int access_check(const struct server *server, const struct http_request *http, int grant, const struct key **key,
                 hearth_error *error)
{
    static const char scheme[] = "Bearer ";
    bool given = false;
    *key = NULL;
    if (server->keys == NULL || grant == KEYS_PUBLIC) return HEARTH_OK;
    const char *word = http_header(http, "Authorization");
    if (word != NULL) word = strncasecmp(word, scheme, strlen(scheme)) == 0 ? word + strlen(scheme) : NULL;
    if (word != NULL) word += strspn(word, " ");
    /* Clients that speak several APIs send more than one of these: one right key is enough. */
    const char *const values[] = {word, http_header(http, "X-Api-Key"), http_header(http, "Api-Key")};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i] == NULL || values[i][0] == '\0') continue;
        given = true;
        if (*key == NULL) *key = keys_find(server->keys, values[i]);
    }
    if (*key == NULL)
        return error_set(error, ERRORS_NO_KEY, "%s",
                         given ? "the API key is not known here"
                               : "an API key is missing: send the header 'Authorization: Bearer KEY'");
    if (((*key)->grants & grant) != 0) return HEARTH_OK;
    return error_set(error, ERRORS_NO_GRANT, "this API key lacks the grant '%s' that this route needs",
                     keys_grant_name(grant));
}

char *access_owner(const struct key *key)
{
    char digest[2 * SHA256_BYTES + 1];
    sha256_to_hex(key->digest, digest);
    return key->name[0] != '\0' ? mem_format("name %s", key->name) : mem_format("key %s", digest);
}
