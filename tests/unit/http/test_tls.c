/* Connections over TLS: they behave like plain ones, and failed handshakes have no effect on others. */
#include "fakes/certificate.h"
#include "fixture.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static char folder[] = "/tmp/test-tls-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][64];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void use_certificate(struct fixture *f, void *name)
{
    char cert[32], key[32];
    hearth_error error = {0};
    snprintf(cert, sizeof cert, "%s.crt", (char *)name);
    snprintf(key, sizeof key, "%s.key", (char *)name);
    struct http_tls *tls = http_tls_open(in_folder(cert), in_folder(key), &error);
    if (tls == NULL) fail_msg("%s", error.message);
    http_use_tls(f->server, tls);
}

static struct fixture *open_tls(struct http_limits limits)
{
    struct fixture *f = fixture_open(limits);
    on_server(f, use_certificate, "first");
    return f;
}

/* ---- The client ---- */

struct talk {
    int fd;
    SSL *ssl;
};

/* Only connected: the handshake is still to come. */
static struct talk approach(struct fixture *f, SSL_CTX *context)
{
    struct talk talk = {.fd = dial(f), .ssl = SSL_new(context)};
    SSL_set_fd(talk.ssl, talk.fd);
    return talk;
}

static struct talk meet(struct fixture *f)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct talk talk = approach(f, context);
    SSL_CTX_free(context);
    assert_int_equal(SSL_connect(talk.ssl), 1);
    return talk;
}

static void part(struct talk *talk)
{
    SSL_free(talk->ssl);
    close(talk->fd);
}

static void send_text(struct talk *talk, const char *text)
{
    assert_int_equal(SSL_write(talk->ssl, text, (int)strlen(text)), (int)strlen(text));
}

/* Takes bytes until they end with `end` and are `least` at least. */
static void take_until(struct talk *talk, struct buf *in, const char *end, size_t least)
{
    static char piece[65536];
    size_t len = strlen(end);
    while (in->len < least || in->len < len || memcmp(in->v + in->len - len, end, len) != 0) {
        int n = SSL_read(talk->ssl, piece, sizeof piece);
        if (n <= 0) fail_msg("the connection ended after %zu bytes", in->len);
        buf_append(in, piece, (size_t)n);
    }
}

static void answered(struct talk *talk, const char *text, const char *end)
{
    struct buf in = {0};
    send_text(talk, text);
    take_until(talk, &in, end, 0);
    assert_memory_equal(in.v, "HTTP/1.1 200 ", 13);
    buf_release(&in);
}

/* ---- What works as without ---- */

