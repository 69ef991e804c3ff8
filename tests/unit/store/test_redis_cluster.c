/* The client of redis_cluster.h against a real cluster of redis-servers: where keys go, keys that move, nodes that are
 * away; and against one that says what no node would. */
#include "fakes/certificate.h"
#include "fakes/cmocka_all.h"
#include "fakes/redis_nodes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/remote/redis_cluster.h"

#include "redis_commands.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 2000, KEYS = 300, SLOT_OF_FOO = 12182 }; /* of "foo", as the specification says; the third node's */

static struct redis_nodes plain_nodes, tls_nodes, *nodes = &plain_nodes; /* those in use */

static int start_nodes(void **state)
{
    (void)state;
    redis_nodes_start(nodes, NULL);
    return 0;
}

static int stop_nodes(void **state)
{
    (void)state;
    redis_nodes_stop(nodes);
    return 0;
}

static int empty_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < REDIS_MASTERS; i++) {
        free(redis_server_ask(&nodes->servers[i], (const char *const[]){"FLUSHALL", NULL}));
        free(redis_server_ask(&nodes->servers[i], (const char *const[]){"CONFIG", "RESETSTAT", NULL}));
    }
    return 0;
}

/* ---- The client ---- */

static struct redis_cluster *cluster_at(const char *url, const char *user, const char *password_file)
{
    struct redis_params params = {
        .user = user, .password_file = password_file, .timeout_ns = clock_from_ms(TIMEOUT_MS), .only_local = true};
    const char *fault = redis_address_parse(url, &params.address);
    if (fault != NULL) fail_msg("%s", fault);
    return redis_cluster_open(&params);
}

static struct redis_cluster *connected_to(const char *url)
{
    struct redis_cluster *cluster = cluster_at(url, NULL, NULL);
    hearth_error error = {0};
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    return cluster;
}

static void run(struct redis_cluster *cluster, struct redis_batch *batch)
{
    hearth_error error = {0};
    if (redis_cluster_run(cluster, batch, CLOCK_NEVER, &error) != 0) fail_msg("%s", error.message);
    if (redis_refusal(batch) != NULL) fail_msg("%s", redis_refusal(batch));
}

static void set(struct redis_cluster *cluster, const char *key, const char *value)
{
    struct redis_batch batch = {0};
    ADD(&batch, "SET", key, value);
    run(cluster, &batch);
    redis_batch_release(&batch);
}

/* The caller frees it; NULL: there is none. */
static char *get(struct redis_cluster *cluster, const char *key)
{
    struct redis_batch batch = {0};
    ADD(&batch, "GET", key);
    run(cluster, &batch);
    char *value = redis_take(&batch.replies[0]);
    redis_batch_release(&batch);
    return value;
}

static void assert_has(struct redis_cluster *cluster, const char *key, const char *value)
{
    char *found = get(cluster, key);
    if (found == NULL || strcmp(found, value) != 0) fail_msg("%s is %s, not %s", key, found ? found : "nothing", value);
    free(found);
}

static int try_ping(struct redis_cluster *cluster, const char *key, hearth_error *error)
{
    struct redis_batch batch = {0};
    ADD(&batch, "EXISTS", key);
    int result = redis_cluster_run(cluster, &batch, CLOCK_NEVER, error);
    redis_batch_release(&batch);
    return result;
}

/* ---- The nodes ---- */

static char *ask(int node, const char *const *words)
{
    return redis_server_ask(&nodes->servers[node], words);
}

#define ASK(node, ...) ask(node, (const char *const[]){__VA_ARGS__, NULL})

static void tell(int node, const char *const *words)
{
    char *said = ask(node, words);
    if (strcmp(said, "OK") != 0) fail_msg("%s", said);
    free(said);
}

#define TELL(node, ...) tell(node, (const char *const[]){__VA_ARGS__, NULL})

