/* The publisher's thread and its sockets: see publisher.h. Only this thread uses the sockets; other threads wake it
 * through a descriptor.
 *
 * No other thread waits for a router. One that reads slowly holds up the publisher for a second; if that does not help,
 * messages are dropped for it, and after a while everything is sent again. */
#include "serve/events/publisher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/thread.h"
#include "serve/events/wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define LOG_GROUP "events"

/* A batch is sent once it has so many bytes; an event has up to 40 KB. Between two looks at the sockets so many events
 * are read, and so many replays answered. */
#define BATCH_BYTES  ((size_t)32 << 10)
#define TURN_EVENTS  256
#define TURN_REPLAYS 8

/* Messages that are kept for replays. */
#define MOST_KEPT       10000
#define MOST_KEPT_BYTES ((size_t)64 << 20)

/* A router is waited for so long, and then not at all for a while, which doubles each time. Everything is resent no
 * more often than that. */
#define PATIENCE_MS         1000
#define LEAST_IMPATIENCE_MS 5000
#define MOST_IMPATIENCE_MS  600000
#define RESEND_EVERY_MS     1000

/* At the end, routers have so long to read what is on its way; one that does not read delays the end as long. With no
 * time at all libzmq 4.3 ends the process where a router's connection breaks at that moment, in the middle of a
 * message. Its session has dropped the rest, and asserts that the rest can be read (session_base.cpp, clean_pipes). */
#define LINGER_MS 1000

/* Of messages from routers: a topic, a number. */
#define MOST_REQUEST_BYTES 4096

#define THREADS_OF_ZMQ     2
#define NICE               5 /* as the store's savers: replies come first */

enum { WAKE, EVENTS, REPLAY, N_ITEMS };

struct kept {
    const char *topic;
    zmq_msg_t payload;
};

struct publisher {
    hearth *instance;
    void *zmq, *events, *replay; /* replay NULL: none */
    struct os_waker wake;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    char *address;

    /* The thread's own: */
    bool wanted;           /* a router has subscribed, ever */
    bool resend;           /* everything is to be sent again, */
    int64_t resend_at;     /* but not before that; CLOCK_MONOTONIC, ns, as all times here */
    int64_t resent_at;     /* when it was sent last */
    int64_t patient_again; /* routers are not waited for until then; 0: they are */
    int64_t impatience_ms; /* how long it will be the next time */
    struct wire batch;
    const char *topic; /* of the batch; NULL: it is empty */
    char **topics;     /* of all models so far */
    size_t n_topics;
    uint64_t next_seq;
    struct kept kept[MOST_KEPT]; /* a ring: number i is at i % MOST_KEPT */
    uint64_t first_kept;
    size_t kept_bytes;
};

static int64_t now(void)
{
    return clock_now(clock_monotonic());
}

static void wake(void *ud)
{
    const struct publisher *p = ud;
    os_waker_wake(&p->wake);
}

/* ---- Keeping ---- */

static struct kept *kept_at(struct publisher *p, uint64_t seq)
{
    return &p->kept[seq % MOST_KEPT];
}

static void drop_oldest(struct publisher *p)
{
    zmq_msg_t *oldest = &kept_at(p, p->first_kept++)->payload;
    p->kept_bytes -= zmq_msg_size(oldest);
    zmq_msg_close(oldest);
}

/* ---- Sending ---- */

static bool send_bytes(void *socket, const void *bytes, size_t size, int flags)
{
    return zmq_send(socket, bytes, size, flags) >= 0;
}

static bool send_seq(void *socket, uint64_t seq)
{
    uint8_t bytes[sizeof seq];
    for (size_t i = 0; i < sizeof seq; i++) bytes[i] = (uint8_t)(seq >> 8 * (sizeof seq - 1 - i));
    return send_bytes(socket, bytes, sizeof bytes, ZMQ_SNDMORE);
}

static bool send_text(void *socket, const char *text)
{
    return send_bytes(socket, text, strlen(text), ZMQ_SNDMORE);
}

