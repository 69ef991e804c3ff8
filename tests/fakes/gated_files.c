/* The gate: a mutex, a flag and a condition variable around sync and read. */
#include "fakes/gated_files.h"

static struct gated_files *gated_of(struct files *files)
{
    return (struct gated_files *)files;
}

static int inspect_after(struct gated_files *gated, int result)
{
    if (gated->look != NULL) gated->look(gated->ud);
    return result;
}

static void wait_at_gate(struct gated_files *gated, int syncs)
{
    pthread_mutex_lock(&gated->mutex);
    gated->waiting++;
    pthread_cond_broadcast(&gated->changed);
    while (gated->closed) pthread_cond_wait(&gated->changed, &gated->mutex);
    gated->waiting--;
    gated->synced += syncs;
    pthread_mutex_unlock(&gated->mutex);
}

static ssize_t gated_read(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    struct gated_files *gated = gated_of(files);
    if (gated->reads_too) wait_at_gate(gated, 0);
    return files_machine()->read_at(files_machine(), fd, bytes, size, offset);
}

static int gated_sync(struct files *files, int fd)
{
    struct gated_files *gated = gated_of(files);
    wait_at_gate(gated, 1);
    return inspect_after(gated, files_machine()->sync(files_machine(), fd));
}

static int inspected_link(struct files *files, int folder, const char *from, const char *to)
{
    return inspect_after(gated_of(files), files_machine()->link(files_machine(), folder, from, to));
}

static int inspected_unlink(struct files *files, int folder, const char *name)
{
    return inspect_after(gated_of(files), files_machine()->unlink(files_machine(), folder, name));
}

void gated_files_init(struct gated_files *gated)
{
    *gated = (struct gated_files){.files = *files_machine()};
    gated->files.sync = gated_sync;
    gated->files.read_at = gated_read;
    gated->files.link = inspected_link;
    gated->files.unlink = inspected_unlink;
    pthread_mutex_init(&gated->mutex, NULL);
    pthread_cond_init(&gated->changed, NULL);
}

static void set_closed(struct gated_files *gated, bool closed)
{
    pthread_mutex_lock(&gated->mutex);
    gated->closed = closed;
    pthread_cond_broadcast(&gated->changed);
    pthread_mutex_unlock(&gated->mutex);
}

void gate_close(struct gated_files *gated)
{
    set_closed(gated, true);
}

void gate_open(struct gated_files *gated)
{
    set_closed(gated, false);
}

void gate_await(struct gated_files *gated)
{
    pthread_mutex_lock(&gated->mutex);
    while (gated->waiting == 0) pthread_cond_wait(&gated->changed, &gated->mutex);
    pthread_mutex_unlock(&gated->mutex);
}
