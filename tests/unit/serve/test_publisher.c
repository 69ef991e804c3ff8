/* The sockets of cache events, with routers of ZeroMQ's own: what they are sent, what they get again, what happens to
 * one that does not read. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/memory.h"
#include "fakes/cmocka_all.h"
#include "fakes/fake_hearth.h"
#include "serve/events/publisher.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define ADDRESS "10.0.0.1:8080"
#define END     UINT64_MAX

enum { WAIT_MS = 20000 };

struct rig {
    void *zmq;
    hearth *instance;
    struct publisher *publisher;
    char events[64], replay[64];
    void *routers[4]; /* sockets: ZeroMQ does not end before they are closed */
    size_t n_routers;
};

/* A port that was free a moment ago. */
static void free_endpoint(char endpoint[64])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    snprintf(endpoint, 64, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
}

static int open_publisher(struct rig *rig, const char *events, const char *replay, hearth_error *error)
{
    struct publisher_params params = {.events = events, .replay = replay, .address = ADDRESS};
    rig->publisher = publisher_open(rig->instance, &params, error);
    return rig->publisher == NULL ? (int)error->code : HEARTH_OK;
}

/* Another process may take a port that was free a moment ago: then with others. */
static void open_somewhere(struct rig *rig)
{
    hearth_error error;
    int rc = HEARTH_IO;
    for (int tries = 0; tries < 10 && rc != HEARTH_OK; tries++) {
        free_endpoint(rig->events);
        free_endpoint(rig->replay);
        rc = open_publisher(rig, rig->events, rig->replay, &error);
    }
    if (rc != HEARTH_OK) fail_msg("%s", error.message);
}

static int begin(void **state)
{
    struct rig *rig = mem_alloc(sizeof *rig);
    hearth_error error;
    fake_reset();
    rig->zmq = zmq_ctx_new();
    rig->instance = hearth_open(NULL, &error);
    open_somewhere(rig);
    *state = rig;
    return 0;
}

static int end(void **state)
{
    struct rig *rig = *state;
    for (size_t i = 0; i < rig->n_routers; i++) zmq_close(rig->routers[i]);
    publisher_close(rig->publisher);
    hearth_close(rig->instance);
    zmq_ctx_term(rig->zmq);
    free(rig);
    return 0;
}

/* ---- A router ---- */

/* Its socket is closed after the test. */
static void *connect_to(struct rig *rig, int type, const char *endpoint, int queue)
{
    void *socket = rig->routers[rig->n_routers++] = zmq_socket(rig->zmq, type);
    int none = 0, wait = WAIT_MS;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &queue, sizeof queue);
    if (type == ZMQ_SUB) zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "kv@", 3);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

struct message {
    struct buf frames[4];
    int n;
};

static void receive(void *socket, struct message *message)
{
    int more = 1;
    for (message->n = 0; more != 0; message->n++) {
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, 0) < 0) fail_msg("nothing came: %s", zmq_strerror(zmq_errno()));
        assert_true(message->n < 4);
        buf_clear(&message->frames[message->n]);
        buf_append(&message->frames[message->n], zmq_msg_data(&frame), zmq_msg_size(&frame));
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
}

static void release(struct message *message)
{
    for (int i = 0; i < 4; i++) buf_release(&message->frames[i]);
}

static uint64_t number_of(const struct buf *frame)
{
    uint64_t number = 0;
    assert_int_equal(frame->len, sizeof number);
    for (size_t i = 0; i < sizeof number; i++) number = number << 8 | (unsigned char)frame->v[i];
    return number;
}

/* The next message of events; returns its number. */
static uint64_t next_events(void *socket, struct message *message)
{
    receive(socket, message);
    assert_int_equal(message->n, 3);
    return number_of(&message->frames[1]);
}

static void ask_again(void *socket, uint64_t from)
{
    unsigned char bytes[sizeof from];
    for (size_t i = 0; i < sizeof from; i++) bytes[i] = (unsigned char)(from >> 8 * (7 - i));
    zmq_send(socket, "", 0, ZMQ_SNDMORE);
    zmq_send(socket, bytes, sizeof bytes, 0);
}

