/* The nodes of the keys are read when connecting, as the text of CLUSTER NODES. A hash slot that moves to another node
 * afterwards is noted when that one's address comes with a refusal. A refusal that names a node which was not met
 * counts as a loss, after which the owner of the client connects again, and the nodes are met.
 *
 * Nodes are clients of their own. They are counted while calls use them; those that are masters no more are closed when
 * the text is read anew. The server is not trusted: the bytes that are read, the number of nodes and the redirections
 * of a command have limits. */
#include "store/remote/redis_cluster.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* So many nodes are tried when the one of the address is away; so often a command is sent again. */
enum { HASH_SLOTS = 16384, MOST_NODES = 64, MOST_ENTRIES = 4, MOST_REDIRECTIONS = 5 };

/* Of the text of CLUSTER NODES: as much as that many nodes can say. */
#define MOST_MAP_BYTES ((size_t)256 << 10)

struct node {
    struct redis *client;
    struct redis_address
        announced;             /* where the cluster says it is; its client may reach it by a name, or another way */
    uint32_t users;            /* commands of calls that run */
    bool is_master, has_slots; /* by the text that was read last */
};

struct redis_cluster {
    struct node *seed;     /* of the address */
    pthread_mutex_t mutex; /* guards what follows, and the nodes but for their clients */
    struct node *entry;    /* it was connected to last, and is asked for keys of which nobody is known to have them */
    struct node *nodes[MOST_NODES];
    size_t n_nodes;                   /* 0: it is no cluster, or does not say */
    struct node *of_slot[HASH_SLOTS]; /* NULL: not known */
};

/* ---- Hash slots ---- */

/* CRC-16/XMODEM, as the specification has it. */
static uint16_t crc16(const char *bytes, size_t size)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < size; i++) {
        crc ^= (uint16_t)((uint8_t)bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++) crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

/* Of a key with {…} in it only what stands between the braces counts, unless that is nothing. */
static uint16_t slot_of_command(const struct redis_batch *batch, size_t i)
{
    const char *key = batch->text.v + batch->commands[i].key_begin;
    size_t size = batch->commands[i].key_size;
    const char *open = memchr(key, '{', size);
    const char *close = open != NULL ? memchr(open, '}', size - (size_t)(open - key)) : NULL;
    if (close != NULL && close > open + 1) return crc16(open + 1, (size_t)(close - open - 1)) % HASH_SLOTS;
    return crc16(key, size) % HASH_SLOTS;
}

/* ---- Nodes; the mutex is held ---- */

static struct node *node_open(struct redis *client)
{
    struct node *node = mem_alloc(sizeof *node);
    node->client = client;
    node->announced = *redis_address(client);
    return node;
}

static void node_close(struct node *node)
{
    redis_close(node->client);
    free(node);
}

/* NULL: it was not met. */
static struct node *node_at(const struct redis_cluster *cluster, const struct redis_address *address)
{
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i]->announced.port == address->port &&
            strcmp(cluster->nodes[i]->announced.name, address->name) == 0)
            return cluster->nodes[i];
    return NULL;
}

/* HOST:PORT, as nodes write it, an IPv6 address without brackets. A node that does not know its own host leaves it out,
 * or writes a question mark: it is where the one that says so was reached. */
static bool parse_address(const struct node *said_by, const char *text, size_t len, struct redis_address *address)
{
    const char *colon = os_find_last(text, ':', len);
    *address = *redis_address(said_by->client);
    if (colon == NULL) return false;
    size_t host_len = (size_t)(colon - text);
    char *end;
    long port = strtol(colon + 1, &end, 10);
    if (end != text + len || port < 1 || port > UINT16_MAX || host_len >= sizeof address->name) return false;
    address->port = (uint16_t)port;
    if (host_len == 0 || (host_len == 1 && text[0] == '?')) return true;
    memcpy(address->name, text, host_len);
    address->name[host_len] = '\0';
    address->path[0] = '\0';
    return true;
}

/* ---- CLUSTER NODES; the mutex is held ---- */

/* A line of it: ID HOST:PORT@BUS[,NAME…] FLAGS MASTER PINGED PONGED EPOCH LINK [HASH SLOTS …] */
enum { WORD_ADDRESS = 1, WORD_FLAGS = 2, WORDS_BEFORE_SLOTS = 8 };

struct word {
    const char *v;
    size_t len;
};

static bool has_flag(struct word flags, const char *flag)
{
    size_t flag_len = strlen(flag);
    for (const char *at = flags.v, *end = at + flags.len; at < end;) {
        size_t len = strcspn(at, ", ");
        if (len == flag_len && memcmp(at, flag, len) == 0) return true;
        at += len + 1;
    }
    return false;
}