static long refusals(const char *which)
{
    char name[48];
    long all = 0;
    snprintf(name, sizeof name, "errorstat_%s:count=", which);
    for (int i = 0; i < REDIS_NODES; i++) all += redis_nodes_info(nodes, i, name);
    return all;
}

static void begin_move(const char *slot, int from, int to)
{
    char id_from[41], id_to[41];
    redis_nodes_id(nodes, from, id_from);
    redis_nodes_id(nodes, to, id_to);
    TELL(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id_from);
    TELL(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id_to);
}

static void end_move(const char *slot, int from, int to)
{
    char id[41];
    redis_nodes_id(nodes, to, id);
    TELL(to, "CLUSTER", "SETSLOT", slot, "NODE", id);
    TELL(from, "CLUSTER", "SETSLOT", slot, "NODE", id);
}

static void move_key(const char *key, int from, int to)
{
    TELL(from, "MIGRATE", "127.0.0.1", nodes->ports[to], key, "0", "5000");
}

/* ---- Tests ---- */

static void put_key(char key[40], int i)
{
    static const char *const forms[] = {"key %d", "{tag}%d", "{}%d", "{%d", "a{%d}b{c}", "{{%d}}", "}{%d"};
    snprintf(key, 40, forms[i % 7], i);
}

/* Each key is sent to the node that has it at once, in one batch and in the order of the replies. */
static void keys_go_to_the_nodes_that_have_them(void **state)
{
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[1]);
    struct redis_batch batch = {0};
    for (int i = 0; i < KEYS; i++) {
        char key[40], value[24];
        put_key(key, i);
        snprintf(value, sizeof value, "value %d", i);
        ADD(&batch, "SET", key, value);
        ADD(&batch, "EXPIRE", key, "100");
        ADD(&batch, "GET", key);
    }
    run(cluster, &batch);
    for (int i = 0; i < KEYS; i++) {
        char value[24];
        snprintf(value, sizeof value, "value %d", i);
        assert_int_equal(batch.replies[3 * i + 1].integer, 1);
        assert_string_equal(batch.replies[3 * i + 2].bytes, value);
    }
    redis_batch_release(&batch);
    long stored = 0;
    for (int i = 0; i < REDIS_MASTERS; i++) {
        char *size = ASK(i, "DBSIZE");
        assert_in_range(strtol(size, NULL, 10), KEYS / 10, KEYS);
        stored += strtol(size, NULL, 10);
        free(size);
    }
    assert_int_equal(stored, KEYS);
    assert_int_equal(refusals("MOVED"), 0);
    redis_cluster_close(cluster);
}

static void large_values_go_to_several_nodes(void **state)
{
    enum { SIZE = 4 << 20, VALUES = 6 };
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[0]);
    struct redis_batch batch = {0};
    char *values = mem_alloc((size_t)VALUES * SIZE);
    for (size_t i = 0; i < (size_t)VALUES * SIZE; i++) values[i] = (char)(i * 2654435761u >> 24);
    for (int i = 0; i < VALUES; i++) {
        const struct redis_argument key = {(const char *[]){"a", "b", "c", "d", "e", "f"}[i], 1};
        redis_add(&batch, (const struct redis_argument[]){{"SET", 3}, key, {values + (size_t)i * SIZE, SIZE}}, 3);
        redis_add(&batch, (const struct redis_argument[]){{"GET", 3}, key}, 2);
    }
    run(cluster, &batch);
    for (int i = 0; i < VALUES; i++) {
        assert_int_equal(batch.replies[2 * i + 1].size, SIZE);
        assert_memory_equal(batch.replies[2 * i + 1].bytes, values + (size_t)i * SIZE, SIZE);
    }
    redis_batch_release(&batch);
    free(values);
    redis_cluster_close(cluster);
}

