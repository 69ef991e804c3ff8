/* A disk in memory: files and folders with what programs see, what is on the medium, and a list of unsynced changes.
 * Memory is freed when the disk is closed: tests make few files. */
#include "fakes/fake_files.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct image {
    uint8_t *v;
    size_t size;
};

struct change { /* of a file: bytes at an offset */
    uint64_t offset;
    struct image bytes;
};

struct name {
    char *text;
    struct node *node;
};

struct names {
    struct name *v;
    size_t n;
};

/* A change of a folder: one name is removed and another added, atomically. Either may be NULL. */
struct move {
    char *gone, *come;
    struct node *node; /* the file that gets the name `come` */
};

/* A file, or a folder. */
struct node {
    char *path; /* of a folder */
    struct image seen, medium;
    struct change *changes;
    struct names names_seen, names_medium;
    struct move *moves;
    size_t n_changes, n_moves;
    int locked_by;
    struct node *next;
};

struct descriptor {
    struct node *node; /* NULL: closed */
    enum files_mode mode;
};

struct fake_disk {
    struct files files; /* first */
    pthread_mutex_t mutex;
    struct node *nodes;
    struct descriptor *descriptors; /* numbers are never reused: a stale one stays closed */
    size_t n_descriptors;
};

enum { FIRST_DESCRIPTOR = 1000 }; /* none equals a descriptor of the machine */

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*state >> 33) * n) >> 31);
}

/* ---- Images ---- */

static void image_write(struct image *image, const uint8_t *bytes, size_t size, uint64_t offset)
{
    size_t end = (size_t)offset + size;
    if (end > image->size) {
        image->v = mem_grow(image->v, end, 1);
        memset(image->v + image->size, 0, end - image->size);
        image->size = end;
    }
    if (bytes != NULL && size > 0) memcpy(image->v + offset, bytes, size);
}

static void image_copy(struct image *to, const struct image *from)
{
    free(to->v);
    *to = (struct image){0};
    image_write(to, from->v, from->size, 0);
}

static void forget_changes(struct node *node)
{
    for (size_t i = 0; i < node->n_changes; i++) free(node->changes[i].bytes.v);
    free(node->changes);
    node->changes = NULL;
    node->n_changes = 0;
}

/* ---- Names ---- */

static struct name *names_find(const struct names *names, const char *text)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->v[i].text, text) == 0) return &names->v[i];
    return NULL;
}

static void names_remove(struct names *names, const char *text)
{
    struct name *name = names_find(names, text);
    if (name == NULL) return;
    free(name->text);
    *name = names->v[--names->n];
}

static void names_set(struct names *names, const char *text, struct node *node)
{
    names_remove(names, text);
    names->v = mem_grow(names->v, names->n + 1, sizeof *names->v);
    names->v[names->n++] = (struct name){.text = mem_strdup(text), .node = node};
}

static void names_release(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) free(names->v[i].text);
    free(names->v);
    *names = (struct names){0};
}

static void names_copy(struct names *to, const struct names *from)
{
    names_release(to);
    for (size_t i = 0; i < from->n; i++) names_set(to, from->v[i].text, from->v[i].node);
}

static void names_move(struct names *names, const struct move *move)
{
    if (move->gone != NULL) names_remove(names, move->gone);
    if (move->come != NULL) names_set(names, move->come, move->node);
}

static void change_names(struct node *folder, const char *gone, const char *come, struct node *node)
{
    struct move move = {.gone = mem_strdup(gone), .come = mem_strdup(come), .node = node};
    folder->moves = mem_grow(folder->moves, folder->n_moves + 1, sizeof *folder->moves);
    folder->moves[folder->n_moves++] = move;
    names_move(&folder->names_seen, &move);
}

static void forget_moves(struct node *folder)
{
    for (size_t i = 0; i < folder->n_moves; i++) {
        free(folder->moves[i].gone);
        free(folder->moves[i].come);
    }
    free(folder->moves);
    folder->moves = NULL;
    folder->n_moves = 0;
}

/* ---- Nodes and descriptors ---- */

static struct node *make_node(struct fake_disk *disk, const char *path)
{
    struct node *node = mem_alloc(sizeof *node);
    *node = (struct node){.path = mem_strdup(path), .next = disk->nodes};
    disk->nodes = node;
    return node;
}

static int give_descriptor(struct fake_disk *disk, struct node *node, enum files_mode mode)
{
    disk->descriptors = mem_grow(disk->descriptors, disk->n_descriptors + 1, sizeof *disk->descriptors);
    disk->descriptors[disk->n_descriptors] = (struct descriptor){.node = node, .mode = mode};
    return FIRST_DESCRIPTOR + (int)disk->n_descriptors++;
}

