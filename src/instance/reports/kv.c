/* Stored entries, read without an instance. hearth_kv_list(), _verify(), _show() only read the folders of the store's
 * tiers, so that a server may go on using them. Entries that it removes meanwhile are skipped. hearth_kv_gc() and
 * _clear() remove: all folders are locked before anything is removed, so that nothing is removed where a server uses
 * one of them. Everything belongs to the calling thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/config.h"
#include "store/backends/folder.h"
#include "store/index/index.h"
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct kv_folder {
    const char *tier;
    uint64_t quota;        /* bytes; 0: the tier is off */
    struct folder *folder; /* NULL: there is none, or the tier is in memory */
};

enum kv_fault {
    KV_WHOLE,
    KV_DAMAGED,  /* its bytes prove it: lengths, checksums or key are wrong */
    KV_DETACHED, /* its parent is missing */
    KV_UNREAD    /* reading failed, which proves nothing about the slab */
};

struct kv_slab {
    const char *tier;
    struct slab_head head; /* of a file that could not be read only key and kind */
    uint64_t size;         /* bytes */
    enum kv_fault fault;   /* found so far; look_into() checks the head only */
    char *damage;          /* the fault as a line of text; NULL: none was found */
    bool gone;             /* the server that uses the folder removed it meanwhile */
};

/* The name under which a server stored slabs of a model. */
struct kv_model {
    uint8_t model[SHA256_BYTES];
    char name[STORE_MODEL_NAME]; /* "": not recorded */
};

/* Zeroed: none. */
struct kv_slabs {
    struct kv_slab *v;
    size_t n, cap;
    struct kv_model *models; /* of all slabs */
    size_t n_models;
    const char *tier; /* of the folder that is being scanned */
    bool unknown;     /* the content of some slabs is unknown: they could not be read, or are of a newer version */
};

/* ---- Folders ---- */

static int open_one(struct kv_folder *folder, const char *path, bool to_read, hearth_error *error)
{
    /* folder_open() creates missing folders; a command that only looks must not leave any behind. */
    struct stat info;
    if (path == NULL || (lstat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR))) return HEARTH_OK;
    folder->folder = (to_read ? folder_open_read_only : folder_open)(files_machine(), path, error);
    if (folder->folder != NULL) return HEARTH_OK;
    if (folder->quota == 0) {
        /* The path is a default that nobody configured: the folder may be another user's. */
        log_event(LOG_WARN, "store", "left out a folder of a tier that is off", log_str("reason", error->message));
        return HEARTH_OK;
    }
    if (error->code == HEARTH_UNAVAILABLE)
        error_at(error, HEARTH_UNAVAILABLE, path,
                 "a server is using %s: stop it first, or leave it to the server, which keeps to its quota by itself",
                 path);
    return (int)error->code;
}

static void close_folders(struct kv_folder folders[STORE_TIERS])
{
    for (size_t i = 0; i < STORE_TIERS; i++) folder_close(folders[i].folder);
}

/* Opens the folders that exist; none is created. `to_read`: a server may go on using them. Otherwise this process locks
 * them (HEARTH_UNAVAILABLE where a server has one). One of a tier that is off is left out where opening it fails. */
static int open_folders(struct kv_folder folders[STORE_TIERS], const hearth_config *config, bool to_read,
                        hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < STORE_TIERS; i++) {
        const struct config_tier *tier = &config->cache.tiers[i];
        folders[i] = (struct kv_folder){.tier = store_tier_names[i], .quota = (uint64_t)tier->quota_mb << 20};
        if (rc == HEARTH_OK) rc = open_one(&folders[i], tier->path, to_read, error);
    }
    if (rc != HEARTH_OK) close_folders(folders);
    return rc;
}

/* ---- Slabs ---- */

static void add_slab(struct kv_slabs *slabs, const struct kv_slab *slab)
{
    slabs->v = mem_room(slabs->v, slabs->n, &slabs->cap, sizeof *slabs->v);
    slabs->v[slabs->n++] = *slab;
}