/* What the node does not have any more is asked of the other one, and also what it has not got yet. */
static void keys_that_are_on_their_way_are_found(void **state)
{
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[0]);
    struct redis_batch batch = {0};
    set(cluster, "foo", "1");
    set(cluster, "{foo}2", "2");
    begin_move("12182", 2, 0);
    move_key("foo", 2, 0);
    ADD(&batch, "GET", "foo");
    ADD(&batch, "GET", "{foo}2");
    ADD(&batch, "SET", "{foo}3", "3");
    ADD(&batch, "GET", "{foo}3");
    ADD(&batch, "GET", "{foo}4");
    run(cluster, &batch);
    assert_string_equal(batch.replies[0].bytes, "1");
    assert_string_equal(batch.replies[1].bytes, "2");
    assert_string_equal(batch.replies[3].bytes, "3");
    assert_int_equal(batch.replies[4].kind, REDIS_NIL);
    redis_batch_release(&batch);
    assert_int_equal(refusals("ASK"), 4);
    assert_int_equal(refusals("MOVED"), 0);
    move_key("{foo}2", 2, 0);
    end_move("12182", 2, 0);
    assert_has(cluster, "{foo}2", "2");
    assert_has(cluster, "{foo}3", "3");
    assert_int_equal(refusals("MOVED"), 1); /* by the first; the second went there at once */
    redis_cluster_close(cluster);
    cluster = connected_to(nodes->urls[1]);
    assert_has(cluster, "foo", "1");
    assert_int_equal(refusals("MOVED"), 1);
    begin_move("12182", 0, 2);
    move_key("foo", 0, 2);
    move_key("{foo}2", 0, 2);
    move_key("{foo}3", 0, 2);
    end_move("12182", 0, 2);
    assert_has(cluster, "{foo}3", "3");
    redis_cluster_close(cluster);
}

/* Certificates are for the nodes' name, refusals name their addresses. */
static void with_tls_nodes_are_reached_by_their_names(void **state)
{
    char folder[] = "/tmp/hearth-test-cluster-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    certificate_make(folder, "localhost");
    redis_nodes_start(&tls_nodes, folder);
    nodes = &tls_nodes;
    struct redis_params params = {.timeout_ns = clock_from_ms(TIMEOUT_MS), .ca_file = tls_nodes.certificate};
    hearth_error error = {0};
    assert_null(redis_address_parse(nodes->urls[1], &params.address));
    struct redis_cluster *cluster = redis_cluster_open(&params);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    for (int i = 0; i < 20; i++) {
        char key[40];
        put_key(key, i);
        set(cluster, key, "1");
        assert_has(cluster, key, "1");
    }
    assert_int_equal(refusals("MOVED"), 0);
    begin_move("12182", 2, 0);
    set(cluster, "foo", "1");
    assert_has(cluster, "foo", "1");
    end_move("12182", 2, 0);
    assert_has(cluster, "foo", "1");
    assert_has(cluster, "foo", "1");
    assert_int_equal(refusals("ASK"), 2);
    assert_int_equal(refusals("MOVED"), 1);
    redis_cluster_close(cluster);
    redis_nodes_stop(nodes);
    nodes = &plain_nodes;
    unlink(tls_nodes.certificate);
    unlink(tls_nodes.key);
    rmdir(folder);
}

static void assert_refused(struct redis_cluster *cluster, const char *key, const char *refusal)
{
    struct redis_batch batch = {0};
    hearth_error error = {0};
    ADD(&batch, "GET", key);
    if (redis_cluster_run(cluster, &batch, CLOCK_NEVER, &error) != 0) fail_msg("%s", error.message);
    assert_int_equal(batch.replies[0].kind, REDIS_REFUSED);
    if (strncmp(batch.replies[0].bytes, refusal, strlen(refusal)) != 0) fail_msg("%s", batch.replies[0].bytes);
    redis_batch_release(&batch);
}

