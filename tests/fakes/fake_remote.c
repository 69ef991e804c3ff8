/* The server is one list of encoded slabs under one mutex. A request is a call that waits as the network would, and
 * then does its work at once. */
#include "fakes/fake_remote.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 30000, PAGE = 8 };

struct stored_slab {
    struct slab_name name;
    uint8_t *bytes;
    size_t size;
};

/* A request without an answer yet. */
struct request {
    uint64_t number;
    struct request *next;
};

struct fake_server {
    pthread_mutex_t mutex; /* guards all of it */
    pthread_cond_t changed;
    struct fake_network network;
    struct stored_slab *v;
    size_t n, cap;
    struct request *waiting;
    uint64_t requests, answered, overtaken, lost; /* answered: the highest number of an answered request */
    uint64_t epoch;                               /* how often it became unreachable */
    int hanging;
};

struct remote {
    struct backend backend; /* first */
    struct fake_server *server;
    _Atomic uint64_t epoch; /* of the server, when it was opened; 0: never */
};

static struct remote *remote_of(struct backend *backend)
{
    return (struct remote *)(void *)backend;
}

/* ---- Stored slabs, with the mutex ---- */

static struct stored_slab *find_slab(struct fake_server *server, const struct slab_name *name)
{
    for (size_t i = 0; i < server->n; i++)
        if (server->v[i].name.kind == name->kind && slab_key_equal(&server->v[i].name.key, &name->key))
            return &server->v[i];
    return NULL;
}

static void drop_slab(struct fake_server *server, const struct slab_name *name)
{
    struct stored_slab *slab = find_slab(server, name);
    if (slab == NULL) return;
    free(slab->bytes);
    *slab = server->v[--server->n];
}

static void keep_slab(struct fake_server *server, const struct slab_name *name, uint8_t *bytes, size_t size)
{
    drop_slab(server, name);
    if (server->n == server->cap) {
        server->cap = server->cap == 0 ? 16 : 2 * server->cap;
        server->v = mem_grow(server->v, server->cap, sizeof *server->v);
    }
    server->v[server->n++] = (struct stored_slab){*name, bytes, size};
}

/* Decodes the front of a stored slab. */
static int read_front(const struct stored_slab *slab, struct slab_head *head, size_t *front, hearth_error *error)
{
    *front = slab->size < SLAB_HEADER_BYTES ? 0 : slab_front_size(slab->bytes);
    if (slab->size >= SLAB_HEADER_BYTES && slab_is_newer(slab->bytes))
        return error_set(error, HEARTH_UNSUPPORTED, "the server has a slab of a newer version");
    if (*front == 0 || *front > slab->size) return error_set(error, HEARTH_INVALID, "the server has no slab there");
    int result = slab_decode(slab->bytes, *front, slab->size, head, error);
    if (result != 0) return result;
    if (head->kind == slab->name.kind && slab_key_equal(&head->key, &slab->name.key)) return 0;
    slab_head_release(head);
    return error_set(error, HEARTH_INVALID, "the server has another slab there");
}

static int read_whole(const struct stored_slab *slab, struct slab_head *head, size_t *front, hearth_error *error)
{
    int result = read_front(slab, head, front, error);
    if (result != 0) return result;
    const uint8_t *payload = slab->bytes + *front;
    result = slab_check(head, slab->bytes, *front, payload, payload + head->payload_size, error);
    if (result != 0) slab_head_release(head);
    return result;
}

/* ---- Requests, with the mutex ---- */

static void wait_until(struct fake_server *server, int64_t deadline)
{
    struct clock *clock = clock_monotonic();
    clock->wait(clock, &server->changed, &server->mutex, deadline);
}

static void wait_for_network(struct fake_server *server, const struct request *request)
{
    struct clock *clock = clock_monotonic();
    int64_t until = clock_now(clock) + server->network.latency_ns;
    bool reorders = server->network.reorders;
    while (clock_now(clock) < until && !(reorders && server->answered > request->number)) wait_until(server, until);
    if (!server->network.hangs) return;
    server->hanging++;
    pthread_cond_broadcast(&server->changed);
    while (server->network.hangs) wait_until(server, CLOCK_NEVER);
    server->hanging--;
}

static void end_request(struct fake_server *server, const struct request *request)
{
    struct request **at = &server->waiting;
    while (*at != request) at = &(*at)->next;
    *at = request->next;
    server->overtaken += server->answered > request->number;
    if (request->number > server->answered) server->answered = request->number;
    pthread_cond_broadcast(&server->changed);
}

