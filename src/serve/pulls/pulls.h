/* Pulls and removals of models while the server runs, each on a thread of its own, a few at a time; and those who
 * follow them. Pulls of the same reference are one. A pull ends when nobody follows it any more, and the next one goes
 * on where it was; a removal goes on.
 *
 * HTTP thread only. A follower belongs to its route, until its on_end() is called or it has left. */
#ifndef SERVE_PULLS_PULLS_H
#define SERVE_PULLS_PULLS_H

#include "base/sha256.h"
#include "hearth.h"

#include <stdbool.h>

struct http_server;
struct job;
struct pull_options;
struct pull_reference;
struct pulls;

/* Where models come to and go from. */
struct pulls_place {
    hearth *instance;
    const hearth_config *config;                   /* as the server was started with it */
    bool (*is_pulled)(void *ud, const char *name); /* as struct serve_options has it; NULL: none is */
    void *ud;
};

enum pulls_step {
    PULLS_LISTING,  /* which files the reference means */
    PULLS_FETCHING, /* a file */
    PULLS_CHECKING, /* that file */
    PULLS_SERVING   /* all are there */
};

/* How far a pull is. */
struct pulls_news {
    enum pulls_step step;
    char file[256];                    /* "" where the step is of no file */
    char digest[2 * SHA256_BYTES + 1]; /* of the file, as its source says; "": it does not */
    int64_t done, total;               /* bytes; total -1: not known */
};

struct pulls_follower {
    void (*on_news)(struct pulls_follower *follower, const struct pulls_news *news); /* of a pull alone */
    /* The last call. `model` is the name of what was pulled; an error: it was not. */
    void (*on_end)(struct pulls_follower *follower, const char *model, const hearth_error *error);
    struct job *job; /* set by pulls.c, as the next */
    struct pulls_follower *next;
};

/* `place` is copied. */
struct pulls *pulls_open(const struct pulls_place *place, struct http_server *http);

/* Ends pulls, and refuses later ones. NULL is fine, as in the next two. */
void pulls_stop(struct pulls *pulls);

/* Waits for all threads. After http_run() has returned; before http_close(), which still calls followers. */
void pulls_join(struct pulls *pulls);
void pulls_close(struct pulls *pulls); /* after http_close() */

/* Begin what is asked for, or join a pull that is under way; on_end() is not called before they return. An error: there
 * will be no call. */
int pulls_pull(struct pulls *pulls, const char *reference, bool insecure, struct pulls_follower *follower,
               hearth_error *error);
/* Another piece of work about models. It may block; `release` is called when it is over, also where it did not begin.
 */
struct pulls_task {
    int (*run)(void *ud, hearth_error *error);
    void (*release)(void *ud);
    void *ud;
    _Atomic bool *cancelled; /* set where its follower leaves, or the server stops; NULL: it goes on */
};
int pulls_run(struct pulls *pulls, const struct pulls_task *task, struct pulls_follower *follower, hearth_error *error);
int pulls_remove(struct pulls *pulls, const char *model, struct pulls_follower *follower, hearth_error *error);

void pulls_leave(struct pulls_follower *follower);

/* Reads a reference that a request names: none to a file of this machine. Release it in either case. Any thread. */
int pulls_read_reference(const char *text, struct pull_reference *reference, hearth_error *error);

/* How what such a reference means is fetched. Any thread. */
struct pull_options pulls_options(const struct pull_reference *reference);

/* The models folder, to be freed. NULL with HEARTH_UNSUPPORTED: it is not served here (server.serve_pulled). Any
 * thread. */
char *pulls_folder(const struct pulls *pulls, hearth_error *error);

#endif
