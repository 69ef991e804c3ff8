/* The tiers of the store, in the order in which lookups prefer them. Code that needs something for each tier (a
 * configuration key, an enumerator, a name) expands this table; outside src/store no tier is named.
 *
 *     MEMORY(ID, name, medium, quota_mb, meaning of the quota)
 *     FOLDER(ID, name, medium, quota_mb, meaning of the quota, path, meaning of the path)
 *     SERVER(ID, name, medium, quota_mb, meaning of the quota)  others use it as well; saves cannot go to it alone
 *
 * The medium is what routers call such a place. */
#ifndef STORE_TIER_TABLE_H
#define STORE_TIER_TABLE_H

/* clang-format off */
#define STORE_TIER_TABLE(MEMORY, FOLDER, SERVER)                                                                       \
    MEMORY(RAM, ram, "CPU", "1024",                                                                                    \
           "Mebibytes that the tier in memory may hold; 0 turns it off. Snapshots and checkpoints of sequences count " \
           "too: they have all of it, or half where saves go to this tier.")                                           \
    FOLDER(RAM_FILE, ram_file, "CPU", "0",                                                                             \
           "Mebibytes that the tier on a file system in memory may hold; 0 turns it off.",                             \
           "/dev/shm/hearth", "Folder of that tier. It outlives the process, not the machine's next boot.")            \
    FOLDER(DISK, disk, "DISK", "8192",                                                                                 \
           "Mebibytes that the tier on disk may hold; 0 turns it off.",                                                \
           "~/.cache/hearth/kv", "Folder of that tier.")                                                               \
    SERVER(REMOTE, remote, "REMOTE", "65536",                                                                          \
           "Mebibytes on the server of this tier of which hearth remembers that they are there; 0 turns it off. What " \
           "the server holds is bounded by its own maxmemory.")
/* clang-format on */

/* Where saves go by default. */
#define STORE_DEFAULT_TIER           "disk"

#define STORE_TIER_ID(ID, name, ...) STORE_##ID,

enum store_tier { STORE_TIER_TABLE(STORE_TIER_ID, STORE_TIER_ID, STORE_TIER_ID) STORE_TIERS };

enum store_tier_kind { STORE_MEMORY, STORE_FOLDER, STORE_SERVER };

#endif