/* Number and payload of a message, the latter without a copy of its bytes. */
static bool send_rest(struct publisher *p, void *socket, uint64_t seq)
{
    zmq_msg_t message;
    if (!send_seq(socket, seq)) return false;
    zmq_msg_init(&message);
    zmq_msg_copy(&message, &kept_at(p, seq)->payload);
    bool sent = zmq_msg_send(&message, socket, 0) >= 0;
    if (!sent) zmq_msg_close(&message);
    return sent;
}

static void set_option(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

/* With patience a send waits, up to ZMQ_SNDTIMEO, for room in the queue of a router that is behind; without, messages
 * are dropped for that router. */
static void set_patience(struct publisher *p, bool patient)
{
    set_option(p->events, ZMQ_XPUB_NODROP, patient);
    p->patient_again = patient ? 0 : now() + clock_from_ms(p->impatience_ms);
}

static void flush_batch(struct publisher *p)
{
    if (p->topic == NULL) return;
    wire_end(&p->batch, (double)clock_unix_ms() / 1e3);
    /* Keeps the batch. Returns its number. */
    const struct buf *payload = &p->batch.out;
    uint64_t seq = p->next_seq++;
    while (p->first_kept < seq && (seq - p->first_kept >= MOST_KEPT || p->kept_bytes + payload->len > MOST_KEPT_BYTES))
        drop_oldest(p);
    struct kept *kept = kept_at(p, seq);
    kept->topic = p->topic;
    zmq_msg_init_size(&kept->payload, payload->len);
    memcpy(zmq_msg_data(&kept->payload), payload->v, payload->len);
    p->kept_bytes += payload->len;
    if (p->patient_again != 0 && now() >= p->patient_again) set_patience(p, true);
    if (!send_text(p->events, kept->topic)) {
        /* The router that is behind misses messages from now on, so everything is sent again, once it is waited for
         * again. */
        log_event(LOG_WARN, LOG_GROUP, "a router reads too slowly, it misses cache events",
                  log_int("sequence", (int64_t)seq), log_int("again_in_ms", p->impatience_ms));
        set_patience(p, false);
        p->impatience_ms *= 2;
        if (p->impatience_ms > MOST_IMPATIENCE_MS) p->impatience_ms = MOST_IMPATIENCE_MS;
        p->resend = true;
        p->resend_at = p->patient_again;
        send_text(p->events, kept->topic);
    }
    send_rest(p, p->events, seq);
    wire_clear(&p->batch);
    p->topic = NULL;
}

/* Publishes the next events. False: there are no more. */
static bool publish_some(struct publisher *p)
{
    hearth_block_event event;
    for (int i = 0; i < TURN_EVENTS; i++) {
        if (!hearth_next_block_event(p->instance, &event)) {
            flush_batch(p);
            return false;
        }
        char *topic = mem_format("kv@%s@%s", p->address, event.model);
        size_t at = 0;
        while (at < p->n_topics && strcmp(p->topics[at], topic) != 0) at++;
        if (at < p->n_topics) {
            free(topic);
        } else {
            p->topics = mem_grow(p->topics, p->n_topics + 1, sizeof *p->topics);
            p->topics[p->n_topics++] = topic;
        }
        if (p->topics[at] != p->topic || p->batch.out.len >= BATCH_BYTES) flush_batch(p);
        p->topic = p->topics[at];
        wire_add(&p->batch, &event);
    }
    return true;
}

/* A router needs everything, and has done nothing wrong: it does not wait for the end of an impatience with another
 * one, and is waited for itself. */
static void resend_soon(struct publisher *p)
{
    int64_t at = p->resent_at + clock_from_ms(RESEND_EVERY_MS);
    if (!p->resend || at < p->resend_at) p->resend_at = at;
    p->resend = true;
    if (p->patient_again != 0) set_patience(p, true);
}

/* ---- Routers ---- */

struct frame {
    uint8_t bytes[256];
    size_t size;
};

/* Reads the next message, of which the first n frames matter, and no more bytes of each than it has room for. Returns
 * how many frames there were; -1: there is no message. */
static int receive(void *socket, struct frame *frames, int n)
{
    int count = 0, more = 1;
    for (; more != 0; count++) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&message);
            return -1;
        }
        size_t size = zmq_msg_size(&message);
        if (count < n) {
            frames[count].size = size;
            memcpy(frames[count].bytes, zmq_msg_data(&message),
                   size < sizeof frames->bytes ? size : sizeof frames->bytes);
        }
        more = zmq_msg_more(&message);
        zmq_msg_close(&message);
    }
    return count;
}

