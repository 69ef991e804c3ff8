/* A real redis-server on a unix socket in a folder of its own, for tests of what talks to one. Ends with the process.
 */
#ifndef FAKES_REDIS_SERVER_H
#define FAKES_REDIS_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct redis_server {
    char folder[64], path[96], url[104]; /* of the socket; unix:PATH */
    pid_t pid;                           /* 0: it does not run */
    const char *const *options;
};

/* Starts it with further options (NULL after the last; NULL: none), and waits until it serves. */
void redis_server_start(struct redis_server *server, const char *const *options);

void redis_server_kill(struct redis_server *server);    /* SIGKILL; what it had in memory is gone */
void redis_server_restart(struct redis_server *server); /* after a kill: the same socket, and nothing stored */
void redis_server_stall(struct redis_server *server, bool stall); /* SIGSTOP, SIGCONT */
void redis_server_stop(struct redis_server *server);              /* kills it and removes the folder */

void redis_server_find_port(char port[8]); /* one of the loopback address that is free now, in digits */

/* Sends words to it, NULL after the last, and returns the reply as text, which the caller frees: of bytes these, of a
 * list its elements, line by line. */
char *redis_server_ask(const struct redis_server *server, const char *const *words);

#endif
