/* The body parser: order of the queues, clients that disconnect, the server's end, and the bytes counted in the sum
 * of all bodies. */
#include "fakes/cmocka_all.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"
#include "serve/core/reading.h"
#include "serve/core/server.h"
#include "unit/serve/http_client.h"

#include "http/connection.h"

#include <stdlib.h>
#include <string.h>

#define LONG_BODY  (3 << 19) /* bytes */
#define SHORT_BODY 20000     /* bytes; long enough to be queued */

/* An HTTP server with a body parser alone. The gate blocks the reading thread. */
struct rig {
    struct server server;
    pthread_t thread;
    int port;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut;
    int n_requests, n_reading, n_released;
    bool probed;
    size_t active, stalled, held; /* as last seen on the HTTP thread */
    char order[16];               /* the first letters of the bodies, in the order of parsing */
};

static struct rig rig;

static void change(void)
{
    pthread_cond_broadcast(&rig.changed);
    pthread_mutex_unlock(&rig.mutex);
}

static void *read_letter(struct buf *body, hearth_error *error)
{
    pthread_mutex_lock(&rig.mutex);
    rig.order[rig.n_reading++] = body->v[0];
    pthread_cond_broadcast(&rig.changed);
    while (rig.shut && body->len > 1) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
    if (body->v[0] != '!') return mem_strndup(body->v, 1);
    error_at(error, HEARTH_INVALID, "letter", "no letter");
    return NULL;
}

static size_t letter_size(const void *request)
{
    (void)request;
    return 10;
}

static void answer(struct call *call, void *request)
{
    struct buf body = {0};
    buf_puts(&body, request);
    free(request);
    call_reply(call, 200, "text/plain", &body);
}

static void release(void *request)
{
    pthread_mutex_lock(&rig.mutex);
    rig.n_released++;
    change();
    free(request);
}

static const struct reading_form form = {
    .read = read_letter, .size = letter_size, .answer = answer, .release = release, .put_error = errors_put};

static void on_request(void *ud, struct http_request *http)
{
    reading_start(call_open(ud, http), &form);
    pthread_mutex_lock(&rig.mutex);
    rig.n_requests++;
    change();
}

static void put_fault(void *ud, struct http_request *http, int status, const char *message, struct buf *out)
{
    (void)ud, (void)http, (void)status;
    buf_puts(out, message);
}

static void *serve(void *ud)
{
    (void)ud;
    http_run(rig.server.http);
    return NULL;
}

static int set_up(void **state)
{
    (void)state;
    rig = (struct rig){0};
    pthread_mutex_init(&rig.mutex, NULL);
    pthread_cond_init(&rig.changed, NULL);
    pthread_mutex_init(&rig.server.mutex, NULL);
    struct http_limits limits = http_limits_default();
    struct http_handler handler = {.on_request = on_request, .put_fault = put_fault, .ud = &rig.server};
    hearth_error error;
    char *bound;
    limits.max_bodies = 4 * LONG_BODY * 8 / 7; /* an eighth is for small ones */
    rig.server.http = http_open(&limits, &handler, &error);
    assert_non_null(rig.server.http);
    rig.server.reading = reading_open(rig.server.http, &error);
    assert_non_null(rig.server.reading);
    rig.server.workers = workers_open(&error);
    assert_non_null(rig.server.workers);
    assert_int_equal(http_listen(rig.server.http, "127.0.0.1:0", &bound, &error), HEARTH_OK);
    rig.port = (int)strtol(strrchr(bound, ':') + 1, NULL, 10);
    free(bound);
    pthread_create(&rig.thread, NULL, serve, NULL);
    return 0;
}

static void stop(void *ud)
{
    (void)ud;
    http_stop(rig.server.http);
}

static void set_gate(bool shut)
{
    pthread_mutex_lock(&rig.mutex);
    rig.shut = shut;
    change();
}

static int tear_down(void **state)
{
    (void)state;
    set_gate(false);
    if (rig.server.http != NULL) {
        http_post(rig.server.http, stop, NULL);
        pthread_join(rig.thread, NULL);
        reading_close(rig.server.reading);
        workers_stop(rig.server.workers);
        http_close(rig.server.http);
        workers_close(rig.server.workers);
    }
    free(rig.server.counts);
    pthread_mutex_destroy(&rig.server.mutex);
    pthread_mutex_destroy(&rig.mutex);
    pthread_cond_destroy(&rig.changed);
    return 0;
}

static void await_reading(int n)
{
    pthread_mutex_lock(&rig.mutex);
    while (rig.n_reading < n) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
}

static void await_requests(int n)
{
    pthread_mutex_lock(&rig.mutex);
    while (rig.n_requests < n) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
}

/* The counts of the HTTP thread. */
static void look(void *ud)
{
    (void)ud;
    pthread_mutex_lock(&rig.mutex);
    rig.active = http_active(rig.server.http);
    rig.stalled = rig.server.http->bodies.stalled;
    rig.held = rig.server.http->bodies.held;
    rig.probed = true;
    change();
}

static void probe(void)
{
    rig.probed = false;
    http_post(rig.server.http, look, NULL);
    pthread_mutex_lock(&rig.mutex);
    while (!rig.probed) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
}