static void a_connection_carries_one_request_after_the_other(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    for (int i = 0; i < 3; i++)
        answered(&talk, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "\r\n\r\nhello");
    answered(&talk, GET("/stream"), "5\r\nthree\r\n0\r\n\r\n");
    assert_int_equal(counts_of(f).connections, 1);
    part(&talk);
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

static void a_large_body_arrives_whole(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    struct buf text = {0};
    buf_puts(&text, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 100000; i++) buf_printf(&text, "%09d ", i);
    answered(&talk, text.v, "000099999 ");
    buf_release(&text);
    part(&talk);
    fixture_close(f);
}

static void requests_that_wait_behind_an_answer_are_answered_in_turn(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    struct buf text = {0}, in = {0};
    for (int i = 0; i < 500; i++) buf_puts(&text, GET("/empty"));
    send_text(&talk, GET("/hold"));
    wait_until(f, n.held == 1);
    send_text(&talk, text.v);
    on_server(f, release_held, NULL);
    wait_until(f, n.requests == 501);
    send_text(&talk, GET("/last"));
    take_until(&talk, &in, "X-Path: /last\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n", 0);
    buf_release(&text);
    buf_release(&in);
    part(&talk);
    fixture_close(f);
}

static void flood(struct fixture *f, void *arg)
{
    (void)arg;
    static char bytes[65536];
    for (int i = 0; f->n_held > 0 && i < 16; i++) http_send(f->held[0]->request, bytes, sizeof bytes);
    f->backlog = f->n_held > 0 ? http_backlog(f->held[0]->request) : 0;
}

static void what_a_client_does_not_take_counts_as_backlog_until_it_does(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    size_t sent = 0;
    send_text(&talk, GET("/begin"));
    wait_until(f, n.held == 1);
    do {
        on_server(f, flood, NULL);
        sent += 16 * 65536;
    } while (counts_of(f).backlog < 8 << 20);
    on_server(f, release_held, NULL);
    struct buf in = {0};
    take_until(&talk, &in, "\r\n0\r\n\r\n", sent);
    buf_release(&in);
    answered(&talk, GET("/"), "\r\n\r\n");
    part(&talk);
    fixture_close(f);
}

/* A client that has sent close_notify still gets the answer if that has ended already. */
static void an_ended_answer_is_sent_to_a_client_that_shut_down_its_sending_side(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    size_t sent = 0;
    send_text(&talk, GET("/begin"));
    wait_until(f, n.held == 1);
    do {
        on_server(f, flood, NULL);
        sent += 16 * 65536;
    } while (counts_of(f).backlog < 8 << 20);
    on_server(f, release_held, NULL);
    SSL_shutdown(talk.ssl);
    struct buf in = {0};
    take_until(&talk, &in, "\r\n0\r\n\r\n", sent);
    buf_release(&in);
    wait_until(f, n.connections == 0);
    part(&talk);
    fixture_close(f);
}

/* With a close_notify that is read before the end of the connection is detected, and without. */
static void a_client_that_leaves_with_an_answer_half_sent_is_noticed(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    for (int farewell = 0; farewell < 2; farewell++) {
        struct talk talk = meet(f);
        send_text(&talk, GET("/begin"));
        wait_until(f, n.held == 1);
        do on_server(f, flood, NULL);
        while (counts_of(f).backlog < 8 << 20);
        on_server(f, release_held, NULL);
        if (farewell) SSL_shutdown(talk.ssl);
        part(&talk);
        wait_until(f, n.connections == 0);
    }
    fixture_close(f);
}

static void a_client_that_takes_nothing_is_gone_after_the_write_timeout(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.write_timeout_ms = 200;
    struct fixture *f = open_tls(limits);
    struct talk talk = meet(f);
    send_text(&talk, GET("/begin"));
    wait_until(f, n.held == 1);
    do on_server(f, flood, NULL);
    while (counts_of(f).backlog > 0 && counts_of(f).backlog < 8 << 20);
    wait_until(f, n.gone == 1 && n.connections == 0);
    part(&talk);
    fixture_close(f);
}

/* With a close_notify, with the end of the connection alone, and with unread input. */
static void a_client_that_leaves_during_an_answer_is_noticed(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    static char more[40000];
    memset(more, 'x', sizeof more - 1);
    for (size_t how = 0; how < 3; how++) {
        struct talk talk = meet(f);
        send_text(&talk, GET("/hold"));
        wait_until(f, n.held == 1);
        if (how == 0) SSL_shutdown(talk.ssl);
        if (how == 1) shutdown(talk.fd, SHUT_WR);
        if (how == 2) {
            send_text(&talk, more);
            part(&talk);
        }
        wait_until(f, n.gone == how + 1 && n.connections == 0);
        if (how != 2) part(&talk);
    }
    fixture_close(f);
}

static void waiting_for_an_answer_with_bytes_to_read_costs_no_time(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.first_request_timeout_ms = 500; /* a handshake counts */
    struct fixture *f = open_tls(limits);
    struct talk talk = meet(f);
    struct buf text = {0};
    for (int i = 0; i < 2000; i++) buf_puts(&text, GET("/next"));
    send_text(&talk, GET("/hold"));
    wait_until(f, n.held == 1);
    send_text(&talk, text.v);
    int64_t before = cpu_ms(f);
    int silent = dial(f);
    assert_true(ended(silent)); /* half a second later */
    assert_true(cpu_ms(f) - before < 200);
    buf_release(&text);
    close(silent);
    part(&talk);
    fixture_close(f);
}

static void an_idle_connection_ends_and_costs_nothing_before(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.idle_timeout_ms = 500;
    struct fixture *f = open_tls(limits);
    struct talk talk = meet(f);
    answered(&talk, GET("/"), "\r\n\r\n");
    int64_t cpu = cpu_ms(f);
    wait_until(f, n.connections == 0);
    assert_true(cpu_ms(f) - cpu < 200);
    part(&talk);
    fixture_close(f);
}

static void the_last_answer_of_a_connection_ends_with_close_notify(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talk = meet(f);
    answered(&talk, "GET /stream HTTP/1.0\r\n\r\n", "one two three");
    char c;
    int n = SSL_read(talk.ssl, &c, 1);
    assert_int_equal(n, 0);
    assert_int_equal(SSL_get_error(talk.ssl, n), SSL_ERROR_ZERO_RETURN);
    part(&talk);
    fixture_close(f);
}

/* ---- Handshakes ---- */

static void only_what_is_safe_and_known_is_agreed_on(void **state)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1", other[] = "\x02h2";
    static const struct {
        int version;
        const unsigned char *protocols;
        unsigned len;
        bool works;
    } rows[] = {
        {TLS1_3_VERSION, both, sizeof both - 1, true},
        {TLS1_2_VERSION, both, sizeof both - 1, true},
        {TLS1_2_VERSION, NULL, 0, true},
        {TLS1_1_VERSION, NULL, 0, false},
        {TLS1_3_VERSION, other, sizeof other - 1, false},
    };
    (void)state;
    struct fixture *f = open_tls(short_limits());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SSL_CTX *context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_security_level(context, 0);
        SSL_CTX_set_max_proto_version(context, rows[i].version);
        SSL_CTX_set_alpn_protos(context, rows[i].protocols, rows[i].len);
        struct talk talk = approach(f, context);
        bool works = SSL_connect(talk.ssl) == 1;
        if (works != rows[i].works) fail_msg("row %zu", i);
        if (works) {
            const unsigned char *chosen;
            unsigned len;
            answered(&talk, GET("/"), "\r\n\r\n");
            SSL_get0_alpn_selected(talk.ssl, &chosen, &len);
            assert_int_equal(len, rows[i].protocols != NULL ? 8 : 0);
        }
        part(&talk);
        SSL_CTX_free(context);
    }
    ERR_clear_error();
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

