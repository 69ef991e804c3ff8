/* Pulling: from a reference to a list of files, from there to the models folder: see pull.h. */
#include "pull/pull.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_MOST  ((size_t)16 << 20) /* bytes of a page of a list */
#define PAGES_MOST 50

/* A pull: the files that it wants, then those that it has. */
struct pull {
    const struct pull_reference *reference;
    const struct pull_options *options;
    struct pull_how how;
    struct pull_url endpoint;
    struct pull_file *files;
    size_t n_files;
    char *name;
    char *path; /* of the first file in its repository; NULL: it comes from elsewhere */
    struct pull_place place;
    struct pull_model former, model; /* as the manifest was, and will be */
    bool interrupted;                /* `former` is what a pull prepared that never came to list it */
};

/* ---- Which files ---- */

/* Takes the source. */
static struct pull_file *add_file(struct pull *p, const char *name, char *source)
{
    p->files = mem_grow(p->files, p->n_files + 1, sizeof *p->files);
    struct pull_file *file = &p->files[p->n_files++];
    *file = (struct pull_file){.name = mem_strdup(name), .source = source, .size = -1};
    return file;
}

/* A page of a list, as it comes. */
static bool take_page(struct pull_request *request, const char *bytes, size_t len)
{
    struct buf *page = request->ud;
    if (page->len + len > PAGE_MOST) {
        error_set(&request->error, HEARTH_IO, "%s sends a list of files that is too long", request->at.origin);
        return false;
    }
    buf_append(page, bytes, len);
    return true;
}

static int list_files(struct pull *p, struct pull_listing *listing, hearth_error *error)
{
    struct buf page = {0};
    char *url = mem_format("%s/api/models/%s/%s/tree/main?recursive=1", p->endpoint.text, p->reference->owner,
                           p->reference->repo);
    int rc = HEARTH_OK;
    for (int i = 0; url != NULL && rc == HEARTH_OK && i < PAGES_MOST; i++) {
        struct pull_request request = {.web = &p->how.web, .url = url, .take = take_page, .ud = &page};
        buf_clear(&page);
        rc = pull_web_get(&request, error);
        if (rc == HEARTH_OK) rc = pull_listing_add(listing, buf_text(&page), page.len, error);
        /* Where the list goes on. A page of another origin's is none of this list. */
        struct pull_url next = {0};
        hearth_error none;
        bool goes_on = request.head.next != NULL && pull_url_read(request.head.next, &next, &none) == HEARTH_OK &&
                       strcmp(next.origin, p->endpoint.origin) == 0;
        pull_request_release(&request);
        free(url);
        url = goes_on ? mem_strdup(next.text) : NULL;
        pull_url_release(&next);
    }
    free(url);
    buf_release(&page);
    return rc;
}

static int plan_repository(struct pull *p, hearth_error *error)
{
    struct pull_listing listing = {0};
    struct pull_choice choice = {0};
    int rc = list_files(p, &listing, error);
    if (rc == HEARTH_OK) rc = pull_choose(&listing, p->reference->quant, &choice, error);
    if (rc != HEARTH_OK) error_prefix(error, "%s/%s: ", p->reference->owner, p->reference->repo);
    if (rc == HEARTH_OK) p->path = mem_strdup(choice.v[0].path);
    for (size_t i = 0; i < choice.n && rc == HEARTH_OK; i++) {
        const struct pull_entry *entry = &choice.v[i];
        struct buf url = {0};
        buf_printf(&url, "%s/%s/%s/resolve/main/", p->endpoint.text, p->reference->owner, p->reference->repo);
        pull_url_put_path(&url, entry->path);
        struct pull_file *file = add_file(p, pull_base_name(entry->path), buf_take(&url));
        file->is_projector = choice.has_projector && i + 1 == choice.n;
        file->is_listed = entry->size > 0;
        file->size = entry->size;
        file->has_sha = entry->has_sha;
        memcpy(file->sha, entry->sha, sizeof file->sha);
    }
    pull_choice_release(&choice);
    pull_listing_release(&listing);
    return rc;
}

