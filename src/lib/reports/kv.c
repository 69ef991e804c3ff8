/* Listing stored entries: hearth_kv_list(), hearth_kv_verify(), hearth_kv_show(). Folders are only read, so that a
 * server may go on using them; entries that it removes meanwhile are skipped. */
#include "lib/reports/kv_folders.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
                             .model_name = kv_model_name(slabs, head->identity.model),
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

static void emit_all(struct kv_slabs *slabs, bool damaged_too, hearth_kv_fn each, void *ud)
{
    if (slabs->n > 0) qsort(slabs->v, slabs->n, sizeof *slabs->v, by_use);
    for (size_t i = 0; i < slabs->n; i++)
        if (!slabs->v[i].gone && (damaged_too || slabs->v[i].damage == NULL)) emit_entry(slabs, &slabs->v[i], each, ud);
}

/* ---- Listing ---- */

typedef int look_fn(struct kv_slabs *slabs, const struct kv_folder *folder, hearth_error *error);

/* Calls `look` for each folder. On failure there is nothing to release. */
static int look_at_all(const hearth_config *config, look_fn *look, struct kv_slabs *slabs, hearth_error *error)
{
    struct kv_folder folders[KV_FOLDERS];
    *slabs = (struct kv_slabs){0};
    int rc = kv_open(folders, config, true, error);
    if (rc != HEARTH_OK) return rc;
    for (size_t i = 0; i < KV_FOLDERS && rc == HEARTH_OK; i++)
        if (folders[i].folder != NULL) rc = look(slabs, &folders[i], error);
    kv_close(folders);
    if (rc != HEARTH_OK) kv_slabs_release(slabs);
    return rc;
}

int hearth_kv_list(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error)
{
    hearth_error own;
    struct kv_slabs slabs;
    int rc = look_at_all(config, kv_look, &slabs, error != NULL ? error : &own);
    if (rc != HEARTH_OK) return rc;
    emit_all(&slabs, false, each, ud);
    kv_slabs_release(&slabs);
    return HEARTH_OK;
}

/* ---- Verifying ---- */

static int verify_folder(struct kv_slabs *all, const struct kv_folder *folder, hearth_error *error)
{
    struct kv_slabs slabs = {0};
    int rc = kv_check(&slabs, folder, error);
    kv_slabs_move(all, &slabs);
    return rc;
}

int hearth_kv_verify(const hearth_config *config, hearth_kv_fn each, void *ud, hearth_error *error)
{
    hearth_error own;
    struct kv_slabs slabs;
    int rc = look_at_all(config, verify_folder, &slabs, error != NULL ? error : &own);
    if (rc != HEARTH_OK) return rc;
    emit_all(&slabs, true, each, ud);
    kv_slabs_release(&slabs);
    return HEARTH_OK;
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

static void put_regions(struct buf *out, const struct slab_head *head)
{
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
}

static void put_tokens(struct buf *out, const struct slab_head *head)
{
    buf_printf(out, "tokens     %d to %d, %zu here\n", head->start, head->end, head->tokens.len);
    for (size_t i = 0; i < head->tokens.len; i++)
        buf_printf(out, "%s%d%s", i % 16 == 0 ? "  " : " ", head->tokens.v[i],
                   i % 16 == 15 || i + 1 == head->tokens.len ? "\n" : "");
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
    const char *name = kv_model_name(slabs, head->identity.model);
    buf_printf(out, "parent     %s\nreason     %s\nmodel      %s%s%s\nquant      %s\ncontext    %s\nbytes      %llu\n",
               head->start > 0 ? digits.parent : "none", slab_reason_name(head->reason), digits.model,
               name[0] == '\0' ? "" : " ", name, quant_of(head), digits.context, (unsigned long long)slab->size);
    put_time(out, "created", head->created_ms);
    put_time(out, "used", head->used_ms);
    buf_printf(out, "hits       %u\n", head->hits);
    put_regions(out, head);
    put_tokens(out, head);
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
    if (look_at_all(config, kv_look, &slabs, error) != HEARTH_OK) return NULL;
    char *text = show(&slabs, key, error);
    kv_slabs_release(&slabs);
    return text;
}
