/* The beginning of a pull: finds the files that a reference means, their names here, and how they are fetched. Blocks
 * on the network; any thread. */
#ifndef PULL_PULL_PLAN_H
#define PULL_PULL_PLAN_H

#include "hearth.h"
#include "pull/download.h"
#include "pull/pull.h"
#include "pull/web.h"

#include <stddef.h>

struct pull_plan {
    const struct pull_reference *reference; /* borrowed, as the next */
    const struct pull_options *options;
    struct pull_how how; /* borrows from the two, and from the plan, which stays where it is */
    struct pull_url endpoint;
    struct pull_file *files; /* the weights' first */
    size_t n_files;
    char *name; /* of the model */
    char *path; /* of the first file in its repository; NULL: it comes from elsewhere */
};

/* Lists the files of a repository, or names those of a URL or a path. All names were checked. Release the plan in
 * either case. */
int pull_plan_make(struct pull_plan *plan, const struct pull_reference *reference, const struct pull_options *options,
                   hearth_error *error);
void pull_plan_release(struct pull_plan *plan);

#endif