static void add_readable(void *ud, struct slab_head *head, uint64_t size)
{
    struct kv_slabs *slabs = ud;
    add_slab(slabs, &(struct kv_slab){.tier = slabs->tier, .head = *head, .size = size});
    *head = (struct slab_head){0};
}

static void add_unreadable(void *ud, const struct slab_key *key, enum slab_kind kind, const hearth_error *error)
{
    struct kv_slabs *slabs = ud;
    add_slab(slabs, &(struct kv_slab){.tier = slabs->tier,
                                      .head = {.key = *key, .kind = kind},
                                      .fault = error->code == HEARTH_INVALID ? KV_DAMAGED : KV_UNREAD,
                                      .damage = mem_strdup(error->message)});
}

static int by_start(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct kv_slab *)a)->head, *y = &((const struct kv_slab *)b)->head;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static struct kv_model *find_model(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES])
{
    for (size_t i = 0; i < slabs->n_models; i++)
        if (memcmp(slabs->models[i].model, model, SHA256_BYTES) == 0) return &slabs->models[i];
    return NULL;
}

/* The recorded name of a model; "": none. */
static const char *model_name_of(const struct kv_slabs *slabs, const uint8_t model[SHA256_BYTES])
{
    const struct kv_model *known = find_model(slabs, model);
    return known == NULL ? "" : known->name;
}

static void add_model(struct kv_slabs *slabs, const struct kv_model *model)
{
    slabs->models = mem_grow(slabs->models, slabs->n_models + 1, sizeof *slabs->models);
    slabs->models[slabs->n_models++] = *model;
}

/* Adds the slabs of a folder from their heads, parents before children. */
static int look_into(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error)
{
    size_t before = slabs->n;
    struct folder_scan scan = {.each = add_readable, .unusable = add_unreadable, .ud = slabs};
    slabs->tier = folder->tier;
    int rc = folder_scan(folder->folder, &scan, error);
    slabs->unknown = slabs->unknown || scan.n_unread > 0 || scan.foreign_bytes > 0;
    /* A folder records the name of each model that it has slabs of. */
    for (size_t i = before; i < slabs->n; i++) {
        struct kv_model own = {0};
        memcpy(own.model, slabs->v[i].head.identity.model, SHA256_BYTES);
        if (slabs->v[i].head.end == 0 || find_model(slabs, own.model) != NULL) continue;
        folder_model_name(folder->folder, own.model, own.name, sizeof own.name);
        add_model(slabs, &own);
    }
    if (slabs->n > before) qsort(slabs->v + before, slabs->n - before, sizeof *slabs->v, by_start);
    return rc;
}

static void release_slabs(struct kv_slabs *slabs)
{
    for (size_t i = 0; i < slabs->n; i++) {
        slab_head_release(&slabs->v[i].head);
        free(slabs->v[i].damage);
    }
    free(slabs->models);
    free(slabs->v);
    *slabs = (struct kv_slabs){0};
}

/* ---- Checking ---- */

static int by_key(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct kv_slab *)a)->head, *y = &((const struct kv_slab *)b)->head;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order != 0 ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

static struct kv_slab *slab_of(const struct kv_slabs *slabs, const struct slab_key *key, enum slab_kind kind)
{
    struct kv_slab wanted = {.head.key = *key, .head.kind = kind};
    return bsearch(&wanted, slabs->v, slabs->n, sizeof *slabs->v, by_key);
}

/* The first fault found is the one reported; KV_DAMAGED found later still decides what is removed. */
static void note_fault(struct kv_slab *slab, enum kv_fault fault, const char *damage)
{
    if (slab->damage == NULL || fault == KV_DAMAGED) slab->fault = fault;
    if (slab->damage == NULL) slab->damage = mem_strdup(damage);
}

static void note_detached(void *ud, const struct slab_key *key, enum slab_kind kind)
{
    note_fault(slab_of(ud, key, kind), KV_DETACHED, "its parent entry is missing");
}