static struct descriptor *descriptor(struct fake_disk *disk, int fd)
{
    static struct descriptor closed;
    bool known = fd >= FIRST_DESCRIPTOR && (size_t)(fd - FIRST_DESCRIPTOR) < disk->n_descriptors;
    return known ? &disk->descriptors[fd - FIRST_DESCRIPTOR] : &closed;
}

static struct node *folder_at(struct fake_disk *disk, int fd)
{
    struct node *node = descriptor(disk, fd)->node;
    return node != NULL && node->path != NULL ? node : NULL;
}

static struct node *file_at(struct fake_disk *disk, int fd)
{
    struct node *node = descriptor(disk, fd)->node;
    return node != NULL && node->path == NULL ? node : NULL;
}

static struct fake_disk *enter(struct files *files)
{
    struct fake_disk *disk = (struct fake_disk *)files;
    pthread_mutex_lock(&disk->mutex);
    return disk;
}

static int leave(struct fake_disk *disk, int64_t result)
{
    pthread_mutex_unlock(&disk->mutex);
    return (int)result;
}

/* ---- The calls ---- */

static int disk_open_folder(struct files *files, const char *path)
{
    struct fake_disk *disk = enter(files);
    struct node *node = disk->nodes;
    while (node != NULL && (node->path == NULL || strcmp(node->path, path) != 0)) node = node->next;
    if (node == NULL) node = make_node(disk, path);
    return leave(disk, give_descriptor(disk, node, FILES_READ));
}

static int disk_open(struct files *files, int folder_fd, const char *name, enum files_mode mode)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, folder_fd);
    if (folder == NULL) return leave(disk, -EBADF);
    struct name *found = names_find(&folder->names_seen, name);
    if (mode != FILES_CREATE) return leave(disk, found == NULL ? -ENOENT : give_descriptor(disk, found->node, mode));
    if (found != NULL) return leave(disk, -EEXIST);
    struct node *node = make_node(disk, NULL);
    change_names(folder, NULL, name, node);
    return leave(disk, give_descriptor(disk, node, mode));
}

static int disk_close(struct files *files, int fd)
{
    struct fake_disk *disk = enter(files);
    struct node *node = descriptor(disk, fd)->node;
    if (node == NULL) return leave(disk, -EBADF);
    if (node->locked_by == fd) node->locked_by = 0;
    descriptor(disk, fd)->node = NULL;
    return leave(disk, 0);
}

static ssize_t disk_read_at(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    struct fake_disk *disk = enter(files);
    struct node *node = file_at(disk, fd);
    if (node == NULL || descriptor(disk, fd)->mode != FILES_READ) return leave(disk, -EBADF);
    size_t there = offset < node->seen.size ? node->seen.size - (size_t)offset : 0, n = size < there ? size : there;
    if (n > 0) memcpy(bytes, node->seen.v + offset, n);
    return leave(disk, (int64_t)n);
}

static ssize_t disk_write_at(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct fake_disk *disk = enter(files);
    struct node *node = file_at(disk, fd);
    if (node == NULL || descriptor(disk, fd)->mode == FILES_READ) return leave(disk, -EBADF);
    struct change change = {.offset = offset};
    image_write(&change.bytes, bytes, size, 0);
    node->changes = mem_grow(node->changes, node->n_changes + 1, sizeof *node->changes);
    node->changes[node->n_changes++] = change;
    image_write(&node->seen, bytes, size, offset);
    return leave(disk, (int64_t)size);
}

static int64_t disk_size(struct files *files, int fd)
{
    struct fake_disk *disk = enter(files);
    struct node *node = file_at(disk, fd);
    return leave(disk, node == NULL ? -EINVAL : (int64_t)node->seen.size);
}

static int disk_sync(struct files *files, int fd)
{
    struct fake_disk *disk = enter(files);
    struct node *node = descriptor(disk, fd)->node;
    if (node == NULL) return leave(disk, -EBADF);
    image_copy(&node->medium, &node->seen);
    names_copy(&node->names_medium, &node->names_seen);
    forget_changes(node);
    forget_moves(node);
    return leave(disk, 0);
}

static int disk_link(struct files *files, int folder_fd, const char *from, const char *to)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, folder_fd);
    if (folder == NULL) return leave(disk, -EBADF);
    struct name *name = names_find(&folder->names_seen, from);
    if (name == NULL) return leave(disk, -ENOENT);
    if (names_find(&folder->names_seen, to) != NULL) return leave(disk, -EEXIST);
    change_names(folder, NULL, to, name->node);
    return leave(disk, 0);
}

