/* A misbehaving disk, at each thing that the store does with one: {EIO, ENOSPC, EROFS, EACCES, EMFILE, ENOMEM, short
 * reads and writes, a hang} × {opening, scanning, the index file, lookup, fetch, save, rename, unlink, fsync, close} ×
 * {disk, ram_file}. In each cell of that table conversations were stored before; then the disk misbehaves, while
 * another tier works and nobody waits; then it works again, and all that was stored is found and exact.
 *
 * Cells spend their time waiting for the store's retries, the first of which comes after 1 s: so several run at once,
 * each in a thread with a store of its own, and cmocka's tests evaluate the results. That is why a cell records what
 * went wrong in place of cmocka's assertions. */
#include "fakes/cmocka_all.h"
#include "fakes/fake_files.h"
#include "fakes/fake_remote.h"
#include "fakes/store_rig.h"

#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After TIME_OUT a tier counts as hung. A call that waits for a hang, or for the time-out, takes longer than AT_ONCE,
 * which is far more than what a call takes on a busy machine. */
enum { TIME_OUT_MS = 1500, AT_ONCE_MS = 700, GRACE_MS = 100, WAIT_MS = 30000, RUNNERS = 16 };

enum { LENGTH = 90, OTHERS = 70 };

struct cell;

/* The body of a test, run in a thread of its own. */
typedef void scenario(struct cell *cell);

/* A use of the disk while it misbehaves. */
struct stage {
    const char *name;
    enum fake_call call;
    const char *on; /* names of files, NULL: any */
    bool at_start;  /* it happens when a store opens */
    bool rescans;   /* without an index file */
    bool evicts;    /* saves must evict */
    bool no_links;  /* the file system has none */
    bool asks_disk; /* false: no call reaches the disk */
    bool has_state; /* the user has recurrent/SWA state */
    void (*act)(struct cell *cell);
};

/* How it misbehaves. */
struct effect {
    const char *name;
    enum fake_effect effect;
    int error;
};

struct cell {
    char name[160];
    scenario *run;
    const struct stage *stage;
    const struct effect *effect;
    enum store_tier tier, other; /* the tier that misbehaves, to which saves go; one that does not */
    bool hangs;                  /* a call of the backend hangs now: nothing may wait for it */
    struct rig rig;
    struct fake_faults faults, more; /* of the tier's files; `more` is a second layer below */
    struct backend *backend;         /* the tier's own, and its close() */
    void (*close)(struct backend *backend);
    _Atomic bool closed;
    struct tokens a, c, x, fresh[4];
    uint64_t last_ticket;
    int64_t began; /* noted by a test, as are these: how much its threads have done */
    _Atomic uint64_t *happened;
    uint64_t seen;
    char failure[400];
    bool done;
};

static struct cell *cells;
static size_t n_cells, next_cell;
static pthread_mutex_t cells_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cell_done;
static struct files unsynced; /* the machine's, without syncs: power is never lost here */

/* ---- What went wrong ---- */

__attribute__((format(printf, 3, 4))) static void fail_at(struct cell *cell, int line, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (cell->failure[0] == '\0') snprintf(cell->failure, sizeof cell->failure, "line %d: %s", line, text);
}

static void equal_at(struct cell *cell, int line, const char *what, int64_t value, int64_t expected)
{
    if (value != expected) fail_at(cell, line, "%s is %lld, not %lld", what, (long long)value, (long long)expected);
}

#define check(cell, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) fail_at(cell, __LINE__, "%s", #condition);                                                   \
    } while (0)

#define check_is(cell, value, expected) equal_at(cell, __LINE__, #value, (int64_t)(value), (int64_t)(expected))

static int64_t now(void)
{
    return clock_now(clock_monotonic());
}

static void check_time(struct cell *cell, const char *what, int64_t started)
{
    double ms = clock_to_ms(now() - started);
    if (cell->hangs && ms > AT_ONCE_MS) fail_at(cell, __LINE__, "%s took %.0f ms while a call hung", what, ms);
}

/* Polls until the condition is true, since most of these happen after some time and wake nobody. */
static bool comes(struct cell *cell, bool (*is)(struct cell *cell))
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    int64_t deadline = now() + clock_from_ms(WAIT_MS);
    bool true_now = false;
    clock_cond_init(&never);
    pthread_mutex_lock(&mutex);
    while (!(true_now = is(cell)) && now() < deadline)
        clock_monotonic()->wait(clock_monotonic(), &never, &mutex, now() + clock_from_ms(10));
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&never);
    return true_now;
}

/* ---- Calls of the store, each of them timed ---- */

static struct store_hit *find(struct cell *cell, const struct tokens *t, const char *salt)
{
    cell->rig.salt = salt;
    int64_t started = now();
    struct store_hit *hit = rig_find(&cell->rig, t->v, (int32_t)t->len);
    check_time(cell, "store_find", started);
    return hit;
}

static void close_hit(struct cell *cell, struct store_hit *hit)
{
    int64_t started = now();
    store_hit_close(hit);
    check_time(cell, "store_hit_close", started);
}

static int32_t found(struct cell *cell, const struct tokens *t, const char *salt)
{
    struct store_hit *hit = find(cell, t, salt);
    int32_t n = store_hit_tokens(hit);
    close_hit(cell, hit);
    return n;
}

static enum store_next take(struct cell *cell, struct store_hit *hit, struct store_piece *piece)
{
    for (;;) {
        uint64_t seen = fake_user_wakes(&cell->rig.user);
        int64_t started = now();
        enum store_next next = store_next_piece(hit, piece);
        check_time(cell, "store_next_piece", started);
        if (next != STORE_PENDING) return next;
        if (!fake_user_wait(&cell->rig.user, seen)) {
            fail_at(cell, __LINE__, "whoever fetches is never woken");
            return STORE_LOST;
        }
    }
}

/* Fetches all that was found, and checks every byte. Returns how many tokens. */
static int32_t take_all(struct cell *cell, struct store_hit *hit, const struct tokens *t)
{
    const struct store_codec *codec = &cell->rig.user.user.codec;
    int32_t rows = 0, state = 0;
    struct store_piece piece;
    enum store_next next;
    while ((next = take(cell, hit, &piece)) == STORE_PIECE) {
        check(cell, fake_user_check(&cell->rig.user, t->v, &piece));
        if (piece.kind == SLAB_ROWS) check_is(cell, piece.from, rows);
        *(piece.kind == SLAB_ROWS ? &rows : &state) = piece.to;
    }
    return next == STORE_END ? (codec->has_state ? state : rows) : 0;
}

static int32_t restore(struct cell *cell, const struct tokens *t, const char *salt)
{
    struct store_hit *hit = find(cell, t, salt);
    int64_t started = now();
    store_fetch(hit, store_hit_tokens(hit));
    check_time(cell, "store_fetch", started);
    int32_t n = take_all(cell, hit, t);
    close_hit(cell, hit);
    return n;
}

static int32_t covered(struct cell *cell, const struct tokens *t, const char *salt)
{
    struct identity identity = identity_salted(&cell->rig.user.user.identity, salt);
    struct store_query query = {
        .user = &cell->rig.user.user, .identity = &identity, .tokens = t->v, .n = (int32_t)t->len};
    int64_t started = now();
    int32_t n = store_covered(cell->rig.store, &query);
    check_time(cell, "store_covered", started);
    return n;
}

/* Saves what is not stored yet. Returns the ticket. */
static uint64_t save(struct cell *cell, const struct tokens *t, const char *salt)
{
    int32_t from = covered(cell, t, salt);
    cell->rig.salt = salt;
    int64_t started = now();
    uint64_t ticket = rig_save_from(&cell->rig, t->v, from, (int32_t)t->len);
    check_time(cell, "store_save", started);
    if (ticket != 0) cell->last_ticket = ticket;
    return ticket;
}