static void a_user_needs_the_documented_rights(void **state)
{
    char password[64];
    (void)state;
    snprintf(password, sizeof password, "/tmp/hearth-test-cluster-%d", getpid());
    FILE *file = fopen(password, "w");
    assert_non_null(file);
    fputs("secret\n", file);
    fclose(file);
    for (int i = 0; i < REDIS_NODES; i++)
        TELL(i, "ACL", "SETUSER", "cook", "on", ">secret", "~*", "+get", "+set", "+ping");
    struct redis_cluster *cluster = cluster_at(nodes->urls[0], "cook", password);
    hearth_error error = {0};
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    assert_refused(cluster, "foo", "MOVED 12182 ");
    for (int i = 0; i < REDIS_NODES; i++) TELL(i, "ACL", "SETUSER", "cook", "+cluster|nodes");
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    set(cluster, "foo", "1");
    assert_has(cluster, "foo", "1");
    begin_move("12182", 2, 0);
    assert_refused(cluster, "{foo}2", "NOPERM");
    for (int i = 0; i < REDIS_NODES; i++) TELL(i, "ACL", "SETUSER", "cook", "+asking");
    set(cluster, "{foo}2", "2");
    assert_has(cluster, "{foo}2", "2");
    TELL(2, "CLUSTER", "SETSLOT", "12182", "STABLE");
    move_key("{foo}2", 0, 2);
    TELL(0, "CLUSTER", "SETSLOT", "12182", "STABLE");
    redis_cluster_close(cluster);
    unlink(password);
}

static void a_node_that_is_away_is_said_to_be_and_another_one_leads_in(void **state)
{
    hearth_error error = {0};
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[3]); /* it has no hash slots */
    set(cluster, "foo", "1");
    assert_int_equal(refusals("MOVED"), 0);
    redis_server_kill(&nodes->servers[3]);
    assert_has(cluster, "foo", "1");
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    assert_has(cluster, "foo", "1");
    redis_server_restart(&nodes->servers[3]);
    redis_nodes_await(nodes);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);

    redis_server_kill(&nodes->servers[2]);
    assert_int_equal(try_ping(cluster, "foo", &error), HEARTH_UNAVAILABLE);
    assert_non_null(strstr(error.message, "the server is away"));
    assert_int_equal(redis_cluster_connect(cluster, &error), HEARTH_IO);
    redis_server_restart(&nodes->servers[2]);
    redis_nodes_await(nodes);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    set(cluster, "foo", "2"); /* what it had is gone, as it saves nothing */
    assert_has(cluster, "foo", "2");
    redis_cluster_close(cluster);
}

/* Also the node of the address, where another one leads in. */
static void a_node_of_the_address_that_has_keys_must_be_there(void **state)
{
    hearth_error error = {0};
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[2]);
    set(cluster, "foo", "1");
    redis_server_kill(&nodes->servers[2]);
    assert_int_equal(try_ping(cluster, "foo", &error), HEARTH_UNAVAILABLE);
    assert_int_equal(redis_cluster_connect(cluster, &error), HEARTH_IO);
    if (strstr(error.message, nodes->ports[2]) == NULL) fail_msg("%s", error.message);
    redis_server_restart(&nodes->servers[2]);
    redis_nodes_await(nodes);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    set(cluster, "foo", "2");
    redis_cluster_close(cluster);
}

struct user {
    struct redis_cluster *cluster;
    int number;
    pthread_t thread;
};

static void *use_cluster(void *ud)
{
    const struct user *user = ud;
    for (int i = 0; i < 100; i++) {
        char key[32], value[16];
        snprintf(key, sizeof key, "{foo}%d-%d", user->number, i);
        snprintf(value, sizeof value, "%d", i);
        set(user->cluster, key, value);
        assert_has(user->cluster, key, value);
    }
    return NULL;
}

