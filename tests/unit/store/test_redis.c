/* The client of redis.h against a real redis-server: batches, limits, what a server refuses, and one that goes away. */
#include "fakes/certificate.h"
#include "fakes/cmocka_all.h"
#include "fakes/redis_server.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/remote/redis.h"
#include "store/remote/redis_tls.h"

#include "redis_commands.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_MS 300

static struct redis *client_of(const char *url, const char *user, const char *password_file)
{
    struct redis_params params = {
        .user = user, .password_file = password_file, .timeout_ns = clock_from_ms(TIMEOUT_MS)};
    const char *fault = redis_address_parse(url, &params.address);
    if (fault != NULL) fail_msg("%s", fault);
    return redis_open(&params);
}

static void connect_to(struct redis *redis)
{
    hearth_error error = {0};
    if (redis_connect(redis, &error) != 0) fail_msg("%s", error.message);
}

/* Asks for an answer of so many bytes at most; 0: whatever is usual. */
static int ping_for(struct redis *redis, size_t most, hearth_error *error)
{
    struct redis_batch batch = {.most_reply = most};
    ADD(&batch, "PING");
    int result = redis_run(redis, &batch, CLOCK_NEVER, error);
    redis_batch_release(&batch);
    return result;
}

static int ping(struct redis *redis, hearth_error *error)
{
    return ping_for(redis, 0, error);
}

/* ---- Tests ---- */

static void replies_come_in_order(void **state)
{
    struct redis_server server;
    (void)state;
    redis_server_start(&server, NULL);
    struct redis *redis = client_of(server.url, NULL, NULL);
    connect_to(redis);
    struct redis_batch batch = {0};
    ADD(&batch, "SET", "a", "one");
    ADD(&batch, "GET", "a");
    ADD(&batch, "GET", "b");
    ADD(&batch, "EXISTS", "a", "b");
    ADD(&batch, "SET", "a", "two", "NX");
    ADD(&batch, "INCR", "a");
    ADD(&batch, "GET", "a");
    assert_int_equal(redis_run(redis, &batch, CLOCK_NEVER, NULL), 0);
    assert_int_equal(batch.n_replies, 7);
    assert_int_equal(batch.replies[1].kind, REDIS_BYTES);
    assert_string_equal(batch.replies[1].bytes, "one");
    assert_int_equal(batch.replies[2].kind, REDIS_NIL);
    assert_int_equal(batch.replies[3].kind, REDIS_INTEGER);
    assert_int_equal(batch.replies[3].integer, 1);
    assert_int_equal(batch.replies[4].kind, REDIS_NIL);
    assert_int_equal(batch.replies[5].kind, REDIS_REFUSED);
    assert_string_equal(redis_refusal(&batch), "ERR value is not an integer or out of range");
    assert_string_equal(batch.replies[6].bytes, "one");
    redis_batch_release(&batch);
    redis_close(redis);
    redis_server_stop(&server);
}

/* More than both sockets hold in each direction: whoever only sent would wait for ever. */
static void move_large_values(struct redis *redis)
{
    enum { SIZE = 4 << 20, N = 6 };
    char *value = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) value[i] = (char)(i * 2654435761u >> 24);
    struct redis_batch batch = {0};
    for (int i = 0; i < N; i++) {
        redis_add(&batch, (const struct redis_argument[]){{"SET", 3}, {"large", 5}, {value, SIZE}}, 3);
        ADD(&batch, "GET", "large");
    }
    assert_int_equal(redis_run(redis, &batch, CLOCK_NEVER, NULL), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(batch.replies[2 * i + 1].size, SIZE);
        assert_memory_equal(batch.replies[2 * i + 1].bytes, value, SIZE);
    }
    redis_batch_release(&batch);
    free(value);
}

static void large_values_go_both_ways_at_once(void **state)
{
    struct redis_server server;
    (void)state;
    redis_server_start(&server, NULL);
    struct redis *redis = client_of(server.url, NULL, NULL);
    connect_to(redis);
    move_large_values(redis);
    redis_close(redis);
    redis_server_stop(&server);
}