static void check_key(void *ud, const struct entry *entry, const struct identity *identity)
{
    struct kv_slabs *slabs = ud;
    int32_t *tokens = mem_grow(NULL, (size_t)entry->end, sizeof *tokens);
    index_copy_tokens(entry, tokens);
    struct slab_key key = slab_key_of(identity, tokens, (size_t)entry->end);
    free(tokens);
    if (slab_key_equal(&key, &entry->key)) return;
    note_fault(slab_of(slabs, &entry->key, entry->kind), KV_DAMAGED, "its key is not that of its tokens");
}

/* A server may write an entry and its child while the folder is listed, so that the listing has the child alone. The
 * folder is therefore listed once more before the child counts as detached. */
static int check_chains(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error)
{
    bool detached = true;
    int rc = HEARTH_OK;
    for (int scans = 0; scans < 2 && detached && rc == HEARTH_OK; scans++) {
        release_slabs(slabs);
        rc = look_into(slabs, folder, error);
        /* An index is filled from the heads, as a server does at its start, which finds the detached ones. */
        struct index *index = index_open(1, UINT64_MAX, NULL);
        if (slabs->n > 0) qsort(slabs->v, slabs->n, sizeof *slabs->v, by_key);
        for (size_t i = 0; i < slabs->n; i++) {
            const struct kv_slab *slab = &slabs->v[i];
            if (slab->damage == NULL) index_adopt(index, &slab->head, slab->size, clock_unix_ms());
        }
        index_each_detached(index, note_detached, slabs);
        detached = index_usage(index).detached > 0;
        index_each(index, check_key, slabs);
        index_close(index);
    }
    return rc;
}

/* The same, and reads and checks every slab whole: takes as long as reading the folder from disk. Where this process
 * has locked the folder, the scan moves damaged files into quarantine. */
static int check_whole(struct kv_slabs *all, const struct kv_folder *folder, hearth_error *error)
{
    struct kv_slabs slabs = {0};
    int rc = check_chains(&slabs, folder, error);
    for (size_t i = 0; i < slabs.n && rc == HEARTH_OK; i++) {
        struct kv_slab *slab = &slabs.v[i];
        struct slab whole;
        hearth_error fault;
        int read = folder_read(folder->folder, &slab->head.key, slab->head.kind, &whole, &fault);
        if (read == HEARTH_OK) slab_release(&whole);
        slab->gone = read == HEARTH_NOT_FOUND;
        if (read != HEARTH_OK && !slab->gone)
            note_fault(slab, read == HEARTH_INVALID ? KV_DAMAGED : KV_UNREAD, fault.message);
    }
    for (size_t i = 0; i < slabs.n; i++) add_slab(all, &slabs.v[i]);
    for (size_t i = 0; i < slabs.n_models; i++)
        if (find_model(all, slabs.models[i].model) == NULL) add_model(all, &slabs.models[i]);
    all->unknown = all->unknown || slabs.unknown;
    free(slabs.models);
    free(slabs.v);
    return rc;
}

/* ---- Emitting entries ---- */

static const char *kind_name(enum slab_kind kind)
{
    return kind == SLAB_STATE ? "state" : "rows";
}

static const char *quant_of(const struct slab_head *head)
{
    const char *name = quant_name(head->identity.quant);
    return name != NULL ? name : "unknown";
}

/* The keys and digests of one entry, as hexadecimal digits. */
struct digits {
    char key[65], parent[65], model[65], context[65];
};

static bool is_read(const struct kv_slab *slab)
{
    return slab->head.end > 0;
}

static void write_digits(const struct slab_head *head, struct digits *digits)
{
    *digits = (struct digits){0};
    sha256_to_hex(head->key.v, digits->key);
    if (head->end == 0) return;
    if (head->start > 0) sha256_to_hex(head->parent.v, digits->parent);
    sha256_to_hex(head->identity.model, digits->model);
    sha256_to_hex(head->identity.context, digits->context);
}