/* The next message of an answer; END after the last one. */
static uint64_t next_replayed(void *socket, struct message *message)
{
    receive(socket, message);
    assert_int_equal(message->n, 4);
    assert_int_equal(message->frames[0].len, 0);
    uint64_t number = number_of(&message->frames[2]);
    assert_int_equal(number == END, message->frames[3].len == 0);
    assert_int_equal(number == END, message->frames[1].len == 0);
    return number;
}

static bool has(const struct buf *frame, const char *text)
{
    return memmem(frame->v, frame->len, text, strlen(text)) != NULL;
}

/* ---- The tests ---- */

static const uint64_t blocks[512] = {1, 2, 3};
static const int32_t tokens[512 * HEARTH_BLOCK] = {0};

#define STORED(model_, n)                                                                                              \
    {                                                                                                                  \
        .type = HEARTH_BLOCKS_STORED, .model = (model_), .medium = "CPU", .blocks = blocks, .n_blocks = (n),           \
        .tokens = tokens                                                                                               \
    }

static const hearth_block_event some[] = {
    {.type = HEARTH_BLOCKS_CLEARED, .model = "a"},
    STORED("a", 1),
    STORED("b", 1),
    {.type = HEARTH_BLOCKS_REMOVED, .model = "b", .medium = "CPU", .blocks = blocks, .n_blocks = 1},
    STORED("a", 1)};

static void a_router_that_subscribes_is_sent_everything(void **state)
{
    struct rig *rig = *state;
    struct message message = {.n = 0};
    fake_give_block_events(some, 5);
    void *router = connect_to(rig, ZMQ_SUB, rig->events, 1000);
    assert_int_equal(next_events(router, &message), 0);
    assert_int_equal(message.frames[0].len, strlen("kv@" ADDRESS "@a"));
    assert_memory_equal(message.frames[0].v, "kv@" ADDRESS "@a", message.frames[0].len);
    assert_true(has(&message.frames[2], "AllBlocksCleared") && has(&message.frames[2], "BlockStored"));
    assert_int_equal(next_events(router, &message), 1);
    assert_memory_equal(message.frames[0].v, "kv@" ADDRESS "@b", message.frames[0].len);
    assert_true(has(&message.frames[2], "BlockStored") && has(&message.frames[2], "BlockRemoved"));
    assert_int_equal(next_events(router, &message), 2);
    assert_int_equal(fake_resends(), 1);
    fake_give_block_events(some, 1); /* it goes on */
    assert_int_equal(next_events(router, &message), 3);
    assert_false(has(&message.frames[2], "BlockStored"));

    void *other = connect_to(rig, ZMQ_SUB, rig->events, 1000);
    assert_int_equal(next_events(other, &message), 4);
    assert_int_equal(next_events(router, &message), 4);
    assert_int_equal(fake_resends(), 2);
    release(&message);
}

static void what_was_missed_is_to_be_had_again(void **state)
{
    struct rig *rig = *state;
    struct message first = {.n = 0}, message = {.n = 0};
    fake_give_block_events(some, 5);
    void *router = connect_to(rig, ZMQ_SUB, rig->events, 1000);
    for (uint64_t i = 0; i < 2; i++) assert_int_equal(next_events(router, &first), i);
    void *replay = connect_to(rig, ZMQ_DEALER, rig->replay, 1000);
    zmq_send(replay, "hello", 5, 0); /* is ignored, as are the next two */
    zmq_send(replay, "", 0, ZMQ_SNDMORE);
    zmq_send(replay, "1234567", 7, 0);
    zmq_send(replay, "1", 1, ZMQ_SNDMORE);
    zmq_send(replay, "12345678", 8, 0);
    ask_again(replay, 1);
    assert_int_equal(next_replayed(replay, &message), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(message.frames[i + 1].len, first.frames[i].len);
        assert_memory_equal(message.frames[i + 1].v, first.frames[i].v, first.frames[i].len);
    }
    assert_int_equal(next_replayed(replay, &message), 2);
    assert_int_equal(next_replayed(replay, &message), END);
    ask_again(replay, 99);
    assert_int_equal(next_replayed(replay, &message), END);
    assert_int_equal(fake_resends(), 1);
    release(&first);
    release(&message);
}