static bool address_answer(struct publisher *p, const struct frame *router)
{
    return send_bytes(p->replay, router->bytes, router->size, ZMQ_SNDMORE) && send_text(p->replay, "");
}

/* A request has three frames: its sender, nothing, a number. Anything else is ignored. The rest has the next turn. */
static void read_replays(struct publisher *p)
{
    struct frame frames[3];
    for (int i = 0, n; i < TURN_REPLAYS && (n = receive(p->replay, frames, 3)) >= 0; i++) {
        uint64_t from = 0;
        if (n != 3 || frames[1].size != 0 || frames[2].size != sizeof from) continue;
        for (size_t k = 0; k < sizeof from; k++) from = from << 8 | frames[2].bytes[k];
        /* The messages from that number on, as far as they are kept; then one without a payload, numbered -1. Where the
         * first ones are not kept any more everything is sent again. */
        bool reachable = true;
        if (from < p->first_kept) {
            from = p->first_kept;
            resend_soon(p);
        }
        for (; from < p->next_seq && reachable; from++)
            reachable = address_answer(p, &frames[0]) && send_text(p->replay, kept_at(p, from)->topic) &&
                        send_rest(p, p->replay, from);
        if (reachable && address_answer(p, &frames[0]) && send_text(p->replay, "") && send_seq(p->replay, UINT64_MAX))
            send_bytes(p->replay, "", 0, 0);
    }
}

/* ---- The thread ---- */

static void *publisher_main(void *ud)
{
    struct publisher *p = ud;
    thread_give_way(NICE);
    zmq_pollitem_t items[N_ITEMS] = {[WAKE] = {.fd = p->wake.fd, .events = ZMQ_POLLIN},
                                     [EVENTS] = {.socket = p->events, .events = ZMQ_POLLIN},
                                     [REPLAY] = {.socket = p->replay, .events = ZMQ_POLLIN}};
    bool more = false;
    while (!atomic_load(&p->stopping)) {
        /* Until the thread has something to do by itself; -1: never. */
        int64_t resend_in = p->resend_at - now();
        long wait_ms = more ? 0 : !p->resend ? -1 : resend_in <= 0 ? 0 : (long)clock_to_ms(resend_in) + 1;
        zmq_poll(items, p->replay != NULL ? N_ITEMS : N_ITEMS - 1, wait_ms);
        os_waker_clear(&p->wake);
        /* A message of an XPUB socket begins with 1 where a router subscribes, with 0 where one leaves. */
        struct frame frame;
        while (receive(p->events, &frame, 1) > 0) {
            if (frame.size == 0 || frame.bytes[0] != 1) continue;
            p->wanted = true;
            p->impatience_ms = LEAST_IMPATIENCE_MS;
            resend_soon(p);
        }
        if (p->replay != NULL) read_replays(p);
        if (p->resend && now() >= p->resend_at) {
            p->resend = false;
            p->resent_at = now();
            hearth_resend_blocks(p->instance);
        }
        more = p->wanted && publish_some(p);
    }
    return NULL;
}

/* ---- Opening and closing ---- */