static void emit_entry(const struct kv_slabs *slabs, const struct kv_slab *slab, hearth_kv_fn each, void *ud)
{
    const struct slab_head *head = &slab->head;
    struct digits digits;
    write_digits(head, &digits);
    hearth_kv_entry entry = {.tier = slab->tier,
                             .key = digits.key,
                             .parent = digits.parent,
                             .kind = kind_name(head->kind),
                             .reason = is_read(slab) ? slab_reason_name(head->reason) : "",
                             .model = digits.model,
                             .model_name = model_name_of(slabs, head->identity.model),
                             .quant = is_read(slab) ? quant_of(head) : "",
                             .context = digits.context,
                             .start = head->start,
                             .end = head->end,
                             .bytes = slab->size,
                             .hits = head->hits,
                             .created_ms = head->created_ms,
                             .used_ms = head->used_ms,
                             .damage = slab->damage};
    each(ud, &entry);
}

static int by_use(const void *a, const void *b)
{
    const struct slab_head *x = &((const struct kv_slab *)a)->head, *y = &((const struct kv_slab *)b)->head;
    if (x->used_ms != y->used_ms) return x->used_ms < y->used_ms ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

/* ---- Listing ---- */

typedef int look_fn(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* Calls `look` for each folder. On failure there is nothing to release. */
static int look_at_all(const hearth_config *config, look_fn *look, struct kv_slabs *slabs, hearth_error *error)
{
    struct kv_folder folders[STORE_TIERS];
    *slabs = (struct kv_slabs){0};
    int rc = open_folders(folders, config, true, error);
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < STORE_TIERS && rc == HEARTH_OK; i++)
        if (folders[i].folder != NULL) rc = look(slabs, &folders[i], error);
    close_folders(folders);
    if (rc != HEARTH_OK) release_slabs(slabs);
    return rc;
}

static int list_entries(const hearth_config *config, look_fn *look, hearth_kv_fn each, void *ud, hearth_error *error)
{
    hearth_error own;
    struct kv_slabs slabs;
    int rc = look_at_all(config, look, &slabs, error != NULL ? error : &own);
    if (rc != HEARTH_OK) return rc;
    if (slabs.n > 0) qsort(slabs.v, slabs.n, sizeof *slabs.v, by_use);
    for (size_t i = 0; i < slabs.n; i++)
        if (!slabs.v[i].gone && ((look == check_whole) || slabs.v[i].damage == NULL))
            emit_entry(&slabs, &slabs.v[i], each, ud);
    release_slabs(&slabs);
    return HEARTH_OK;
}

int hearth_kv_list(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error)
{
    return list_entries(config, look_into, each, ud, error);
}

int hearth_kv_verify(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error)
{
    return list_entries(config, check_whole, each, ud, error);
}

/* ---- Showing ---- */

static void put_time(struct buf *out, const char *name, int64_t ms)
{
    char text[32] = "";
    struct tm tm;
    time_t seconds = (time_t)(ms / 1000);
    if (gmtime_r(&seconds, &tm) != NULL) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_printf(out, "%-10s %s\n", name, text);
}

static void put_slab(struct buf *out, const struct kv_slabs *slabs, const struct kv_slab *slab)
{
    const struct slab_head *head = &slab->head;
    struct digits digits;
    write_digits(head, &digits);
    buf_printf(out, "key        %s\ntier       %s\nkind       %s\n", digits.key, slab->tier, kind_name(head->kind));
    if (!is_read(slab)) {
        buf_printf(out, "damage     %s\n", slab->damage);
        return;
    }
    const char *name = model_name_of(slabs, head->identity.model);
    buf_printf(out, "parent     %s\nreason     %s\nmodel      %s%s%s\nquant      %s\ncontext    %s\nbytes      %llu\n",
               head->start > 0 ? digits.parent : "none", slab_reason_name(head->reason), digits.model,
               name[0] == '\0' ? "" : " ", name, quant_of(head), digits.context, (unsigned long long)slab->size);
    put_time(out, "created", head->created_ms);
    put_time(out, "used", head->used_ms);
    buf_printf(out, "hits       %u\n", head->hits);
    buf_printf(out, "payload    %llu bytes, %zu regions\n", (unsigned long long)head->payload_size, head->n_regions);
    if (head->n_regions > 0)
        buf_printf(out, "  %-4s %5s %4s %8s %10s %12s %12s %8s\n", "what", "layer", "type", "rows", "row_bytes",
                   "offset", "bytes", "crc32c");
    for (size_t i = 0; i < head->n_regions; i++) {
        const struct slab_region *region = &head->regions[i];
        buf_printf(out, "  %-4c %5u %4u %8u %10llu %12llu %12llu %08x\n", region->what, (unsigned)region->layer,
                   (unsigned)region->type, region->rows, (unsigned long long)region->row_bytes,
                   (unsigned long long)region->offset, (unsigned long long)region->size, region->crc);
    }
    buf_printf(out, "tokens     %d to %d, %zu here\n", head->start, head->end, head->tokens.len);
    for (size_t i = 0; i < head->tokens.len; i++)
        buf_printf(out, "%s%d%s", i % 16 == 0 ? "  " : " ", head->tokens.v[i],
                   i % 16 == 15 || i + 1 == head->tokens.len ? "\n" : "");
}

/* Shows the entries whose key begins with the prefix; it must identify one key. KV rows and a state may have the same
 * key, and so may entries of two tiers: all of them are shown. */
static char *show(const struct kv_slabs *slabs, const char *prefix, hearth_error *error)
{
    struct buf out = {0};
    char first[65] = "", key[65];
    bool ambiguous = false;
    for (size_t i = 0; i < slabs->n; i++) {
        sha256_to_hex(slabs->v[i].head.key.v, key);
        if (strncmp(key, prefix, strlen(prefix)) != 0) continue;
        ambiguous = ambiguous || (first[0] != '\0' && strcmp(first, key) != 0);
        if (first[0] != '\0') buf_puts(&out, "\n");
        memcpy(first, key, sizeof first);
        put_slab(&out, slabs, &slabs->v[i]);
    }
    if (first[0] != '\0' && !ambiguous) return buf_take(&out);
    buf_release(&out);
    if (ambiguous)
        error_at(error, HEARTH_INVALID, "key", "several keys begin with %s: give more digits", prefix);
    else
        error_at(error, HEARTH_NOT_FOUND, "key", "nothing is stored under %s: hearth kv ls lists what is", prefix);
    return NULL;
}

char *hearth_kv_show(const hearth_config *config, const char *key, hearth_error *error)
{
    hearth_error own;
    struct kv_slabs slabs;
    if (error == NULL) error = &own;
    if (key[0] == '\0' || strlen(key) > 64 || strspn(key, "0123456789abcdef") != strlen(key)) {
        error_at(error, HEARTH_INVALID, "key",
                 "'%.80s' is no key: give its 64 lower-case hexadecimal digits, or the first few of them", key);
        return NULL;
    }
    if (look_at_all(config, look_into, &slabs, error) != HEARTH_OK) return NULL;
    char *text = show(&slabs, key, error);
    release_slabs(&slabs);
    return text;
}

/* ---- Removing ---- */

static void count_removed(hearth_kv_removed *removed, uint64_t files, uint64_t bytes)
{
    removed->files += files;
    removed->bytes += bytes;
}

/* Removes the slabs that are proven damaged, or all in which no damage was found. A file whose head is damaged
 * (head.end is 0) is not among them: the scan has moved it into quarantine, from where folder_tidy() removes it. */
static int remove_slabs(const struct kv_folder *folder, const struct kv_slabs *slabs, bool damaged,
                        hearth_kv_removed *removed, hearth_error *error)
{
    int rc = HEARTH_OK;
    for (size_t i = 0; i < slabs->n && rc == HEARTH_OK; i++) {
        const struct kv_slab *slab = &slabs->v[i];
        if (damaged ? slab->fault != KV_DAMAGED || slab->head.end == 0 : slab->damage != NULL) continue;
        rc = folder_remove(folder->folder, &slab->head.key, slab->head.kind, error);
        if (rc == HEARTH_OK) count_removed(removed, 1, slab->size);
    }
    return rc;
}

/* Which of the slabs that were listed are removed. */
typedef int clean_fn(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                     hearth_error *error);

static bool is_none(void *ud, const uint8_t model[SHA256_BYTES])
{
    (void)ud, (void)model;
    return false;
}

static int clear_folder(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                        hearth_error *error)
{
    int rc = remove_slabs(folder, slabs, false, removed, error);
    if (rc == HEARTH_OK) folder_prune_models(folder->folder, is_none, NULL);
    return rc;
}

/* Removes the files of slabs that were dropped from the index. */
static int remove_victims(const struct kv_folder *folder, struct index *index, struct victim *first,
                          hearth_kv_removed *removed, hearth_error *error)
{
    int rc = HEARTH_OK;
    uint64_t before = index_usage(index).bytes;
    for (struct victim *victim = first, *next; victim != NULL; victim = next) {
        next = victim->next;
        int removing = folder_remove(folder->folder, &victim->key, victim->kind, error);
        index_deleted(index, victim);
        uint64_t after = index_usage(index).bytes;
        if (removing == HEARTH_OK)
            count_removed(removed, 1, before - after);
        else
            rc = removing;
        before = after;
    }
    return rc;
}

struct wanted_model {
    const uint8_t *model;
    bool found;
};

static void compare_model(void *ud, const struct entry *entry, const struct identity *identity)
{
    struct wanted_model *wanted = ud;
    (void)entry;
    wanted->found = wanted->found || memcmp(identity->model, wanted->model, SHA256_BYTES) == 0;
}

static bool has_entries(void *index, const uint8_t model[SHA256_BYTES])
{
    struct wanted_model wanted = {.model = model};
    index_each(index, compare_model, &wanted);
    return wanted.found;
}

/* Removes damaged slabs, detached ones, and the least recently used beyond the quota. A tier that is off has no quota:
 * its whole slabs stay for the day when it is on again. */
static int collect_garbage(const struct kv_folder *folder, const struct kv_slabs *slabs, hearth_kv_removed *removed,
                           hearth_error *error)
{
    int rc = remove_slabs(folder, slabs, true, removed, error);
    struct index *index = index_open(1, folder->quota > 0 ? folder->quota : UINT64_MAX, NULL);
    for (size_t i = 0; i < slabs->n; i++) {
        const struct kv_slab *slab = &slabs->v[i];
        bool may_be_whole = slab->fault != KV_DAMAGED && slab->head.end > 0;
        if (may_be_whole) index_adopt(index, &slab->head, slab->size, clock_unix_ms());
        removed->kept += slab->fault == KV_UNREAD;
    }
    /* A slab that seems detached may have a parent among those of unknown content. */
    if (slabs->unknown)
        removed->kept += index_usage(index).detached;
    else if (rc == HEARTH_OK)
        rc = remove_victims(folder, index, index_drop_detached(index), removed, error);
    if (rc == HEARTH_OK) rc = remove_victims(folder, index, index_trim(index), removed, error);
    if (rc == HEARTH_OK && index_usage(index).detached == 0) folder_prune_models(folder->folder, has_entries, index);
    index_close(index);
    return rc;
}

static int clean_all(const hearth_config *config, look_fn *look, clean_fn *clean, hearth_kv_removed *removed,
                     hearth_error *error)
{
    hearth_error own_error;
    hearth_kv_removed own;
    struct kv_folder folders[STORE_TIERS];
    if (error == NULL) error = &own_error;
    if (removed == NULL) removed = &own;
    *removed = (hearth_kv_removed){0};
    int rc = open_folders(folders, config, false, error);
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < STORE_TIERS && rc == HEARTH_OK; i++) {
        if (folders[i].folder == NULL) continue;
        struct kv_slabs slabs = {0};
        struct folder_removed aside;
        rc = look(&slabs, &folders[i], error);
        if (rc == HEARTH_OK) rc = clean(&folders[i], &slabs, removed, error);
        release_slabs(&slabs);
        folder_tidy(folders[i].folder, &aside);
        count_removed(removed, aside.files, aside.bytes);
    }
    close_folders(folders);
    return rc;
}

int hearth_kv_gc(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error)
{
    return clean_all(config, check_whole, collect_garbage, removed, error);
}

int hearth_kv_clear(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error)
{
    return clean_all(config, look_into, clear_folder, removed, error);
}
