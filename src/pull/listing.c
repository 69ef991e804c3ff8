/* Listings, and the choice among their files: see listing.h. */
#include "pull/listing.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILES_MOST      10000 /* of a repository */
#define SHARDS_MOST     1000
#define FILE_NAME_MOST  200 /* bytes; beside it .part and .journal have to fit into 255 */
#define MODEL_NAME_MOST 128 /* as configurations allow */
#define NAMED_MOST      12  /* files that a message lists */

static const char ending[] = ".gguf";

/* ---- Names ---- */

static bool is_gguf(const char *path)
{
    size_t len = strlen(path);
    return len > strlen(ending) && strcasecmp(path + len - strlen(ending), ending) == 0;
}

const char *pull_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool is_visible(const char *name)
{
    struct buf shown = {0};
    utf8_put_visible(&shown, name, strlen(name), false);
    bool same = strcmp(buf_text(&shown), name) == 0;
    buf_release(&shown);
    return same;
}

static int refuse_given_name(const char *what, const char *name, const char *rule, hearth_error *error)
{
    struct buf shown = {0};
    size_t len = strlen(name);
    utf8_put_visible(&shown, name, len > 80 ? 80 : len, false);
    error_set(error, HEARTH_INVALID, "%s '%s' is refused: %s", what, buf_text(&shown), rule);
    buf_release(&shown);
    return HEARTH_INVALID;
}

int pull_check_file_name(const char *name, hearth_error *error)
{
    static const char what[] = "the file name";
    if (strchr(name, '/') != NULL || name[0] == '.' || name[0] == '\0')
        return refuse_given_name(what, name, "it is a path, or hidden", error);
    if (strlen(name) > FILE_NAME_MOST) return refuse_given_name(what, name, "it is longer than 200 bytes", error);
    if (!is_visible(name)) return refuse_given_name(what, name, "it has control characters", error);
    return is_gguf(name) ? HEARTH_OK : refuse_given_name(what, name, "it does not end in .gguf", error);
}

int pull_check_model_name(const char *name, hearth_error *error)
{
    static const char rule[] =
        "a name has 1 to 128 bytes, no blanks, slashes or control characters, and does not begin "
        "with a dot or a dash: choose one with --name";
    bool good = name[0] != '\0' && name[0] != '.' && name[0] != '-' && strcmp(name, "*") != 0 &&
                strlen(name) <= MODEL_NAME_MOST && strpbrk(name, "/ ") == NULL && is_visible(name);
    return good ? HEARTH_OK : refuse_given_name("the model's name", name, rule, error);
}

/* Reads five digits; -1: there are none. */
static int five_digits(const char *text)
{
    int value = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = 10 * value + text[i] - '0';
    }
    return value;
}

bool pull_shard_read(const char *path, struct pull_shard *shard)
{
    static const char sample[] = "-00001-of-00003.gguf";
    size_t len = strlen(path), tail = strlen(sample);
    if (len <= tail) return false;
    const char *end = path + len - tail;
    *shard = (struct pull_shard){.stem = len - tail};
    if (end[0] != '-' || strncmp(end + 6, "-of-", 4) != 0 || strcasecmp(end + 15, ending) != 0) return false;
    shard->number = five_digits(end + 1);
    shard->count = five_digits(end + 10);
    return shard->number >= 1 && shard->number <= shard->count && shard->count <= SHARDS_MOST;
}

char *pull_shard_name(const char *path, const struct pull_shard *shard, int number)
{
    return mem_format("%.*s-%05d-of-%05d.gguf", (int)shard->stem, path, number, shard->count);
}

char *pull_model_name(const char *path)
{
    struct pull_shard shard;
    const char *base = pull_base_name(path);
    size_t len = pull_shard_read(base, &shard) ? shard.stem : strlen(base);
    if (is_gguf(base) && len == strlen(base)) len -= strlen(ending);
    return mem_strndup(base, len);
}

/* ---- Listings ---- */

