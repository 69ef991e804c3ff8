/* Starts redis-server as a child, which dies with this process, and reads its log until it says that it serves. */
#include "fakes/redis_server.h"

#include "base/buf.h"
#include "base/memory.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 64 };

static void complain(const char *what)
{
    fprintf(stderr, "redis server of the tests: %s\n", what);
    abort();
}

static void run_server(const struct redis_server *server, int log)
{
    const char *arguments[MOST_ARGUMENTS] = {"redis-server", "--port",      "0", "--unixsocket",
                                             server->path,   "--save",      "",  "--dir",
                                             server->folder, "--daemonize", "no"};
    size_t n = 11;
    for (size_t i = 0; server->options != NULL && server->options[i] != NULL && n + 1 < MOST_ARGUMENTS; i++)
        arguments[n++] = server->options[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    execvp("redis-server", (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* The log's pipe stays open for the server's life: it would end at a line that it cannot write. */
static void await_ready(int log)
{
    char line[512];
    FILE *lines = fdopen(log, "r");
    bool ready = false;
    while (!ready && fgets(line, sizeof line, lines) != NULL)
        ready = strstr(line, "ready to accept connections") != NULL || strstr(line, "Ready to accept") != NULL;
    if (!ready) complain("redis-server does not start: scripts/packages.sh test installs it");
    int kept = dup(log);
    fclose(lines);
    (void)kept;
}

void redis_server_restart(struct redis_server *server)
{
    int log[2];
    unlink(server->path);
    if (pipe(log) != 0) complain("no pipe");
    server->pid = fork();
    if (server->pid == 0) run_server(server, log[1]);
    close(log[1]);
    if (server->pid < 0) complain("no process");
    await_ready(log[0]);
}

void redis_server_start(struct redis_server *server, const char *const *options)
{
    *server = (struct redis_server){.options = options};
    strcpy(server->folder, "/tmp/hearth-redis-XXXXXX");
    if (mkdtemp(server->folder) == NULL) complain("no folder");
    snprintf(server->path, sizeof server->path, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix:%s", server->path);
    redis_server_restart(server);
}

/* Below those that the system gives to clients, who would take it before the server has it; each process begins
 * elsewhere, and none is given twice. */
void redis_server_find_port(char port[8])
{
    enum { FIRST = 20000, PORTS = 12000 };
    static unsigned given;
    bool found = false;
    for (int i = 0; i < PORTS && !found; i++) {
        unsigned number = FIRST + ((unsigned)getpid() * 31 + given++) % PORTS;
        struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)number)};
        int probe = socket(AF_INET, SOCK_STREAM, 0);
        found = bind(probe, (struct sockaddr *)&at, sizeof at) == 0;
        close(probe);
        snprintf(port, 8, "%u", number);
    }
    if (!found) complain("no port");
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid == 0) return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void redis_server_stall(struct redis_server *server, bool stall)
{
    int status;
    kill(server->pid, stall ? SIGSTOP : SIGCONT);
    waitpid(server->pid, &status, stall ? WUNTRACED : WCONTINUED);
}

void redis_server_stop(struct redis_server *server)
{
    char nodes[96];
    redis_server_kill(server);
    unlink(server->path);
    snprintf(nodes, sizeof nodes, "%s/nodes.conf", server->folder); /* a cluster's node's */
    unlink(nodes);
    rmdir(server->folder);
}

char *redis_server_ask(const struct redis_server *server, const char *const *words)
{
    struct buf out = {0}, command = {0};
    char some[4096];
    buf_printf(&command, "redis-cli --raw -s %s", server->path);
    for (size_t i = 0; words[i] != NULL; i++) buf_printf(&command, " '%s'", words[i]);
    FILE *reply = popen(command.v, "r"); /* NOLINT: a socket and words of the test's own */
    if (reply == NULL) complain("no redis-cli");
    for (size_t n; (n = fread(some, 1, sizeof some, reply)) > 0;) buf_append(&out, some, n);
    pclose(reply);
    buf_release(&command);
    while (out.len > 0 && out.v[out.len - 1] == '\n') out.v[--out.len] = '\0';
    return buf_take(&out);
}
