/* The backend on a real redis-server: what one process puts another gets; slabs of several parts, of which some are
 * evicted; bytes that somebody changed; two that store the same slab at once; a server that is full or away. */
#include "fakes/cmocka_all.h"
#include "fakes/redis_server.h"
#include "store/remote/redis.h"
#include "store/remote/remote_backend.h"
#include "store/slabs/sealed_slab.h"

#include "slabs.h"

#include <stdio.h>
#include <unistd.h>

#define TIMEOUT_MS 300
#define KEY_FILE   "/tmp/hearth-test-remote-key"
enum { STRIDE = 16 };

static struct redis_server server;

static int start_server(void **state)
{
    FILE *file = fopen(KEY_FILE, "w");
    (void)state;
    if (file == NULL) return -1;
    fputs("0123456789abcdef0123456789abcdef\n", file);
    fclose(file);
    redis_server_start(&server, NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    redis_server_stop(&server);
    unlink(KEY_FILE);
    return 0;
}

static struct remote_params params_of_test(void)
{
    return (struct remote_params){.url = server.url,
                                  .prefix = "test",
                                  .key_file = KEY_FILE,
                                  .ttl_s = 3600,
                                  .timeout_ns = clock_from_ms(TIMEOUT_MS),
                                  .stride = STRIDE};
}

static struct backend *open_with(const struct remote_params *params)
{
    struct backend *backend = remote_backend_open(params);
    hearth_error error = {0};
    if (backend->open(backend, &error) != 0) fail_msg("%s", error.message);
    return backend;
}

static struct backend *open_default(void)
{
    const struct remote_params params = params_of_test();
    return open_with(&params);
}

/* A block of rows whose payload has that many more bytes. */
static struct made make_block(uint8_t number, size_t more)
{
    struct made made = make_slab(number, SLAB_ROWS, STRIDE, STRIDE);
    size_t size = made.head.payload_size + more;
    made.payload = mem_grow(made.payload, size, 1);
    for (size_t i = made.head.payload_size; i < size; i++) made.payload[i] = (uint8_t)(i * 2654435761u >> 24);
    made.head.payload_size = size;
    return made;
}

static int put(struct backend *backend, struct made *made, hearth_error *error)
{
    struct buf payload = {0};
    buf_append(&payload, made->payload, made->head.payload_size);
    int result = backend->put(backend, &made->head, &payload, error);
    buf_release(&payload);
    return result;
}

static void put_well(struct backend *backend, struct made *made)
{
    hearth_error error = {0};
    if (put(backend, made, &error) != 0) fail_msg("%s", error.message);
}

static struct slab_name name_of(const struct made *made)
{
    return (struct slab_name){made->head.key, made->head.kind};
}

/* Gets the slab, and compares it where it is there. */
static int get(struct backend *backend, const struct made *made, hearth_error *error)
{
    struct slab slab = {0};
    struct slab_name name = name_of(made);
    int result = backend->get(backend, &name, &slab, error);
    if (result != 0) return result;
    assert_int_equal(slab.head.payload_size, made->head.payload_size);
    assert_memory_equal(slab.payload, made->payload, made->head.payload_size);
    assert_int_equal(slab.head.start, made->head.start);
    assert_memory_equal(slab.head.tokens.v, made->head.tokens.v, STRIDE * sizeof(int32_t));
    slab_release(&slab);
    return 0;
}

static struct backend_probed probe(struct backend *backend, const struct made *made)
{
    struct slab_name name = name_of(made);
    struct backend_probed probed;
    assert_int_equal(backend->probe(backend, &name, 1, &probed, CLOCK_NEVER, NULL), 0);
    return probed;
}

static void release(struct made *made)
{
    slab_head_release(&made->head);
    free(made->payload);
}

#define ASK(...) redis_server_ask(&server, (const char *const[]){__VA_ARGS__, NULL})

static void tell(const char *const *words)
{
    free(redis_server_ask(&server, words));
}

#define TELL(...) tell((const char *const[]){__VA_ARGS__, NULL})

/* The n-th key of the server whose name matches. */
static char *key_like(const char *pattern)
{
    char *keys = ASK("KEYS", pattern);
    keys[strcspn(keys, "\n")] = '\0';
    return keys;
}

static long number(char *text)
{
    long value = strtol(text, NULL, 10);
    free(text);
    return value;
}

/* ---- Tests ---- */

static void what_one_puts_another_gets(void **state)
{
    static const size_t more[] = {0, 1, (4 << 20) - 500, 4 << 20, (9 << 20) + 3};
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct remote_params params = params_of_test();
        params.encrypts = encrypts;
        struct backend *one = open_with(&params), *other = open_with(&params);
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
            struct made made = make_block((uint8_t)(1 + i), more[i]);
            assert_false(probe(other, &made).there);
            assert_int_equal(get(other, &made, NULL), HEARTH_NOT_FOUND);
            put_well(one, &made);
            struct backend_probed probed = probe(other, &made);
            assert_true(probed.there);
            assert_int_equal(probed.size, slab_size(&made.head));
            assert_int_equal(get(other, &made, NULL), 0);
            release(&made);
        }
        one->close(one);
        other->close(other);
        TELL("FLUSHALL");
    }
}