static void threads_share_it_while_it_connects_anew(void **state)
{
    struct user users[4];
    hearth_error error = {0};
    (void)state;
    struct redis_cluster *cluster = connected_to(nodes->urls[3]);
    for (int i = 0; i < 4; i++) {
        users[i] = (struct user){.cluster = cluster, .number = i};
        assert_int_equal(pthread_create(&users[i].thread, NULL, use_cluster, &users[i]), 0);
    }
    for (int i = 0; i < 6; i++)
        if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    for (int i = 0; i < 4; i++) pthread_join(users[i].thread, NULL);
    redis_cluster_close(cluster);
}

/* ---- Nodes that are none ---- */

/* Answers PING, CLUSTER NODES with `map` (NULL: it is no cluster), and all else with `answer`. In both # stands for its
 * own port. */
struct liar {
    const char *map, *answer;
    char url[40], port[8];
    int listener, asked; /* how often for something else */
    pthread_t threads[4];
};

static void put_text(struct buf *out, const struct liar *liar, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '#')
            buf_puts(out, liar->port);
        else
            buf_append(out, text, 1);
    }
}

static void answer_one(struct liar *liar, int fd, const char *said)
{
    struct buf out = {0}, map = {0};
    const char *text = __atomic_load_n(&liar->map, __ATOMIC_ACQUIRE);
    if (strstr(said, "PING") != NULL) {
        buf_puts(&out, "+PONG\r\n");
    } else if (strstr(said, "CLUSTER") != NULL && text == NULL) {
        buf_puts(&out, "-ERR This instance has cluster support disabled\r\n");
    } else if (strstr(said, "CLUSTER") != NULL) {
        put_text(&map, liar, text);
        buf_printf(&out, "$%zu\r\n%s\r\n", map.len, buf_text(&map));
    } else {
        __atomic_add_fetch(&liar->asked, 1, __ATOMIC_RELAXED);
        put_text(&out, liar, liar->answer);
    }
    assert_true(send(fd, out.v, out.len, MSG_NOSIGNAL) >= 0);
    buf_release(&out);
    buf_release(&map);
}

static void *lie(void *ud)
{
    struct liar *liar = ud;
    char some[4096];
    for (int fd; (fd = accept(liar->listener, NULL, NULL)) >= 0; close(fd)) {
        for (ssize_t n; (n = recv(fd, some, sizeof some - 1, 0)) > 0;) {
            some[n] = '\0';
            answer_one(liar, fd, some);
        }
    }
    return NULL;
}

static void liar_start(struct liar *liar, const char *map, const char *answer)
{
    *liar = (struct liar){.map = map, .answer = answer};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof any;
    liar->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(liar->listener, (struct sockaddr *)&any, size), 0);
    assert_int_equal(getsockname(liar->listener, (struct sockaddr *)&any, &size), 0);
    assert_int_equal(listen(liar->listener, 8), 0);
    snprintf(liar->port, sizeof liar->port, "%u", ntohs(any.sin_port));
    snprintf(liar->url, sizeof liar->url, "redis://127.0.0.1:%s", liar->port);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&liar->threads[i], NULL, lie, liar), 0);
}

/* Once the client is closed. */
static void liar_end(struct liar *liar)
{
    shutdown(liar->listener, SHUT_RDWR);
    for (int i = 0; i < 4; i++) pthread_join(liar->threads[i], NULL);
    close(liar->listener);
}

static int get_foo(struct redis_cluster *cluster, struct redis_batch *batch, hearth_error *error)
{
    *batch = (struct redis_batch){0};
    ADD(batch, "GET", "foo");
    return redis_cluster_run(cluster, batch, CLOCK_NEVER, error);
}

/* GET foo at a liar: the reply, and how often it was asked. */
static void check_liar(const char *map, const char *answer, const char *reply, int asked)
{
    struct liar liar;
    struct redis_batch batch;
    hearth_error error = {0};
    liar_start(&liar, map, answer);
    struct redis_cluster *cluster = connected_to(liar.url);
    if (get_foo(cluster, &batch, &error) != 0) fail_msg("%s: %s", answer, error.message);
    if (strncmp(batch.replies[0].bytes, reply, strlen(reply)) != 0) fail_msg("%s: %s", answer, batch.replies[0].bytes);
    if (liar.asked != asked) fail_msg("%s: asked %d times", answer, liar.asked);
    redis_batch_release(&batch);
    redis_cluster_close(cluster);
    liar_end(&liar);
}