static void a_server_that_stalls_costs_the_time_out(void **state)
{
    struct redis_server server;
    hearth_error error = {0};
    (void)state;
    redis_server_start(&server, NULL);
    struct redis *redis = client_of(server.url, NULL, NULL);
    connect_to(redis);
    redis_server_stall(&server, true);
    int64_t began = clock_now(clock_monotonic());
    assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE);
    assert_non_null(strstr(error.message, "does not answer"));
    assert_true(clock_now(clock_monotonic()) - began >= clock_from_ms(TIMEOUT_MS));
    struct redis_batch batch = {0};
    ADD(&batch, "PING");
    began = clock_now(clock_monotonic());
    assert_int_equal(redis_run(redis, &batch, began + clock_from_ms(10), NULL), HEARTH_UNAVAILABLE);
    assert_true(clock_now(clock_monotonic()) - began < clock_from_ms(TIMEOUT_MS)); /* the deadline came first */
    redis_batch_release(&batch);
    redis_server_stall(&server, false);
    assert_int_equal(ping(redis, &error), 0); /* on a new connection: the late answers of the old ones are nobody's */
    redis_close(redis);
    redis_server_stop(&server);
}

static void a_server_that_was_killed_is_connected_again(void **state)
{
    struct redis_server server;
    hearth_error error = {0};
    (void)state;
    redis_server_start(&server, NULL);
    struct redis *redis = client_of(server.url, NULL, NULL);
    assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE); /* never connected */
    connect_to(redis);
    assert_int_equal(ping(redis, &error), 0);
    redis_server_kill(&server);
    redis_server_restart(&server);
    assert_int_equal(ping(redis, &error), 0); /* the idle connection was found closed, and replaced */
    redis_server_kill(&server);
    assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE);
    assert_int_not_equal(redis_connect(redis, &error), 0);
    redis_server_restart(&server);
    assert_int_equal(ping(redis, &error), 0);
    connect_to(redis);
    assert_int_equal(ping(redis, &error), 0);
    redis_close(redis);
    redis_server_stop(&server);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void users_and_passwords_come_from_a_file(void **state)
{
    struct redis_server server;
    hearth_error error = {0};
    static const char *const options[] = {"--user",  "default", "off", "--user", "cook", "on",
                                          ">secret", "~*",      "&*",  "+@all",  NULL};
    static const char password[] = "/tmp/hearth-test-redis-password";
    (void)state;
    redis_server_start(&server, options);
    write_text(password, "wrong\n");
    struct redis *redis = client_of(server.url, "cook", password);
    assert_int_equal(redis_connect(redis, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "WRONGPASS"));
    write_text(password, "secret\n");
    connect_to(redis);
    assert_int_equal(ping(redis, &error), 0);
    unlink(password);
    assert_int_equal(redis_connect(redis, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, password));
    redis_close(redis);
    redis_server_stop(&server);
}

