/* Pulling: from the files that a reference means (pull_plan.c) to the models folder: see pull.h. */
#include "pull/pull.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pull/pull_plan.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pull: the files that it wants, then those that it has. */
struct pull {
    struct pull_plan plan;
    struct pull_place place;
    struct pull_model former, model; /* as the manifest was, and will be */
    bool interrupted;                /* `former` is what a pull prepared that never came to list it */
};

/* ---- What is there ---- */

/* Whether the former model is an earlier state of this one. References of one repository may mean the same file, with
 * and without its quantisation, and different ones of one name, in folders for each quantisation. */
static bool is_same_source(const struct pull *p)
{
    const char *a = p->former.reference, *b = p->plan.reference->text;
    size_t repo = strncmp(a, "hf:", 3) == 0 ? 3 + strcspn(a + 3, ":") : 0;
    bool same_repository = repo > 0 && strncmp(a, b, repo) == 0 && (b[repo] == '\0' || b[repo] == ':');
    bool same_path = p->plan.path != NULL && p->former.path != NULL && strcmp(p->plan.path, p->former.path) == 0;
    return strcmp(a, b) == 0 || (same_repository && same_path);
}

static int read_former(struct pull *p, hearth_error *error)
{
    hearth_error none;
    int rc = pull_place_read(&p->place, p->plan.name, false, &p->former, error);
    if (rc == HEARTH_NOT_FOUND && pull_place_read(&p->place, p->plan.name, true, &p->former, &none) == HEARTH_OK) {
        /* The manifest of a pull that was interrupted as it gave the files their names. */
        p->interrupted = is_same_source(p);
        if (!p->interrupted) pull_model_release(&p->former);
    }
    if (rc != HEARTH_OK) return HEARTH_OK; /* there is none, or it is damaged and is written anew */
    if (is_same_source(p)) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID,
                     "there is a model %s already, pulled from %s: choose another name with --name, or remove it",
                     p->plan.name, p->former.reference);
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
    const struct pull_stored *current = find_current(p, &p->plan.files[i]);
    struct pull_stored stored = {0};
    int rc = HEARTH_OK;
    p->plan.how.index = i;
    if (current != NULL) {
        stored = *current;
        stored.name = mem_strdup(current->name);
        stored.etag = mem_strdup(current->etag);
    } else {
        /* A former one of the same size: once its part is gone it would count as the new one. */
        if (p->interrupted) unlinkat(p->place.fd, p->plan.files[i].name, 0);
        rc = pull_download(&p->plan.files[i], &p->place, &p->plan.how, &stored, error);
    }
    p->model.changed = p->model.changed || current == NULL;
    if (rc == HEARTH_OK) pull_model_add_file(&p->model, &stored);
    return rc;
}

static int get_files(struct pull *p, hearth_error *error)
{
    int rc = HEARTH_OK;
    int64_t needed = 0;
    for (size_t i = 0; i < p->plan.n_files && rc == HEARTH_OK; i++) {
        struct pull_file *file = &p->plan.files[i];
        if (file->has_sha && find_current(p, file) != NULL) continue;
        rc = pull_probe(file, &p->plan.how, error);
        int64_t missing = pull_missing(file, &p->place);
        if (rc == HEARTH_OK && missing > 0 && find_current(p, file) == NULL) needed += missing;
    }
    if (rc == HEARTH_OK && needed > 0) rc = pull_check_space(p->place.fd, needed, error);
    p->model.name = mem_strdup(p->plan.name);
    p->model.reference = mem_strdup(p->plan.reference->text);
    p->model.path = mem_strdup(p->plan.path);
    p->model.changed = p->interrupted;
    for (size_t i = 0; i < p->plan.n_files && rc == HEARTH_OK; i++) rc = get_file(p, i, error);
    p->model.pulled_ms = p->model.changed ? clock_unix_ms() : p->former.pulled_ms;
    /* The former files stay until all of the new ones are whole: a process that serves the model meanwhile has one or
     * the other. Without a manifest in between, an interruption leaves no mixture that would count as a model; the next
     * pull goes by the one that is prepared. */
    if (rc == HEARTH_OK) rc = pull_place_prepare(&p->place, &p->model, error);
    if (rc == HEARTH_OK && p->model.changed) rc = pull_place_unlist(&p->place, error);
    for (size_t i = 0; i < p->plan.n_files && rc == HEARTH_OK; i++)
        if (p->plan.files[i].is_here) rc = pull_name_file(&p->plan.files[i], &p->place, error);
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

int pull_model(const struct pull_reference *reference, const struct pull_options *options, struct pull_model *model,
               hearth_error *error)
{
    struct pull p = {.place = {.fd = -1, .lock = -1}};
    int rc = pull_plan_make(&p.plan, reference, options, error);
    if (rc == HEARTH_OK && options->accept != NULL) rc = options->accept(options->ud, p.plan.name, error);
    if (rc == HEARTH_OK) rc = pull_place_open(options->folder, p.plan.name, &p.place, error);
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
    pull_plan_release(&p.plan);
    pull_place_close(&p.place);
    pull_model_release(&p.former);
    pull_model_release(&p.model);
    return rc;
}