/* Saves, waits until that is done, and restores. False: it was not stored. */
static bool keep(struct cell *cell, const struct tokens *t, const char *salt)
{
    uint64_t ticket = save(cell, t, salt);
    if (ticket == 0 || !store_wait(cell->rig.store, ticket, now() + clock_from_ms(WAIT_MS))) return false;
    return restore(cell, t, salt) == (int32_t)t->len;
}

static struct store_tier_status status_of(struct cell *cell, enum store_tier tier)
{
    struct store_tier_status status;
    store_tier_status(cell->rig.store, tier, &status);
    return status;
}

static void check_the_others_serve(struct cell *cell)
{
    check_is(cell, restore(cell, &cell->x, NULL), OTHERS);
}

/* Calls that must not wait. */
static void check_nobody_waits(struct cell *cell)
{
    struct store *store = cell->rig.store;
    for (int i = 0; i < 3; i++) {
        found(cell, &cell->a, NULL);
        covered(cell, &cell->a, "b");
        int64_t started = now();
        store_has_room(store, &cell->rig.user.user, 100000);
        check_time(cell, "store_has_room", started);
        uint64_t ticket = save(cell, &cell->fresh[3], NULL);
        started = now();
        store_is_done(store, &cell->rig.user.user, ticket);
        check_time(cell, "store_is_done", started);
        started = now();
        store_is_on(store);
        status_of(cell, cell->tier);
        check_time(cell, "store_is_on", started);
    }
}

/* ---- Files ---- */

struct file {
    char name[120];
    uint64_t size;
    ino_t inode;
};

struct listing {
    struct file v[200];
    size_t n;
    uint64_t bytes;
};

static bool is_slab_name(const char *name)
{
    size_t len = strlen(name);
    return (len > 5 && strcmp(name + len - 5, ".rows") == 0) || (len > 6 && strcmp(name + len - 6, ".state") == 0);
}

/* The slabs in the tier's folder. */
static struct listing list(struct cell *cell)
{
    struct listing listing = {0};
    DIR *folder = opendir(cell->rig.paths[cell->tier]);
    for (struct dirent *item; folder != NULL && (item = readdir(folder)) != NULL && listing.n < 200;) {
        char path[512];
        struct stat is;
        struct file *file = &listing.v[listing.n];
        snprintf(path, sizeof path, "%s/%s", cell->rig.paths[cell->tier], item->d_name);
        if (!is_slab_name(item->d_name) || stat(path, &is) != 0) continue;
        snprintf(file->name, sizeof file->name, "%.119s", item->d_name);
        file->size = (uint64_t)is.st_size;
        file->inode = is.st_ino;
        listing.bytes += file->size;
        listing.n++;
    }
    if (folder != NULL) closedir(folder);
    return listing;
}

/* How many files of one listing are not in the other, with the same content. */
static size_t count_missing(const struct listing *before, const struct listing *after)
{
    size_t missing = 0;
    for (size_t i = 0; i < before->n; i++) {
        size_t k = 0;
        while (k < after->n && strcmp(before->v[i].name, after->v[k].name) != 0) k++;
        missing += k == after->n || before->v[i].inode != after->v[k].inode;
    }
    return missing;
}

static const char *in_folder(struct cell *cell, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", cell->rig.paths[cell->tier], name);
    return path;
}

/* The name of the slab that ends with the first n tokens. */
static void slab_file(struct cell *cell, const struct tokens *t, const char *salt, int32_t n, char name[120])
{
    struct identity identity = identity_salted(&cell->rig.user.user.identity, salt);
    struct slab_key key = slab_key_of(&identity, t->v, (size_t)n);
    sha256_to_hex(key.v, name);
    strcat(name, ".rows");
}

static void flip(struct cell *cell, const char *name, long at)
{
    char path[256];
    FILE *file = fopen(in_folder(cell, name, path), "r+b");
    check(cell, file != NULL);
    if (file == NULL) return;
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int was = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(was ^ 1, file);
    fclose(file);
}

static void copy_file(struct cell *cell, const char *from, const char *to)
{
    char source[256], target[256], bytes[4096];
    in_folder(cell, from, source);
    in_folder(cell, to, target);
    unlink(target);
    FILE *in = fopen(source, "rb"), *out = fopen(target, "wb");
    check(cell, in != NULL && out != NULL);
    if (in == NULL || out == NULL) return;
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;) fwrite(bytes, 1, n, out);
    fclose(in);
    fclose(out);
}

static void forget_index_file(struct cell *cell)
{
    char path[256];
    unlink(in_folder(cell, "index", path));
}

/* ---- Opening and closing a store ---- */

static int64_t in_ms(int64_t ms)
{
    return now() + clock_from_ms(ms);
}

/* Notes the close() of the tier's backend: then the store has freed itself, or is about to. */
static void close_and_tell(struct backend *backend)
{
    pthread_mutex_lock(&cells_mutex);
    size_t i = 0;
    while (i < n_cells && cells[i].backend != backend) i++;
    struct cell *cell = &cells[i];
    cell->backend = NULL;
    pthread_mutex_unlock(&cells_mutex);
    cell->close(backend);
    cell->closed = true;
}

static void watch_backend(struct cell *cell, struct backend *backend)
{
    pthread_mutex_lock(&cells_mutex);
    cell->close = backend->close;
    backend->close = close_and_tell;
    cell->backend = backend;
    cell->closed = false;
    pthread_mutex_unlock(&cells_mutex);
    cell->rig.params.tiers[cell->tier].backend = backend;
}

/* With the tier on files that may misbehave. */
static void begin(struct cell *cell)
{
    watch_backend(cell, folder_backend_open(&cell->faults.files, cell->rig.paths[cell->tier]));
    cell->rig.store = store_open(&cell->rig.params, NULL);
    cell->last_ticket = 0;
}

/* A store that was abandoned may not have closed the other folder yet. */
static bool is_on(struct cell *cell)
{
    return status_of(cell, cell->tier).on && status_of(cell, cell->other).on;
}

static void start(struct cell *cell)
{
    begin(cell);
    check(cell, store_wait_ready(cell->rig.store, in_ms(WAIT_MS)));
    check(cell, status_of(cell, cell->tier).on);
    check(cell, comes(cell, is_on));
}

static void stop(struct cell *cell)
{
    check(cell, store_close(cell->rig.store, in_ms(WAIT_MS)));
    check(cell, cell->closed);
    cell->rig.store = NULL;
}

/* Stores some conversations in each tier: one of them twice, under two salts, one that branches in the middle. */
static void prepare(struct cell *cell)
{
    struct rig *rig = &cell->rig;
    rig_init(rig, cell->tier);
    rig_add_tier(rig, cell->other, 64 << 20);
    rig->user.user.codec.has_state = cell->stage != NULL && cell->stage->has_state;
    rig->user.user.codec.appends = cell->tier == STORE_DISK; /* else the rows are joined first */
    rig->params.files = &unsynced;
    fake_faults_init(&cell->more, &unsynced);
    fake_faults_init(&cell->faults, &cell->more.files);
    uint64_t seed = 1000 * (uint64_t)(cell - cells);
    cell->a = some_tokens(seed, LENGTH);
    cell->c = some_tokens(seed + 1, LENGTH);
    cell->x = some_tokens(seed + 2, OTHERS);
    memcpy(cell->c.v, cell->a.v, 40 * sizeof *cell->a.v);
    for (size_t i = 0; i < 4; i++) cell->fresh[i] = some_tokens(seed + 10 + i, LENGTH);
    rig->params.save_tier = cell->other;
    rig_start(rig);
    check(cell, keep(cell, &cell->x, NULL));
    rig_stop(rig);
    rig->params.save_tier = cell->tier;
    rig->params.save_timeout_ns = rig->params.fetch_timeout_ns = clock_from_ms(TIME_OUT_MS);
    rig->params.scan_grace_ns = clock_from_ms(GRACE_MS);
    start(cell);
    check(cell, keep(cell, &cell->a, NULL));
    check(cell, keep(cell, &cell->a, "b"));
    check(cell, keep(cell, &cell->c, NULL));
}