/* With TLS the server must be the one of the name, and somebody who is trusted must say so. */
static void tls_is_with_the_right_server_or_nobody(void **state)
{
    static const struct {
        const char *of, *trusts, *says; /* whose certificate it has, which is trusted; NULL: it is served */
    } cases[] = {{"localhost", "localhost", NULL},
                 {"localhost", "elsewhere", "TLS with the server failed: self-signed certificate"},
                 {"localhost", NULL, "TLS with the server failed: self-signed certificate"},
                 {"elsewhere", "elsewhere", "TLS with the server failed: hostname mismatch"},
                 {"localhost", "nobody", "no certificates that can be read"}};
    char folder[] = "/tmp/hearth-test-tls-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    certificate_make(folder, "localhost");
    certificate_make(folder, "elsewhere");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct redis_server server;
        char port[8], url[64], ca[96], cert[96], key[96];
        hearth_error error = {0};
        redis_server_find_port(port);
        snprintf(cert, sizeof cert, "%s/%s.crt", folder, cases[i].of);
        snprintf(key, sizeof key, "%s/%s.key", folder, cases[i].of);
        snprintf(ca, sizeof ca, "%s/%s.crt", folder, cases[i].trusts != NULL ? cases[i].trusts : "");
        const char *const options[] = {"--bind",
                                       "127.0.0.1",
                                       "--tls-port",
                                       port,
                                       "--tls-cert-file",
                                       cert,
                                       "--tls-key-file",
                                       key,
                                       "--tls-auth-clients",
                                       "no",
                                       "--tls-ca-cert-file",
                                       cert,
                                       NULL};
        redis_server_start(&server, options);
        snprintf(url, sizeof url, "rediss://localhost:%s", port);
        struct redis_params params = {.timeout_ns = clock_from_ms(10 * TIMEOUT_MS),
                                      .ca_file = cases[i].trusts != NULL ? ca : NULL};
        assert_null(redis_address_parse(url, &params.address));
        struct redis *redis = redis_open(&params);
        int result = redis_connect(redis, &error);
        if (cases[i].says == NULL) {
            if (result != 0) fail_msg("%s", error.message);
            move_large_values(redis);
            redis_server_kill(&server);
            assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE);
            redis_server_restart(&server);
            assert_int_equal(ping(redis, &error), 0);
            redis_server_stall(&server, true);
            assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE);
            assert_int_equal(ping(redis, &error), HEARTH_UNAVAILABLE); /* in its handshake */
            redis_server_stall(&server, false);
        } else {
            assert_int_equal(result, HEARTH_IO);
            if (strstr(error.message, cases[i].says) == NULL) fail_msg("%zu: %s", i, error.message);
        }
        redis_close(redis);
        redis_server_stop(&server);
    }
    for (size_t i = 0; i < 2; i++) {
        char path[96];
        for (size_t k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s.%s", folder, i == 0 ? "localhost" : "elsewhere", k == 0 ? "crt" : "key");
            unlink(path);
        }
    }
    rmdir(folder);
}

