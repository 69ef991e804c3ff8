/* The HTTP server as a whole: addresses, limits of connections and memory, calls posted by other threads. */
#include "fixture.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- Addresses ---- */

static void listens(struct fixture *f, const char *address, const char *bound_prefix)
{
    hearth_error error = {0};
    char *bound = NULL;
    if (http_listen(f->server, address, &bound, &error) != 0) fail_msg("%s: %s", address, error.message);
    assert_ptr_equal(strstr(bound, bound_prefix), bound);
    assert_string_not_equal(bound, address); /* port 0 became a real one */
    free(bound);
}

static void does_not_listen(struct fixture *f, const char *address, const char *reason)
{
    hearth_error error = {0};
    assert_true(http_listen(f->server, address, NULL, &error) < 0);
    if (strstr(error.message, address) == NULL || strstr(error.message, reason) == NULL)
        fail_msg("%s: unexpected message: %s", address, error.message);
}

static bool machine_has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return has;
}

static void an_address_is_listened_on_or_the_error_has_the_reason(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    listens(f, "127.0.0.1:0", "127.0.0.1:");
    listens(f, "localhost:0", "localhost:");
    if (machine_has_ipv6())
        listens(f, "[::1]:0", "[::1]:");
    else
        does_not_listen(f, "[::1]:0", "cannot assign requested address");
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", f->port);
    does_not_listen(f, taken, "address already in use");
    static const char *const malformed[] = {"8080",      ":8080",          "127.0.0.1:",   "127.0.0.1:65536",
                                            "[::1",      "127.0.0.1:http", "::1:8080",     "127.0.0.1:80 ",
                                            "[::1]8080", "127.0.0.1:-1",   "[127.0.0.1:80"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        does_not_listen(f, malformed[i], "write it as host:port");
    does_not_listen(f, "name.invalid:80", "ame"); /* "Name or service not known" or "failure in name resolution" */
    does_not_listen(f, "192.0.2.1:0", "cannot assign requested address");
    fixture_close(f);
}

static int dial_unix(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

/* The socket file of a server that died. */
static void leave_stale_socket(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
}

struct listen_call {
    const char *address;
    int rc;
    hearth_error error;
};

static void listen_there(struct fixture *f, void *arg)
{
    struct listen_call *call = arg;
    call->rc = http_listen(f->server, call->address, NULL, &call->error);
}

struct seen {
    size_t n;
    int port;
};

static void see_address(void *ud, const struct sockaddr *address)
{
    struct seen *seen = ud;
    struct sockaddr_in v4;
    assert_int_equal(address->sa_family, AF_INET);
    memcpy(&v4, address, sizeof v4);
    seen->n++;
    seen->port = ntohs(v4.sin_port);
}

static void see_addresses(struct fixture *f, void *arg)
{
    http_each_address(f->server, see_address, arg);
}

static void a_unix_socket_is_private_and_only_a_dead_one_replaced(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-http-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64], address[80];
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    leave_stale_socket(path);

    struct fixture *f = fixture_open(short_limits());
    struct listen_call call = {.address = address};
    on_server(f, listen_there, &call);
    assert_int_equal(call.rc, 0);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    assert_int_equal(file.st_mode & 0777, 0600);
    int fd = dial_unix(path);
    struct answer answer = ask(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_string_equal(answer_header(&answer, "X-Unix"), "yes");
    assert_string_equal(answer_header(&answer, "X-Port"), "0");
    answer_release(&answer);
    struct seen seen = {0};
    on_server(f, see_addresses, &seen);
    assert_int_equal(seen.n, 1); /* a file has none */
    assert_int_equal(seen.port, f->port);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    close(fd);
    wait_until(f, n.gone == 1);

    struct fixture *second = fixture_open(short_limits());
    does_not_listen(second, address, "address already in use");
    fixture_close(second);
    fixture_close(f);
    assert_int_equal(access(path, F_OK), -1); /* a server removes its own file */

    f = fixture_open(short_limits());
    close(open(path, O_CREAT | O_WRONLY, 0600));
    does_not_listen(f, address, "not a socket");
    unlink(path);
    rmdir(folder);
    does_not_listen(f, address, "no such file or directory");
    char *longer = mem_format("unix:/tmp/%0120d", 0);
    does_not_listen(f, longer, "1 to 107 bytes");
    free(longer);
    fixture_close(f);
}

static void open_to_group(struct fixture *f, void *arg)
{
    http_set_socket_access(f->server, (struct http_socket_access){.mode = 0660, .group = *(const gid_t *)arg});
}

/* Whatever the umask, which takes away from what a socket is made with. */
static void a_unix_socket_takes_a_mode_and_a_group(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-http-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64], address[80];
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    struct fixture *f = fixture_open(short_limits());
    struct listen_call call = {.address = address};
    gid_t group = getuid() == 0 ? getgid() + 1 : getgid();
    mode_t former = umask(0077);
    on_server(f, open_to_group, &group);
    on_server(f, listen_there, &call);
    umask(former);
    assert_int_equal(call.rc, 0);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0660);
    assert_int_equal(file.st_gid, group);
    int fd = dial_unix(path);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
    fixture_close(f);
    rmdir(folder);
}