static void clean_up(struct cell *cell)
{
    if (cell->rig.store != NULL) stop(cell);
    rig_release(&cell->rig);
    for (size_t i = 0; i < 4; i++) tokens_release(&cell->fresh[i]);
    tokens_release(&cell->a);
    tokens_release(&cell->c);
    tokens_release(&cell->x);
}

static bool all_is_found(struct cell *cell)
{
    return found(cell, &cell->a, NULL) == LENGTH && found(cell, &cell->a, "b") == LENGTH &&
           found(cell, &cell->c, NULL) == LENGTH;
}

static bool all_is_restored(struct cell *cell)
{
    return restore(cell, &cell->a, NULL) == LENGTH && restore(cell, &cell->a, "b") == LENGTH &&
           restore(cell, &cell->c, NULL) == LENGTH;
}

static bool something_new_is_kept(struct cell *cell)
{
    return keep(cell, &cell->fresh[1], NULL);
}

static bool is_off(struct cell *cell)
{
    return !status_of(cell, cell->tier).on;
}

static bool is_closed(struct cell *cell)
{
    return cell->closed;
}

/* The bytes of the index are those of the files in the folder. */
static bool is_counted(struct cell *cell)
{
    return status_of(cell, cell->tier).bytes == list(cell).bytes;
}

static void check_counted(struct cell *cell)
{
    if (!comes(cell, is_counted))
        fail_at(cell, __LINE__, "%llu bytes are counted, %llu are there",
                (unsigned long long)status_of(cell, cell->tier).bytes, (unsigned long long)list(cell).bytes);
}

static bool it_fits(struct cell *cell)
{
    return list(cell).bytes <= cell->rig.params.tiers[cell->tier].quota;
}

/* ---- The table ---- */

static void only_look(struct cell *cell)
{
    check(cell, all_is_found(cell));
    check_is(cell, covered(cell, &cell->a, NULL), LENGTH);
}

/* Calls that do not fail may be short. */
static bool works(const struct cell *cell)
{
    return cell->effect->effect == FAKE_SHORT;
}

/* Whatever is fetched is right. */
static void fetch(struct cell *cell)
{
    int32_t a = restore(cell, &cell->a, NULL), b = restore(cell, &cell->a, "b");
    if (works(cell)) check_is(cell, a + b, 2 * LENGTH);
}

static void save_new(struct cell *cell)
{
    uint64_t ticket = save(cell, &cell->fresh[0], NULL);
    if (cell->hangs) return;
    check(cell, store_wait(cell->rig.store, ticket, in_ms(WAIT_MS)));
    int32_t saved = works(cell) ? restore(cell, &cell->fresh[0], NULL) : LENGTH;
    check(cell,
          saved == LENGTH || (cell->stage->evicts && 2 * saved >= LENGTH)); /* fresh entries get half of the quota */
}

static void save_and_fetch(struct cell *cell)
{
    save_new(cell);
    fetch(cell);
}

static void act_at_start(struct cell *cell)
{
    save(cell, &cell->fresh[0], NULL);
    found(cell, &cell->a, NULL);
}

static const struct stage stages[] = {
    {.name = "the tier is opened", .call = FAKE_ANY_CALL, .at_start = true, .asks_disk = true, .act = act_at_start},
    {.name = "slabs are scanned",
     .call = FAKE_ANY_CALL,
     .on = FAKE_SLABS,
     .at_start = true,
     .rescans = true,
     .asks_disk = true,
     .has_state = true,
     .act = act_at_start},
    {.name = "the index file is read",
     .call = FAKE_ANY_CALL,
     .on = "index",
     .at_start = true,
     .asks_disk = true,
     .act = act_at_start},
    {.name = "prefixes are looked for", .call = FAKE_ANY_CALL, .act = only_look},
    {.name = "slabs are fetched",
     .call = FAKE_ANY_CALL,
     .on = FAKE_SLABS,
     .asks_disk = true,
     .has_state = true,
     .act = fetch},
    {.name = "slabs are saved", .call = FAKE_WRITE, .on = FAKE_SLABS, .asks_disk = true, .act = save_new},
    {.name = "slabs are created", .call = FAKE_OPEN, .on = ".tmp", .asks_disk = true, .act = save_new},
    {.name = "slabs get their names", .call = FAKE_LINK, .asks_disk = true, .act = save_new},
    {.name = "slabs are renamed", .call = FAKE_RENAME, .no_links = true, .asks_disk = true, .act = save_new},
    {.name = "slabs are evicted", .call = FAKE_UNLINK, .evicts = true, .asks_disk = true, .act = save_new},
    {.name = "slabs are synced", .call = FAKE_SYNC, .asks_disk = true, .act = save_new},
    {.name = "files are closed", .call = FAKE_CLOSE, .asks_disk = true, .has_state = true, .act = save_and_fetch},
};

static const struct effect effects[] = {
    {"EIO", FAKE_ERROR, EIO},       {"ENOSPC", FAKE_ERROR, ENOSPC}, {"EROFS", FAKE_ERROR, EROFS},
    {"EACCES", FAKE_ERROR, EACCES}, {"EMFILE", FAKE_ERROR, EMFILE}, {"ENOMEM", FAKE_ERROR, ENOMEM},
    {"short", FAKE_SHORT, 0},       {"hang", FAKE_HANG, 0},
};

static void begin_fault(struct cell *cell)
{
    fake_faults_set(&cell->faults, (struct fake_fault){.call = cell->stage->call,
                                                       .on = cell->stage->on,
                                                       .nth = 1,
                                                       .lasting = true,
                                                       .effect = cell->effect->effect,
                                                       .error = cell->effect->error});
}

/* Evictions for a save that succeeded are no loss. */
static bool may_evict(const struct cell *cell)
{
    return cell->stage->evicts && cell->effect->effect != FAKE_ERROR;
}

static void before(struct cell *cell)
{
    const struct stage *stage = cell->stage;
    if (stage->evicts) {
        uint64_t bytes = status_of(cell, cell->tier).bytes;
        stop(cell);
        cell->rig.params.tiers[cell->tier].quota = bytes + 100;
        start(cell);
    }
    if (stage->no_links)
        fake_faults_set(
            &cell->more,
            (struct fake_fault){.call = FAKE_LINK, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = EPERM});
    if (stage->at_start) stop(cell);
    if (stage->rescans) forget_index_file(cell);
}

static bool the_others_serve(struct cell *cell)
{
    return restore(cell, &cell->x, NULL) == OTHERS;
}

static void during(struct cell *cell, bool hangs)
{
    begin_fault(cell);
    if (cell->stage->at_start) begin(cell);
    if (hangs && cell->stage->at_start) check(cell, fake_faults_await(&cell->faults, 1));
    if (cell->stage->at_start) check(cell, comes(cell, the_others_serve)); /* it is scanned as well */
    cell->hangs = hangs;
    check_the_others_serve(cell);
    cell->stage->act(cell);
    if (hangs && cell->stage->asks_disk) check(cell, fake_faults_await(&cell->faults, 1));
    check_nobody_waits(cell);
    check_the_others_serve(cell);
}

/* A tier that does not answer goes out of service; a scan may take long. */
static void check_set_aside(struct cell *cell)
{
    const struct stage *stage = cell->stage;
    if (stage->at_start && stage->on != NULL) return;
    check(cell, comes(cell, is_off));
    check(cell, strlen(status_of(cell, cell->tier).trouble) > 0);
    check_the_others_serve(cell);
    check_nobody_waits(cell);
}

static bool fault_struck(struct cell *cell)
{
    return cell->faults.struck > 0;
}

