/* From a reference to a list of files: see pull_plan.h. */
#include "pull/pull_plan.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "pull/listing.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_MOST  ((size_t)16 << 20) /* bytes of a page of a list */
#define PAGES_MOST 50

/* ---- Which files ---- */

/* Takes the source. */
static struct pull_file *add_file(struct pull_plan *plan, const char *name, char *source)
{
    plan->files = mem_grow(plan->files, plan->n_files + 1, sizeof *plan->files);
    struct pull_file *file = &plan->files[plan->n_files++];
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

static int list_files(struct pull_plan *plan, struct pull_listing *listing, hearth_error *error)
{
    struct buf page = {0};
    char *url = mem_format("%s/api/models/%s/%s/tree/main?recursive=1", plan->endpoint.text, plan->reference->owner,
                           plan->reference->repo);
    int rc = HEARTH_OK;
    for (int i = 0; url != NULL && rc == HEARTH_OK && i < PAGES_MOST; i++) {
        struct pull_request request = {.web = &plan->how.web, .url = url, .take = take_page, .ud = &page};
        buf_clear(&page);
        rc = pull_web_get(&request, error);
        if (rc == HEARTH_OK) rc = pull_listing_add(listing, buf_text(&page), page.len, error);
        /* Where the list goes on. A page of another origin's is none of this list. */
        struct pull_url next = {0};
        hearth_error none;
        bool goes_on = request.head.next != NULL && pull_url_read(request.head.next, &next, &none) == HEARTH_OK &&
                       strcmp(next.origin, plan->endpoint.origin) == 0;
        pull_request_release(&request);
        free(url);
        url = goes_on ? mem_strdup(next.text) : NULL;
        pull_url_release(&next);
    }
    free(url);
    buf_release(&page);
    return rc;
}

static int plan_repository(struct pull_plan *plan, hearth_error *error)
{
    struct pull_listing listing = {0};
    struct pull_choice choice = {0};
    int rc = list_files(plan, &listing, error);
    if (rc == HEARTH_OK) rc = pull_choose(&listing, plan->reference->quant, &choice, error);
    if (rc != HEARTH_OK) error_prefix(error, "%s/%s: ", plan->reference->owner, plan->reference->repo);
    if (rc == HEARTH_OK) plan->path = mem_strdup(choice.v[0].path);
    for (size_t i = 0; i < choice.n && rc == HEARTH_OK; i++) {
        const struct pull_entry *entry = &choice.v[i];
        struct buf url = {0};
        buf_printf(&url, "%s/%s/%s/resolve/main/", plan->endpoint.text, plan->reference->owner, plan->reference->repo);
        pull_url_put_path(&url, entry->path);
        struct pull_file *file = add_file(plan, pull_base_name(entry->path), buf_take(&url));
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
static void plan_url(struct pull_plan *plan)
{
    struct buf first = {0};
    struct pull_shard shard;
    pull_url_put_file(&first, plan->reference->place);
    bool is_shard = pull_shard_read(first.v, &shard);
    for (int i = 1; i <= (is_shard ? shard.count : 1); i++) {
        char *name = is_shard ? pull_shard_name(first.v, &shard, i) : mem_strdup(first.v);
        add_file(plan, name,
                 is_shard ? pull_url_with_file(plan->reference->place, name) : mem_strdup(plan->reference->place));
        free(name);
    }
    buf_release(&first);
}

static void plan_local(struct pull_plan *plan)
{
    const char *path = plan->reference->place;
    struct pull_shard shard;
    bool is_shard = pull_shard_read(path, &shard);
    for (int i = 1; i <= (is_shard ? shard.count : 1); i++) {
        char *one = is_shard ? pull_shard_name(path, &shard, i) : mem_strdup(path);
        add_file(plan, pull_base_name(one), one)->is_local = true;
    }
}

/* A projector of its own, beside a model that has none. */
static int plan_projector(struct pull_plan *plan, const struct pull_reference *projector, hearth_error *error)
{
    struct buf name = {0};
    if (projector->kind == PULL_REPOSITORY)
        return error_at(error, HEARTH_INVALID, "mmproj",
                        "--mmproj %s: a repository's projector comes with its model; write a URL or a file",
                        projector->text);
    for (size_t i = 0; i < plan->n_files; i++)
        if (plan->files[i].is_projector)
            return error_at(error, HEARTH_INVALID, "mmproj", "--mmproj: the model comes with its projector, %s",
                            plan->files[i].name);
    bool is_local = projector->kind == PULL_FILE;
    if (is_local)
        buf_puts(&name, pull_base_name(projector->place));
    else
        pull_url_put_file(&name, projector->place);
    struct pull_file *file = add_file(plan, name.v, mem_strdup(projector->place));
    file->is_local = is_local;
    file->is_projector = true;
    buf_release(&name);
    return HEARTH_OK;
}

static int choose_files(struct pull_plan *plan, hearth_error *error)
{
    int rc = HEARTH_OK;
    if (plan->reference->kind == PULL_REPOSITORY)
        rc = plan_repository(plan, error);
    else if (plan->reference->kind == PULL_URL)
        plan_url(plan);
    else
        plan_local(plan);
    if (rc == HEARTH_OK && plan->options->projector != NULL) rc = plan_projector(plan, plan->options->projector, error);
    if (rc != HEARTH_OK) return rc;
    plan->name = plan->options->name != NULL ? mem_strdup(plan->options->name) : pull_model_name(plan->files[0].name);
    for (char *c = plan->name; plan->options->name == NULL && *c != '\0'; c++)
        if (*c == ' ') *c = '-';
    plan->how.n_files = plan->n_files;
    /* Names come from strangers. */
    rc = pull_check_model_name(plan->name, error);
    for (size_t i = 0; i < plan->n_files && rc == HEARTH_OK; i++) {
        rc = pull_check_file_name(plan->files[i].name, error);
        for (size_t k = 0; k < i && rc == HEARTH_OK; k++)
            if (strcmp(plan->files[i].name, plan->files[k].name) == 0)
                rc = error_set(error, HEARTH_INVALID, "the model has two files of one name, %s", plan->files[i].name);
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
static int read_endpoint(struct pull_plan *plan, hearth_error *error)
{
    const char *token = plan->options->token;
    size_t len = strlen(plan->options->endpoint);
    while (len > 0 && plan->options->endpoint[len - 1] == '/') len--;
    char *trimmed = mem_strndup(plan->options->endpoint, len);
    int rc = pull_url_read(trimmed, &plan->endpoint, error);
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

int pull_plan_make(struct pull_plan *plan, const struct pull_reference *reference, const struct pull_options *options,
                   hearth_error *error)
{
    bool has_token = options->token != NULL && options->token[0] != '\0';
    *plan = (struct pull_plan){.reference = reference, .options = options};
    int rc = read_endpoint(plan, error);
    plan->how = (struct pull_how){.web = {.token = has_token ? options->token : NULL,
                                          .token_origin = plan->endpoint.origin,
                                          .allow_http = options->allow_http,
                                          .public_only = options->public_only,
                                          .stall_seconds = options->stall_seconds,
                                          .retries = options->retries,
                                          .is_cancelled = options->is_cancelled,
                                          .ud = options->ud},
                                  .connections = options->connections,
                                  .report = options->report,
                                  .ud = options->ud};
    return rc == HEARTH_OK ? choose_files(plan, error) : rc;
}

void pull_plan_release(struct pull_plan *plan)
{
    for (size_t i = 0; i < plan->n_files; i++) pull_file_release(&plan->files[i]);
    free(plan->files);
    free(plan->name);
    free(plan->path);
    pull_url_release(&plan->endpoint);
    *plan = (struct pull_plan){0};
}
