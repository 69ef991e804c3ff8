/* A layer over any files that counts calls, and makes one of them fail, hang, or kill the process. */
#include "fakes/fake_files.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
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

/* ---- Which calls the fault affects ---- */

static char *name_of(struct fake_faults *faults, int fd)
{
    return fd >= 0 && fd < FAKE_NAMED ? faults->names[fd] : NULL;
}

static void set_name(struct fake_faults *faults, int fd, const char *name)
{
    pthread_mutex_lock(&faults->mutex);
    char *place = name_of(faults, fd);
    if (place != NULL) snprintf(place, FAKE_NAME_BYTES, "%s", name);
    pthread_mutex_unlock(&faults->mutex);
}

static bool contains_one(const char *name, const char *words)
{
    while (*words != '\0') {
        size_t len = strcspn(words, " ");
        if (memmem(name, strlen(name), words, len) != NULL) return true;
        words += len + strspn(words + len, " ");
    }
    return false;
}

/* With the mutex. */
static bool meets(struct fake_faults *faults, enum fake_call call, const char *name)
{
    const struct fake_fault *fault = &faults->fault;
    if (fault->nth == 0 || (fault->call != FAKE_ANY_CALL && fault->call != call)) return false;
    if (fault->on != NULL && (name == NULL || !contains_one(name, fault->on))) return false;
    uint64_t n = ++faults->met;
    return n == fault->nth || (fault->lasting && n > fault->nth);
}

/* With the mutex. */
static void hang(struct fake_faults *faults)
{
    uint64_t seen = faults->releases;
    faults->hanging++;
    pthread_cond_broadcast(&faults->changed);
    while (faults->releases == seen) pthread_cond_wait(&faults->changed, &faults->mutex);
    faults->hanging--;
}

/* How the fault affects a call. */
struct strike {
    bool struck;
    enum fake_effect effect;
    int error;
};

/* Counts the call. Returns whether and how the fault affects it; kills the process or hangs first, if that is the
 * fault. */
static struct strike strike(struct fake_faults *faults, enum fake_call call, const char *name)
{
    struct strike strike = {0};
    faults->calls[call]++;
    faults->calls[FAKE_ANY_CALL]++;
    pthread_mutex_lock(&faults->mutex);
    if (meets(faults, call, name)) {
        strike = (struct strike){true, faults->fault.effect, faults->fault.error};
        faults->struck++;
        if (strike.effect == FAKE_HANG) hang(faults);
    }
    pthread_mutex_unlock(&faults->mutex);
    if (strike.struck && strike.effect == FAKE_KILL_BEFORE) die();
    return strike;
}

static struct strike strike_open(struct fake_faults *faults, enum fake_call call, int fd)
{
    char name[FAKE_NAME_BYTES] = "";
    pthread_mutex_lock(&faults->mutex);
    const char *known = name_of(faults, fd);
    if (known != NULL) memcpy(name, known, sizeof name);
    pthread_mutex_unlock(&faults->mutex);
    return strike(faults, call, name);
}

static bool fails(const struct strike *strike)
{
    return strike->struck && (strike->effect == FAKE_ERROR || (strike->effect == FAKE_HANG && strike->error != 0));
}

/* Turns the result of the real call into that of the faulty one. */
static int64_t done(const struct strike *strike, int64_t result)
{
    if (strike->struck && strike->effect == FAKE_KILL_AFTER) die();
    return result;
}

static int opened(struct fake_faults *faults, const struct strike *strike, int fd, const char *name)
{
    if (fd >= 0) faults->descriptors++;
    set_name(faults, fd, name);
    return (int)done(strike, fd);
}

static size_t part_of(const struct strike *strike, size_t size)
{
    return strike->struck && strike->effect == FAKE_SHORT && size > 1 ? size / 2 : size;
}

/* ---- The calls ---- */

static int faulty_open_folder(struct files *files, const char *path)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_OPEN_FOLDER, NULL);
    return fails(&s) ? -s.error : opened(f, &s, f->inner->open_folder(f->inner, path), "");
}