/* `all`: nothing was evicted since. */
static void check_whole(struct cell *cell, bool all)
{
    if (all) {
        check(cell, comes(cell, all_is_restored));
        /* Another of the calls that hung may not have ended yet, and sets the tier aside once more. */
        check(cell, comes(cell, all_is_found));
    }
    check(cell, comes(cell, something_new_is_kept));
    check_the_others_serve(cell);
    check_counted(cell);
}

/* store_close() returns in time while a call hangs, and the store is freed when that call returns. */
static void close_while_it_hangs(struct cell *cell)
{
    struct store_hit *hit = NULL;
    if (cell->stage->at_start) stop(cell);
    if (cell->stage->rescans) forget_index_file(cell);
    begin_fault(cell);
    if (cell->stage->at_start) begin(cell);
    if (cell->stage->act == fetch) {
        hit = find(cell, &cell->a, NULL);
        store_fetch(hit, store_hit_tokens(hit));
    } else {
        save(cell, &cell->fresh[2], NULL);
    }
    check(cell, fake_faults_await(&cell->faults, 1));
    cell->hangs = true;
    close_hit(cell, hit);
    int64_t started = now();
    store_remove_user(cell->rig.store, &cell->rig.user.user);
    check_time(cell, "store_remove_user", started);
    started = now();
    check(cell, !store_close(cell->rig.store, in_ms(100)));
    check_time(cell, "store_close (within 100 ms)", started);
    cell->hangs = false;
    cell->rig.store = NULL;
    check(cell, !cell->closed);
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, is_closed));
}

static void run_cell(struct cell *cell)
{
    bool hangs = cell->effect->effect == FAKE_HANG, may_go = may_evict(cell);
    prepare(cell);
    before(cell);
    struct listing stored = list(cell);
    during(cell, hangs);
    if (cell->stage->asks_disk) check(cell, comes(cell, fault_struck));
    if (hangs)
        check_set_aside(cell);
    else
        check(cell, store_wait(cell->rig.store, cell->last_ticket, in_ms(WAIT_MS))); /* none succeeds afterwards */
    cell->hangs = false;
    fake_faults_release(&cell->faults);
    struct listing then = list(cell);
    if (!may_go) check_is(cell, count_missing(&stored, &then), 0);
    check_whole(cell, !may_go);
    if (hangs)
        close_while_it_hangs(cell);
    else
        stop(cell);
    start(cell);
    check_whole(cell, !cell->stage->evicts);
    clean_up(cell);
}

/* ---- A slab that cannot be read at one start ---- */

static void nothing_is_removed_for_a_slab_that_cannot_be_read(struct cell *cell)
{
    char root[120];
    prepare(cell);
    slab_file(cell, &cell->a, NULL, 16, root);
    stop(cell);
    forget_index_file(cell);
    struct listing stored = list(cell);
    fake_faults_set(&cell->faults, (struct fake_fault){.call = FAKE_OPEN,
                                                       .on = root,
                                                       .nth = 1,
                                                       .lasting = true,
                                                       .effect = FAKE_ERROR,
                                                       .error = cell->effect->error});
    start(cell);
    check_is(cell, restore(cell, &cell->a, "b"), LENGTH);
    check_is(cell, found(cell, &cell->a, NULL), 0);
    check_is(cell, found(cell, &cell->c, NULL), 0);
    struct listing then = list(cell);
    check_is(cell, count_missing(&stored, &then), 0);
    check_is(cell, then.n, stored.n);
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, all_is_restored));
    stop(cell);
    start(cell);
    check(cell, all_is_restored(cell));
    check_counted(cell);
    clean_up(cell);
}

/* ---- A full tier on a disk that refuses writes ---- */

enum { ATTEMPTS = 50 };

static void fill_up(struct cell *cell)
{
    uint64_t bytes = status_of(cell, cell->tier).bytes;
    stop(cell);
    cell->rig.params.tiers[cell->tier].quota = bytes;
    start(cell);
}

static void fail_calls(struct fake_faults *faults, enum fake_call call, const char *on, int error)
{
    fake_faults_set(
        faults,
        (struct fake_fault){.call = call, .on = on, .nth = 1, .lasting = true, .effect = FAKE_ERROR, .error = error});
}

/* Each slab is larger than the one before: the space of what was removed for one does not suffice for the next. */
static void try_to_save(struct cell *cell, int i)
{
    struct tokens t = some_tokens(77000 + (uint64_t)i, LENGTH);
    size_t row_bytes = cell->rig.user.row_bytes;
    cell->rig.user.row_bytes = row_bytes + 16 * (size_t)(1 + i);
    uint64_t ticket = save(cell, &t, NULL);
    check(cell, ticket == 0 || store_wait(cell->rig.store, ticket, in_ms(WAIT_MS)));
    cell->rig.user.row_bytes = row_bytes;
    check_is(cell, found(cell, &t, NULL), 0);
    tokens_release(&t);
}

static void a_full_tier_on_a_read_only_disk_keeps_and_shows_all_that_it_has(struct cell *cell)
{
    prepare(cell);
    fill_up(cell);
    struct listing stored = list(cell);
    fail_calls(&cell->faults, FAKE_UNLINK, FAKE_SLABS, EROFS);
    fail_calls(&cell->more, FAKE_OPEN, ".tmp", EROFS);
    for (int i = 0; i < ATTEMPTS; i++) {
        try_to_save(cell, i);
        check(cell, all_is_found(cell));
    }
    check(cell, all_is_restored(cell));
    struct listing then = list(cell);
    check_is(cell, count_missing(&stored, &then), 0);
    check_counted(cell);
    check_is(cell, status_of(cell, cell->tier).bytes, stored.bytes);
    fake_faults_release(&cell->faults);
    fake_faults_release(&cell->more);
    check(cell, all_is_restored(cell));
    check(cell, comes(cell, something_new_is_kept));
    check(cell, comes(cell, it_fits));
    clean_up(cell);
}

/* Victims are removed before it is known that the new slab cannot be written: the first time, as many as it needs. */
static void a_full_tier_on_a_full_disk_loses_no_more_than_one_slab_takes(struct cell *cell)
{
    prepare(cell);
    fill_up(cell);
    struct listing stored = list(cell);
    fail_calls(&cell->faults, cell->stage->call, cell->stage->on, ENOSPC);
    for (int i = 0; i < ATTEMPTS; i++) try_to_save(cell, i);
    struct listing then = list(cell);
    check(cell, count_missing(&stored, &then) <= 2); /* a tail, and a full block */
    check_counted(cell);
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, something_new_is_kept));
    check(cell, comes(cell, it_fits));
    check_counted(cell);
    clean_up(cell);
}

/* ---- One damaged slab ---- */

static bool root_is_gone(struct cell *cell)
{
    char root[120], path[256];
    slab_file(cell, &cell->a, NULL, 16, root);
    return access(in_folder(cell, root, path), F_OK) != 0 && found(cell, &cell->a, NULL) == 0;
}

/* Only the first slab is computed again and saved: its descendants are stored still. */
static void save_the_root_again(struct cell *cell, const struct listing *stored)
{
    struct listing then = list(cell);
    check_is(cell, count_missing(stored, &then), 1);
    check_is(cell, found(cell, &cell->c, NULL), 0);
    check_is(cell, restore(cell, &cell->a, "b"), LENGTH);
    check_counted(cell);
    fake_faults_set(&cell->faults, (struct fake_fault){0});
    cell->rig.salt = NULL;
    rig_wait(&cell->rig, rig_save_from(&cell->rig, cell->a.v, 0, 16));
    check(cell, all_is_restored(cell));
    check_is(cell, covered(cell, &cell->a, NULL), LENGTH);
    check_is(cell, cell->faults.calls[FAKE_LINK], 1);
    then = list(cell);
    check_is(cell, then.n, stored->n);
    check(cell, count_missing(stored, &then) <= 1); /* the root, unless its inode number was used again */
    check_counted(cell);
}