#define ITSELF "1 127.0.0.1:#@1 myself,master - 0 0 1 connected 0-16383\n"

static void refusals_that_lead_nowhere_are_refusals(void **state)
{
    static const char *const answers[] = {"MOVED",
                                          "MOVED x",
                                          "MOVED 12182",
                                          "MOVED 12182 ",
                                          "MOVED 12182 x",
                                          "MOVED 12182 127.0.0.1:",
                                          "MOVED 12182 127.0.0.1:0",
                                          "MOVED 12182 127.0.0.1:99999",
                                          "MOVED 12182 127.0.0.1:1x",
                                          "MOVED 1 127.0.0.1:1",
                                          "ASK",
                                          "ASK 12182",
                                          "ASK 1 127.0.0.1:1",
                                          "CLUSTERDOWN The cluster is down"};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        char *line = mem_format("-%s\r\n", answers[i]);
        check_liar(ITSELF, line, answers[i], 1);
        free(line);
    }
    check_liar(NULL, "-MOVED 12182 127.0.0.1:1\r\n", "MOVED 12182", 1); /* it does not say who else there is */
}

static void redirections_without_end_have_one(void **state)
{
    (void)state;
    check_liar(ITSELF, "-MOVED 12182 127.0.0.1:#\r\n", "MOVED 12182", 6);
    check_liar(ITSELF, "-MOVED 12182 :#\r\n", "MOVED 12182", 6); /* it does not know its host: where it was reached */
    check_liar(ITSELF, "-MOVED 12182 ?:#\r\n", "MOVED 12182", 6);
}

static void maps_that_make_no_sense_do_no_harm(void **state)
{
    static const char *const maps[] = {"",
                                       "\n\n\n",
                                       "x",
                                       "1 127.0.0.1:1@2 master",
                                       "1 127.0.0.1:1@2 master - 0 0 1 connected 16384",
                                       "1 127.0.0.1:1@2 master - 0 0 1 connected 0-99999999999999999999",
                                       "1 127.0.0.1:1@2 master - 0 0 1 connected -5 x [12182->-2] [12182-<-2]",
                                       "1 127.0.0.1:1@2 slave,master2 - 0 0 1 connected 0-16383",
                                       "1 127.0.0.1:1@2 master,noaddr - 0 0 1 connected 0-16383",
                                       ITSELF "2 127.0.0.1:1@2 master - 0 0 1 connected 0-16383",
                                       "1 :@ master - 0 0 1 connected 0-16383",
                                       "1 @ master - 0 0 1 connected 0-16383",
                                       "1 , master - 0 0 1 connected 0-16383",
                                       "1 nobody master - 0 0 1 connected 0-16383",
                                       "1 nobody myself,master - 0 0 1 connected 0-16383"};
    struct buf many = {0};
    (void)state;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) check_liar(maps[i], "+fine\r\n", "fine", 1);
    for (int i = 1; i < 3000; i++) buf_printf(&many, "%d 127.0.0.1:%d@1 master - 0 0 1 connected\n", i, i);
    check_liar(many.v, "+fine\r\n", "fine", 1); /* of which it tries 64 */
    buf_release(&many);
}

