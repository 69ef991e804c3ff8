/* Parsing references: see pull.h. The file of short names has a line for each, NAME REFERENCE; a word that begins
 * with # and all that follows it on its line is a comment. */
#include "pull/pull.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "pull/models_folder.h"
#include "pull/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PART_MOST   96   /* bytes of an owner or a repository: Hugging Face's limit */
#define QUANT_MOST  255  /* of a quantisation, or of a file's path */
#define TEXT_MOST   4096 /* of a reference */
#define REPO_SYNTAX "write hf:OWNER/REPO or hf:OWNER/REPO:QUANT, as in hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"

static bool begins_with(const char *text, const char *start)
{
    return strncasecmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), tail = strlen(end);
    return len > tail && strcasecmp(text + len - tail, end) == 0;
}

/* ---- Repositories ---- */

/* Letters, digits, and in between . _ and - */
static bool is_part(const char *text, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return len > 0 && len <= PART_MOST && text[0] != '.' && strspn(text, allowed) >= len;
}

static int read_repository(const char *text, struct pull_reference *reference, hearth_error *error)
{
    const char *owner = text + strlen("hf:"), *slash = strchr(owner, '/');
    const char *repo = slash == NULL ? NULL : slash + 1;
    size_t repo_len = repo == NULL ? 0 : strcspn(repo, ":");
    const char *quant = repo == NULL || repo[repo_len] == '\0' ? NULL : repo + repo_len + 1;
    if (slash == NULL || !is_part(owner, (size_t)(slash - owner)) || !is_part(repo, repo_len))
        return error_set(error, HEARTH_INVALID, "this names no repository: " REPO_SYNTAX);
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/ ";
    size_t len = quant == NULL ? 0 : strlen(quant);
    if (quant != NULL && (len == 0 || len > QUANT_MOST || strspn(quant, allowed) != len))
        return error_set(error, HEARTH_INVALID, "what follows the repository is no quantisation: " REPO_SYNTAX);
    reference->kind = PULL_REPOSITORY;
    reference->owner = mem_strndup(owner, (size_t)(slash - owner));
    reference->repo = mem_strndup(repo, repo_len);
    reference->quant = mem_strdup(quant);
    return HEARTH_OK;
}

/* ---- URLs and files ---- */

static int read_url(const char *text, struct pull_reference *reference, hearth_error *error)
{
    struct pull_url url = {0};
    struct buf file = {0};
    int rc = pull_url_read(text, &url, error);
    pull_url_release(&url);
    if (rc != HEARTH_OK) return rc;
    bool is_model = pull_url_put_file(&file, text) && ends_with(file.v, ".gguf");
    buf_release(&file);
    if (!is_model) return error_set(error, HEARTH_INVALID, "the URL names no GGUF file: its path has to end in .gguf");
    reference->kind = PULL_URL;
    reference->place = mem_strdup(text);
    reference->text[strcspn(text, "?#")] = '\0'; /* the query may be signed: a secret, and another the next time */
    return HEARTH_OK;
}

static int read_file_name(const char *text, struct pull_reference *reference, hearth_error *error)
{
    const char *path = begins_with(text, "file://") ? text + strlen("file://") : text;
    if (!ends_with(path, ".gguf"))
        return error_set(
            error, HEARTH_INVALID,
            "this is no GGUF file, whose name would end in .gguf; for a repository of Hugging Face " REPO_SYNTAX);
    /* The same file has the same reference from every folder. A link keeps its own name: its target may be named by its
     * digest, as it is in caches. */
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? mem_strdup(".") : mem_strndup(path, (size_t)(slash - path) + 1);
    char *real = realpath(folder, NULL);
    bool is_root = real != NULL && strcmp(real, "/") == 0;
    struct buf shown = {0};
    reference->kind = PULL_FILE;
    reference->place =
        real == NULL ? mem_strdup(path) : mem_format("%s/%s", is_root ? "" : real, slash == NULL ? path : slash + 1);
    free(folder);
    free(real);
    utf8_put_clean(&shown, reference->place, strlen(reference->place)); /* manifests are JSON */
    free(reference->text);
    reference->text = buf_take(&shown);
    return HEARTH_OK;
}

/* ---- Short names ---- */