static void what_hangs_on_a_slab_damaged_when_it_is_read_comes_back_with_it(struct cell *cell)
{
    char root[120];
    prepare(cell);
    struct listing stored = list(cell);
    slab_file(cell, &cell->a, NULL, 16, root);
    flip(cell, root, -20); /* in the payload */
    check_is(cell, restore(cell, &cell->a, NULL), 0);
    check(cell, comes(cell, root_is_gone));
    save_the_root_again(cell, &stored);
    stop(cell);
    start(cell);
    check(cell, all_is_restored(cell));
    clean_up(cell);
}

static void what_hangs_on_a_slab_damaged_at_the_start_comes_back_with_it(struct cell *cell)
{
    char root[120];
    prepare(cell);
    struct listing stored = list(cell);
    slab_file(cell, &cell->a, NULL, 16, root);
    stop(cell);
    forget_index_file(cell);
    flip(cell, root, 60); /* in the front */
    start(cell);
    check(cell, comes(cell, root_is_gone));
    stop(cell); /* also after another start */
    start(cell);
    save_the_root_again(cell, &stored);
    clean_up(cell);
}

/* One file was removed. */
static void what_hangs_on_a_slab_that_was_removed_comes_back_with_it(struct cell *cell)
{
    char root[120], path[256];
    prepare(cell);
    struct listing stored = list(cell);
    slab_file(cell, &cell->a, NULL, 16, root);
    check_is(cell, unlink(in_folder(cell, root, path)), 0);
    check_is(cell, restore(cell, &cell->a, NULL), 0);
    check(cell, comes(cell, root_is_gone));
    check_is(cell, covered(cell, &cell->a, NULL), 0);
    save_the_root_again(cell, &stored);
    clean_up(cell);
}

/* The request that computes what was lost saves it at once. */
static void what_was_found_damaged_is_saved_again_at_once(struct cell *cell)
{
    char name[120], path[256];
    prepare(cell);
    stop(cell);
    slab_file(cell, &cell->a, NULL, LENGTH, name);
    check_is(cell, truncate(in_folder(cell, name, path), 100), 0);
    start(cell);
    for (int i = 0; i < 2; i++) {
        check_is(cell, restore(cell, &cell->a, NULL), 0);
        check_is(cell, covered(cell, &cell->a, NULL), 80);
        check(cell, keep(cell, &cell->a, NULL));
        check(cell, all_is_restored(cell));
        flip(cell, name, -20);
    }
    clean_up(cell);
}

/* The damaged file can neither be quarantined nor removed; later it can. */
static void a_damaged_slab_on_a_read_only_disk_is_never_used(struct cell *cell)
{
    char root[120];
    prepare(cell);
    slab_file(cell, &cell->a, NULL, 16, root);
    flip(cell, root, -20);
    fail_calls(&cell->faults, FAKE_RENAME, NULL, EROFS);
    fail_calls(&cell->more, FAKE_UNLINK, NULL, EROFS);
    for (int i = 0; i < 5; i++) check_is(cell, restore(cell, &cell->a, NULL), 0);
    check_is(cell, restore(cell, &cell->a, "b"), LENGTH);
    check(cell, comes(cell, fault_struck));
    fake_faults_release(&cell->faults);
    fake_faults_release(&cell->more);
    stop(cell);
    start(cell);
    check_is(cell, restore(cell, &cell->a, NULL), 0);
    check(cell, comes(cell, root_is_gone));
    check(cell, keep(cell, &cell->a, NULL));
    check(cell, all_is_restored(cell));
    check_counted(cell);
    clean_up(cell);
}

/* ---- One slab that cannot be read for long ---- */

static void fail_reads_of(struct cell *cell, int32_t end)
{
    static _Thread_local char name[120]; /* the fault keeps it */
    slab_file(cell, &cell->a, NULL, end, name);
    fail_calls(&cell->faults, FAKE_READ, name, EIO);
}

static bool two_seconds_have_passed(struct cell *cell)
{
    found(cell, &cell->a, NULL);
    check_is(cell, restore(cell, &cell->a, "b"), LENGTH);
    restore(cell, &cell->a, NULL);
    return now() > cell->began + clock_from_ms(2000);
}

/* At once, after 1 s, after 2 s more. */
static void a_slab_that_cannot_be_read_is_tried_ever_more_rarely(struct cell *cell)
{
    prepare(cell);
    fail_reads_of(cell, 48);
    cell->began = now();
    check(cell, comes(cell, two_seconds_have_passed));
    check(cell, cell->faults.struck <= 3);
    check(cell, cell->faults.struck >= 2);
    check_is(cell, found(cell, &cell->a, NULL), 32);
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, all_is_restored));
    clean_up(cell);
}

/* An unreadable slab may be computed and saved again meanwhile: then the entry is as before, or read again later. */
static void a_slab_that_cannot_be_read_and_is_saved_again_is_not_lost(struct cell *cell)
{
    prepare(cell);
    fail_reads_of(cell, 48);
    restore(cell, &cell->a, NULL);
    check_is(cell, found(cell, &cell->a, NULL), 32);
    struct listing stored = list(cell);
    save(cell, &cell->a, NULL);
    check(cell, store_wait(cell->rig.store, cell->last_ticket, in_ms(WAIT_MS)));
    struct listing then = list(cell);
    check_is(cell, then.n, stored.n);
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, all_is_restored));
    check_counted(cell);
    clean_up(cell);
}

/* ---- Folders ---- */

static bool nothing_old_is_found(struct cell *cell)
{
    return found(cell, &cell->a, NULL) == 0 && found(cell, &cell->a, "b") == 0 && found(cell, &cell->c, NULL) == 0;
}

static void a_removed_folder_is_made_anew_and_saved_to(struct cell *cell)
{
    struct stat is;
    prepare(cell);
    rig_lose_folder(&cell->rig, cell->tier);
    check(cell, comes(cell, something_new_is_kept));
    check(cell, comes(cell, nothing_old_is_found));
    check(cell, stat(cell->rig.paths[cell->tier], &is) == 0 && (is.st_mode & 0777) == 0700);
    check_the_others_serve(cell);
    check_counted(cell);
    check(cell, status_of(cell, cell->tier).on);
    check_is(cell, strlen(status_of(cell, cell->tier).trouble), 0);
    stop(cell);
    start(cell);
    check_is(cell, restore(cell, &cell->fresh[1], NULL), LENGTH);
    clean_up(cell);
}

/* A fetch notices the loss as well, without a save. */
static void a_removed_folder_is_made_anew_when_it_is_read_from(struct cell *cell)
{
    prepare(cell);
    rig_lose_folder(&cell->rig, cell->tier);
    check_is(cell, restore(cell, &cell->a, NULL), 0);
    check_is(cell, restore(cell, &cell->a, "b"), 0);
    check_is(cell, restore(cell, &cell->c, NULL), 0);
    check(cell, comes(cell, nothing_old_is_found));
    check_the_others_serve(cell);
    check(cell, comes(cell, something_new_is_kept));
    check_counted(cell);
    clean_up(cell);
}

static void a_folder_that_others_may_write_to_is_refused_until_it_is_ones_own(struct cell *cell)
{
    prepare(cell);
    stop(cell);
    check_is(cell, chmod(cell->rig.paths[cell->tier], 0777), 0);
    begin(cell);
    check(cell, store_wait_ready(cell->rig.store, in_ms(WAIT_MS)));
    check(cell, !status_of(cell, cell->tier).on);
    check(cell, strstr(status_of(cell, cell->tier).trouble, "chmod") != NULL);
    check_is(cell, found(cell, &cell->a, NULL), 0);
    check_is(cell, save(cell, &cell->fresh[0], NULL), 0);
    check_the_others_serve(cell);
    check_is(cell, chmod(cell->rig.paths[cell->tier], 0700), 0);
    check(cell, comes(cell, all_is_restored));
    check(cell, comes(cell, something_new_is_kept));
    clean_up(cell);
}