/* One file, or all shards of which it is one. */
static void plan_url(struct pull *p)
{
    struct buf first = {0};
    struct pull_shard shard;
    pull_url_put_file(&first, p->reference->place);
    bool is_shard = pull_shard_read(first.v, &shard);
    for (int i = 1; i <= (is_shard ? shard.count : 1); i++) {
        char *name = is_shard ? pull_shard_name(first.v, &shard, i) : mem_strdup(first.v);
        add_file(p, name, is_shard ? pull_url_with_file(p->reference->place, name) : mem_strdup(p->reference->place));
        free(name);
    }
    buf_release(&first);
}

static void plan_local(struct pull *p)
{
    const char *path = p->reference->place;
    struct pull_shard shard;
    bool is_shard = pull_shard_read(path, &shard);
    for (int i = 1; i <= (is_shard ? shard.count : 1); i++) {
        char *one = is_shard ? pull_shard_name(path, &shard, i) : mem_strdup(path);
        add_file(p, pull_base_name(one), one)->is_local = true;
    }
}

/* A projector of its own, beside a model that has none. */
static int plan_projector(struct pull *p, const struct pull_reference *projector, hearth_error *error)
{
    struct buf name = {0};
    if (projector->kind == PULL_REPOSITORY)
        return error_at(error, HEARTH_INVALID, "mmproj",
                        "--mmproj %s: a repository's projector comes with its model; write a URL or a file",
                        projector->text);
    for (size_t i = 0; i < p->n_files; i++)
        if (p->files[i].is_projector)
            return error_at(error, HEARTH_INVALID, "mmproj", "--mmproj: the model comes with its projector, %s",
                            p->files[i].name);
    bool is_local = projector->kind == PULL_FILE;
    if (is_local)
        buf_puts(&name, pull_base_name(projector->place));
    else
        pull_url_put_file(&name, projector->place);
    struct pull_file *file = add_file(p, name.v, mem_strdup(projector->place));
    file->is_local = is_local;
    file->is_projector = true;
    buf_release(&name);
    return HEARTH_OK;
}

static int plan(struct pull *p, hearth_error *error)
{
    int rc = HEARTH_OK;
    if (p->reference->kind == PULL_REPOSITORY)
        rc = plan_repository(p, error);
    else if (p->reference->kind == PULL_URL)
        plan_url(p);
    else
        plan_local(p);
    if (rc == HEARTH_OK && p->options->projector != NULL) rc = plan_projector(p, p->options->projector, error);
    if (rc != HEARTH_OK) return rc;
    p->name = p->options->name != NULL ? mem_strdup(p->options->name) : pull_model_name(p->files[0].name);
    for (char *c = p->name; p->options->name == NULL && *c != '\0'; c++)
        if (*c == ' ') *c = '-';
    p->how.n_files = p->n_files;
    /* Names come from strangers. */
    rc = pull_check_model_name(p->name, error);
    for (size_t i = 0; i < p->n_files && rc == HEARTH_OK; i++) {
        rc = pull_check_file_name(p->files[i].name, error);
        for (size_t k = 0; k < i && rc == HEARTH_OK; k++)
            if (strcmp(p->files[i].name, p->files[k].name) == 0)
                rc = error_set(error, HEARTH_INVALID, "the model has two files of one name, %s", p->files[i].name);
    }
    return rc;
}

/* ---- What is there ---- */

/* Whether the former model is an earlier state of this one. References of one repository may mean the same file, with
 * and without its quantisation, and different ones of one name, in folders for each quantisation. */
static bool is_same_source(const struct pull *p)
{
    const char *a = p->former.reference, *b = p->reference->text;
    size_t repo = strncmp(a, "hf:", 3) == 0 ? 3 + strcspn(a + 3, ":") : 0;
    bool same_repository = repo > 0 && strncmp(a, b, repo) == 0 && (b[repo] == '\0' || b[repo] == ':');
    bool same_path = p->path != NULL && p->former.path != NULL && strcmp(p->path, p->former.path) == 0;
    return strcmp(a, b) == 0 || (same_repository && same_path);
}