static void await_released(int n)
{
    pthread_mutex_lock(&rig.mutex);
    while (rig.n_released < n) pthread_cond_wait(&rig.changed, &rig.mutex);
    pthread_mutex_unlock(&rig.mutex);
}

/* ---- Clients ---- */

/* Sends a body of `len` equal letters. */
static struct client say(char letter, size_t len)
{
    struct client client = client_open(rig.port, 0);
    char *body = mem_alloc(len + 1);
    memset(body, letter, len);
    client_send(&client, "POST", "/", "", body);
    free(body);
    return client;
}

static void expect(struct client *client, int status, const char *body)
{
    struct response response = client_read(client, true);
    assert_int_equal(response.status, status);
    if (strstr(response.body.v, body) == NULL) fail_msg("%s", response.body.v);
    response_release(&response);
    client_close(client);
}

/* ---- Tests ---- */

static void bodies_are_read_in_order_and_short_ones_take_turns_with_long_ones(void **state)
{
    (void)state;
    static const struct {
        char letter;
        size_t len;
    } bodies[] = {{'x', SHORT_BODY}, {'A', LONG_BODY}, {'B', LONG_BODY}, {'c', SHORT_BODY}, {'d', SHORT_BODY}};
    struct client clients[5];
    set_gate(true);
    for (int i = 0; i < 5; i++) {
        clients[i] = say(bodies[i].letter, bodies[i].len);
        await_requests(i + 1);
        if (i == 0) await_reading(1);
    }
    set_gate(false);
    for (int i = 0; i < 5; i++) expect(&clients[i], 200, (char[]){bodies[i].letter, '\0'});
    assert_string_equal(rig.order, "xAcBd");
}

static void a_body_that_is_no_request_is_answered_with_its_error(void **state)
{
    (void)state;
    for (size_t len = 1; len <= SHORT_BODY; len += SHORT_BODY - 1) {
        struct client client = say('!', len);
        expect(&client, 400, "\"param\":\"letter\"");
    }
}

/* While a long body is being parsed. */
static void a_small_body_is_read_at_once(void **state)
{
    (void)state;
    set_gate(true);
    struct client other = say('o', LONG_BODY);
    await_reading(1);
    struct client client = say('s', 1);
    expect(&client, 200, "s");
    set_gate(false);
    expect(&other, 200, "o");
}

static void a_body_whose_client_disconnected_is_not_parsed_and_what_was_parsed_is_released(void **state)
{
    (void)state;
    set_gate(true);
    struct client reading = say('r', SHORT_BODY);
    await_reading(1);
    struct client waiting = say('w', SHORT_BODY);
    await_requests(2);
    client_close(&reading);
    client_close(&waiting);
    do probe();
    while (rig.active > 0);
    set_gate(false);
    await_released(1);
    struct client after = say('a', 1);
    expect(&after, 200, "a");
    assert_string_equal(rig.order, "ra");
    do probe();
    while (rig.held > 0);
}

static void what_waits_to_be_read_counts_and_what_was_read_counts_as_what_it_became(void **state)
{
    (void)state;
    struct client clients[6];
    set_gate(true);
    for (int i = 0; i < 4; i++) {
        clients[i] = say('a', LONG_BODY);
        await_requests(i + 1);
    }
    probe();
    assert_int_equal(rig.held, 4 * LONG_BODY);
    for (int i = 4; i < 6; i++) clients[i] = say('b', LONG_BODY);
    do probe();
    while (rig.stalled < 2);
    assert_int_equal(rig.n_requests, 4);
    set_gate(false);
    for (int i = 0; i < 6; i++) expect(&clients[i], 200, i < 4 ? "a" : "b");
    probe();
    assert_int_equal(rig.held, 0);
}

static void *let_go(void *ud)
{
    (void)ud;
    set_gate(false);
    return NULL;
}

static void the_end_waits_for_the_body_that_is_read_and_leaves_nothing_behind(void **state)
{
    (void)state;
    struct client clients[3];
    pthread_t thread;
    set_gate(true);
    for (int i = 0; i < 3; i++) {
        clients[i] = say('a', LONG_BODY);
        await_requests(i + 1);
    }
    await_reading(1);
    http_post(rig.server.http, stop, NULL);
    pthread_join(rig.thread, NULL);
    pthread_create(&thread, NULL, let_go, NULL);
    reading_close(rig.server.reading);
    pthread_join(thread, NULL);
    http_close(rig.server.http);
    rig.server.http = NULL;
    for (int i = 0; i < 3; i++) client_close(&clients[i]);
}

#define reading_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        reading_test(bodies_are_read_in_order_and_short_ones_take_turns_with_long_ones),
        reading_test(a_body_that_is_no_request_is_answered_with_its_error),
        reading_test(a_small_body_is_read_at_once),
        reading_test(a_body_whose_client_disconnected_is_not_parsed_and_what_was_parsed_is_released),
        reading_test(what_waits_to_be_read_counts_and_what_was_read_counts_as_what_it_became),
        reading_test(the_end_waits_for_the_body_that_is_read_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