static void a_slab_that_is_there_is_left_as_it_is(void **state)
{
    struct backend *one = open_default(), *other = open_default();
    struct made made = make_block(1, 5 << 20), again = make_block(1, 5 << 20);
    (void)state;
    again.payload[100] ^= 1; /* another machine's rounding */
    put_well(one, &made);
    assert_int_equal(number(ASK("DBSIZE")), 2);
    put_well(other, &again);
    assert_int_equal(number(ASK("DBSIZE")), 2); /* nothing is left of the second one's parts */
    assert_int_equal(get(other, &made, NULL), 0);
    release(&made);
    release(&again);
    one->close(one);
    other->close(other);
    TELL("FLUSHALL");
}

static void an_evicted_part_costs_its_slab_and_is_stored_again(void **state)
{
    static const char *const patterns[] = {"test:*:1", "test:*:2"};
    struct backend *backend = open_default();
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct made made = make_block(1, 9 << 20);
        put_well(backend, &made);
        char *key = key_like(patterns[i]);
        TELL("DEL", key);
        free(key);
        assert_true(probe(backend, &made).there);
        assert_int_equal(get(backend, &made, NULL), HEARTH_NOT_FOUND);
        assert_false(probe(backend, &made).there); /* its first part is gone as well */
        put_well(backend, &made);
        assert_int_equal(get(backend, &made, NULL), 0);
        release(&made);
        TELL("FLUSHALL");
    }
    backend->close(backend);
}

/* Bytes of the first part's head, of its slab, and of the second part. */
static void changed_bytes_are_noticed(void **state)
{
    static const struct {
        const char *pattern, *offset;
    } cases[] = {{"test:????????????????????????????????????????????????????????????????", "0"},
                 {"test:????????????????????????????????????????????????????????????????", "45"},
                 {"test:????????????????????????????????????????????????????????????????", "400"},
                 {"test:*:1", "77"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct backend *backend = open_default();
        struct made made = make_block(1, 5 << 20);
        hearth_error error = {0};
        put_well(backend, &made);
        char *key = key_like(cases[i].pattern);
        TELL("SETRANGE", key, cases[i].offset, "~~~~");
        free(key);
        assert_int_equal(get(backend, &made, &error), HEARTH_INVALID);
        struct slab_name name = name_of(&made);
        backend->quarantine(backend, &name);
        assert_false(probe(backend, &made).there);
        release(&made);
        backend->close(backend);
        TELL("FLUSHALL");
    }
}

/* Between the read that found it damaged and its removal. */
static void what_was_stored_anew_meanwhile_stays(void **state)
{
    struct backend *one = open_default(), *other = open_default();
    struct made made = make_block(1, 5 << 20);
    struct slab_name name = name_of(&made);
    (void)state;
    put_well(one, &made);
    char *part = key_like("test:*:1");
    TELL("SETRANGE", part, "77", "~~~~");
    assert_int_equal(get(one, &made, NULL), HEARTH_INVALID);
    TELL("FLUSHALL");
    put_well(other, &made);
    one->quarantine(one, &name);
    assert_true(probe(other, &made).there);
    assert_int_equal(get(other, &made, NULL), 0);
    free(part);
    release(&made);
    one->close(one);
    other->close(other);
    TELL("FLUSHALL");
}

/* A slab under the name of another, as a server could answer that mixes them up, or lies. */
static void another_slab_under_the_name_is_noticed(void **state)
{
    struct backend *backend = open_default();
    struct made one = make_block(1, 0), other = make_block(2, 0);
    hearth_error error = {0};
    (void)state;
    put_well(backend, &one);
    char *first = key_like("test:*");
    put_well(backend, &other);
    TELL("RENAME", first, "aside");
    char *second = key_like("test:*");
    TELL("RENAME", second, first);
    TELL("RENAME", "aside", second);
    assert_int_equal(get(backend, &one, &error), HEARTH_INVALID);
    assert_non_null(strstr(error.message, "another MAC"));
    assert_int_equal(get(backend, &other, &error), HEARTH_INVALID);
    TELL("FLUSHALL");
    TELL("SET", first, "something else");
    assert_int_equal(get(backend, &one, &error), HEARTH_INVALID);
    assert_false(probe(backend, &one).there);
    free(first);
    free(second);
    release(&one);
    release(&other);
    backend->close(backend);
    TELL("FLUSHALL");
}

/* Rows that begin or end elsewhere than blocks and states do, and states of a part of their tokens. */
static void slabs_that_depend_on_a_save_are_refused(void **state)
{
    struct backend *backend = open_default();
    struct made made[] = {make_slab(1, SLAB_ROWS, STRIDE + 1, STRIDE - 1),
                          make_slab(2, SLAB_ROWS, STRIDE, STRIDE + 1),
                          make_slab(3, SLAB_STATE, STRIDE, 4),
                          make_slab(4, SLAB_ROWS, STRIDE, STRIDE - 1),
                          make_slab(5, SLAB_STATE, STRIDE, 0),
                          make_slab(6, SLAB_STATE, 0, 5)};
    (void)state;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        struct slab slab = {0};
        struct slab_name name = name_of(&made[i]);
        put_well(backend, &made[i]);
        assert_int_equal(backend->get(backend, &name, &slab, NULL), i < 3 ? HEARTH_INVALID : 0);
        slab_release(&slab);
        release(&made[i]);
    }
    backend->close(backend);
    TELL("FLUSHALL");
}