int pull_listing_add(struct pull_listing *listing, const char *json, size_t len, hearth_error *error)
{
    json_t *page = json_loadb(json, len, 0, NULL), *file;
    size_t i;
    if (!json_is_array(page)) {
        json_decref(page);
        return error_set(error, HEARTH_IO, "the list of files is none: it is no JSON array");
    }
    json_array_foreach(page, i, file)
    {
        const char *path = json_string_value(json_object_get(file, "path"));
        const char *type = json_string_value(json_object_get(file, "type"));
        bool is_file = type == NULL || strcmp(type, "file") == 0;
        if (path == NULL || !is_file || !is_gguf(path) || listing->n >= FILES_MOST) continue;
        json_t *lfs = json_object_get(file, "lfs"), *size = json_object_get(file, "size");
        const char *oid = json_string_value(json_object_get(lfs, "oid"));
        if (json_is_integer(json_object_get(lfs, "size"))) size = json_object_get(lfs, "size");
        struct pull_entry entry = {.path = mem_strdup(path),
                                   .size = json_is_integer(size) ? json_integer_value(size) : -1};
        if (oid != NULL && strncmp(oid, "sha256:", 7) == 0) oid += 7;
        entry.has_sha = oid != NULL && sha256_from_hex(oid, entry.sha);
        listing->v = mem_grow(listing->v, listing->n + 1, sizeof *listing->v);
        listing->v[listing->n++] = entry;
    }
    json_decref(page);
    return HEARTH_OK;
}

void pull_listing_release(struct pull_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++) free(listing->v[i].path);
    free(listing->v);
    *listing = (struct pull_listing){0};
}

/* ---- Choosing ---- */

static bool is_projector(const struct pull_entry *entry)
{
    return strcasestr(pull_base_name(entry->path), "mmproj") != NULL;
}

static bool is_border(char c)
{
    return c == '\0' || c == '-' || c == '.' || c == '_' || c == '/';
}

/* Whether the quantisation is a word of the path: Q4_K is none of model-Q4_K_M.gguf, whose word it only begins. */
static bool has_quant(const char *path, const char *quant)
{
    size_t len = strlen(quant);
    for (const char *at = strcasestr(path, quant); at != NULL; at = strcasestr(at + 1, quant)) {
        bool begins = at == path || is_border(at[-1]), ends = is_border(at[len]) && at[len] != '_';
        if (begins && ends) return true;
    }
    return false;
}

/* Weights that `quant` means; NULL means any. */
static bool is_meant(const struct pull_entry *entry, const char *quant)
{
    struct pull_shard shard;
    /* Weights are the first shard, or the only file; an importance matrix has the same ending. */
    if (is_projector(entry) || strcasestr(pull_base_name(entry->path), "imatrix") != NULL) return false;
    if (pull_shard_read(entry->path, &shard) && shard.number != 1) return false;
    if (quant == NULL) return true;
    if (!is_gguf(quant)) return has_quant(entry->path, quant);
    return strcmp(entry->path, quant) == 0 || strcmp(pull_base_name(entry->path), quant) == 0;
}

/* How many weights are meant (NULL: any), and the first of them. */
static size_t count_meant(const struct pull_listing *listing, const char *quant, const struct pull_entry **first)
{
    size_t n = 0;
    for (size_t i = 0; i < listing->n; i++) {
        const struct pull_entry *entry = &listing->v[i];
        if (is_meant(entry, quant) && n++ == 0) *first = entry;
    }
    return n;
}

