/* Requests of pulls: which addresses are connected to where only public ones may be, and how soon a pull that is
 * cancelled ends. What is public here is one port of this machine. */
#include "fakes/cmocka_all.h"

#include "base/clock.h"
#include "base/memory.h"
#include "pull/web.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int public_port;

bool __wrap_address_is_public(const struct sockaddr *address);
bool __wrap_address_is_public(const struct sockaddr *address)
{
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port) == public_port;
}

/* ---- A source ---- */

struct source {
    int fd, port;
    char *answer; /* to every request; NULL: none ever comes */
    _Atomic int n_connections;
    pthread_t thread;
};

static void *answer(void *ud)
{
    struct source *source = ud;
    char head[4096];
    for (int fd; (fd = accept(source->fd, NULL, NULL)) >= 0;) {
        atomic_fetch_add(&source->n_connections, 1);
        ssize_t n = read(fd, head, sizeof head);
        if (n > 0 && source->answer != NULL) n = send(fd, source->answer, strlen(source->answer), MSG_NOSIGNAL);
        if (source->answer == NULL) n = read(fd, head, sizeof head); /* until the client goes */
        close(fd);
    }
    return NULL;
}

/* Takes the answer. */
static void open_source(struct source *source, char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    *source = (struct source){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .answer = text};
    assert_int_equal(bind(source->fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(source->fd, 8), 0);
    assert_int_equal(getsockname(source->fd, (struct sockaddr *)&address, &len), 0);
    source->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&source->thread, NULL, answer, source), 0);
}

static void close_source(struct source *source)
{
    shutdown(source->fd, SHUT_RDWR);
    pthread_join(source->thread, NULL);
    close(source->fd);
    free(source->answer);
}

static bool take(struct pull_request *request, const char *bytes, size_t len)
{
    (void)request, (void)bytes, (void)len;
    return true;
}

static int get(const struct pull_web *web, int port, hearth_error *error)
{
    char *url = mem_format("http://127.0.0.1:%d/m.gguf", port);
    struct pull_request request = {.web = web, .url = url, .take = take};
    int rc = pull_web_get(&request, error);
    pull_request_release(&request);
    free(url);
    return rc;
}

/* ---- Addresses ---- */

static void only_public_addresses_are_connected_to(void **state)
{
    (void)state;
    const struct pull_web web = {.public_only = true, .stall_seconds = 30};
    const struct pull_web any = {.stall_seconds = 30};
    struct source source, other;
    hearth_error error;
    open_source(&other, mem_strdup("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nG"));
    open_source(&source, mem_format("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/m.gguf\r\n"
                                    "Content-Length: 0\r\n\r\n",
                                    other.port));
    public_port = source.port;
    assert_int_equal(get(&web, other.port, &error), HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "has an address that is not public"));
    assert_int_equal(get(&web, source.port, &error), HEARTH_UNSUPPORTED); /* it leads to the other */
    assert_non_null(strstr(error.message, "has an address that is not public"));
    assert_int_equal(atomic_load(&source.n_connections), 1);
    assert_int_equal(atomic_load(&other.n_connections), 0);
    assert_int_equal(get(&any, source.port, &error), HEARTH_OK);
    public_port = other.port;
    assert_int_equal(get(&web, other.port, &error), HEARTH_OK);
    close_source(&source);
    close_source(&other);
}

static void a_proxy_is_passed_by_where_addresses_matter(void **state)
{
    (void)state;
    const struct pull_web web = {.public_only = true, .stall_seconds = 30}, any = {.stall_seconds = 30};
    struct source source, proxy;
    hearth_error error;
    open_source(&source, mem_strdup("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nG"));
    open_source(&proxy, mem_strdup("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nP"));
    public_port = source.port;
    char *url = mem_format("http://127.0.0.1:%d", proxy.port);
    setenv("http_proxy", url, 1);
    assert_int_equal(get(&any, source.port, &error), HEARTH_OK);
    assert_int_equal(atomic_load(&proxy.n_connections), 1);
    assert_int_equal(get(&web, source.port, &error), HEARTH_OK);
    assert_int_equal(atomic_load(&proxy.n_connections), 1);
    assert_int_equal(atomic_load(&source.n_connections), 1);
    unsetenv("http_proxy");
    free(url);
    close_source(&source);
    close_source(&proxy);
}

/* ---- Cancelling ---- */

/* True once it was asked so often. */
static bool count_down(void *ud)
{
    int *left = ud;
    return (*left)-- <= 0;
}

static void a_pull_that_is_cancelled_ends_while_nothing_comes(void **state)
{
    (void)state;
    int left = 2;
    const struct pull_web web = {.stall_seconds = 600, .is_cancelled = count_down, .ud = &left};
    struct source source;
    hearth_error error;
    open_source(&source, NULL);
    assert_int_equal(get(&web, source.port, &error), HEARTH_CANCELLED);
    assert_string_equal(error.message, "the pull was cancelled");
    close_source(&source);
}

static void and_between_two_attempts(void **state)
{
    (void)state;
    int left = 30; /* one attempt asks a few times, and a pause ten times a second */
    const struct pull_web web = {.stall_seconds = 30, .retries = 1000, .is_cancelled = count_down, .ud = &left};
    struct source source;
    hearth_error error;
    open_source(&source, mem_strdup("HTTP/1.1 503 Later\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"));
    assert_int_equal(get(&web, source.port, &error), HEARTH_CANCELLED);
    assert_int_equal(atomic_load(&source.n_connections), 1);
    close_source(&source);
}

static int without_proxies(void **state)
{
    (void)state;
    static const char *const names[] = {"http_proxy",  "https_proxy", "all_proxy", "HTTP_PROXY",
                                        "HTTPS_PROXY", "ALL_PROXY",   "no_proxy",  "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_public_addresses_are_connected_to),
        cmocka_unit_test(a_proxy_is_passed_by_where_addresses_matter),
        cmocka_unit_test(a_pull_that_is_cancelled_ends_while_nothing_comes),
        cmocka_unit_test(and_between_two_attempts),
    };
    return cmocka_run_group_tests(tests, without_proxies, NULL);
}