static int read_former(struct pull *p, hearth_error *error)
{
    hearth_error none;
    int rc = pull_place_read(&p->place, p->name, false, &p->former, error);
    if (rc == HEARTH_NOT_FOUND && pull_place_read(&p->place, p->name, true, &p->former, &none) == HEARTH_OK) {
        /* The manifest of a pull that was interrupted as it gave the files their names. */
        p->interrupted = is_same_source(p);
        if (!p->interrupted) pull_model_release(&p->former);
    }
    if (rc != HEARTH_OK) return HEARTH_OK; /* there is none, or it is damaged and is written anew */
    if (is_same_source(p)) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID,
                     "there is a model %s already, pulled from %s: choose another name with --name, or remove it",
                     p->name, p->former.reference);
}

/* The same file as it was pulled before; NULL: there is none, or it may be another one. */
static const struct pull_stored *find_current(const struct pull *p, const struct pull_file *file)
{
    char hex[2 * SHA256_BYTES + 1];
    struct stat is;
    if (file->has_sha) sha256_to_hex(file->sha, hex);
    /* Of an interrupted pull the file may wait under the name that it came under, and a former one have its own. */
    char *part = mem_format("%s.part", file->name);
    bool waits = p->interrupted && fstatat(p->place.fd, part, &is, AT_SYMLINK_NOFOLLOW) == 0;
    free(part);
    for (size_t i = 0; i < p->former.n_files; i++) {
        const struct pull_stored *stored = &p->former.files[i];
        bool is_there = !waits && strcmp(stored->name, file->name) == 0 && stored->size == file->size &&
                        fstatat(p->place.fd, file->name, &is, AT_SYMLINK_NOFOLLOW) == 0 && is.st_size == file->size;
        bool by_etag = file->etag != NULL && stored->etag != NULL && strcmp(file->etag, stored->etag) == 0;
        if (is_there && (file->has_sha ? strcmp(stored->sha, hex) == 0 : by_etag)) return stored;
    }
    return NULL;
}

/* ---- Pulling ---- */

static int get_file(struct pull *p, size_t i, hearth_error *error)
{
    const struct pull_stored *current = find_current(p, &p->files[i]);
    struct pull_stored stored = {0};
    int rc = HEARTH_OK;
    p->how.index = i;
    if (current != NULL) {
        stored = *current;
        stored.name = mem_strdup(current->name);
        stored.etag = mem_strdup(current->etag);
    } else {
        /* A former one of the same size: once its part is gone it would count as the new one. */
        if (p->interrupted) unlinkat(p->place.fd, p->files[i].name, 0);
        rc = pull_download(&p->files[i], &p->place, &p->how, &stored, error);
    }
    p->model.changed = p->model.changed || current == NULL;
    if (rc == HEARTH_OK) pull_model_add_file(&p->model, &stored);
    return rc;
}

static int get_files(struct pull *p, hearth_error *error)
{
    int rc = HEARTH_OK;
    int64_t needed = 0;
    for (size_t i = 0; i < p->n_files && rc == HEARTH_OK; i++) {
        struct pull_file *file = &p->files[i];
        if (file->has_sha && find_current(p, file) != NULL) continue;
        rc = pull_probe(file, &p->how, error);
        int64_t missing = pull_missing(file, &p->place);
        if (rc == HEARTH_OK && missing > 0 && find_current(p, file) == NULL) needed += missing;
    }
    if (rc == HEARTH_OK && needed > 0) rc = pull_check_space(p->place.fd, needed, error);
    p->model.name = mem_strdup(p->name);
    p->model.reference = mem_strdup(p->reference->text);
    p->model.path = mem_strdup(p->path);
    p->model.changed = p->interrupted;
    for (size_t i = 0; i < p->n_files && rc == HEARTH_OK; i++) rc = get_file(p, i, error);
    p->model.pulled_ms = p->model.changed ? clock_unix_ms() : p->former.pulled_ms;
    /* The former files stay until all of the new ones are whole: a process that serves the model meanwhile has one or
     * the other. Without a manifest in between, an interruption leaves no mixture that would count as a model; the next
     * pull goes by the one that is prepared. */
    if (rc == HEARTH_OK) rc = pull_place_prepare(&p->place, &p->model, error);
    if (rc == HEARTH_OK && p->model.changed) rc = pull_place_unlist(&p->place, error);
    for (size_t i = 0; i < p->n_files && rc == HEARTH_OK; i++)
        if (p->files[i].is_here) rc = pull_name_file(&p->files[i], &p->place, error);
    if (rc == HEARTH_OK) rc = pull_place_list(&p->place, error);
    for (size_t i = 0; i < p->former.n_files && rc == HEARTH_OK; i++) {
        const char *name = p->former.files[i].name;
        bool is_kept = false;
        for (size_t k = 0; k < p->model.n_files; k++) is_kept = is_kept || strcmp(p->model.files[k].name, name) == 0;
        if (!is_kept) unlinkat(p->place.fd, name, 0);
    }
    return rc;
}