static void what_is_no_handshake_is_closed(void **state)
{
    (void)state;
    static const char zeros[5000],
        almost[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage from here on, and more of it";
    struct fixture *f = open_tls(short_limits());
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {{GET("/"), sizeof GET("/") - 1}, {zeros, sizeof zeros}, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = dial(f);
        say_bytes(fd, rows[i].bytes, rows[i].len);
        wait_until(f, n.connections == 0);
        close(fd);
    }
    int fd = dial(f); /* announces more than it sends, and leaves */
    say_bytes(fd, almost, sizeof almost - 1);
    wait_until(f, n.connections == 1);
    close(fd);
    wait_until(f, n.connections == 0);
    assert_int_equal(counts_of(f).requests, 0);
    struct talk talk = meet(f);
    answered(&talk, GET("/"), "\r\n\r\n");
    part(&talk);
    fixture_close(f);
}

static void a_handshake_counts_into_the_time_for_the_first_request(void **state)
{
    (void)state;
    struct http_limits limits = short_limits();
    limits.first_request_timeout_ms = 200;
    struct fixture *f = open_tls(limits);
    int silent = dial(f), slow = dial(f);
    say_bytes(slow, "\x16\x03\x01\x02\x00\x01", 6);
    wait_until(f, n.connections == 2);
    assert_true(ended(silent));
    assert_true(ended(slow));
    wait_until(f, n.connections == 0);
    close(silent);
    close(slow);
    fixture_close(f);
}

/* A handshake cut off after each byte of the client's first message. */
static void a_client_may_vanish_at_any_moment_of_the_handshake(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_connect(ssl);
    char *hello;
    size_t len = (size_t)BIO_get_mem_data(SSL_get_wbio(ssl), &hello);
    for (size_t cut = 0; cut <= len; cut += 7) {
        int fd = dial(f);
        say_bytes(fd, hello, cut);
        close(fd);
    }
    int fd = dial(f);
    say_bytes(fd, hello, len);
    char c;
    assert_int_equal(recv(fd, &c, 1, 0), 1); /* the server's first message is there */
    close(fd);
    wait_until(f, n.connections == 0);
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
    fixture_close(f);
}

enum { CLIENTS = 200 };

static void many_connections_are_served_at_once(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk talks[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) talks[i] = meet(f);
    assert_int_equal(counts_of(f).connections, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) send_text(&talks[i], GET("/stream"));
    for (int i = 0; i < CLIENTS; i++) {
        struct buf in = {0};
        take_until(&talks[i], &in, "\r\n0\r\n\r\n", 0);
        buf_release(&in);
        part(&talks[i]);
    }
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

/* ---- Certificates ---- */

static void shows(struct talk *talk, const char *name)
{
    char text[64];
    X509 *cert = SSL_get1_peer_certificate(talk->ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, text, sizeof text);
    assert_string_equal(text, name);
    X509_free(cert);
}

static void a_new_certificate_is_for_new_connections(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    struct talk old = meet(f);
    on_server(f, use_certificate, "second");
    struct talk new = meet(f);
    shows(&old, "first");
    shows(&new, "second");
    answered(&old, GET("/"), "\r\n\r\n");
    answered(&new, GET("/"), "\r\n\r\n");
    part(&old);
    part(&new);
    fixture_close(f);
}

static void refused(const char *cert, const char *key, const char *param, const char *message)
{
    hearth_error error = {0};
    assert_null(http_tls_open(in_folder(cert), in_folder(key), &error));
    assert_string_equal(error.param, param);
    if (strstr(error.message, message) == NULL) fail_msg("%s", error.message);
    assert_int_equal(ERR_peek_error(), 0); /* nothing is left for the next connection's errors */
}

static void a_certificate_that_cannot_be_served_is_refused_with_the_reason(void **state)
{
    (void)state;
    FILE *file = fopen(in_folder("broken"), "we");
    fputs("-----BEGIN CERTIFICATE-----\nno\n", file);
    fclose(file);
    refused("none.crt", "first.key", "tls_cert", "none.crt: No such file");
    refused("broken", "first.key", "tls_cert", "broken");
    refused("first.key", "first.key", "tls_cert", "first.key: no start line");
    refused("first.crt", "none.key", "tls_key", "none.key: No such file");
    refused("first.crt", "broken", "tls_key", "broken");
    refused("first.crt", "second.key", "tls_key", "second.key does not belong to the certificate");
    refused("first.crt", "locked.key", "tls_key", "locked.key");
}

static void accept_unix(struct fixture *f, void *arg)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    server_accept(NULL, *(int *)arg, &address, sizeof address, f->server);
}

static void a_unix_socket_stays_plain(void **state)
{
    (void)state;
    struct fixture *f = open_tls(short_limits());
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    on_server(f, accept_unix, &pair[0]);
    ask_only(pair[1], GET("/"), 200);
    close(pair[1]);
    wait_until(f, n.connections == 0);
    fixture_close(f);
}

/* ---- Certificates for all ---- */

static int make_certificates(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    certificate_make(folder, "first");
    certificate_make(folder, "second");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    FILE *file = fopen(in_folder("locked.key"), "we");
    PEM_write_PKCS8PrivateKey(file, key, EVP_aes_256_cbc(), "secret", 6, NULL, NULL);
    fclose(file);
    EVP_PKEY_free(key);
    return 0;
}

static int remove_certificates(void **state)
{
    (void)state;
    static const char *const names[] = {"first.crt", "first.key", "second.crt", "second.key", "locked.key", "broken"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_carries_one_request_after_the_other),
        cmocka_unit_test(a_large_body_arrives_whole),
        cmocka_unit_test(requests_that_wait_behind_an_answer_are_answered_in_turn),
        cmocka_unit_test(what_a_client_does_not_take_counts_as_backlog_until_it_does),
        cmocka_unit_test(an_ended_answer_is_sent_to_a_client_that_shut_down_its_sending_side),
        cmocka_unit_test(a_client_that_leaves_with_an_answer_half_sent_is_noticed),
        cmocka_unit_test(a_client_that_takes_nothing_is_gone_after_the_write_timeout),
        cmocka_unit_test(a_client_that_leaves_during_an_answer_is_noticed),
        cmocka_unit_test(waiting_for_an_answer_with_bytes_to_read_costs_no_time),
        cmocka_unit_test(an_idle_connection_ends_and_costs_nothing_before),
        cmocka_unit_test(the_last_answer_of_a_connection_ends_with_close_notify),
        cmocka_unit_test(only_what_is_safe_and_known_is_agreed_on),
        cmocka_unit_test(what_is_no_handshake_is_closed),
        cmocka_unit_test(a_handshake_counts_into_the_time_for_the_first_request),
        cmocka_unit_test(a_client_may_vanish_at_any_moment_of_the_handshake),
        cmocka_unit_test(many_connections_are_served_at_once),
        cmocka_unit_test(a_new_certificate_is_for_new_connections),
        cmocka_unit_test(a_certificate_that_cannot_be_served_is_refused_with_the_reason),
        cmocka_unit_test(a_unix_socket_stays_plain),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
