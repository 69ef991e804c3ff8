/* Passing sockets on: what a next process does to the former one, whatever becomes of it. Both are in this process. */
#include "serve/handover.h"

#include "unit/http/fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

struct place {
    char folder[32], path[64], unix_path[64], address[80];
};

/* A server, which is passed on at the place's path. */
struct former {
    struct fixture *http;
    struct handover *handover;
    const struct place *place;
};

/* One that takes over, or does not. Its thread is the test's. */
struct next {
    struct http_server *http;
    struct handover *handover;
    hearth_error error;
};

static struct place place_make(void)
{
    struct place place = {.folder = "/tmp/hearth-XXXXXX"};
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.path, sizeof place.path, "%s/handover", place.folder);
    snprintf(place.unix_path, sizeof place.unix_path, "%s/http", place.folder);
    snprintf(place.address, sizeof place.address, "unix:%s", place.unix_path);
    return place;
}

static struct sockaddr_un unix_name(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, strlen(path) + 1);
    return name;
}

static bool is_there(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0;
}

static void no_matter(void *ud)
{
    (void)ud;
}

static void begin(struct fixture *f, void *arg)
{
    struct former *former = arg;
    hearth_error error = {0};
    assert_int_equal(http_listen(f->server, former->place->address, NULL, &error), 0);
    former->handover = handover_open(former->place->path, f->server, &error);
    assert_non_null(former->handover);
    assert_false(handover_has_former(former->handover));
    assert_int_equal(handover_listen(former->handover, no_matter, NULL, &error), 0);
}

static void end(struct fixture *f, void *arg)
{
    (void)f;
    handover_stop(((struct former *)arg)->handover);
}

static struct former former_open(const struct place *place)
{
    struct former former = {.http = fixture_open(short_limits()), .place = place};
    on_server(former.http, begin, &former);
    return former;
}

static void read_has_next(struct fixture *f, void *arg)
{
    *(bool *)arg = f->server->keeps_files;
}

static void await_end_of_next(const struct former *former)
{
    bool has_next = true;
    while (has_next) on_server(former->http, read_has_next, &has_next);
}

static void former_close(struct former *former)
{
    await_end_of_next(former);
    on_server(former->http, end, former);
    fixture_close(former->http);
    handover_close(former->handover);
    assert_false(is_there(former->place->path));
    assert_false(is_there(former->place->unix_path));
    rmdir(former->place->folder);
}

static struct next next_open(const struct place *place)
{
    static const struct http_limits limits = {.max_connections = 1};
    static const struct http_handler handler = {0};
    struct next next = {.error = {0}};
    next.http = http_open(&limits, &handler, &next.error);
    assert_non_null(next.http);
    next.handover = handover_open(place->path, next.http, &next.error);
    return next;
}

static void next_close(struct next *next)
{
    handover_stop(next->handover);
    http_close(next->http);
    handover_close(next->handover);
}

static void a_next_one_that_fails_leaves_the_unix_socket_alone(void **state)
{
    (void)state;
    struct place place = place_make();
    struct former former = former_open(&place);
    struct next next = next_open(&place);
    assert_true(handover_has_former(next.handover));
    assert_int_equal(http_listen(next.http, place.address, NULL, &next.error), 0);
    next_close(&next);
    assert_true(is_there(place.unix_path));
    former_close(&former);
}

static sem_t disabled;

int __real_evconnlistener_disable(struct evconnlistener *listener);
int __wrap_evconnlistener_disable(struct evconnlistener *listener);

int __wrap_evconnlistener_disable(struct evconnlistener *listener)
{
    int rc = __real_evconnlistener_disable(listener);
    sem_post(&disabled);
    return rc;
}