static void a_file_system_without_links_stores_and_restores(struct cell *cell)
{
    prepare(cell);
    fail_calls(&cell->faults, FAKE_LINK, NULL, EPERM);
    check(cell, keep(cell, &cell->fresh[0], NULL));
    check(cell, keep(cell, &cell->fresh[0], "b"));
    check(cell, cell->faults.struck > 0);
    check_counted(cell);
    stop(cell);
    start(cell);
    check_is(cell, restore(cell, &cell->fresh[0], NULL), LENGTH);
    check_is(cell, restore(cell, &cell->fresh[0], "b"), LENGTH);
    check(cell, all_is_restored(cell));
    check_counted(cell);
    clean_up(cell);
}

/* ---- Slow starts, hung reads ---- */

static bool the_late_one_is_restored(struct cell *cell)
{
    return restore(cell, &cell->fresh[0], NULL) == LENGTH;
}

/* The index file lacks one conversation: its slabs must be read, and that hangs. */
static void during_a_slow_start_what_is_known_is_found_and_saves_are_taken(struct cell *cell)
{
    prepare(cell);
    stop(cell);
    copy_file(cell, "index", "old");
    start(cell);
    check(cell, keep(cell, &cell->fresh[0], NULL));
    stop(cell);
    copy_file(cell, "old", "index");
    fake_faults_set(&cell->faults,
                    (struct fake_fault){.call = FAKE_READ, .on = FAKE_SLABS, .nth = 1, .effect = FAKE_HANG});
    begin(cell);
    check(cell, fake_faults_await(&cell->faults, 1));
    check(cell, comes(cell, the_others_serve));
    cell->hangs = true;
    check(cell, all_is_found(cell));
    check(cell, all_is_restored(cell));
    check(cell, something_new_is_kept(cell));
    check_the_others_serve(cell);
    check(cell, found(cell, &cell->fresh[0], NULL) < LENGTH);
    check_nobody_waits(cell);
    cell->hangs = false;
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, the_late_one_is_restored));
    check(cell, all_is_restored(cell));
    check_counted(cell);
    clean_up(cell);
}

static void while_the_index_file_hangs_saves_are_taken_and_found(struct cell *cell)
{
    prepare(cell);
    stop(cell);
    fake_faults_set(&cell->faults,
                    (struct fake_fault){.call = FAKE_READ, .on = "index", .nth = 1, .effect = FAKE_HANG});
    begin(cell);
    check(cell, fake_faults_await(&cell->faults, 1));
    check(cell, comes(cell, the_others_serve));
    cell->hangs = true;
    check(cell, something_new_is_kept(cell));
    check_the_others_serve(cell);
    check_nobody_waits(cell);
    cell->hangs = false;
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, all_is_restored));
    check_is(cell, restore(cell, &cell->fresh[1], NULL), LENGTH);
    stop(cell);
    start(cell);
    check(cell, all_is_restored(cell));
    check_is(cell, restore(cell, &cell->fresh[1], NULL), LENGTH);
    check_counted(cell);
    clean_up(cell);
}

static void two_hung_reads_of_a_tier_do_not_stop_another(struct cell *cell)
{
    prepare(cell);
    fake_faults_set(
        &cell->faults,
        (struct fake_fault){.call = FAKE_READ, .on = FAKE_SLABS, .nth = 1, .lasting = true, .effect = FAKE_HANG});
    struct store_hit *hits[2] = {find(cell, &cell->a, NULL), find(cell, &cell->a, "b")};
    int64_t began = now();
    for (int i = 0; i < 2; i++) store_fetch(hits[i], store_hit_tokens(hits[i]));
    check(cell, fake_faults_await(&cell->faults, 2));
    cell->hangs = true;
    for (int i = 0; i < 5; i++) check_the_others_serve(cell);
    check_nobody_waits(cell);
    for (int i = 0; i < 2; i++) check_is(cell, take_all(cell, hits[i], &cell->a), 0);
    check(cell, clock_to_ms(now() - began) < TIME_OUT_MS + AT_ONCE_MS);
    for (int i = 0; i < 2; i++) close_hit(cell, hits[i]);
    check(cell, comes(cell, is_off));
    check_the_others_serve(cell);
    cell->hangs = false;
    fake_faults_release(&cell->faults);
    check(cell, comes(cell, all_is_restored));
    clean_up(cell);
}

/* ---- Everything at once ---- */

enum { CHAOS_THREADS = 3, CHAOS_ROUNDS = 60 };

struct chaos {
    struct cell own; /* with a user of its own */
    pthread_t thread;
    _Atomic bool *over;
    _Atomic uint64_t *n;
    uint64_t seed;
};

static void *live_in_chaos(void *ud)
{
    struct chaos *chaos = ud;
    struct cell *own = &chaos->own;
    const struct tokens *lists[] = {&own->a, &own->c, &own->fresh[0], &own->fresh[2]};
    struct dice dice = {chaos->seed};
    while (!*chaos->over) {
        const struct tokens *t = lists[dice_roll(&dice, 4)];
        const char *salt = dice_roll(&dice, 2) == 0 ? NULL : "b";
        if (dice_roll(&dice, 3) == 0)
            save(own, t, salt);
        else
            restore(own, t, salt);
        ++*chaos->n;
    }
    return NULL;
}

static struct fake_fault some_fault(struct dice *dice)
{
    static const char *const on[] = {NULL, FAKE_SLABS, "index", ".tmp"};
    const struct effect *effect = &effects[dice_roll(dice, sizeof effects / sizeof *effects)];
    return (struct fake_fault){.call = (enum fake_call)dice_roll(dice, FAKE_ANY_CALL + 1),
                               .on = on[dice_roll(dice, 4)],
                               .nth = 1 + dice_roll(dice, 5),
                               .lasting = dice_roll(dice, 2) == 0,
                               .effect = effect->effect,
                               .error = effect->error};
}

static void begin_chaos(struct cell *cell, struct chaos *chaos, uint64_t number, _Atomic bool *over,
                        _Atomic uint64_t *n)
{
    *chaos = (struct chaos){.over = over, .n = n, .seed = number};
    chaos->own.rig.store = cell->rig.store;
    chaos->own.a = cell->a;
    chaos->own.c = cell->c;
    memcpy(chaos->own.fresh, cell->fresh, sizeof cell->fresh);
    fake_user_init(&chaos->own.rig.user, cell->rig.user.seed, cell->rig.user.user.codec);
    pthread_create(&chaos->thread, NULL, live_in_chaos, chaos);
}

static void end_chaos(struct cell *cell, struct chaos *chaos)
{
    pthread_join(chaos->thread, NULL);
    store_remove_user(cell->rig.store, &chaos->own.rig.user.user);
    fake_user_release(&chaos->own.rig.user);
    if (chaos->own.failure[0] != '\0') fail_at(cell, __LINE__, "%s", chaos->own.failure);
}

static bool much_has_happened(struct cell *cell)
{
    return *cell->happened > cell->seen + 20 || now() > cell->began + clock_from_ms(100);
}

static void whatever_happens_nothing_is_lost(struct cell *cell)
{
    struct chaos *chaos = mem_alloc(CHAOS_THREADS * sizeof *chaos);
    _Atomic bool over = false;
    _Atomic uint64_t n = 0;
    struct dice dice = {(uint64_t)cell->tier};
    prepare(cell);
    stop(cell);
    cell->rig.params.save_timeout_ns = cell->rig.params.fetch_timeout_ns = clock_from_ms(50);
    start(cell);
    cell->happened = &n;
    for (uint64_t i = 0; i < CHAOS_THREADS; i++) begin_chaos(cell, &chaos[i], i, &over, &n);
    for (int i = 0; i < CHAOS_ROUNDS; i++) {
        fake_faults_set(&cell->faults, some_fault(&dice));
        cell->began = now();
        cell->seen = n;
        comes(cell, much_has_happened);
        fake_faults_release(&cell->faults);
    }
    over = true;
    for (uint64_t i = 0; i < CHAOS_THREADS; i++) end_chaos(cell, &chaos[i]);
    check(cell, comes(cell, all_is_restored));
    check(cell, comes(cell, something_new_is_kept));
    stop(cell);
    cell->rig.params.save_timeout_ns = cell->rig.params.fetch_timeout_ns = clock_from_ms(WAIT_MS);
    start(cell);
    check(cell, all_is_restored(cell));
    check_counted(cell);
    free(chaos);
    clean_up(cell);
}