/* The one that says it is the one that was asked, whatever it takes for its address. With TLS a node is reached by its
 * name, where it has one, since its certificate is for that. NULL: its address is none, or there are too many. */
static struct node *meet(struct redis_cluster *cluster, struct node *said_by, struct word word, bool is_itself)
{
    struct redis_address address;
    char name[HOST_NAME_MAX_BYTES + 1];
    const char *comma = memchr(word.v, ',', word.len), *at = memchr(word.v, '@', word.len);
    size_t address_len = (size_t)((at != NULL ? at : comma != NULL ? comma : word.v + word.len) - word.v);
    size_t name_len = comma != NULL ? strcspn(comma + 1, ", \r\n") : 0;
    if (name_len > HOST_NAME_MAX_BYTES) name_len = 0;
    memcpy(name, comma != NULL ? comma + 1 : "", name_len);
    name[name_len] = '\0';
    bool has_address = parse_address(said_by, word.v, address_len, &address);
    struct node *node = is_itself ? said_by : has_address ? node_at(cluster, &address) : NULL;
    bool listed = false;
    for (size_t i = 0; i < cluster->n_nodes; i++) listed = listed || cluster->nodes[i] == node;
    if ((!has_address && !is_itself) || (!listed && cluster->n_nodes == MOST_NODES)) return NULL;
    struct redis_address announced = address;
    if (name[0] != '\0' && address.tls) memcpy(address.name, name, sizeof name);
    if (node == NULL) node = node_open(redis_open_beside(cluster->seed->client, &address));
    if (has_address) node->announced = announced;
    if (!listed) cluster->nodes[cluster->n_nodes++] = node;
    return node;
}

/* N or N-M; a slot that begins with a bracket is on its way, and still there. Of what two nodes claim the first one has
 * it. */
static void take_slots(struct redis_cluster *cluster, struct node *node, struct word word)
{
    char *end;
    long first = strtol(word.v, &end, 10), last = end > word.v && *end == '-' ? strtol(end + 1, &end, 10) : first;
    if (end != word.v + word.len || word.len == 0 || first < 0 || last >= HASH_SLOTS) return;
    for (long slot = first; slot <= last && cluster->of_slot[slot] == NULL; slot++) {
        cluster->of_slot[slot] = node;
        node->has_slots = true;
    }
}

static void take_line(struct redis_cluster *cluster, struct node *said_by, const char *line, size_t len)
{
    struct word words[WORDS_BEFORE_SLOTS] = {0};
    struct node *node = NULL;
    const char *end = line + len;
    for (size_t i = 0; line < end; i++) {
        struct word word = {line, strcspn(line, " \r\n")};
        if (i < WORDS_BEFORE_SLOTS) words[i] = word;
        if (i == WORD_FLAGS) {
            if (!has_flag(word, "master") || has_flag(word, "noaddr")) return;
            node = meet(cluster, said_by, words[WORD_ADDRESS], has_flag(word, "myself"));
            if (node == NULL) return;
            node->is_master = true;
        }
        if (i >= WORDS_BEFORE_SLOTS) take_slots(cluster, node, word);
        line += word.len + 1;
    }
}

/* ---- Nodes in use ---- */

/* Counts `node`, if any, and no longer what was used. The mutex is held. */
static void use(struct node **used, struct node *node)
{
    if (node != NULL) node->users++;
    if (*used != NULL) (*used)->users--;
    *used = node;
}

/* ---- Where commands go ---- */

struct route {
    struct node *node; /* counted; NULL: the command is answered */
    bool asks;         /* the node gets the key, but does not have it yet */
    bool sent;
};

struct call {
    struct redis_cluster *cluster;
    struct redis_batch *batch;
    struct route *routes; /* of each command */
    int64_t deadline;
};

/* A refusal: "MOVED 3999 HOST:PORT" or "ASK 3999 HOST:PORT". */
struct redirection {
    bool asks;
    struct redis_address to;
};

static bool parse_redirection(const struct call *call, size_t i, struct redirection *redirection)
{
    const struct redis_reply *reply = &call->batch->replies[i];
    if (reply->kind != REDIS_REFUSED) return false;
    redirection->asks = strncmp(reply->bytes, "ASK ", 4) == 0;
    if (!redirection->asks && strncmp(reply->bytes, "MOVED ", 6) != 0) return false;
    char *address;
    long slot = strtol(strchr(reply->bytes, ' '), &address, 10);
    if (slot != slot_of_command(call->batch, i) || *address != ' ') return false;
    return parse_address(call->routes[i].node, address + 1, strcspn(address + 1, " \r\n"), &redirection->to);
}

/* Routes one command anew if it was redirected; else it is answered. Without a map nobody is known who could be meant,
 * and the refusal is the answer. */