static bool is_gone(const struct remote *remote, bool opens)
{
    const struct fake_server *server = remote->server;
    return server->network.gone || (!opens && remote->epoch != server->epoch);
}

static int time_out(struct fake_server *server, hearth_error *error)
{
    struct clock *clock = clock_monotonic();
    int64_t until = clock_now(clock) + server->network.timeout_ns;
    server->lost++;
    while (clock_now(clock) < until) wait_until(server, until);
    return error_set(error, HEARTH_IO, "the server has not answered");
}

/* Makes one request, which runs `work`. Called without the mutex. */
static int ask(struct remote *remote, bool opens, int (*work)(struct remote *remote, void *ud, hearth_error *error),
               void *ud, hearth_error *error)
{
    struct fake_server *server = remote->server;
    pthread_mutex_lock(&server->mutex);
    struct request request = {++server->requests, server->waiting};
    server->waiting = &request;
    uint32_t every = server->network.loses_every;
    bool lost = every > 0 && request.number % every == 0, unheard = lost && request.number / every % 2 == 0;
    int result = 0;
    wait_for_network(server, &request);
    if (is_gone(remote, opens))
        result = error_set(error, HEARTH_UNAVAILABLE, "the server is gone");
    else if (!unheard)
        result = work(remote, ud, error);
    if (lost && result != HEARTH_UNAVAILABLE) result = time_out(server, error);
    end_request(server, &request);
    pthread_mutex_unlock(&server->mutex);
    return result;
}

/* ---- The backend ---- */

static int do_open(struct remote *remote, void *ud, hearth_error *error)
{
    (void)ud;
    (void)error;
    remote->epoch = remote->server->epoch;
    return 0;
}

static int remote_open(struct backend *backend, hearth_error *error)
{
    return ask(remote_of(backend), true, do_open, NULL, error);
}

struct putting {
    struct slab_head *head;
    const struct buf *payload;
};

static bool is_same_slab(const struct stored_slab *slab, const struct slab_head *want)
{
    struct slab_head is;
    size_t front;
    if (read_whole(slab, &is, &front, NULL) != 0) return false;
    bool same = is.start == want->start && is.end == want->end && slab->size == slab_size(want) &&
                slab_key_equal(&is.parent, &want->parent);
    slab_head_release(&is);
    return same;
}

static int do_put(struct remote *remote, void *ud, hearth_error *error)
{
    struct putting *putting = ud;
    struct slab_head *head = putting->head;
    const struct slab_name name = {head->key, head->kind};
    const struct stored_slab *there = find_slab(remote->server, &name);
    if (there != NULL && there->size >= SLAB_HEADER_BYTES && slab_is_newer(there->bytes))
        return error_set(error, HEARTH_UNSUPPORTED, "the server has a slab of a newer version");
    if (there != NULL && is_same_slab(there, head)) return 0;
    struct buf bytes = {0};
    uint8_t trailer[SLAB_TRAILER_BYTES];
    slab_encode(head, putting->payload->v, &bytes, trailer);
    if (putting->payload->len > 0) buf_append(&bytes, putting->payload->v, putting->payload->len);
    buf_append(&bytes, trailer, sizeof trailer);
    size_t size = bytes.len;
    keep_slab(remote->server, &name, (uint8_t *)buf_take(&bytes), size);
    return 0;
}

static int remote_put(struct backend *backend, struct slab_head *head, struct buf *payload, hearth_error *error)
{
    struct putting putting = {head, payload};
    int result = ask(remote_of(backend), false, do_put, &putting, error);
    if (result == 0) buf_release(payload); /* the contract lets a backend take it */
    return result;
}

struct getting {
    const struct slab_name *name;
    struct slab *slab;
};

static int do_get(struct remote *remote, void *ud, hearth_error *error)
{
    struct getting *getting = ud;
    size_t front;
    const struct stored_slab *found = find_slab(remote->server, getting->name);
    if (found == NULL) return error_set(error, HEARTH_NOT_FOUND, "the server has no such slab");
    struct slab slab = {0};
    int result = read_whole(found, &slab.head, &front, error);
    if (result != 0) return result;
    uint8_t *copy = mem_alloc(found->size);
    memcpy(copy, found->bytes, found->size);
    slab.bytes = slab_bytes_open(copy, found->size);
    slab.payload = copy + front;
    *getting->slab = slab;
    return 0;
}

