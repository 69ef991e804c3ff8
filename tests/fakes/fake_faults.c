/* The layer that counts calls and makes one of them fail. */
#include "fakes/fake_files.h"

#include <signal.h>
#include <unistd.h>

static struct fake_faults *faults_of(struct files *files)
{
    return (struct fake_faults *)files;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause(); /* the signal may reach another thread first */
}

/* Counts the call; whether the fault strikes it. Dies before it, if that is the fault. */
static bool strikes(struct fake_faults *faults, enum fake_call call)
{
    const struct fake_fault *fault = &faults->fault;
    uint64_t of_sort = ++faults->calls[call], of_all = ++faults->calls[FAKE_ANY_CALL];
    if (fault->nth == 0 || (fault->call != FAKE_ANY_CALL && fault->call != call)) return false;
    uint64_t n = fault->call == FAKE_ANY_CALL ? of_all : of_sort;
    if (n != fault->nth && !(fault->lasting && n > fault->nth)) return false;
    faults->struck++;
    if (fault->effect == FAKE_KILL_BEFORE) die();
    return true;
}

static bool fails(const struct fake_faults *faults, bool struck)
{
    return struck && faults->fault.effect == FAKE_ERROR;
}

/* What every call does with the result of the one below. */
static int64_t done(struct fake_faults *faults, bool struck, int64_t result)
{
    if (struck && faults->fault.effect == FAKE_KILL_AFTER) die();
    return result;
}

static int opened(struct fake_faults *faults, bool struck, int fd)
{
    if (fd >= 0) faults->descriptors++;
    return (int)done(faults, struck, fd);
}

static size_t part_of(const struct fake_faults *faults, bool struck, size_t size)
{
    return struck && faults->fault.effect == FAKE_SHORT && size > 1 ? size / 2 : size;
}

static int faulty_open_folder(struct files *files, const char *path)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_OPEN_FOLDER);
    return fails(f, struck) ? -f->fault.error : opened(f, struck, f->inner->open_folder(f->inner, path));
}

static int faulty_open(struct files *files, int folder, const char *name, enum files_mode mode)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_OPEN);
    return fails(f, struck) ? -f->fault.error : opened(f, struck, f->inner->open(f->inner, folder, name, mode));
}

static int faulty_close(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_CLOSE);
    int result = f->inner->close(f->inner, fd);
    if (result == 0) f->descriptors--;
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, result);
}

static ssize_t faulty_read_at(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_READ);
    if (fails(f, struck)) return -f->fault.error;
    return done(f, struck, f->inner->read_at(f->inner, fd, bytes, part_of(f, struck, size), offset));
}

static ssize_t faulty_write_at(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_WRITE);
    if (fails(f, struck)) return -f->fault.error;
    return done(f, struck, f->inner->write_at(f->inner, fd, bytes, part_of(f, struck, size), offset));
}

static int64_t faulty_size(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_SIZE);
    return fails(f, struck) ? -f->fault.error : done(f, struck, f->inner->size(f->inner, fd));
}

static int faulty_sync(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_SYNC);
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, f->inner->sync(f->inner, fd));
}

static int faulty_link(struct files *files, int folder, const char *from, const char *to)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_LINK);
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, f->inner->link(f->inner, folder, from, to));
}

static int faulty_rename(struct files *files, int folder, const char *from, int to_folder, const char *to)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_RENAME);
    if (fails(f, struck)) return -f->fault.error;
    return (int)done(f, struck, f->inner->rename(f->inner, folder, from, to_folder, to));
}

static int faulty_unlink(struct files *files, int folder, const char *name)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_UNLINK);
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, f->inner->unlink(f->inner, folder, name));
}

static int faulty_list(struct files *files, int folder, void (*each)(void *ud, const char *name), void *ud)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_LIST);
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, f->inner->list(f->inner, folder, each, ud));
}

static int faulty_lock(struct files *files, int folder)
{
    struct fake_faults *f = faults_of(files);
    bool struck = strikes(f, FAKE_LOCK);
    return fails(f, struck) ? -f->fault.error : (int)done(f, struck, f->inner->lock(f->inner, folder));
}

void fake_faults_set(struct fake_faults *faults, struct fake_fault fault)
{
    faults->fault = fault;
    faults->struck = 0;
    for (int i = 0; i <= FAKE_ANY_CALL; i++) faults->calls[i] = 0;
}

void fake_faults_init(struct fake_faults *faults, struct files *inner)
{
    faults->files = (struct files){
        .open_folder = faulty_open_folder,
        .open = faulty_open,
        .close = faulty_close,
        .read_at = faulty_read_at,
        .write_at = faulty_write_at,
        .size = faulty_size,
        .sync = faulty_sync,
        .link = faulty_link,
        .rename = faulty_rename,
        .unlink = faulty_unlink,
        .list = faulty_list,
        .lock = faulty_lock,
    };
    faults->inner = inner;
    faults->descriptors = 0;
    fake_faults_set(faults, (struct fake_fault){0});
}