static int route_one_again(struct call *call, size_t i, bool *again, hearth_error *error)
{
    struct redis_cluster *cluster = call->cluster;
    struct route *route = &call->routes[i];
    struct redirection to = {0};
    bool redirected = route->node != NULL && cluster->n_nodes > 0 && parse_redirection(call, i, &to);
    struct node *node = redirected ? node_at(cluster, &to.to) : NULL;
    if (redirected && node == NULL)
        return error_set(error, HEARTH_UNAVAILABLE, "the server is away: a key is at %s:%u, which was not reached yet",
                         to.to.name, to.to.port);
    if (redirected && !to.asks) cluster->of_slot[slot_of_command(call->batch, i)] = node;
    use(&route->node, node);
    route->asks = to.asks;
    route->sent = false;
    *again = *again || redirected;
    return 0;
}

/* ---- Running ---- */

static bool is_on(const struct route *route, const struct route *other)
{
    return route->node == other->node && route->asks == other->asks;
}

/* Says at which node it went wrong. */
static int fail_at(const struct node *node, int code, const hearth_error *why, hearth_error *error)
{
    const struct redis_address *at = redis_address(node->client);
    if (at->path[0] != '\0') return error_set(error, code, "%s: %s", at->path, why->message);
    return error_set(error, code, "%s:%u: %s", at->name, at->port, why->message);
}

/* Sends the commands of one route, in their order. */
static int run_route(struct call *call, const struct route *route, hearth_error *error)
{
    struct redis_batch part = {.most_reply = call->batch->most_reply};
    hearth_error why = {0};
    for (size_t i = 0; i < call->batch->n_commands; i++) {
        if (!is_on(&call->routes[i], route)) continue;
        if (route->asks) redis_add(&part, &(const struct redis_argument){"ASKING", 6}, 1);
        redis_add_copy(&part, call->batch, i);
    }
    int result = redis_run(route->node->client, &part, call->deadline, &why);
    /* Where the route asks, replies to ASKING stand between the others, and count where they are refusals: the user may
     * not ask. */
    size_t at = 0;
    for (size_t i = 0; result == 0 && i < call->batch->n_commands; i++) {
        if (!is_on(&call->routes[i], route)) continue;
        size_t taken = route->asks && part.replies[at].kind == REDIS_REFUSED ? at : at + route->asks;
        free(call->batch->replies[i].bytes);
        call->batch->replies[i] = part.replies[taken];
        part.replies[taken].bytes = NULL;
        call->routes[i].sent = true;
        at += 1 + route->asks;
    }
    redis_batch_release(&part);
    if (result == 0) return 0;
    if (route->node == call->cluster->seed) return error_set(error, result, "%s", why.message);
    return fail_at(route->node, result, &why, error);
}

static int run_routes(struct call *call, hearth_error *error)
{
    int result = 0;
    for (size_t i = 0; i < call->batch->n_commands && result == 0; i++)
        if (call->routes[i].node != NULL && !call->routes[i].sent) result = run_route(call, &call->routes[i], error);
    return result;
}

int redis_cluster_run(struct redis_cluster *cluster, struct redis_batch *batch, int64_t deadline, hearth_error *error)
{
    assert(batch->replies == NULL && batch->n_replies == 0);
    struct call call = {.cluster = cluster,
                        .batch = batch,
                        .routes = mem_alloc((batch->n_commands + 1) * sizeof(struct route)),
                        .deadline = deadline};
    bool again = true;
    batch->replies = mem_alloc((batch->n_commands + 1) * sizeof *batch->replies);
    batch->n_replies = batch->n_commands;
    pthread_mutex_lock(&cluster->mutex);
    for (size_t i = 0; i < batch->n_commands; i++) {
        struct node *node = cluster->of_slot[slot_of_command(batch, i)];
        use(&call.routes[i].node, node != NULL ? node : cluster->entry);
    }
    pthread_mutex_unlock(&cluster->mutex);
    int result = run_routes(&call, error);
    for (int redirections = 0; redirections < MOST_REDIRECTIONS && result == 0 && again; redirections++) {
        again = false;
        pthread_mutex_lock(&cluster->mutex);
        for (size_t i = 0; i < batch->n_commands && result == 0; i++) result = route_one_again(&call, i, &again, error);
        pthread_mutex_unlock(&cluster->mutex);
        if (result == 0 && again) result = run_routes(&call, error);
    }
    pthread_mutex_lock(&cluster->mutex);
    for (size_t i = 0; i < batch->n_commands; i++) use(&call.routes[i].node, NULL);
    pthread_mutex_unlock(&cluster->mutex);
    free(call.routes);
    return result;
}

