/* Passing sockets on: what a next process does to the former one, whatever becomes of it. Both are in this process. */
#include "serve/handover.h"

#include "unit/http/fixture.h"

#include <sys/stat.h>

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

static void nothing(struct fixture *f, void *arg)
{
    (void)f, (void)arg;
}

/* Returns once the former one has taken note of what has happened to its sockets. */
static void settle(const struct former *former)
{
    for (int i = 0; i < 2; i++) on_server(former->http, nothing, NULL);
}

static void former_close(struct former *former)
{
    settle(former);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_next_one_that_fails_leaves_the_unix_socket_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
