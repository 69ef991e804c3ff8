/* Servers that are told of each other by CLUSTER MEET. */
#include "fakes/redis_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HASH_SLOTS = 16384 };

static char *ask(const struct redis_nodes *nodes, int node, const char *const *words)
{
    return redis_server_ask(&nodes->servers[node], words);
}

#define ASK(nodes, node, ...) ask(nodes, node, (const char *const[]){__VA_ARGS__, NULL})

static void tell(const struct redis_nodes *nodes, int node, const char *const *words)
{
    char *said = ask(nodes, node, words);
    if (strcmp(said, "OK") != 0) {
        fprintf(stderr, "redis nodes of the tests: %s\n", said);
        abort();
    }
    free(said);
}

#define TELL(nodes, node, ...) tell(nodes, node, (const char *const[]){__VA_ARGS__, NULL})

static void start_one(struct redis_nodes *nodes, int i, bool tls)
{
    const char *const own[] = {tls ? "--tls-port" : "--port",
                               nodes->ports[i],
                               "--bind",
                               "127.0.0.1",
                               "--cluster-enabled",
                               "yes",
                               "--cluster-port",
                               nodes->bus_ports[i],
                               "--cluster-node-timeout",
                               "2000",
                               "--cluster-announce-ip",
                               "127.0.0.1"};
    const char *const more[] = {"--tls-cluster",
                                "yes",
                                "--tls-cert-file",
                                nodes->certificate,
                                "--tls-key-file",
                                nodes->key,
                                "--tls-ca-cert-file",
                                nodes->certificate,
                                "--tls-auth-clients",
                                "no",
                                "--cluster-announce-hostname",
                                "localhost"};
    memcpy(nodes->options[i], own, sizeof own);
    if (tls) memcpy(nodes->options[i] + sizeof own / sizeof *own, more, sizeof more);
    redis_server_start(&nodes->servers[i], nodes->options[i]);
}

static void wait_a_little(void)
{
    nanosleep(&(const struct timespec){.tv_nsec = 20000000}, NULL); /* between two questions */
}

/* Each knows all others, and how the hash slots are divided. */
void redis_nodes_await(const struct redis_nodes *nodes)
{
    for (int i = 0; i < REDIS_NODES; i++) {
        for (;;) {
            char *said = ASK(nodes, i, "CLUSTER", "INFO");
            bool serves = strstr(said, "cluster_state:ok") != NULL && strstr(said, "cluster_known_nodes:4") != NULL &&
                          strstr(said, "cluster_size:3") != NULL;
            free(said);
            if (serves) break;
            wait_a_little();
        }
    }
}

void redis_nodes_start(struct redis_nodes *nodes, const char *tls_folder)
{
    bool tls = tls_folder != NULL;
    *nodes = (struct redis_nodes){0};
    snprintf(nodes->certificate, sizeof nodes->certificate, "%s/localhost.crt", tls ? tls_folder : "");
    snprintf(nodes->key, sizeof nodes->key, "%s/localhost.key", tls ? tls_folder : "");
    for (int i = 0; i < REDIS_NODES; i++) {
        char port[8];
        redis_server_find_port(port);
        redis_server_find_port(nodes->bus_ports[i]);
        memcpy(nodes->ports[i], port, sizeof port);
        snprintf(nodes->urls[i], sizeof nodes->urls[i], "%s:%s", tls ? "rediss://localhost" : "redis://127.0.0.1",
                 port);
        start_one(nodes, i, tls);
    }
    for (int i = 0; i < REDIS_MASTERS; i++) {
        char first[16], last[16];
        snprintf(first, sizeof first, "%d", HASH_SLOTS * i / REDIS_MASTERS);
        snprintf(last, sizeof last, "%d", HASH_SLOTS * (i + 1) / REDIS_MASTERS - 1);
        TELL(nodes, i, "CLUSTER", "ADDSLOTSRANGE", first, last);
    }
    for (int i = 1; i < REDIS_NODES; i++)
        TELL(nodes, 0, "CLUSTER", "MEET", "127.0.0.1", nodes->ports[i], nodes->bus_ports[i]);
    redis_nodes_await(nodes);
}

void redis_nodes_stop(struct redis_nodes *nodes)
{
    for (int i = 0; i < REDIS_NODES; i++) redis_server_stop(&nodes->servers[i]);
}

long redis_nodes_info(const struct redis_nodes *nodes, int node, const char *name)
{
    char *said = ASK(nodes, node, "INFO", "everything"), *at = strstr(said, name);
    long value = at != NULL ? strtol(at + strlen(name), NULL, 10) : 0;
    free(said);
    return value;
}

void redis_nodes_id(const struct redis_nodes *nodes, int node, char id[41])
{
    char *said = ASK(nodes, node, "CLUSTER", "MYID");
    snprintf(id, 41, "%s", said);
    free(said);
}