/* It is lost, and met when the cluster is connected anew. */
static void a_key_at_a_node_that_was_not_met_is_a_loss(void **state)
{
    struct liar one, other;
    struct redis_batch batch;
    hearth_error error = {0};
    (void)state;
    liar_start(&other, ITSELF, "+fine\r\n");
    char *moved = mem_format("-MOVED 12182 127.0.0.1:%s\r\n", other.port);
    liar_start(&one, ITSELF, moved);
    struct redis_cluster *cluster = connected_to(one.url);
    assert_int_equal(get_foo(cluster, &batch, &error), HEARTH_UNAVAILABLE);
    if (strstr(error.message, other.port) == NULL) fail_msg("%s", error.message);
    redis_batch_release(&batch);
    char *map = mem_format("2 127.0.0.1:%s@1 master - 0 0 1 connected 0-16383", other.port);
    __atomic_store_n(&one.map, map, __ATOMIC_RELEASE);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    assert_int_equal(get_foo(cluster, &batch, &error), 0);
    assert_string_equal(batch.replies[0].bytes, "fine");
    redis_batch_release(&batch);
    redis_cluster_close(cluster);
    liar_end(&one);
    liar_end(&other);
    free(moved);
    free(map);
}

/* A server that is no cluster any more is one, whoever was a node of the former. */
static void a_cluster_that_ends_is_forgotten(void **state)
{
    struct liar one, other;
    struct redis_batch batch;
    hearth_error error = {0};
    (void)state;
    liar_start(&other, ITSELF, "+other\r\n");
    char *map = mem_format("2 127.0.0.1:%s@1 master - 0 0 1 connected 0-16383", other.port);
    liar_start(&one, map, "+one\r\n");
    struct redis_cluster *cluster = connected_to(one.url);
    assert_int_equal(get_foo(cluster, &batch, &error), 0);
    assert_string_equal(batch.replies[0].bytes, "other");
    redis_batch_release(&batch);
    __atomic_store_n(&one.map, NULL, __ATOMIC_RELEASE);
    if (redis_cluster_connect(cluster, &error) != 0) fail_msg("%s", error.message);
    liar_end(&other);
    assert_int_equal(get_foo(cluster, &batch, &error), 0);
    assert_string_equal(batch.replies[0].bytes, "one");
    redis_batch_release(&batch);
    redis_cluster_close(cluster);
    liar_end(&one);
    free(map);
}

/* Where there is no secret, all that is stored must stay on this machine. */
static void a_node_on_another_machine_is_refused(void **state)
{
    struct liar liar;
    hearth_error error = {0};
    (void)state;
    liar_start(&liar, "1 192.0.2.1:6379@1 master - 0 0 1 connected 0-16383\n", "+fine\r\n");
    struct redis_cluster *cluster = cluster_at(liar.url, NULL, NULL);
    assert_int_equal(redis_cluster_connect(cluster, &error), HEARTH_IO);
    assert_non_null(strstr(error.message, "192.0.2.1 is no address of this machine"));
    redis_cluster_close(cluster);
    liar_end(&liar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_go_to_the_nodes_that_have_them, empty_nodes),
        cmocka_unit_test_setup(large_values_go_to_several_nodes, empty_nodes),
        cmocka_unit_test_setup(keys_that_are_on_their_way_are_found, empty_nodes),
        cmocka_unit_test(with_tls_nodes_are_reached_by_their_names),
        cmocka_unit_test_setup(a_user_needs_the_documented_rights, empty_nodes),
        cmocka_unit_test_setup(a_node_that_is_away_is_said_to_be_and_another_one_leads_in, empty_nodes),
        cmocka_unit_test_setup(a_node_of_the_address_that_has_keys_must_be_there, empty_nodes),
        cmocka_unit_test_setup(threads_share_it_while_it_connects_anew, empty_nodes),
        cmocka_unit_test(refusals_that_lead_nowhere_are_refusals),
        cmocka_unit_test(redirections_without_end_have_one),
        cmocka_unit_test(maps_that_make_no_sense_do_no_harm),
        cmocka_unit_test(a_key_at_a_node_that_was_not_met_is_a_loss),
        cmocka_unit_test(a_cluster_that_ends_is_forgotten),
        cmocka_unit_test(a_node_on_another_machine_is_refused),
    };
    return cmocka_run_group_tests(tests, start_nodes, stop_nodes);
}