enum { MANY = 11000, KEPT = 10000 };

/* Every event is a message, since each is of another model than the one before. */
static hearth_block_event *many(size_t n, size_t n_blocks)
{
    hearth_block_event *events = mem_alloc(n * sizeof *events);
    for (size_t i = 0; i < n; i++) events[i] = (hearth_block_event)STORED(i % 2 == 0 ? "a" : "b", n_blocks);
    return events;
}

static void what_is_not_kept_any_more_is_sent_to_all(void **state)
{
    struct rig *rig = *state;
    struct message message = {.n = 0};
    hearth_block_event *events = many(MANY, 1);
    fake_give_block_events(events, MANY);
    void *router = connect_to(rig, ZMQ_SUB, rig->events, 0);
    for (uint64_t i = 0; i < MANY; i++) assert_int_equal(next_events(router, &message), i);
    void *replay = connect_to(rig, ZMQ_DEALER, rig->replay, 0);
    ask_again(replay, 3);
    uint64_t from = next_replayed(replay, &message);
    assert_int_equal(from, MANY - KEPT);
    for (uint64_t i = from + 1; i < MANY; i++) assert_int_equal(next_replayed(replay, &message), i);
    assert_int_equal(next_replayed(replay, &message), END);
    assert_int_equal(next_events(router, &message), MANY); /* everything, from the first on */
    assert_int_equal(fake_resends(), 2);
    release(&message);
    fake_give_block_events(NULL, 0);
    free(events);
}

/* It has a queue of one message and reads none, until the other one has been sent everything once more. */
static void a_router_that_does_not_read_holds_up_nobody_for_long(void **state)
{
    struct rig *rig = *state;
    enum { N = 4000 };
    struct message message = {.n = 0};
    hearth_block_event *events = many(N, 512);
    fake_give_block_events(events, N);
    void *slow = connect_to(rig, ZMQ_SUB, rig->events, 1), *quick = connect_to(rig, ZMQ_SUB, rig->events, 0);
    uint64_t last = next_events(quick, &message);
    while (last + 1 < N) {
        uint64_t number = next_events(quick, &message);
        assert_true(number > last);
        last = number;
    }
    for (size_t resends = fake_resends(); fake_resends() == resends;)
        next_events(quick, &message); /* for the slow one */
    bool gap = false;
    for (uint64_t before = next_events(slow, &message), next; !gap; before = next) {
        fake_give_block_events(events, 2); /* what comes once there is room again shows what is missing */
        next = next_events(slow, &message);
        gap = next > before + 1;
    }
    release(&message);
    fake_give_block_events(NULL, 0);
    free(events);
}

/* The slow one is not waited for during the next five seconds at least; everything is sent to the new one before. Less
 * to send than above, since time counts. */
static void a_new_router_does_not_wait_for_the_end_of_an_impatience(void **state)
{
    struct rig *rig = *state;
    enum { N = 4000 };
    struct message message = {.n = 0};
    hearth_block_event *events = many(N, 128);
    fake_give_block_events(events, N);
    void *slow = connect_to(rig, ZMQ_SUB, rig->events, 1), *quick = connect_to(rig, ZMQ_SUB, rig->events, 0);
    while (next_events(quick, &message) + 1 < N) continue;
    size_t resends = fake_resends();
    int64_t began = clock_now(clock_monotonic());
    void *other = connect_to(rig, ZMQ_SUB, rig->events, 0);
    do next_events(other, &message); /* what is still being sent to the others comes to it as well */
    while (fake_resends() == resends);
    assert_true(clock_now(clock_monotonic()) - began < clock_from_ms(4000));
    next_events(slow, &message); /* it has read nothing so far */
    release(&message);
    fake_give_block_events(NULL, 0);
    free(events);
}

/* ---- Routers that leave while it closes ---- */

enum { LEAVING = 32, ROUNDS = 20 };

static void read_exactly(int fd, unsigned char *bytes, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, bytes + got, size - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
}