/* For want of descriptors: this process has none to spare while the next one connects. */
static void a_connection_that_could_not_be_accepted_is_accepted_later(void **state)
{
    (void)state;
    struct place place = place_make();
    struct former former = former_open(&place);
    struct sockaddr_un name = unix_name(place.path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct rlimit limit, none;
    sem_init(&disabled, 0, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = connect(fd, (const struct sockaddr *)&name, sizeof name);
    while (sem_wait(&disabled) != 0) continue;
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(rc, 0);
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&answer, 1, PATIENCE_MS), 1);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    close(fd);
    sem_destroy(&disabled);
    former_close(&former);
}

/* ---- Others that listen at the path ---- */

static uid_t uid_of_others;

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);

uid_t __wrap_geteuid(void)
{
    return __real_geteuid() + uid_of_others;
}

static void another_users_process_is_not_believed(void **state)
{
    (void)state;
    struct place place = place_make();
    struct former former = former_open(&place);
    uid_of_others = 1;
    struct next next = next_open(&place);
    uid_of_others = 0;
    assert_null(next.handover);
    assert_non_null(strstr(next.error.message, "is listened at by a process of another user"));
    next_close(&next);
    former_close(&former);
}

/* What a stranger does once somebody has connected. */
struct stranger {
    struct place place;
    int listener, passed;
    size_t n_passed;
    pthread_t thread;
};

static void stranger_listen(struct stranger *stranger)
{
    struct sockaddr_un name;
    stranger->place = place_make();
    name = unix_name(stranger->place.path);
    stranger->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stranger->listener, (const struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(stranger->listener, 1), 0);
}

static void *pass_descriptors(void *ud)
{
    enum { MOST = 200 };
    const struct stranger *stranger = ud;
    char byte = 'H';
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } passed = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = passed.bytes,
                             .msg_controllen = CMSG_SPACE(stranger->n_passed * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    *c = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(stranger->n_passed * sizeof(int))};
    for (size_t i = 0; i < stranger->n_passed; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &stranger->passed, sizeof(int));
    int fd = accept(stranger->listener, NULL, NULL);
    sendmsg(fd, &message, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void stranger_end(struct stranger *stranger)
{
    pthread_join(stranger->thread, NULL);
    if (stranger->listener >= 0) close(stranger->listener);
    unlink(stranger->place.path);
    assert_int_equal(rmdir(stranger->place.folder), 0);
}

static void what_does_not_listen_or_is_too_much_is_refused(void **state)
{
    (void)state;
    for (int too_many = 0; too_many <= 1; too_many++) {
        struct stranger stranger = {.n_passed = too_many ? 200 : 1};
        stranger_listen(&stranger);
        stranger.passed = too_many ? stranger.listener : open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(pthread_create(&stranger.thread, NULL, pass_descriptors, &stranger), 0);
        struct next next = next_open(&stranger.place);
        assert_null(next.handover);
        assert_non_null(strstr(next.error.message, too_many ? "more sockets than" : "no socket that listens"));
        next_close(&next);
        if (!too_many) close(stranger.passed);
        stranger_end(&stranger);
    }
}

static void *stop_when_asked(void *ud)
{
    struct stranger *stranger = ud;
    struct pollfd asked = {.fd = stranger->listener, .events = POLLIN};
    poll(&asked, 1, PATIENCE_MS);
    unlink(stranger->place.path);
    close(stranger->listener);
    stranger->listener = -1;
    return NULL;
}

static void one_that_is_about_to_end_is_no_former_one(void **state)
{
    (void)state;
    struct stranger stranger = {0};
    stranger_listen(&stranger);
    assert_int_equal(pthread_create(&stranger.thread, NULL, stop_when_asked, &stranger), 0);
    struct next next = next_open(&stranger.place);
    assert_non_null(next.handover);
    assert_false(handover_has_former(next.handover));
    next_close(&next);
    stranger_end(&stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_next_one_that_fails_leaves_the_unix_socket_alone),
        cmocka_unit_test(a_connection_that_could_not_be_accepted_is_accepted_later),
        cmocka_unit_test(another_users_process_is_not_believed),
        cmocka_unit_test(what_does_not_listen_or_is_too_much_is_refused),
        cmocka_unit_test(one_that_is_about_to_end_is_no_former_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