static void stop_listening(struct fixture *f, void *arg)
{
    (void)arg;
    http_stop_listening(f->server);
}

static void open_connections_outlive_the_listeners(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    int fd = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1);
    on_server(f, stop_listening, NULL);
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(other, (struct sockaddr *)&address, sizeof address), -1);
    close(other);
    on_server(f, release_held, NULL);
    hear_only(fd, 200);
    close(fd);
    fixture_close(f);
}

/* ---- Sockets that two processes have ---- */

struct sharing {
    int fd;
    bool lent;
    char *unused;
};

static void copy_socket(struct fixture *f, void *arg)
{
    struct sharing *sharing = arg;
    int fd;
    assert_int_equal(http_sockets(f->server, &fd, 1), 1);
    sharing->fd = dup(fd);
}

static void adopt(struct fixture *f, void *arg)
{
    const struct sharing *sharing = arg;
    http_adopt(f->server, sharing->fd, sharing->lent);
}

static void close_unused(struct fixture *f, void *arg)
{
    struct sharing *sharing = arg;
    sharing->unused = http_close_unused(f->server);
}

static void accept_none(struct fixture *f, void *arg)
{
    (void)arg;
    http_accept(f->server, false);
}

static void accept_all(struct fixture *f, void *arg)
{
    (void)arg;
    http_accept(f->server, true);
}

static void a_connection_waits_for_the_server_that_accepts(void **state)
{
    (void)state;
    struct fixture *former = fixture_open(short_limits()), *next = fixture_open(short_limits());
    struct sharing sharing;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", former->port);
    on_server(former, copy_socket, &sharing);
    sharing.lent = false;
    on_server(next, accept_none, NULL);
    on_server(next, adopt, &sharing);
    struct listen_call call = {.address = address};
    on_server(next, listen_there, &call);
    assert_int_equal(call.rc, 0);
    int fd = dial(former);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    assert_int_equal(counts_of(former).requests, 1);
    on_server(former, accept_none, NULL);
    int waiting = dial(former);
    say(waiting, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    close(fd);
    fixture_close(former);
    assert_int_equal(counts_of(next).requests, 0);
    on_server(next, accept_all, NULL);
    hear_only(waiting, 200);
    assert_int_equal(counts_of(next).requests, 1);
    close(waiting);
    fixture_close(next);
}

static void a_socket_that_was_lent_and_is_not_used_has_its_address_reported(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits()), *other = fixture_open(short_limits());
    struct sharing sharing;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", f->port);
    for (int lent = 0; lent <= 1; lent++) {
        on_server(f, copy_socket, &sharing);
        sharing.lent = lent;
        on_server(other, adopt, &sharing);
        on_server(other, close_unused, &sharing);
        if (lent)
            assert_string_equal(sharing.unused, address);
        else
            assert_null(sharing.unused);
        free(sharing.unused);
    }
    fixture_close(f);
    fixture_close(other);
}