static void write_exactly(int fd, const void *bytes, size_t size)
{
    assert_int_equal(write(fd, bytes, size), size);
}

/* Subscribes in the bytes of ZeroMQ's protocol 3.0, and reads nothing after that: its connection is full, and breaks
 * as soon as it is closed. */
static int subscribe_by_hand(const char *endpoint)
{
    static const unsigned char greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L'},
                               ready[] = "\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB", subscribe[] = "\0\4\1kv@";
    const int least = 1;
    unsigned char answer[sizeof greeting + 2], rest[256]; /* its greeting, its READY */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)strtoul(strrchr(endpoint, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    write_exactly(fd, greeting, sizeof greeting);
    write_exactly(fd, ready, sizeof ready - 1);
    read_exactly(fd, answer, sizeof answer);
    read_exactly(fd, rest, answer[sizeof answer - 1]);
    write_exactly(fd, subscribe, sizeof subscribe - 1);
    return fd;
}

static void *leave(void *ud)
{
    /* One after another, so that some leave before it closes and some while it does. */
    for (int *fds = ud, i = 0; i < LEAVING; i++) {
        int64_t next = clock_now(clock_monotonic()) + clock_from_ms(1) / 50;
        close(fds[i]);
        while (clock_now(clock_monotonic()) < next) continue;
    }
    return NULL;
}

/* libzmq 4.3 ends the process where a connection breaks in the middle of a message and at the end of its socket. */
static void routers_may_leave_while_it_closes(void **state)
{
    struct rig *rig = *state;
    enum { N = 1000 }; /* no more than a router's queue takes */
    struct message message = {.n = 0};
    hearth_block_event *events = many(N, 1);
    for (int round = 0; round < ROUNDS; round++) {
        int fds[LEAVING];
        pthread_t leaving;
        if (rig->publisher == NULL) open_somewhere(rig);
        void *router = connect_to(rig, ZMQ_SUB, rig->events, 0);
        for (int i = 0; i < LEAVING; i++) fds[i] = subscribe_by_hand(rig->events);
        fake_give_block_events(events, N);
        while (next_events(router, &message) + 1 < N) continue;
        assert_int_equal(pthread_create(&leaving, NULL, leave, fds), 0);
        publisher_close(rig->publisher);
        rig->publisher = NULL;
        pthread_join(leaving, NULL);
        zmq_close(rig->routers[--rig->n_routers]);
    }
    release(&message);
    fake_give_block_events(NULL, 0);
    free(events);
}

static void an_address_that_cannot_be_had_is_an_error_with_its_key(void **state)
{
    struct rig *rig = *state;
    hearth_error error;
    struct publisher *first = rig->publisher;
    char other[64];
    free_endpoint(other);
    assert_int_equal(open_publisher(rig, rig->events, NULL, &error), HEARTH_IO);
    assert_string_equal(error.param, "server.kv_events");
    assert_non_null(strstr(error.message, rig->events));
    assert_int_equal(open_publisher(rig, other, rig->replay, &error), HEARTH_IO);
    assert_string_equal(error.param, "server.kv_events_replay");
    assert_int_equal(open_publisher(rig, "tcp://127.0.0.1:none", NULL, &error), HEARTH_IO);
    rig->publisher = first;
}

static void without_a_store_there_are_no_events(void **state)
{
    struct rig *rig = *state;
    hearth_error error;
    char other[64];
    free_endpoint(other);
    struct publisher *first = rig->publisher;
    fake_fail_follow();
    assert_int_equal(open_publisher(rig, other, NULL, &error), HEARTH_UNAVAILABLE);
    rig->publisher = first;
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(a_router_that_subscribes_is_sent_everything),
        ROW(what_was_missed_is_to_be_had_again),
        ROW(what_is_not_kept_any_more_is_sent_to_all),
        ROW(a_router_that_does_not_read_holds_up_nobody_for_long),
        ROW(a_new_router_does_not_wait_for_the_end_of_an_impatience),
        ROW(routers_may_leave_while_it_closes),
        ROW(an_address_that_cannot_be_had_is_an_error_with_its_key),
        ROW(without_a_store_there_are_no_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