static void put_file(struct buf *out, const char *path)
{
    char some[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (size_t n; (n = fread(some, 1, sizeof some, file)) > 0;) buf_append(out, some, n);
    fclose(file);
}

/* "client" is known to the server; "both" is its certificate and its key in one file. */
static void make_client_files(const char *folder)
{
    char cert[96], key[96], both[96];
    struct buf text = {0};
    snprintf(cert, sizeof cert, "%s/client.crt", folder);
    snprintf(key, sizeof key, "%s/client.key", folder);
    snprintf(both, sizeof both, "%s/both", folder);
    certificate_make(folder, "client");
    put_file(&text, cert);
    put_file(&text, key);
    write_text(both, text.v);
    buf_release(&text);
}

static void a_server_may_ask_who_its_clients_are(void **state)
{
    static const struct {
        const char *cert, *key, *says; /* NULL: none; it is served */
    } cases[] = {{"client.crt", "client.key", NULL},
                 {"both", NULL, NULL},
                 {NULL, NULL, "the server is away: tlsv13 alert certificate required"},
                 {"stranger.crt", "stranger.key", "the server is away: tlsv1 alert unknown ca"},
                 {"client.crt", "stranger.key", "stranger.key has no private key of that certificate"},
                 {"client.crt", NULL, "client.crt has no private key of that certificate"},
                 {"nobody", NULL, "nobody has no certificate that can be read"}};
    static const char *const files[] = {"localhost.crt", "localhost.key", "client.crt", "client.key",
                                        "stranger.crt",  "stranger.key",  "both"};
    char folder[] = "/tmp/hearth-test-tls-XXXXXX", port[8], url[64], own[96], own_key[96], known[96];
    struct redis_server server;
    (void)state;
    assert_non_null(mkdtemp(folder));
    certificate_make(folder, "localhost");
    certificate_make(folder, "stranger");
    make_client_files(folder);
    redis_server_find_port(port);
    snprintf(url, sizeof url, "rediss://localhost:%s", port);
    snprintf(own, sizeof own, "%s/localhost.crt", folder);
    snprintf(own_key, sizeof own_key, "%s/localhost.key", folder);
    snprintf(known, sizeof known, "%s/client.crt", folder);
    const char *const options[] = {"--bind",
                                   "127.0.0.1",
                                   "--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   own,
                                   "--tls-key-file",
                                   own_key,
                                   "--tls-auth-clients",
                                   "yes",
                                   "--tls-ca-cert-file",
                                   known,
                                   NULL};
    redis_server_start(&server, options);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char cert[96], key[96];
        hearth_error error = {0};
        snprintf(cert, sizeof cert, "%s/%s", folder, cases[i].cert != NULL ? cases[i].cert : "");
        snprintf(key, sizeof key, "%s/%s", folder, cases[i].key != NULL ? cases[i].key : "");
        struct redis_params params = {.timeout_ns = clock_from_ms(10 * TIMEOUT_MS),
                                      .ca_file = own,
                                      .certificate_file = cases[i].cert != NULL ? cert : NULL,
                                      .certificate_key_file = cases[i].key != NULL ? key : NULL};
        assert_null(redis_address_parse(url, &params.address));
        struct redis *redis = redis_open(&params);
        assert_int_equal(redis_connect(redis, &error), cases[i].says != NULL ? HEARTH_IO : 0);
        if (strstr(error.message, cases[i].says != NULL ? cases[i].says : "") == NULL)
            fail_msg("%zu: %s", i, error.message);
        redis_close(redis);
    }
    redis_server_stop(&server);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void a_stream_that_has_ended_is_no_signal(void **state)
{
    int ends[2];
    short events = 0;
    hearth_error error = {0};
    (void)state;
    signal(SIGPIPE, SIG_DFL); /* as in a process that embeds the library */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    struct redis_tls_context *context = redis_tls_context_open(&(const struct redis_tls_files){0}, &error);
    assert_non_null(context);
    struct redis_tls *tls = redis_tls_open(context, ends[0], "localhost");
    close(ends[1]);
    assert_int_equal(redis_tls_shake_hands(tls, &events, &error), HEARTH_UNAVAILABLE);
    redis_tls_close(tls);
    redis_tls_context_unref(context);
    close(ends[0]);
}

static void databases_are_kept_apart(void **state)
{
    struct redis_server server;
    char url[64], port[8];
    (void)state;
    redis_server_find_port(port);
    const char *const options[] = {"--port", port, "--bind", "127.0.0.1", NULL};
    redis_server_start(&server, options);
    snprintf(url, sizeof url, "redis://127.0.0.1:%s/3", port);
    struct redis *redis = client_of(url, NULL, NULL);
    connect_to(redis);
    struct redis_batch batch = {0};
    ADD(&batch, "SET", "a", "1");
    assert_int_equal(redis_run(redis, &batch, CLOCK_NEVER, NULL), 0);
    redis_batch_release(&batch);
    char *third = redis_server_ask(&server, (const char *const[]){"-n", "3", "GET", "a", NULL});
    char *none = redis_server_ask(&server, (const char *const[]){"GET", "a", NULL});
    assert_string_equal(third, "1");
    assert_string_equal(none, "");
    free(third);
    free(none);
    redis_close(redis);
    redis_server_stop(&server);
}

/* ---- Servers that are none ---- */

struct liar {
    const char *answer; /* to the first bytes of the second batch; the first is a greeting */
    size_t received;    /* bytes since the greeting */
    char folder[32], url[64];
    struct sockaddr_un address;
    int listener;
    pthread_t thread;
};

static void *lie(void *ud)
{
    struct liar *liar = ud;
    char some[4096];
    int fd = accept(liar->listener, NULL, NULL);
    ssize_t n = recv(fd, some, sizeof some, 0);
    n = send(fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
    n = recv(fd, some, sizeof some, 0);
    if (n >= 0) liar->received = (size_t)n;
    if (n >= 0) n = send(fd, liar->answer, strlen(liar->answer), MSG_NOSIGNAL);
    while ((n = recv(fd, some, sizeof some, 0)) > 0) liar->received += (size_t)n;
    close(fd);
    return NULL;
}

static void liar_start(struct liar *liar, const char *answer)
{
    *liar =
        (struct liar){.answer = answer, .folder = "/tmp/hearth-test-liar-XXXXXX", .address = {.sun_family = AF_UNIX}};
    assert_non_null(mkdtemp(liar->folder));
    snprintf(liar->address.sun_path, sizeof liar->address.sun_path, "%s/s", liar->folder);
    snprintf(liar->url, sizeof liar->url, "unix:%s/s", liar->folder);
    liar->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(liar->listener, (struct sockaddr *)&liar->address, sizeof liar->address), 0);
    assert_int_equal(listen(liar->listener, 1), 0);
    pthread_create(&liar->thread, NULL, lie, liar);
}

/* Once the client is closed. */
static void liar_end(struct liar *liar)
{
    pthread_join(liar->thread, NULL);
    close(liar->listener);
    unlink(liar->address.sun_path);
    rmdir(liar->folder);
}

static void answers_that_make_no_sense_end_the_connection(void **state)
{
    static const struct {
        const char *answer, *says;
        size_t size, most; /* of what follows the answer; asked for */
    } cases[] = {{"*2000000000\r\n", "Out of memory", 0, 0},
                 {"junk\r\n", "Protocol error", 0, 0},
                 {"+PONG\r\n+PONG\r\n", "what it was not asked", 0, 0},
                 {"$99999999999999999999\r\n", "Bad bulk string length", 0, 0},
                 {"$400000000\r\n", "too long", 11 << 20, 0},
                 {"$1100\r\n", "too long", 1100, 72}};
    char *huge = mem_alloc((12 << 20) + 1);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct liar liar;
        hearth_error error = {0};
        memset(huge, 'x', 12 << 20);
        memcpy(huge, cases[i].answer, strlen(cases[i].answer));
        strcpy(huge + strlen(cases[i].answer) + cases[i].size, cases[i].size > 0 ? "\r\n" : "");
        liar_start(&liar, huge);
        struct redis *redis = client_of(liar.url, NULL, NULL);
        connect_to(redis);
        assert_int_equal(ping_for(redis, cases[i].most, &error), HEARTH_UNAVAILABLE);
        if (strstr(error.message, cases[i].says) == NULL) fail_msg("%zu: %s", i, error.message);
        redis_close(redis);
        liar_end(&liar);
    }
    free(huge);
}