char *pull_names_path(void)
{
    const char *own = getenv("HEARTH_NAMES");
    return own != NULL && own[0] != '\0' ? mem_strdup(own) : pull_user_path("XDG_CONFIG_HOME", ".config", "/names");
}

static char *look_up_exactly(const char *name, const char *names)
{
    FILE *file = names == NULL ? NULL : fopen(names, "re");
    char line[TEXT_MOST + 512], *meaning = NULL;
    while (file != NULL && meaning == NULL && fgets(line, sizeof line, file) != NULL) {
        char *rest = NULL, *word = strtok_r(line, " \t\r\n", &rest);
        char *reference = word == NULL || word[0] == '#' ? NULL : strtok_r(NULL, " \t\r\n", &rest);
        if (reference != NULL && reference[0] != '#' && strcmp(word, name) == 0) meaning = mem_strdup(reference);
    }
    if (file != NULL) fclose(file);
    return meaning;
}

/* The name without a tag ":latest". */
static char *untagged(const char *name)
{
    return mem_strndup(name, strlen(name) - (ends_with(name, ":latest") ? strlen(":latest") : 0));
}

/* ---- All of them ---- */

/* The reference with hf: in front of a repository. */
static char *spell(const char *text)
{
    static const char *const sites[] = {"hf.co/", "huggingface.co/"};
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        if (begins_with(text, sites[i])) return mem_format("hf:%s", text + strlen(sites[i]));
    return mem_strdup(text);
}

static bool is_url(const char *text)
{
    return begins_with(text, "http://") || begins_with(text, "https://");
}

bool pull_reference_is_path(const char *text)
{
    char *spelt = spell(text);
    bool is_elsewhere = begins_with(spelt, "hf:") || is_url(spelt);
    free(spelt);
    return !is_elsewhere && (strchr(text, '/') != NULL || ends_with(text, ".gguf"));
}

/* A word that is none of these is a short name: *is_name. */
static int read_plain(const char *text, struct pull_reference *reference, bool *is_name, hearth_error *error)
{
    *is_name = false;
    reference->text = spell(text);
    if (text[0] == '\0' || strlen(text) > TEXT_MOST)
        return error_set(error, HEARTH_INVALID, "a reference has 1 to %d bytes", TEXT_MOST);
    if (begins_with(reference->text, "hf:")) return read_repository(reference->text, reference, error);
    if (is_url(text)) return read_url(text, reference, error);
    *is_name = strchr(text, '/') == NULL && (!ends_with(text, ".gguf") || access(text, F_OK) != 0);
    return *is_name ? HEARTH_OK : read_file_name(text, reference, error);
}

int pull_reference_read(const char *text, const char *names, struct pull_reference *reference, hearth_error *error)
{
    bool is_name;
    *reference = (struct pull_reference){0};
    int rc = read_plain(text, reference, &is_name, error);
    if (rc != HEARTH_OK || !is_name) return rc;
    /* A tag ":latest" may be left out in the file. */
    char *meaning = look_up_exactly(text, names), *short_name = untagged(text);
    if (meaning == NULL) meaning = look_up_exactly(short_name, names);
    free(short_name);
    if (meaning == NULL) {
        struct buf shown = {0};
        utf8_put_visible(&shown, text, strlen(text) > 80 ? 80 : strlen(text), false);
        error_set(
            error, HEARTH_NOT_FOUND,
            "%s is not known: a line '%s REFERENCE' in %s would say what it means; or name hf:OWNER/REPO[:QUANT], a "
            "URL or a GGUF file",
            buf_text(&shown), buf_text(&shown), names == NULL ? "the file of short names (HEARTH_NAMES)" : names);
        buf_release(&shown);
        return HEARTH_NOT_FOUND;
    }
    pull_reference_release(reference);
    rc = read_plain(meaning, reference, &is_name, error);
    reference->short_name = untagged(text);
    if (rc == HEARTH_OK && is_name) rc = error_set(error, HEARTH_INVALID, "a short name cannot stand for another one");
    if (rc != HEARTH_OK) error_prefix(error, "%s in %s: ", text, names);
    free(meaning);
    return rc;
}

void pull_reference_release(struct pull_reference *reference)
{
    free(reference->text);
    free(reference->owner);
    free(reference->repo);
    free(reference->quant);
    free(reference->place);
    free(reference->short_name);
    *reference = (struct pull_reference){0};
}