static void other_secrets_strides_and_prefixes_share_nothing(void **state)
{
    struct remote_params params[4] = {params_of_test(), params_of_test(), params_of_test(), params_of_test()};
    struct made made = make_block(1, 0);
    (void)state;
    params[1].key_file = NULL;
    params[2].stride = 2 * STRIDE;
    params[3].prefix = "else";
    struct backend *owner = open_with(&params[0]);
    put_well(owner, &made);
    for (size_t i = 1; i < 4; i++) {
        struct backend *other = open_with(&params[i]);
        assert_false(probe(other, &made).there);
        assert_int_equal(get(other, &made, NULL), HEARTH_NOT_FOUND);
        other->close(other);
    }
    release(&made);
    owner->close(owner);
    TELL("FLUSHALL");
}

static void a_read_makes_all_parts_live_longer(void **state)
{
    struct backend *backend = open_default();
    struct made made = make_block(1, 5 << 20);
    (void)state;
    put_well(backend, &made);
    char *part = key_like("test:*:1");
    assert_true(number(ASK("TTL", part)) > 3500);
    TELL("EXPIRE", part, "100");
    assert_int_equal(get(backend, &made, NULL), 0);
    assert_true(number(ASK("TTL", part)) > 3500);
    free(part);
    release(&made);
    backend->close(backend);
    TELL("FLUSHALL");
}

static void a_full_server_refuses_and_keeps_no_parts(void **state)
{
    struct backend *backend = open_default();
    struct made made = make_block(1, 9 << 20);
    hearth_error error = {0};
    (void)state;
    TELL("CONFIG", "SET", "maxmemory", "8mb");
    assert_int_equal(put(backend, &made, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "OOM"));
    TELL("CONFIG", "SET", "maxmemory", "0");
    assert_int_equal(number(ASK("DBSIZE")), 0);
    put_well(backend, &made);
    release(&made);
    backend->close(backend);
    TELL("FLUSHALL");
}

/* Its master is elsewhere now, where the name leads when the server is connected anew. */
static void a_server_that_has_become_a_replica_counts_as_away(void **state)
{
    struct backend *backend = open_default();
    struct made made = make_block(1, 0);
    hearth_error error = {0};
    (void)state;
    TELL("REPLICAOF", "127.0.0.1", "1");
    assert_int_equal(put(backend, &made, &error), HEARTH_UNAVAILABLE);
    assert_non_null(strstr(error.message, "the server refuses: READONLY"));
    TELL("REPLICAOF", "NO", "ONE");
    put_well(backend, &made);
    release(&made);
    backend->close(backend);
    TELL("FLUSHALL");
}

static void what_a_read_costs_is_measured_and_nothing_is_left(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct remote_params params = params_of_test();
        struct read_assumed measured = {0};
        params.encrypts = encrypts;
        struct backend *backend = open_with(&params);
        assert_int_equal(backend->measure(backend, &measured, NULL), 0);
        assert_true(measured.request_ns > 0 && measured.byte_ns >= 0);
        assert_int_equal(number(ASK("DBSIZE")), 0);
        TELL("CONFIG", "SET", "maxmemory", "1");
        assert_int_equal(backend->measure(backend, &measured, NULL), HEARTH_IO);
        TELL("CONFIG", "SET", "maxmemory", "0");
        backend->close(backend);
    }
}

