/* Fakes of the machine's system calls: a disk that loses what was not synced, and a layer over any other files that
 * counts calls and makes the Nth one fail. Any thread. */
#ifndef FAKES_FAKE_FILES_H
#define FAKES_FAKE_FILES_H

#include "base/files.h"

#include <pthread.h>
#include <stdbool.h>

/* ---- A disk in memory ---- */

/* It has two states: what programs see, and what is on the medium. Of every write and every change of a folder that was
 * not synced, a loss of power leaves all, nothing or, of writes, a part: in any combination, as if each had been
 * written back at a time of its own. What was synced is kept:
 *
 * - syncing a file keeps its bytes and size, but not its names;
 * - syncing a folder keeps its names, but not the bytes of its files;
 * - a rename within a folder happens or does not; between two folders each of them decides for itself;
 * - a new folder is kept.
 *
 * A name whose file was never synced may lead to anything, down to no bytes at all. */
struct fake_disk;

struct fake_disk *fake_disk_open(void);
void fake_disk_close(struct fake_disk *disk);
struct files *fake_disk_files(struct fake_disk *disk); /* borrowed */

/* The process ends: its descriptors and locks are closed, what it wrote is visible. */
void fake_disk_end_process(struct fake_disk *disk);

/* Power is lost; the seed decides what is left. */
void fake_disk_lose_power(struct fake_disk *disk, uint64_t seed);

int fake_disk_descriptors(struct fake_disk *disk); /* how many are open */

/* ---- Faults ---- */

enum fake_call {
    FAKE_OPEN_FOLDER,
    FAKE_OPEN,
    FAKE_CLOSE,
    FAKE_READ,
    FAKE_WRITE,
    FAKE_SIZE,
    FAKE_SYNC,
    FAKE_LINK,
    FAKE_RENAME,
    FAKE_UNLINK,
    FAKE_LIST,
    FAKE_LOCK,
    FAKE_ANY_CALL /* also the number of kinds */
};

enum fake_effect {
    FAKE_ERROR,       /* the call fails without being made; but a close is made */
    FAKE_SHORT,       /* reads and writes handle half of the bytes, one at least; other calls are unaffected */
    FAKE_KILL_BEFORE, /* SIGKILL for this process before the call */
    FAKE_KILL_AFTER,  /* and after the call */
    FAKE_HANG         /* the call hangs until fake_faults_release(), and is then made, or fails where `error` is set */
};

struct fake_fault {
    enum fake_call call; /* which calls are counted */
    const char *on;      /* only calls on files whose names contain one of these words; NULL: all */
    uint64_t nth;        /* the Nth call from fake_faults_set() on, counted from 1; 0: none */
    bool lasting;        /* and all calls after it */
    enum fake_effect effect;
    int error; /* of FAKE_ERROR: ENOSPC, EIO, … */
};

#define FAKE_SLABS ".rows .state" /* also temporary ones */

enum { FAKE_NAMED = 1024, FAKE_NAME_BYTES = 128 };

struct fake_faults {
    struct files files; /* first: tests pass &faults.files */
    struct files *inner;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fake_fault fault;                   /* guarded, as are the members below but for the counts */
    uint64_t met;                              /* calls that the fault counts */
    uint64_t releases;                         /* how often hanging calls were released */
    int hanging;                               /* calls that hang now */
    char names[FAKE_NAMED][FAKE_NAME_BYTES];   /* of open files, by descriptor */
    _Atomic uint64_t calls[FAKE_ANY_CALL + 1]; /* made since fake_faults_set() */
    _Atomic uint64_t written;                  /* bytes, since then */
    _Atomic int descriptors;                   /* open through here */
    _Atomic uint64_t struck;                   /* calls that the fault affected */
};

void fake_faults_init(struct fake_faults *faults, struct files *inner);

/* Sets the fault; counts begin at 0. Calls that hang stay so. */
void fake_faults_set(struct fake_faults *faults, struct fake_fault fault);

/* Ends the fault, and releases the calls that hang. */
void fake_faults_release(struct fake_faults *faults);

/* Waits until so many calls hang, 30 s at most; false: they do not. */
bool fake_faults_await(struct fake_faults *faults, int hanging);

#endif
