/* Stand-ins for the machine's system calls: a disk that loses what was not synced, and a layer over any other files
 * that counts the calls and makes the Nth one fail. Any thread. */
#ifndef FAKES_FAKE_FILES_H
#define FAKES_FAKE_FILES_H

#include "base/files.h"

#include <pthread.h>
#include <stdbool.h>

/* ---- A disk in memory ---- */

/* It has two images: what programs see, and what is on the medium. A loss of power leaves of every write and of every
 * change to a folder that was not synced all, nothing or, of writes, a part: in any combination, as if each had been
 * written back at a time of its own. What was synced is there:
 *
 * - a file's sync: its bytes and size, but not the names that lead to it;
 * - a folder's sync: its names, but not the bytes of what they lead to;
 * - a rename within a folder happens or does not, between two folders each of them decides for itself;
 * - a folder that was made stays.
 *
 * A name whose file was never synced leads to anything, down to no bytes at all. */
struct fake_disk;

struct fake_disk *fake_disk_open(void);
void fake_disk_close(struct fake_disk *disk);
struct files *fake_disk_files(struct fake_disk *disk); /* borrowed */

/* The process ends: its descriptors and locks are gone, what it wrote is visible. */
void fake_disk_end_process(struct fake_disk *disk);

/* The machine ends, too; the seed decides what is left. */
void fake_disk_lose_power(struct fake_disk *disk, uint64_t seed);

int fake_disk_descriptors(struct fake_disk *disk); /* that are open */

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
    FAKE_ANY_CALL /* the number of sorts, too */
};

enum fake_effect {
    FAKE_ERROR,       /* it is not made, and fails; a close is made all the same */
    FAKE_SHORT,       /* of reads and writes: only half of the bytes, one at least; others are made as they are */
    FAKE_KILL_BEFORE, /* SIGKILL for this process in place of the call */
    FAKE_KILL_AFTER,  /* and after it */
    FAKE_HANG         /* it hangs until fake_faults_release(), and is made then; or fails, where there is an error */
};

struct fake_fault {
    enum fake_call call; /* which calls are counted */
    const char *on;      /* of them, those on files alone whose names contain one of these words; NULL: all */
    uint64_t nth;        /* 1: the first from fake_faults_set() on; 0: none */
    bool lasting;        /* and all that follow */
    enum fake_effect effect;
    int error; /* of FAKE_ERROR: ENOSPC, EIO, … */
};

#define FAKE_SLABS ".rows .state" /* temporary ones, too */

enum { FAKE_NAMED = 1024, FAKE_NAME_BYTES = 128 };

struct fake_faults {
    struct files files; /* first: &faults.files is what is handed out */
    struct files *inner;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fake_fault fault;                   /* guarded, and so is what follows, but for the counts */
    uint64_t met;                              /* calls that the fault is about */
    uint64_t releases;                         /* how often what hung was let go */
    int hanging;                               /* calls that hang */
    char names[FAKE_NAMED][FAKE_NAME_BYTES];   /* of open files, by their descriptors, as far as they go */
    _Atomic uint64_t calls[FAKE_ANY_CALL + 1]; /* made since fake_faults_set() */
    _Atomic uint64_t written;                  /* bytes, since then */
    _Atomic int descriptors;                   /* open through here */
    _Atomic uint64_t struck;                   /* calls that had the effect */
};

void fake_faults_init(struct fake_faults *faults, struct files *inner);

/* From now on; counts begin at 0. What hangs goes on hanging. */
void fake_faults_set(struct fake_faults *faults, struct fake_fault fault);

/* The fault is over: what hangs goes on. */
void fake_faults_release(struct fake_faults *faults);

/* Waits until so many calls hang. False: they do not within half a minute. */
bool fake_faults_await(struct fake_faults *faults, int hanging);

#endif