/* ---- Slabs of a newer version ---- */

static void slabs_of_a_newer_version_count(struct cell *cell)
{
    char root[120], newer[120], path[256];
    prepare(cell);
    uint64_t bytes = status_of(cell, cell->tier).bytes;
    slab_file(cell, &cell->a, NULL, 16, root);
    slab_file(cell, &cell->fresh[0], NULL, 16, newer);
    stop(cell);
    copy_file(cell, root, newer);
    FILE *file = fopen(in_folder(cell, newer, path), "r+b");
    fseek(file, 4, SEEK_SET);
    fputc(2, file);
    fclose(file);
    struct listing stored = list(cell);
    check(cell, stored.bytes > bytes);
    cell->rig.params.tiers[cell->tier].quota = stored.bytes - 1;
    start(cell);
    check(cell, comes(cell, it_fits));
    struct listing then = list(cell);
    check(cell, count_missing(&stored, &then) >= 1);
    check(cell, count_missing(&stored, &then) <= 2);
    check(cell, comes(cell, something_new_is_kept));
    check(cell, it_fits(cell));
    check_is(cell, access(path, F_OK), 0);
    clean_up(cell);
}

/* ---- Saves of other requests ---- */

/* How long a lookup of these tokens took that names their first 40 as its parent. */
static double look_with_parent(struct cell *cell, const struct tokens *t, const char *salt, int64_t patience_ms)
{
    struct identity identity = identity_salted(&cell->rig.user.user.identity, salt);
    struct slab_key parent = slab_key_of(&identity, t->v, 40);
    struct store_query query = {.user = &cell->rig.user.user,
                                .identity = &identity,
                                .tokens = t->v,
                                .n = (int32_t)t->len,
                                .parent_key = &parent,
                                .deadline = in_ms(patience_ms)};
    int64_t started = now();
    struct store_hit *hit = rig_find_after_parent(&cell->rig, &query);
    double ms = clock_to_ms(now() - started);
    check_is(cell, store_hit_tokens(hit), 0);
    store_hit_close(hit);
    return ms;
}

static void a_save_under_another_salt_is_not_waited_for(struct cell *cell)
{
    prepare(cell);
    stop(cell);
    cell->rig.params.save_timeout_ns = clock_from_ms(WAIT_MS);
    start(cell);
    fake_faults_set(&cell->faults,
                    (struct fake_fault){.call = FAKE_SYNC, .nth = 1, .lasting = true, .effect = FAKE_HANG});
    uint64_t ticket = save(cell, &cell->fresh[0], "b");
    check(cell, fake_faults_await(&cell->faults, 1));
    check(cell, look_with_parent(cell, &cell->fresh[0], NULL, WAIT_MS) < AT_ONCE_MS);
    check(cell, look_with_parent(cell, &cell->fresh[0], "c", WAIT_MS) < AT_ONCE_MS);
    check(cell, look_with_parent(cell, &cell->fresh[0], "b", AT_ONCE_MS) >= AT_ONCE_MS);
    fake_faults_release(&cell->faults);
    rig_wait(&cell->rig, ticket);
    check_is(cell, restore(cell, &cell->fresh[0], "b"), LENGTH);
    check_is(cell, found(cell, &cell->fresh[0], NULL), 0);
    clean_up(cell);
}

/* ---- An index file that is wrong about a slab ---- */

static void remove_slab(struct cell *cell, const struct tokens *t, int32_t n)
{
    char name[120], path[256];
    slab_file(cell, t, NULL, n, name);
    check_is(cell, unlink(in_folder(cell, name, path)), 0);
}

/* The last slab was [80, 90) when the index file was written; then it was replaced by [80, 85) and [85, 90). */
static void an_index_file_that_is_wrong_about_a_slab_costs_one_look(struct cell *cell)
{
    struct tokens shorter;
    prepare(cell);
    stop(cell);
    copy_file(cell, "index", "old");
    remove_slab(cell, &cell->a, LENGTH);
    start(cell);
    check_is(cell, found(cell, &cell->a, NULL), 80);
    shorter = some_tokens(0, 0);
    tokens_append(&shorter, cell->a.v, 85);
    check(cell, keep(cell, &shorter, NULL));
    check(cell, keep(cell, &cell->a, NULL));
    stop(cell);
    copy_file(cell, "old", "index");
    start(cell);
    restore(cell, &cell->a, NULL);
    check(cell, comes(cell, all_is_restored));
    check_is(cell, restore(cell, &shorter, NULL), 85);
    check_counted(cell);
    tokens_release(&shorter);
    clean_up(cell);
}

/* ---- A tier on a server ---- */

static bool all_is_kept(struct cell *cell)
{
    return keep(cell, &cell->a, NULL) && keep(cell, &cell->a, "b") && keep(cell, &cell->c, NULL);
}

/* A slab or two at a time. */
static bool something_new_is_covered(struct cell *cell)
{
    save(cell, &cell->fresh[1], NULL);
    store_wait(cell->rig.store, cell->last_ticket, in_ms(WAIT_MS));
    return covered(cell, &cell->fresh[1], NULL) == LENGTH;
}

static bool something_new_is_restored(struct cell *cell)
{
    return restore(cell, &cell->fresh[1], NULL) == LENGTH;
}

static bool a_save_is_taken(struct cell *cell)
{
    return save(cell, &cell->fresh[2], NULL) != 0;
}

static void begin_remote(struct cell *cell, struct fake_server *server)
{
    watch_backend(cell, fake_remote_open(server));
    cell->rig.store = store_open(&cell->rig.params, NULL);
    check(cell, store_wait_ready(cell->rig.store, in_ms(WAIT_MS)));
}

static void a_tier_may_lie_on_a_server(struct cell *cell)
{
    struct fake_server *server = fake_server_open();
    prepare(cell);
    stop(cell);
    begin_remote(cell, server);
    check_is(cell, found(cell, &cell->a, NULL), 0);
    fake_server_set(server, (struct fake_network){.latency_ns = clock_from_ms(2), .reorders = true});
    check(cell, all_is_kept(cell));
    fake_server_set(server, (struct fake_network){.loses_every = 5, .timeout_ns = clock_from_ms(20)});
    check(cell, comes(cell, something_new_is_covered));
    restore(cell, &cell->a, NULL);
    restore(cell, &cell->a, "b");
    check(cell, fake_server_lost(server) > 2);
    check_the_others_serve(cell);
    fake_server_set(server, (struct fake_network){.latency_ns = clock_from_ms(1)});
    check(cell, comes(cell, all_is_restored));
    check(cell, comes(cell, something_new_is_restored));
    stop(cell);
    begin_remote(cell, server);
    check(cell, all_is_restored(cell));
    check(cell, something_new_is_restored(cell));
    clean_up(cell);
    fake_server_close(server);
}

static void a_server_that_goes_away_or_hangs_is_back_by_itself(struct cell *cell)
{
    struct fake_server *server = fake_server_open();
    prepare(cell);
    stop(cell);
    begin_remote(cell, server);
    check(cell, all_is_kept(cell));
    fake_server_set(server, (struct fake_network){.gone = true});
    save(cell, &cell->fresh[0], NULL);
    check_is(cell, restore(cell, &cell->a, NULL), 0);
    check(cell, comes(cell, is_off));
    check_the_others_serve(cell);
    fake_server_set(server, (struct fake_network){0});
    check(cell, comes(cell, all_is_restored));

    fake_server_set(server, (struct fake_network){.hangs = true});
    check(cell, comes(cell, a_save_is_taken));
    check(cell, fake_server_await(server, 1));
    cell->hangs = true;
    check_the_others_serve(cell);
    check_nobody_waits(cell);
    check(cell, comes(cell, is_off));
    cell->hangs = false;
    fake_server_set(server, (struct fake_network){0});
    check(cell, comes(cell, all_is_restored));
    check(cell, comes(cell, something_new_is_kept));
    clean_up(cell);
    fake_server_close(server);
}