static int remote_get(struct backend *backend, const struct slab_name *name, struct slab *slab, hearth_error *error)
{
    struct slab got = {0};
    struct getting getting = {name, &got};
    int result = ask(remote_of(backend), false, do_get, &getting, error);
    if (result == 0)
        *slab = got;
    else if (got.bytes != NULL) /* the answer was lost */
        slab_release(&got);
    return result;
}

static int do_remove(struct remote *remote, void *ud, hearth_error *error)
{
    (void)error;
    drop_slab(remote->server, ud);
    return 0;
}

static int remote_remove(struct backend *backend, const struct slab_name *name, hearth_error *error)
{
    struct slab_name copy = *name;
    return ask(remote_of(backend), false, do_remove, &copy, error);
}

static void remote_quarantine(struct backend *backend, const struct slab_name *name)
{
    remote_remove(backend, name, NULL);
}

struct having {
    const struct slab_name *names;
    size_t n;
    bool *there;
};

static int do_has(struct remote *remote, void *ud, hearth_error *error)
{
    struct having *having = ud;
    (void)error;
    for (size_t i = 0; i < having->n; i++) having->there[i] = find_slab(remote->server, &having->names[i]) != NULL;
    return 0;
}

static int remote_has(struct backend *backend, const struct slab_name *names, size_t n, bool *there,
                      hearth_error *error)
{
    struct having having = {names, n, there};
    return ask(remote_of(backend), false, do_has, &having, error);
}

struct using
{
    const struct slab_name *name;
    uint32_t hits;
    int64_t used_ms;
};

static int do_note_use(struct remote *remote, void *ud, hearth_error *error)
{
    struct using *using = ud;
    struct stored_slab *slab = find_slab(remote->server, using->name);
    (void)error;
    if (slab != NULL && slab->size >= SLAB_HEADER_BYTES)
        slab_encode_use(using->hits, using->used_ms, slab->bytes + SLAB_USE_OFFSET);
    return 0;
}

static void remote_note_use(struct backend *backend, const struct slab_name *name, uint32_t hits, int64_t used_ms)
{
    struct using using = {name, hits, used_ms};
    ask(remote_of(backend), false, do_note_use, &using, NULL);
}

/* ---- Scans: the names first, then their slabs, page by page ---- */

struct listing {
    struct slab_name *names;
    size_t n;
};

static int do_list(struct remote *remote, void *ud, hearth_error *error)
{
    struct listing *listing = ud;
    const struct fake_server *server = remote->server;
    (void)error;
    free(listing->names);
    listing->n = server->n;
    listing->names = mem_alloc((server->n + 1) * sizeof *listing->names);
    for (size_t i = 0; i < server->n; i++) listing->names[i] = server->v[i].name;
    return 0;
}

struct page {
    const struct slab_name *names;
    size_t n;
    struct {
        int result; /* HEARTH_NOT_FOUND: removed meanwhile */
        struct slab_head head;
        uint64_t size;
    } v[PAGE];
};

static void page_release(struct page *page)
{
    for (size_t i = 0; i < page->n; i++)
        if (page->v[i].result == 0) slab_head_release(&page->v[i].head);
}

static int do_page(struct remote *remote, void *ud, hearth_error *error)
{
    struct page *page = ud;
    (void)error;
    for (size_t i = 0; i < page->n; i++) {
        size_t front;
        const struct stored_slab *slab = find_slab(remote->server, &page->names[i]);
        page->v[i].result = slab == NULL ? HEARTH_NOT_FOUND : read_front(slab, &page->v[i].head, &front, NULL);
        page->v[i].size = slab == NULL ? 0 : slab->size;
        if (page->v[i].result == HEARTH_INVALID) drop_slab(remote->server, &page->names[i]);
    }
    return 0;
}

static void report_page(struct page *page, struct backend_scan *scan)
{
    for (size_t i = 0; i < page->n; i++) {
        int result = page->v[i].result;
        bool stopped = scan->stop != NULL && *scan->stop, told = result == 0 && !stopped;
        scan->n_slabs += told;
        scan->n_damaged += result == HEARTH_INVALID;
        scan->n_foreign += result == HEARTH_UNSUPPORTED;
        scan->foreign_bytes += result == HEARTH_UNSUPPORTED ? page->v[i].size : 0;
        if (told) scan->each(scan->ud, &page->v[i].head, page->v[i].size);
    }
}