/* ---- Connecting ---- */

/* The node of the address and, behind it, the others that are known. All are counted. */
struct used_nodes {
    struct node *v[1 + MOST_NODES];
    size_t n;
};

static void use_nodes(struct redis_cluster *cluster, struct used_nodes *used)
{
    *used = (struct used_nodes){0};
    pthread_mutex_lock(&cluster->mutex);
    use(&used->v[used->n++], cluster->seed);
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i] != cluster->seed) use(&used->v[used->n++], cluster->nodes[i]);
    pthread_mutex_unlock(&cluster->mutex);
}

static void release_nodes(struct redis_cluster *cluster, struct used_nodes *used)
{
    pthread_mutex_lock(&cluster->mutex);
    for (size_t i = 0; i < used->n; i++) use(&used->v[i], NULL);
    pthread_mutex_unlock(&cluster->mutex);
}

/* Asks who has what. A server that refuses, or closes the connection, is no cluster, or does not tell this user:
 * whether it serves at all is seen when it is used. */
static void read_map(struct redis_cluster *cluster, struct node *entry)
{
    struct redis_batch batch = {.most_reply = MOST_MAP_BYTES};
    redis_add(&batch, (const struct redis_argument[]){{"CLUSTER", 7}, {"NODES", 5}}, 2);
    bool told = redis_run(entry->client, &batch, CLOCK_NEVER, NULL) == 0 && batch.replies[0].kind == REDIS_BYTES;
    pthread_mutex_lock(&cluster->mutex);
    cluster->entry = entry;
    memset(cluster->of_slot, 0, sizeof cluster->of_slot);
    for (size_t i = 0; i < cluster->n_nodes; i++) cluster->nodes[i]->is_master = cluster->nodes[i]->has_slots = false;
    const char *text = told ? batch.replies[0].bytes : "";
    for (size_t len; *text != '\0'; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        take_line(cluster, entry, text, len);
    }
    pthread_mutex_unlock(&cluster->mutex);
    redis_batch_release(&batch);
}

/* Also to masters that have no hash slots yet, and soon may; but these may be away. */
static int connect_others(struct redis_cluster *cluster, hearth_error *error)
{
    struct used_nodes nodes;
    int result = 0;
    use_nodes(cluster, &nodes);
    for (size_t i = 0; i < nodes.n && result == 0; i++) {
        hearth_error why = {0};
        struct node *node = nodes.v[i];
        if (node == cluster->entry || !node->is_master || redis_connect(node->client, &why) == 0) continue;
        if (node->has_slots) result = fail_at(node, HEARTH_IO, &why, error);
    }
    release_nodes(cluster, &nodes);
    return result;
}

/* Those that are not needed any more. */
static void close_others(struct redis_cluster *cluster)
{
    size_t kept = 0;
    pthread_mutex_lock(&cluster->mutex);
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        struct node *node = cluster->nodes[i];
        if (node->is_master || node->users > 0 || node == cluster->entry) {
            cluster->nodes[kept++] = node;
        } else {
            for (size_t slot = 0; slot < HASH_SLOTS;
                 slot++) /* a redirection may have named it since the map was read */
                if (cluster->of_slot[slot] == node) cluster->of_slot[slot] = NULL;
            if (node != cluster->seed) node_close(node);
        }
    }
    cluster->n_nodes = kept;
    pthread_mutex_unlock(&cluster->mutex);
}

int redis_cluster_connect(struct redis_cluster *cluster, hearth_error *error)
{
    struct used_nodes known;
    hearth_error why = {0};
    use_nodes(cluster, &known);
    /* The first one that can be connected to, the address's before others. If none can, `why` is why not that one. */
    struct node *entry = NULL;
    for (size_t i = 0; entry == NULL && i < known.n && i <= MOST_ENTRIES; i++)
        if (redis_connect(known.v[i]->client, i == 0 ? &why : NULL) == 0) entry = known.v[i];
    if (entry != NULL) read_map(cluster, entry);
    release_nodes(cluster, &known);
    if (entry == NULL) return error_set(error, HEARTH_IO, "%s", why.message);
    close_others(cluster);
    return connect_others(cluster, error);
}

/* ---- Life ---- */

struct redis_cluster *redis_cluster_open(const struct redis_params *params)
{
    struct redis_cluster *cluster = mem_alloc(sizeof *cluster);
    cluster->seed = cluster->entry = node_open(redis_open(params));
    pthread_mutex_init(&cluster->mutex, NULL);
    return cluster;
}

void redis_cluster_close(struct redis_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i] != cluster->seed) node_close(cluster->nodes[i]);
    node_close(cluster->seed);
    pthread_mutex_destroy(&cluster->mutex);
    free(cluster);
}
