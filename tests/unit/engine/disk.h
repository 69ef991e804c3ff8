/* A store in a folder of its own, on a disk that a test makes slow. */
#ifndef UNIT_ENGINE_DISK_H
#define UNIT_ENGINE_DISK_H

#include "stored.h"

#include "base/memory.h"
#include "fakes/gated_files.h"

#include <stdio.h>
#include <unistd.h>

static struct gated_files gated;
static char folder[64];

static inline struct store *open_store(struct files *files, uint64_t backlog)
{
    struct store_params params = {
        .stride = STRIDE, .save_tier = STORE_DISK, .backlog = backlog, LONG_TIMEOUTS, .files = files};
    params.tiers[STORE_DISK].quota = 1 << 30;
    params.tiers[STORE_DISK].path = folder;
    return store_open(&params, NULL);
}

static inline struct store *open_store_on_disk(void)
{
    return open_store(&gated.files, 64 << 20);
}

static inline int set_up_folder(void)
{
    snprintf(folder, sizeof folder, "/dev/shm/hearth-test-XXXXXX");
    gated_files_init(&gated);
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int tear_down_folder(void)
{
    char *command = mem_format("rm -r '%s'", folder);
    int rc = system(command) == 0 ? 0 : -1;
    free(command);
    return rc;
}

static inline int set_up_disk(void **state)
{
    return set_up_folder() == 0 ? set_up(state) : -1;
}

static inline int tear_down_disk(void **state)
{
    int rc = tear_down(state);
    return tear_down_folder() == 0 ? rc : -1;
}

#define disk_test(name) cmocka_unit_test_setup_teardown(name, set_up_disk, tear_down_disk)

#endif