static void scan_page(struct remote *remote, const struct slab_name *names, size_t n, struct backend_scan *scan)
{
    struct page page = {.names = names, .n = n};
    int result = ask(remote, false, do_page, &page, NULL);
    if (result == 0)
        report_page(&page, scan);
    else
        scan->n_unread += n;
    bool filled = page.v[0].size > 0 || page.v[0].result != 0;
    if (filled) page_release(&page); /* also where the answer was lost */
}

static int remote_scan(struct backend *backend, struct backend_scan *scan, hearth_error *error)
{
    struct remote *remote = remote_of(backend);
    struct listing listing = {0};
    scan->n_slabs = scan->n_damaged = scan->n_foreign = scan->n_unread = 0;
    scan->foreign_bytes = 0;
    int result = ask(remote, false, do_list, &listing, error);
    for (size_t i = 0; result == 0 && i < listing.n && !(scan->stop != NULL && *scan->stop); i += PAGE)
        scan_page(remote, listing.names + i, listing.n - i < PAGE ? listing.n - i : PAGE, scan);
    free(listing.names);
    return result;
}

static void remote_close(struct backend *backend)
{
    free(remote_of(backend));
}

struct backend *fake_remote_open(struct fake_server *server)
{
    struct remote *remote = mem_alloc(sizeof *remote);
    remote->server = server;
    remote->backend = (struct backend){.open = remote_open,
                                       .put = remote_put,
                                       .get = remote_get,
                                       .remove = remote_remove,
                                       .quarantine = remote_quarantine,
                                       .has = remote_has,
                                       .note_use = remote_note_use,
                                       .scan = remote_scan,
                                       .close = remote_close};
    return &remote->backend;
}

/* ---- The server ---- */

struct fake_server *fake_server_open(void)
{
    struct fake_server *server = mem_alloc(sizeof *server);
    *server = (struct fake_server){.epoch = 1};
    pthread_mutex_init(&server->mutex, NULL);
    clock_cond_init(&server->changed);
    return server;
}

void fake_server_close(struct fake_server *server)
{
    for (size_t i = 0; i < server->n; i++) free(server->v[i].bytes);
    free(server->v);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

void fake_server_set(struct fake_server *server, struct fake_network network)
{
    pthread_mutex_lock(&server->mutex);
    server->epoch += network.gone && !server->network.gone;
    server->network = network;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

bool fake_server_await(struct fake_server *server, int hanging)
{
    int64_t deadline = clock_now(clock_monotonic()) + clock_from_ms(WAIT_MS);
    pthread_mutex_lock(&server->mutex);
    while (server->hanging < hanging && clock_now(clock_monotonic()) < deadline) wait_until(server, deadline);
    bool hang = server->hanging >= hanging;
    pthread_mutex_unlock(&server->mutex);
    return hang;
}

void fake_server_write(struct fake_server *server, const struct slab_name *name, const void *bytes, size_t size)
{
    uint8_t *copy = mem_alloc(size + 1);
    memcpy(copy, bytes, size);
    pthread_mutex_lock(&server->mutex);
    keep_slab(server, name, copy, size);
    pthread_mutex_unlock(&server->mutex);
}

void fake_server_flip(struct fake_server *server, const struct slab_name *name, size_t at)
{
    pthread_mutex_lock(&server->mutex);
    find_slab(server, name)->bytes[at] ^= 1;
    pthread_mutex_unlock(&server->mutex);
}

static uint64_t number_of(struct fake_server *server, const uint64_t *number)
{
    pthread_mutex_lock(&server->mutex);
    uint64_t is = *number;
    pthread_mutex_unlock(&server->mutex);
    return is;
}

size_t fake_server_slabs(struct fake_server *server)
{
    pthread_mutex_lock(&server->mutex);
    size_t n = server->n;
    pthread_mutex_unlock(&server->mutex);
    return n;
}

uint64_t fake_server_requests(struct fake_server *server)
{
    return number_of(server, &server->requests);
}

uint64_t fake_server_overtaken(struct fake_server *server)
{
    return number_of(server, &server->overtaken);
}

uint64_t fake_server_lost(struct fake_server *server)
{
    return number_of(server, &server->lost);
}