static int refuse_choice(const struct pull_listing *listing, const char *quant, size_t n, hearth_error *error)
{
    struct buf names = {0};
    size_t n_named = 0;
    for (size_t i = 0; i < listing->n; i++) {
        const struct pull_entry *entry = &listing->v[i];
        if (!is_meant(entry, n > 0 ? quant : NULL) || n_named++ >= NAMED_MOST) continue;
        buf_puts(&names, names.len == 0 ? "" : ", ");
        utf8_put_visible(&names, entry->path, strlen(entry->path), false);
    }
    if (n_named > NAMED_MOST) buf_printf(&names, " and %zu more", n_named - NAMED_MOST);
    int code = n > 0 ? HEARTH_INVALID : HEARTH_NOT_FOUND;
    if (names.len == 0)
        error_set(error, code, "the repository has no GGUF file of weights");
    else if (n == 0)
        error_set(error, code, "no file of the repository has %s in its name; there is: %s", quant, names.v);
    else
        error_set(error, code, "the repository has several models: name a file, hf:OWNER/REPO:FILE.gguf; there is: %s",
                  names.v);
    buf_release(&names);
    return code;
}

static void add_choice(struct pull_choice *choice, const struct pull_entry *entry)
{
    choice->v = mem_grow(choice->v, choice->n + 1, sizeof *choice->v);
    choice->v[choice->n++] = *entry;
}

static int add_shards(const struct pull_listing *listing, const struct pull_entry *first, struct pull_choice *choice,
                      hearth_error *error)
{
    struct pull_shard shard;
    int rc = HEARTH_OK;
    add_choice(choice, first);
    if (!pull_shard_read(first->path, &shard)) return HEARTH_OK;
    for (int i = 2; i <= shard.count && rc == HEARTH_OK; i++) {
        char *path = pull_shard_name(first->path, &shard, i);
        const struct pull_entry *entry = NULL;
        for (size_t k = 0; k < listing->n && entry == NULL; k++)
            if (strcmp(listing->v[k].path, path) == 0) entry = &listing->v[k];
        if (entry != NULL)
            add_choice(choice, entry);
        else
            rc = error_set(error, HEARTH_NOT_FOUND, "the repository lacks part %d of %d of its model", i, shard.count);
        free(path);
    }
    return rc;
}

/* Of several projectors the one beside the weights, and then the one whose precision is most often the right one. */
static int score_projector(const struct pull_entry *projector, const struct pull_entry *weights)
{
    static const char *const best[] = {"F32", "Q8_0", "BF16", "F16"};
    size_t folder = (size_t)(pull_base_name(projector->path) - projector->path);
    bool is_beside = folder == (size_t)(pull_base_name(weights->path) - weights->path) &&
                     strncmp(projector->path, weights->path, folder) == 0;
    int score = is_beside ? 10 : folder == 0 ? 5 : 0;
    for (int i = 0; i < (int)(sizeof best / sizeof *best); i++)
        if (has_quant(projector->path, best[i])) return score + i + 1;
    return score;
}

int pull_choose(const struct pull_listing *listing, const char *quant, struct pull_choice *choice, hearth_error *error)
{
    static const char *const usual[] = {"Q4_K_M", "Q5_K_M", "Q4_0", "Q8_0", "F16", "BF16"};
    const struct pull_entry *first = NULL, *best = NULL; /* best: the projector */
    *choice = (struct pull_choice){0};
    size_t n = count_meant(listing, quant, &first);
    bool is_one = n == 1;
    for (size_t i = 0; n > 1 && quant == NULL && !is_one && i < sizeof usual / sizeof *usual; i++)
        is_one = count_meant(listing, usual[i], &first) == 1;
    int rc = is_one ? HEARTH_OK : refuse_choice(listing, quant, n, error);
    if (rc == HEARTH_OK) rc = add_shards(listing, first, choice, error);
    for (size_t i = 0; i < listing->n && rc == HEARTH_OK; i++) {
        const struct pull_entry *entry = &listing->v[i];
        if (!is_projector(entry)) continue;
        if (best == NULL || score_projector(entry, &choice->v[0]) > score_projector(best, &choice->v[0])) best = entry;
    }
    if (best != NULL) add_choice(choice, best);
    choice->has_projector = best != NULL;
    return rc;
}

void pull_choice_release(struct pull_choice *choice)
{
    free(choice->v);
    *choice = (struct pull_choice){0};
}