static int disk_rename(struct files *files, int from_fd, const char *from, int to_fd, const char *to)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, from_fd), *to_folder = folder_at(disk, to_fd);
    if (folder == NULL || to_folder == NULL) return leave(disk, -EBADF);
    struct name *name = names_find(&folder->names_seen, from);
    if (name == NULL) return leave(disk, -ENOENT);
    struct node *node = name->node;
    if (folder == to_folder) {
        change_names(folder, from, to, node);
    } else {
        change_names(to_folder, NULL, to, node);
        change_names(folder, from, NULL, NULL);
    }
    return leave(disk, 0);
}

static int disk_unlink(struct files *files, int folder_fd, const char *name)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, folder_fd);
    if (folder == NULL) return leave(disk, -EBADF);
    if (names_find(&folder->names_seen, name) == NULL) return leave(disk, -ENOENT);
    change_names(folder, name, NULL, NULL);
    return leave(disk, 0);
}

static int disk_list(struct files *files, int folder_fd, void (*each)(void *ud, const char *name), void *ud)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, folder_fd);
    if (folder == NULL) return leave(disk, -EBADF);
    struct names names = {0};
    names_copy(&names, &folder->names_seen);
    leave(disk, 0);
    for (size_t i = 0; i < names.n; i++) each(ud, names.v[i].text); /* `each` may call the disk */
    names_release(&names);
    return 0;
}

static int disk_lock(struct files *files, int folder_fd)
{
    struct fake_disk *disk = enter(files);
    struct node *folder = folder_at(disk, folder_fd);
    if (folder == NULL) return leave(disk, -EBADF);
    if (folder->locked_by != 0 && folder->locked_by != folder_fd) return leave(disk, -EWOULDBLOCK);
    folder->locked_by = folder_fd;
    return leave(disk, 0);
}

/* ---- End of the process, loss of power ---- */

void fake_disk_end_process(struct fake_disk *disk)
{
    for (size_t i = 0; i < disk->n_descriptors; i++) disk->descriptors[i].node = NULL;
    for (struct node *node = disk->nodes; node != NULL; node = node->next) node->locked_by = 0;
}

/* Decides what of a write reached the medium: nothing, all, a part, or only the new length of the file. */
static void settle_change(struct node *node, const struct change *change, uint64_t *random)
{
    size_t size = change->bytes.size, from = 0;
    switch (random_below(random, 4)) {
    case 0:
        return;
    case 1:
        break;
    case 2:
        image_write(&node->medium, NULL, 0, change->offset + size);
        return;
    default:
        from = random_below(random, (uint32_t)size + 1);
        size = from + random_below(random, (uint32_t)(size - from) + 1);
        break;
    }
    if (size > from) image_write(&node->medium, change->bytes.v + from, size - from, change->offset + from);
}

static void settle(struct node *node, uint64_t *random)
{
    for (size_t i = 0; i < node->n_changes; i++) settle_change(node, &node->changes[i], random);
    for (size_t i = 0; i < node->n_moves; i++)
        if (random_below(random, 2) == 0) names_move(&node->names_medium, &node->moves[i]);
    image_copy(&node->seen, &node->medium);
    names_copy(&node->names_seen, &node->names_medium);
    forget_changes(node);
    forget_moves(node);
}

void fake_disk_lose_power(struct fake_disk *disk, uint64_t seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    fake_disk_end_process(disk);
    for (struct node *node = disk->nodes; node != NULL; node = node->next) settle(node, &random);
}

int fake_disk_descriptors(struct fake_disk *disk)
{
    int n = 0;
    for (size_t i = 0; i < disk->n_descriptors; i++) n += disk->descriptors[i].node != NULL;
    return n;
}

struct files *fake_disk_files(struct fake_disk *disk)
{
    return &disk->files;
}

struct fake_disk *fake_disk_open(void)
{
    struct fake_disk *disk = mem_alloc(sizeof *disk);
    pthread_mutex_init(&disk->mutex, NULL);
    disk->files = (struct files){
        .open_folder = disk_open_folder,
        .open = disk_open,
        .close = disk_close,
        .read_at = disk_read_at,
        .write_at = disk_write_at,
        .size = disk_size,
        .sync = disk_sync,
        .link = disk_link,
        .rename = disk_rename,
        .unlink = disk_unlink,
        .list = disk_list,
        .lock = disk_lock,
    };
    return disk;
}

void fake_disk_close(struct fake_disk *disk)
{
    while (disk->nodes != NULL) {
        struct node *node = disk->nodes;
        disk->nodes = node->next;
        forget_changes(node);
        forget_moves(node);
        names_release(&node->names_seen);
        names_release(&node->names_medium);
        free(node->seen.v);
        free(node->medium.v);
        free(node->path);
        free(node);
    }
    pthread_mutex_destroy(&disk->mutex);
    free(disk->descriptors);
    free(disk);
}
