/* Where replies come from: a model in this process (local_backend.c) or a running server (server_backend.c). Main
 * thread only: wait() hands over the events of other threads. */
#ifndef CLI_CHAT_CHAT_BACKEND_H
#define CLI_CHAT_CHAT_BACKEND_H

#include "cli/chat/conversation.h"
#include "cli/terminal.h"
#include "hearth.h"

#include <stdbool.h>

enum reply_event_type {
    REPLY_PROGRESS,  /* more of the prompt was computed: result has cache_n, prompt_n so far, n_prompt */
    REPLY_REASONING, /* text */
    REPLY_CONTENT,   /* text */
    REPLY_DONE,      /* the last event: result; NULL: the server named no figures */
    REPLY_FAILED     /* the last event: error; HEARTH_CANCELLED after stop() */
};

struct reply_event {
    enum reply_event_type type;
    const char *text; /* not zero-terminated */
    size_t len;
    const hearth_result *result;
    const hearth_error *error;
};

typedef void (*reply_event_fn)(void *ud, const struct reply_event *event);

/* A model that can be talked to. */
struct backend_model {
    const char *name; /* lives as long as the backend */
    bool takes_media;
};

/* How much of a conversation is cached, and what the cache holds: the tiers that are on. */
struct backend_cache {
    bool has_lookup; /* something was said, and looked up */
    hearth_cache_lookup lookup;
    hearth_cache status;
};

struct backend;

struct backend_ops {
    /* The index-th model; false past the last. */
    bool (*model)(struct backend *backend, size_t index, struct backend_model *out);
    /* The index of the model that a conversation's name means, or a negative code. */
    int (*find)(struct backend *backend, const char *name, hearth_error *error);
    /* Begins a reply to the conversation. */
    int (*ask)(struct backend *backend, const struct conversation *chat, hearth_error *error);
    /* Waits for something of the reply, or for a signal, which it returns; calls `each` for all that has come. Every
     * reply ends with one DONE or FAILED, after which there is nothing to wait for. */
    enum signal_kind (*wait)(struct backend *backend, int signals, reply_event_fn each, void *ud);
    /* Has the reply end soon. Until its last event wait() is to be called. */
    void (*stop)(struct backend *backend);
    /* Fills in as much as there is of `out`, which is zeroed. HEARTH_CANCELLED after a signal, which still waits. */
    int (*cache)(struct backend *backend, const struct conversation *chat, struct backend_cache *out,
                 hearth_error *error);
    void (*close)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops;
};

/* Loads the models of a configuration in this process. NULL: *status is what the command ends with, and the error was
 * printed. Ctrl-C ends the loading. */
struct backend *local_open(const char *command, const hearth_config *config, int signals, int *status);

struct server_options {
    const char *url, *model; /* model: its name; NULL: the first one that can chat */
    long silence_s;          /* seconds without a byte after which a reply fails */
    int signals;
};

/* Asks a running server for its models. NULL: as above. */
struct backend *server_open(const char *command, const struct server_options *options, int *status);

#endif