static void *open_socket(struct publisher *p, int type, const char *endpoint)
{
    void *socket = zmq_socket(p->zmq, type);
    if (socket == NULL) return NULL;
    const int64_t most = MOST_REQUEST_BYTES;
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    set_option(socket, ZMQ_LINGER, LINGER_MS);
    set_option(socket, ZMQ_IPV6, strchr(endpoint, '[') != NULL);
    set_option(socket, ZMQ_TCP_KEEPALIVE, 1);
    return socket;
}

static int bind_socket(void *socket, const char *key, const char *endpoint, hearth_error *error)
{
    char bound[256];
    size_t size = sizeof bound;
    if (socket == NULL || zmq_bind(socket, endpoint) != 0 ||
        zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0)
        return error_at(error, HEARTH_IO, key, "%s: cannot listen on %s: %s", key, endpoint, zmq_strerror(zmq_errno()));
    log_event(LOG_INFO, LOG_GROUP, "listening", log_str("key", key), log_str("address", bound));
    return HEARTH_OK;
}

/* An event is dropped for a router that is 1000 messages behind; a replay has up to MOST_KEPT. */
static int open_sockets(struct publisher *p, const struct publisher_params *params, hearth_error *error)
{
    if (thread_try(THREADS_OF_ZMQ, "publishes cache events", error) != HEARTH_OK) return (int)error->code;
    p->zmq = zmq_ctx_new();
    p->events = open_socket(p, ZMQ_XPUB, params->events);
    if (p->events != NULL) {
        set_option(p->events, ZMQ_XPUB_VERBOSE, 1);
        set_option(p->events, ZMQ_SNDTIMEO, PATIENCE_MS);
        set_patience(p, true);
    }
    int rc = bind_socket(p->events, "server.kv_events", params->events, error);
    if (rc != HEARTH_OK || params->replay == NULL) return rc;
    p->replay = open_socket(p, ZMQ_ROUTER, params->replay);
    if (p->replay != NULL) {
        set_option(p->replay, ZMQ_ROUTER_MANDATORY, 1);
        set_option(p->replay, ZMQ_SNDHWM, MOST_KEPT + 1);
        set_option(p->replay, ZMQ_SNDTIMEO, 0);
    }
    return bind_socket(p->replay, "server.kv_events_replay", params->replay, error);
}

static int start(struct publisher *p, const struct publisher_params *params, hearth_error *error)
{
    if (os_waker_open(&p->wake) != 0)
        return error_at(error, HEARTH_IO, "server.kv_events", "server.kv_events: no descriptor: %s", strerror(errno));
    int rc = open_sockets(p, params, error);
    if (rc != HEARTH_OK) return rc;
    rc = hearth_follow_blocks(p->instance, wake, p, error);
    if (rc != HEARTH_OK) {
        error_prefix(error, "server.kv_events: ");
        return rc;
    }
    rc = thread_start(&p->thread, publisher_main, p, "publishes cache events", error);
    p->started = rc == HEARTH_OK;
    return rc;
}

struct publisher *publisher_open(hearth *instance, const struct publisher_params *params, hearth_error *error)
{
    struct publisher *p = mem_alloc(sizeof *p);
    p->instance = instance;
    p->impatience_ms = LEAST_IMPATIENCE_MS;
    p->address = mem_strdup(params->address);
    if (start(p, params, error) == HEARTH_OK) return p;
    publisher_close(p);
    return NULL;
}

void publisher_close(struct publisher *p)
{
    if (p == NULL) return;
    if (p->started) {
        atomic_store(&p->stopping, true);
        wake(p);
        pthread_join(p->thread, NULL);
    }
    hearth_unfollow_blocks(p->instance);
    while (p->first_kept < p->next_seq) drop_oldest(p);
    if (p->events != NULL) zmq_close(p->events);
    if (p->replay != NULL) zmq_close(p->replay);
    if (p->zmq != NULL) zmq_ctx_term(p->zmq);
    os_waker_close(&p->wake);
    wire_release(&p->batch);
    for (size_t i = 0; i < p->n_topics; i++) free(p->topics[i]);
    free(p->topics);
    free(p->address);
    free(p);
}