/* ---- main ---- */

static const struct stage creating = {.name = "creating", .call = FAKE_OPEN, .on = ".tmp"},
                          writing = {.name = "writing", .call = FAKE_WRITE, .on = FAKE_SLABS},
                          syncing = {.name = "syncing", .call = FAKE_SYNC};

struct single {
    const char *name;
    scenario *run;
    const struct stage *stage;
    const struct effect *effect;
};

#define SINGLE(f, ...)                                                                                                 \
    {                                                                                                                  \
#f, f, __VA_ARGS__                                                                                             \
    }

static const struct single singles[] = {
    SINGLE(nothing_is_removed_for_a_slab_that_cannot_be_read, NULL, &effects[0]),
    SINGLE(nothing_is_removed_for_a_slab_that_cannot_be_read, NULL, &effects[3]),
    SINGLE(nothing_is_removed_for_a_slab_that_cannot_be_read, NULL, &effects[4]),
    SINGLE(nothing_is_removed_for_a_slab_that_cannot_be_read, NULL, &effects[5]),
    SINGLE(a_full_tier_on_a_read_only_disk_keeps_and_shows_all_that_it_has, NULL, NULL),
    SINGLE(a_full_tier_on_a_full_disk_loses_no_more_than_one_slab_takes, &creating, NULL),
    SINGLE(a_full_tier_on_a_full_disk_loses_no_more_than_one_slab_takes, &writing, NULL),
    SINGLE(a_full_tier_on_a_full_disk_loses_no_more_than_one_slab_takes, &syncing, NULL),
    SINGLE(what_hangs_on_a_slab_damaged_when_it_is_read_comes_back_with_it, NULL, NULL),
    SINGLE(what_hangs_on_a_slab_damaged_at_the_start_comes_back_with_it, NULL, NULL),
    SINGLE(what_hangs_on_a_slab_that_was_removed_comes_back_with_it, NULL, NULL),
    SINGLE(what_was_found_damaged_is_saved_again_at_once, NULL, NULL),
    SINGLE(a_damaged_slab_on_a_read_only_disk_is_never_used, NULL, NULL),
    SINGLE(a_slab_that_cannot_be_read_is_tried_ever_more_rarely, NULL, NULL),
    SINGLE(a_slab_that_cannot_be_read_and_is_saved_again_is_not_lost, NULL, NULL),
    SINGLE(while_the_index_file_hangs_saves_are_taken_and_found, NULL, NULL),
    SINGLE(a_removed_folder_is_made_anew_and_saved_to, NULL, NULL),
    SINGLE(a_removed_folder_is_made_anew_when_it_is_read_from, NULL, NULL),
    SINGLE(a_folder_that_others_may_write_to_is_refused_until_it_is_ones_own, NULL, NULL),
    SINGLE(a_file_system_without_links_stores_and_restores, NULL, NULL),
    SINGLE(during_a_slow_start_what_is_known_is_found_and_saves_are_taken, NULL, NULL),
    SINGLE(two_hung_reads_of_a_tier_do_not_stop_another, NULL, NULL),
    SINGLE(whatever_happens_nothing_is_lost, NULL, NULL),
    SINGLE(slabs_of_a_newer_version_count, NULL, NULL),
    SINGLE(a_save_under_another_salt_is_not_waited_for, NULL, NULL),
    SINGLE(an_index_file_that_is_wrong_about_a_slab_costs_one_look, NULL, NULL),
    SINGLE(a_tier_may_lie_on_a_server, NULL, NULL),
    SINGLE(a_server_that_goes_away_or_hangs_is_back_by_itself, NULL, NULL),
};

enum {
    STAGES = sizeof stages / sizeof *stages,
    EFFECTS = sizeof effects / sizeof *effects,
    SINGLES = sizeof singles / sizeof *singles,
    MOST_CELLS = 2 * (STAGES * EFFECTS + SINGLES)
};

static void add_cell(const struct cell *cell, const char *wanted)
{
    if (strstr(cell->name, wanted) != NULL) cells[n_cells++] = *cell;
}

static void list_cells(enum store_tier tier, const char *wanted)
{
    struct cell *cell = mem_alloc(sizeof *cell);
    *cell = (struct cell){.tier = tier, .other = tier == STORE_DISK ? STORE_RAM_FILE : STORE_DISK};
    for (size_t i = 0; i < STAGES; i++)
        for (size_t k = 0; k < EFFECTS; k++) {
            cell->run = run_cell;
            cell->stage = &stages[i];
            cell->effect = &effects[k];
            snprintf(cell->name, sizeof cell->name, "%s while %s (%s)", cell->effect->name, cell->stage->name,
                     store_tier_names[tier]);
            add_cell(cell, wanted);
        }
    for (size_t i = 0; i < SINGLES; i++) {
        cell->run = singles[i].run;
        cell->stage = singles[i].stage;
        cell->effect = singles[i].effect;
        const char *variant = cell->stage != NULL ? cell->stage->name : cell->effect != NULL ? cell->effect->name : "";
        snprintf(cell->name, sizeof cell->name, "%s (%s%s%s)", singles[i].name, store_tier_names[tier],
                 variant[0] != '\0' ? ", " : "", variant);
        add_cell(cell, wanted);
    }
    free(cell);
}

static void *runner(void *ud)
{
    (void)ud;
    pthread_mutex_lock(&cells_mutex);
    while (next_cell < n_cells) {
        struct cell *cell = &cells[next_cell++];
        pthread_mutex_unlock(&cells_mutex);
        cell->run(cell);
        pthread_mutex_lock(&cells_mutex);
        cell->done = true;
        pthread_cond_broadcast(&cell_done);
    }
    pthread_mutex_unlock(&cells_mutex);
    return NULL;
}

static void nothing_went_wrong(void **state)
{
    struct cell *cell = *state;
    pthread_mutex_lock(&cells_mutex);
    while (!cell->done) pthread_cond_wait(&cell_done, &cells_mutex);
    pthread_mutex_unlock(&cells_mutex);
    if (cell->failure[0] != '\0') fail_msg("%s", cell->failure);
}

static int no_sync(struct files *files, int fd)
{
    (void)files;
    (void)fd;
    return 0;
}

/* An argument selects the cells with it in their names. */
int main(int argc, char **argv)
{
    pthread_t runners[RUNNERS];
    struct CMUnitTest *tests = mem_alloc(MOST_CELLS * sizeof *tests);
    unsynced = *files_machine();
    unsynced.sync = no_sync;
    log_open("/dev/null", "error", "text", NULL);
    cells = mem_alloc(MOST_CELLS * sizeof *cells);
    clock_cond_init(&cell_done);
    list_cells(STORE_DISK, argc > 1 ? argv[1] : "");
    list_cells(STORE_RAM_FILE, argc > 1 ? argv[1] : "");
    for (size_t i = 0; i < n_cells; i++)
        tests[i] =
            (struct CMUnitTest){.name = cells[i].name, .test_func = nothing_went_wrong, .initial_state = &cells[i]};
    for (int i = 0; i < RUNNERS; i++) pthread_create(&runners[i], NULL, runner, NULL);
    int failed = _cmocka_run_group_tests("the store's fault matrix", tests, n_cells, NULL, NULL);
    for (int i = 0; i < RUNNERS; i++) pthread_join(runners[i], NULL);
    free(tests);
    free(cells);
    return failed;
}
