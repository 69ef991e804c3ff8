/* Pulling a model from a command line: the options for it, the progress on standard error, and the environment
 * (HF_ENDPOINT, HF_TOKEN). Main thread only. */
#ifndef CLI_PULLING_H
#define CLI_PULLING_H

#include "cli/args.h"
#include "pull/pull.h"

struct pulling {
    const char *name, *mmproj, *connections, *stall, *retries; /* as they were given; NULL: not */
    bool http;
};

#define PULLING_OPTIONS(p)                                                                                             \
    {"name", "NAME", "the model's name (its file's)", .text = &(p)->name},                                             \
        {"mmproj", "PLACE", "URL or file of its projector, which a repository brings along", .text = &(p)->mmproj},    \
        {"connections", "N", "ranges of a file that are fetched at once (4)", .text = &(p)->connections},              \
        {"stall", "SECONDS", "without bytes, after which a connection is given up (30)", .text = &(p)->stall},         \
        {"retries", "N", "failures in a row after which the pull ends (5)", .text = &(p)->retries},                    \
    {                                                                                                                  \
        "http", NULL, "allow http without encryption, beyond this machine", .flag = &(p)->http                         \
    }

/* Reads a reference with the user's short names. Release it in either case. */
int pulling_read(const char *text, struct pull_reference *reference, hearth_error *error);

/* Pulls it into the models folder of the configuration. Release `model` after HEARTH_OK. */
int pulling_get(const struct pulling *pulling, const hearth_config *config, const struct pull_reference *reference,
                struct pull_model *model, hearth_error *error);

/* Appends a number of bytes as people read it: "2.71 GB". */
void pulling_put_size(struct buf *out, int64_t bytes);

#endif