static void retire(struct fixture *f, void *arg)
{
    http_retire(f->server, *(const int *)arg);
}

static void read_retired(struct fixture *f, void *arg)
{
    *(bool *)arg = http_is_retired(f->server);
}

static bool is_retired(struct fixture *f)
{
    bool retired;
    on_server(f, read_retired, &retired);
    return retired;
}

static void a_retired_server_answers_each_connection_once_more(void **state)
{
    (void)state;
    static const char get[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    struct fixture *f = fixture_open(short_limits());
    int idle = dial(f), used = dial(f), fresh = dial(f), held = dial(f), ms = PATIENCE_MS;
    ask_only(idle, get, 200);
    ask_only(used, get, 200);
    say(held, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == 1 && n.connections == 4);
    on_server(f, retire, &ms);
    const int fds[] = {used, fresh};
    for (int i = 0; i < 2; i++) {
        struct answer answer = ask(fds[i], get, 200);
        assert_string_equal(answer_header(&answer, "Connection"), "close");
        answer_release(&answer);
        close(fds[i]);
    }
    wait_until(f, n.connections == 2);
    ms = 1;
    on_server(f, retire, &ms);
    wait_until(f, n.connections == 1);
    assert_true(ended(idle));
    close(idle);
    assert_false(is_retired(f));
    on_server(f, release_held, NULL);
    hear_only(held, 200);
    while (!is_retired(f)) poll(NULL, 0, 1); /* the answer is here before it has been noted there */
    close(held);
    fixture_close(f);
}

/* ---- Connections ---- */

static struct fixture *open_with_room_for(int connections)
{
    struct http_limits limits = short_limits();
    limits.max_connections = connections;
    return fixture_open(limits);
}

static int dial_and_hold(struct fixture *f, size_t held)
{
    int fd = dial(f);
    say(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(f, n.held == held);
    return fd;
}

/* Checks that the connection is open and silent. */
static void assert_open(int fd)
{
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
    assert_int_equal(errno, EAGAIN);
}

static void at_the_limit_a_connection_that_never_sent_a_request_is_closed_first(void **state)
{
    (void)state;
    struct fixture *f = open_with_room_for(5);
    int kept = dial(f), held, old, young, slow;
    ask_only(kept, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    held = dial_and_hold(f, 1);
    old = dial(f);
    wait_until(f, n.connections == 3);
    slow = dial(f);
    say(slow, "GET / HT"); /* no whole head yet either */
    wait_until(f, n.connections == 4);
    young = dial(f);
    wait_until(f, n.connections == 5);
    int more[5];
    more[0] = dial_and_hold(f, 2);
    assert_true(ended(old));
    assert_open(kept);
    assert_open(slow);
    more[1] = dial_and_hold(f, 3);
    assert_true(ended(slow));
    assert_open(young);
    more[2] = dial_and_hold(f, 4);
    assert_true(ended(young));
    assert_open(kept); /* the last one that is closed */
    more[3] = dial_and_hold(f, 5);
    assert_true(ended(kept));
    more[4] = dial(f); /* no idle connection is left */
    ask_only(more[4], "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 503);
    assert_true(ended(more[4]));
    on_server(f, release_held, NULL);
    hear_only(held, 200);
    for (int i = 0; i < 4; i++) hear_only(more[i], 200);
    int fds[] = {kept, held, old, young, slow, more[0], more[1], more[2], more[3], more[4]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) close(fds[i]);
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

static void what_is_urgent_is_answered_although_all_connections_are_taken(void **state)
{
    (void)state;
    struct fixture *f = open_with_room_for(2);
    int held[2] = {dial_and_hold(f, 1), dial_and_hold(f, 2)}, crowd[64];
    for (int i = 0; i < 64; i++) { /* some are silent, some slow */
        crowd[i] = dial(f);
        if (i % 2 == 0) say_bytes(crowd[i], "GET /urg", 8);
    }
    for (int i = 0; i < 3; i++) {
        int fd = dial(f);
        ask_only(fd, "GET /urgent HTTP/1.1\r\nHost: h\r\n\r\n", 200);
        assert_true(ended(fd)); /* it is not kept */
        close(fd);
        fd = dial(f);
        struct answer answer;
        say(fd,
            "POST /urgent HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"); /* requests with a body are not urgent */
        answer = hear(fd, false);
        assert_int_equal(answer.status, 503);
        assert_non_null(strstr(answer.body.v, "all connections are taken"));
        answer_release(&answer);
        close(fd);
    }
    assert_true(counts_of(f).connections <= 2 + 16);
    assert_int_equal(counts_of(f).requests, 2 + 3);
    for (int i = 0; i < 64; i++) close(crowd[i]);
    on_server(f, release_held, NULL);
    for (int i = 0; i < 2; i++) {
        hear_only(held[i], 200);
        close(held[i]);
    }
    wait_until(f, n.connections == 0);
    int fd = dial(f); /* below the limit again */
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    ask_only(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    close(fd);
    fixture_close(f);
}

static void a_silent_connection_over_the_limit_is_closed_soon(void **state)
{
    (void)state;
    struct fixture *f = open_with_room_for(1);
    int held = dial_and_hold(f, 1), silent = dial(f);
    wait_until(f, n.connections == 2);
    int64_t start = now_ms();
    assert_true(ended(silent));
    assert_in_range(now_ms() - start, 1000, 5000);
    close(silent);
    close(held);
    fixture_close(f);
}

static void running_out_of_descriptors_is_survived_without_spinning(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int spare[64], n_spare = 0;
    while ((spare[n_spare] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0) n_spare++;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0); /* the kernel accepts it */
    say(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    int64_t cpu = cpu_ms(f);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 500), 0);
    assert_true(cpu_ms(f) - cpu < 200);
    while (n_spare > 0) close(spare[--n_spare]);
    hear_only(fd, 200);
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    fixture_close(f);
}

/* ---- Memory of bodies ---- */

enum { BODY = 60000, MAX_BODY = 65536, MAX_BODIES = 100000 };

static struct http_limits tight_limits(void)
{
    struct http_limits limits = short_limits();
    limits.max_body = MAX_BODY;
    limits.max_bodies = MAX_BODIES;
    return limits;
}

static int post_part(struct fixture *f, const char *path, size_t len)
{
    static const char body[BODY];
    char head[128];
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", path, BODY);
    int fd = dial(f);
    say(fd, head);
    assert_true(say_bytes(fd, body, len));
    return fd;
}

static void post_rest(int fd, size_t len)
{
    static const char body[BODY];
    assert_true(say_bytes(fd, body + len, BODY - len));
}

static void many_bodies_share_little_memory_and_all_come_through(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(tight_limits());
    int fds[24];
    for (int i = 0; i < 24; i++) fds[i] = post_part(f, "/", 40000);
    wait_until(f, n.stalled > 10); /* none whole, no memory left */
    assert_int_equal(counts_of(f).requests, 0);
    for (int i = 23; i >= 0; i--) post_rest(fds[i], 40000);
    for (int i = 0; i < 24; i++) {
        struct answer answer = hear(fds[i], false);
        assert_int_equal(answer.body.len, BODY);
        answer_release(&answer);
        close(fds[i]);
    }
    wait_until(f, n.bodies == 0 && n.stalled == 0 && n.connections == 0);
    assert_true(counts_of(f).peak_bodies <= MAX_BODIES + MAX_BODY + 16384);
    fixture_close(f);
}

static void bodies_that_are_held_keep_others_waiting(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(tight_limits());
    int first = post_part(f, "/hold", BODY);
    wait_until(f, n.held == 1);
    int second = post_part(f, "/", BODY);
    wait_until(f, n.stalled == 1);
    int none = dial(f); /* a request without a body needs no memory */
    ask_only(none, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200);
    int leaving = post_part(f, "/", 100);
    wait_until(f, n.stalled == 2);
    close(leaving);
    wait_until(f, n.stalled == 1 && n.connections == 3); /* noticed although it is not read */
    on_server(f, release_held, NULL);
    hear_only(second, 200);
    close(first);
    close(second);
    close(none);
    wait_until(f, n.bodies == 0 && n.connections == 0);
    fixture_close(f);
}

static void a_dropped_body_frees_its_memory_at_once(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(tight_limits());
    int fds[8];
    for (int i = 0; i < 8; i++) fds[i] = post_part(f, "/dropped", BODY);
    wait_until(f, n.held == 8 && n.bodies == 0);
    for (int i = 0; i < 8; i++) close(fds[i]);
    wait_until(f, n.gone == 8);
    fixture_close(f);
}

static void a_body_that_gets_no_memory_in_time_is_answered_with_503(void **state)
{
    (void)state;
    struct http_limits limits = tight_limits();
    limits.read_timeout_ms = 300;
    struct fixture *f = fixture_open(limits);
    int first = post_part(f, "/hold", BODY);
    wait_until(f, n.held == 1);
    int second = post_part(f, "/", BODY);
    struct answer answer = hear(second, false);
    assert_int_equal(answer.status, 503);
    assert_non_null(strstr(answer.body.v, "\"status\":503"));
    answer_release(&answer);
    close(second);
    close(first);
    wait_until(f, n.connections == 0 && n.bodies == 0);
    fixture_close(f);
}

/* ---- Shares of that memory ---- */

enum { LARGE = 1 << 20, PART = 300000, SMALL = 1000, SLOW = 9 };

static const char large_body[LARGE];

struct slow_client {
    struct fixture *fixture;
    pthread_t thread;
    sem_t *go_on;
    int status;
};

static void begin_post(int fd, size_t len)
{
    char head[128];
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", len);
    say(fd, head);
}

/* Sends the rest of its body when it is told to. */
static void *post_slowly(void *ud)
{
    struct slow_client *client = ud;
    int fd = dial(client->fixture);
    begin_post(fd, LARGE);
    say_bytes(fd, large_body, PART);
    while (sem_wait(client->go_on) != 0) continue;
    say_bytes(fd, large_body + PART, LARGE - PART);
    struct answer answer = hear(fd, false);
    client->status = answer.status;
    answer_release(&answer);
    close(fd);
    return NULL;
}

static void post_whole(struct fixture *f, unsigned host, size_t len)
{
    int fd = dial_from(f, host);
    begin_post(fd, len);
    assert_true(say_bytes(fd, large_body, len));
    hear_only(fd, 200);
    close(fd);
}

static void bodies_that_one_client_does_not_end_keep_nobody_waiting(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.max_body = LARGE;
    limits.max_bodies = 4 * LARGE;
    struct fixture *f = fixture_open(limits);
    struct slow_client slow[SLOW];
    sem_t go_on;
    sem_init(&go_on, 0, 0);
    for (int i = 0; i < SLOW; i++) {
        slow[i] = (struct slow_client){.fixture = f, .go_on = &go_on};
        pthread_create(&slow[i].thread, NULL, post_slowly, &slow[i]);
    }
    wait_until(f, n.stalled > 0);
    post_whole(f, 2, LARGE);
    post_whole(f, 2, SMALL);
    post_whole(f, 1, SMALL);
    assert_true(counts_of(f).stalled > 0);
    for (int i = 0; i < SLOW; i++) sem_post(&go_on);
    for (int i = 0; i < SLOW; i++) pthread_join(slow[i].thread, NULL);
    for (int i = 0; i < SLOW; i++) assert_int_equal(slow[i].status, 200);
    wait_until(f, n.bodies == 0 && n.connections == 0);
    sem_destroy(&go_on);
    fixture_close(f);
}

/* ---- Posted calls ---- */

enum { POSTERS = 4, POSTS = 20000 };

struct poster {
    struct fixture *fixture;
    pthread_t thread;
    int seen; /* on the server's thread */
};

static void count_post(void *ud)
{
    struct poster *poster = ud;
    poster->seen++;
    poster->fixture->backlog++;
}

static void *post_many(void *ud)
{
    struct poster *poster = ud;
    for (int i = 0; i < POSTS; i++) http_post(poster->fixture->server, count_post, poster);
    return NULL;
}

static void posts_of_many_threads_all_arrive(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    struct poster posters[POSTERS];
    for (int i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.fixture = f};
        pthread_create(&posters[i].thread, NULL, post_many, &posters[i]);
    }
    for (int i = 0; i < POSTERS; i++) pthread_join(posters[i].thread, NULL);
    wait_until(f, n.backlog == POSTERS * POSTS);
    for (int i = 0; i < POSTERS; i++) assert_int_equal(posters[i].seen, POSTS);
    fixture_close(f);
}

static void append_letter(void *ud)
{
    struct buf *letters = ((void **)ud)[0];
    buf_append(letters, ((void **)ud)[1], 1);
    free(ud);
}

static void post_letters(struct fixture *f, void *arg)
{
    for (const char *letter = "abcdefgh"; *letter != '\0'; letter++) {
        void **ud = mem_alloc(2 * sizeof *ud);
        ud[0] = arg;
        ud[1] = (void *)(uintptr_t)letter;
        http_post(f->server, append_letter, ud);
    }
}

static void posts_run_in_order_and_none_is_lost_at_the_end(void **state)
{
    (void)state;
    struct fixture *f = fixture_open(short_limits());
    struct buf letters = {0};
    on_server(f, post_letters, &letters);
    on_server(f, read_counts, &(struct counts){0});
    assert_string_equal(letters.v, "abcdefgh");
    on_server(f, stop_server, NULL);
    pthread_join(f->thread, NULL);
    post_letters(f, &letters); /* the loop has ended: http_close() runs them */
    http_close(f->server);
    assert_string_equal(letters.v, "abcdefghabcdefgh");
    buf_release(&letters);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_listened_on_or_the_error_has_the_reason),
        cmocka_unit_test(a_unix_socket_is_private_and_only_a_dead_one_replaced),
        cmocka_unit_test(a_unix_socket_takes_a_mode_and_a_group),
        cmocka_unit_test(open_connections_outlive_the_listeners),
        cmocka_unit_test(a_connection_waits_for_the_server_that_accepts),
        cmocka_unit_test(a_socket_that_was_lent_and_is_not_used_has_its_address_reported),
        cmocka_unit_test(a_retired_server_answers_each_connection_once_more),
        cmocka_unit_test(at_the_limit_a_connection_that_never_sent_a_request_is_closed_first),
        cmocka_unit_test(what_is_urgent_is_answered_although_all_connections_are_taken),
        cmocka_unit_test(a_silent_connection_over_the_limit_is_closed_soon),
        cmocka_unit_test(running_out_of_descriptors_is_survived_without_spinning),
        cmocka_unit_test(many_bodies_share_little_memory_and_all_come_through),
        cmocka_unit_test(bodies_that_are_held_keep_others_waiting),
        cmocka_unit_test(a_dropped_body_frees_its_memory_at_once),
        cmocka_unit_test(a_body_that_gets_no_memory_in_time_is_answered_with_503),
        cmocka_unit_test(bodies_that_one_client_does_not_end_keep_nobody_waiting),
        cmocka_unit_test(posts_of_many_threads_all_arrive),
        cmocka_unit_test(posts_run_in_order_and_none_is_lost_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