/* ---- All of it ---- */

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

struct pull_options pull_options_default(void)
{
    const char *endpoint = from_environment("HF_ENDPOINT");
    return (struct pull_options){.endpoint = endpoint != NULL ? endpoint : PULL_ENDPOINT,
                                 .token = from_environment("HF_TOKEN"),
                                 .connections = PULL_CONNECTIONS,
                                 .stall_seconds = PULL_STALL_SECONDS,
                                 .retries = PULL_RETRIES};
}

/* A text that could end a header's line is no token. */
static int read_endpoint(struct pull *p, hearth_error *error)
{
    const char *token = p->options->token;
    size_t len = strlen(p->options->endpoint);
    while (len > 0 && p->options->endpoint[len - 1] == '/') len--;
    char *trimmed = mem_strndup(p->options->endpoint, len);
    int rc = pull_url_read(trimmed, &p->endpoint, error);
    free(trimmed);
    if (rc != HEARTH_OK) {
        error_prefix(error, "HF_ENDPOINT: ");
        return rc;
    }
    for (const char *c = token == NULL ? "" : token; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return error_set(error, HEARTH_INVALID, "HF_TOKEN is no token: it has blanks or other bytes that none has");
    return HEARTH_OK;
}

int pull_model(const struct pull_reference *reference, const struct pull_options *options, struct pull_model *model,
               hearth_error *error)
{
    struct pull p = {.reference = reference, .options = options, .place = {.fd = -1, .lock = -1}};
    int rc = read_endpoint(&p, error);
    bool has_token = options->token != NULL && options->token[0] != '\0';
    p.how = (struct pull_how){.web = {.token = has_token ? options->token : NULL,
                                      .token_origin = p.endpoint.origin,
                                      .allow_http = options->allow_http,
                                      .public_only = options->public_only,
                                      .stall_seconds = options->stall_seconds,
                                      .retries = options->retries,
                                      .is_cancelled = options->is_cancelled,
                                      .ud = options->ud},
                              .connections = options->connections,
                              .report = options->report,
                              .ud = options->ud};
    if (rc == HEARTH_OK) rc = plan(&p, error);
    if (rc == HEARTH_OK && options->accept != NULL) rc = options->accept(options->ud, p.name, error);
    if (rc == HEARTH_OK) rc = pull_place_open(options->folder, p.name, &p.place, error);
    if (rc == HEARTH_OK) rc = read_former(&p, error);
    if (rc == HEARTH_OK) rc = get_files(&p, error);
    if (rc != HEARTH_OK)
        pull_place_abandon(&p.place);
    else if (options->use != NULL)
        rc = options->use(options->ud, &p.model, error);
    if (rc == HEARTH_OK) {
        *model = p.model;
        p.model = (struct pull_model){0};
    }
    for (size_t i = 0; i < p.n_files; i++) pull_file_release(&p.files[i]);
    free(p.files);
    free(p.name);
    free(p.path);
    pull_url_release(&p.endpoint);
    pull_place_close(&p.place);
    pull_model_release(&p.former);
    pull_model_release(&p.model);
    return rc;
}