/* Else the next command on the connection would begin in the middle of this one. */
static void a_batch_is_sent_whole_also_where_the_answer_comes_first(void **state)
{
    enum { SIZE = 4 << 20 };
    static const char before[] = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4194304\r\n";
    char *value = mem_alloc(SIZE);
    struct liar liar;
    struct redis_batch batch = {0};
    (void)state;
    liar_start(&liar, "+OK\r\n");
    struct redis *redis = client_of(liar.url, NULL, NULL);
    connect_to(redis);
    redis_add(&batch, (const struct redis_argument[]){{"SET", 3}, {"a", 1}, {value, SIZE}}, 3);
    assert_int_equal(redis_run(redis, &batch, CLOCK_NEVER, NULL), 0);
    redis_batch_release(&batch);
    redis_close(redis);
    liar_end(&liar);
    assert_int_equal(liar.received, strlen(before) + SIZE + 2);
    free(value);
}

static void a_name_of_this_machine_must_lead_to_it(void **state)
{
    struct redis_params params = {.timeout_ns = clock_from_ms(TIMEOUT_MS), .only_local = true};
    hearth_error error = {0};
    (void)state;
    assert_null(redis_address_parse("redis://192.0.2.1", &params.address));
    struct redis *redis = redis_open(&params);
    assert_int_equal(redis_connect(redis, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "192.0.2.1 is no address of this machine"));
    redis_close(redis);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_come_in_order),
        cmocka_unit_test(large_values_go_both_ways_at_once),
        cmocka_unit_test(a_server_that_stalls_costs_the_time_out),
        cmocka_unit_test(a_server_that_was_killed_is_connected_again),
        cmocka_unit_test(users_and_passwords_come_from_a_file),
        cmocka_unit_test(a_stream_that_has_ended_is_no_signal),
        cmocka_unit_test(databases_are_kept_apart),
        cmocka_unit_test(tls_is_with_the_right_server_or_nobody),
        cmocka_unit_test(a_server_may_ask_who_its_clients_are),
        cmocka_unit_test(answers_that_make_no_sense_end_the_connection),
        cmocka_unit_test(a_batch_is_sent_whole_also_where_the_answer_comes_first),
        cmocka_unit_test(a_name_of_this_machine_must_lead_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