static void a_server_that_is_away_is_said_to_be(void **state)
{
    struct backend *backend = open_default();
    struct made made = make_block(1, 0);
    struct slab_name name = name_of(&made);
    struct backend_probed probed;
    bool there = false;
    (void)state;
    put_well(backend, &made);
    redis_server_kill(&server);
    assert_int_equal(get(backend, &made, NULL), HEARTH_UNAVAILABLE);
    assert_int_equal(put(backend, &made, NULL), HEARTH_UNAVAILABLE);
    assert_int_equal(backend->probe(backend, &name, 1, &probed, CLOCK_NEVER, NULL), HEARTH_UNAVAILABLE);
    assert_int_not_equal(backend->has(backend, &name, 1, &there, NULL), 0);
    assert_true(there); /* nobody knows */
    redis_server_restart(&server);
    assert_int_equal(backend->open(backend, NULL), 0);
    assert_int_equal(backend->has(backend, &name, 1, &there, NULL), 0);
    assert_false(there);
    release(&made);
    backend->close(backend);
}

/* The rights that docs/security.md names are enough; without one of them the tier says so when it is opened. */
static void a_user_needs_the_documented_rights(void **state)
{
    static const char password[] = "/tmp/hearth-test-remote-password";
    struct remote_params params = params_of_test();
    hearth_error error = {0};
    (void)state;
    FILE *file = fopen(password, "w");
    assert_non_null(file);
    fputs("secret\n", file);
    fclose(file);
    TELL("ACL", "SETUSER", "hearth", "on", ">secret", "~test:*", "+get", "+getrange", "+set", "+del", "+expire",
         "+append", "+ping", "+select");
    params.user = "hearth";
    params.password_file = password;
    struct backend *backend = open_with(&params);
    struct made made = make_block(1, 5 << 20);
    struct read_assumed measured;
    assert_int_equal(backend->measure(backend, &measured, NULL), 0);
    put_well(backend, &made);
    assert_int_equal(get(backend, &made, NULL), 0);
    struct slab_name name = name_of(&made);
    assert_int_equal(backend->add_hint(backend, &name.key, 1, NULL), 0);
    assert_int_equal(backend->add_hint(backend, &name.key, 2, NULL), 0);
    char *part = key_like("test:*:1");
    TELL("SETRANGE", part, "77", "~~~~");
    free(part);
    backend->quarantine(backend, &name);
    assert_false(probe(backend, &made).there);
    TELL("ACL", "SETUSER", "hearth", "-getrange");
    assert_int_equal(backend->open(backend, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "NOPERM"));
    release(&made);
    backend->close(backend);
    unlink(password);
    TELL("FLUSHALL");
}

static void a_key_file_must_have_a_key(void **state)
{
    static const char path[] = "/tmp/hearth-test-remote-short";
    struct remote_params params = params_of_test();
    hearth_error error = {0};
    (void)state;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("short\n", file);
    fclose(file);
    params.key_file = path;
    struct backend *backend = remote_backend_open(&params);
    assert_int_equal(backend->open(backend, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "too short"));
    unlink(path);
    assert_int_equal(backend->open(backend, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, path));
    backend->close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_puts_another_gets),
        cmocka_unit_test(a_slab_that_is_there_is_left_as_it_is),
        cmocka_unit_test(an_evicted_part_costs_its_slab_and_is_stored_again),
        cmocka_unit_test(changed_bytes_are_noticed),
        cmocka_unit_test(what_was_stored_anew_meanwhile_stays),
        cmocka_unit_test(another_slab_under_the_name_is_noticed),
        cmocka_unit_test(slabs_that_depend_on_a_save_are_refused),
        cmocka_unit_test(other_secrets_strides_and_prefixes_share_nothing),
        cmocka_unit_test(a_read_makes_all_parts_live_longer),
        cmocka_unit_test(a_full_server_refuses_and_keeps_no_parts),
        cmocka_unit_test(a_server_that_has_become_a_replica_counts_as_away),
        cmocka_unit_test(what_a_read_costs_is_measured_and_nothing_is_left),
        cmocka_unit_test(a_server_that_is_away_is_said_to_be),
        cmocka_unit_test(a_user_needs_the_documented_rights),
        cmocka_unit_test(a_key_file_must_have_a_key),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