static int faulty_open(struct files *files, int folder, const char *name, enum files_mode mode)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_OPEN, name);
    return fails(&s) ? -s.error : opened(f, &s, f->inner->open(f->inner, folder, name, mode), name);
}

static int faulty_close(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike_open(f, FAKE_CLOSE, fd);
    set_name(f, fd, "");
    int result = f->inner->close(f->inner, fd);
    if (result == 0) f->descriptors--;
    return fails(&s) ? -s.error : (int)done(&s, result);
}

static ssize_t faulty_read_at(struct files *files, int fd, void *bytes, size_t size, uint64_t offset)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike_open(f, FAKE_READ, fd);
    if (fails(&s)) return -s.error;
    return done(&s, f->inner->read_at(f->inner, fd, bytes, part_of(&s, size), offset));
}

static ssize_t faulty_write_at(struct files *files, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike_open(f, FAKE_WRITE, fd);
    if (fails(&s)) return -s.error;
    ssize_t result = f->inner->write_at(f->inner, fd, bytes, part_of(&s, size), offset);
    if (result > 0) f->written += (uint64_t)result;
    return done(&s, result);
}

static int64_t faulty_size(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike_open(f, FAKE_SIZE, fd);
    return fails(&s) ? -s.error : done(&s, f->inner->size(f->inner, fd));
}

static int faulty_sync(struct files *files, int fd)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike_open(f, FAKE_SYNC, fd);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->sync(f->inner, fd));
}

static int faulty_link(struct files *files, int folder, const char *from, const char *to)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_LINK, to);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->link(f->inner, folder, from, to));
}

static int faulty_rename(struct files *files, int folder, const char *from, int to_folder, const char *to)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_RENAME, to);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->rename(f->inner, folder, from, to_folder, to));
}

static int faulty_unlink(struct files *files, int folder, const char *name)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_UNLINK, name);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->unlink(f->inner, folder, name));
}

static int faulty_list(struct files *files, int folder, void (*each)(void *ud, const char *name), void *ud)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_LIST, NULL);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->list(f->inner, folder, each, ud));
}

static int faulty_lock(struct files *files, int folder)
{
    struct fake_faults *f = faults_of(files);
    struct strike s = strike(f, FAKE_LOCK, NULL);
    return fails(&s) ? -s.error : (int)done(&s, f->inner->lock(f->inner, folder));
}

/* ---- What a test does ---- */

void fake_faults_set(struct fake_faults *faults, struct fake_fault fault)
{
    pthread_mutex_lock(&faults->mutex);
    faults->fault = fault;
    faults->met = 0;
    faults->struck = 0;
    faults->written = 0;
    for (int i = 0; i <= FAKE_ANY_CALL; i++) faults->calls[i] = 0;
    pthread_mutex_unlock(&faults->mutex);
}

void fake_faults_release(struct fake_faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    faults->fault = (struct fake_fault){0};
    faults->releases++;
    pthread_cond_broadcast(&faults->changed);
    pthread_mutex_unlock(&faults->mutex);
}

bool fake_faults_await(struct fake_faults *faults, int hanging)
{
    struct clock *clock = clock_monotonic();
    int64_t deadline = clock_now(clock) + clock_from_ms(30000);
    pthread_mutex_lock(&faults->mutex);
    while (faults->hanging < hanging && clock_now(clock) < deadline)
        clock->wait(clock, &faults->changed, &faults->mutex, deadline);
    bool hang = faults->hanging >= hanging;
    pthread_mutex_unlock(&faults->mutex);
    return hang;
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
    faults->releases = 0;
    faults->hanging = 0;
    memset(faults->names, 0, sizeof faults->names);
    faults->descriptors = 0;
    pthread_mutex_init(&faults->mutex, NULL);
    clock_cond_init(&faults->changed);
    fake_faults_set(faults, (struct fake_fault){0});
}
