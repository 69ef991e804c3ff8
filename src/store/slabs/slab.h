/* A slab: the bytes of one entry, in a file or in memory, as docs/format.md lists them.
 *
 *     header (48 bytes) | identity, keys, tokens, region table, their CRC32C | payload | trailer with its CRC32C
 *
 * The front is all that precedes the payload: it describes everything but the state itself, and is all that a start
 * reads. The payload is opaque here: one or more regions of a state, in the order of the table, with whatever lies
 * between them. Pure functions over bytes, any thread. */
#ifndef STORE_SLABS_SLAB_H
#define STORE_SLABS_SLAB_H

#include "base/buf.h"
#include "base/tokens.h"
#include "hearth.h"
#include "store/slabs/slab_key.h"

#define SLAB_VERSION       1
#define SLAB_HEADER_BYTES  48
#define SLAB_TRAILER_BYTES 16

enum slab_kind {
    SLAB_ROWS = 1, /* KV rows of the tokens [start, end): keys and values of all layers */
    SLAB_STATE = 2 /* recurrent/SWA state after `end` tokens, which cannot be cut */
};

/* The name of a slab; in a folder, its file's. */
struct slab_name {
    struct slab_key key;
    enum slab_kind kind;
};

enum slab_reason { SLAB_COLD = 1, SLAB_CONTINUED = 2, SLAB_EVICT = 3, SLAB_SHUTDOWN = 4, SLAB_FINISH = 5 };

const char *slab_reason_name(enum slab_reason reason);

/* One tensor of a layer: its keys, its values, … `rows` rows of row_bytes each, one after the other (or, transposed,
 * row_bytes / element tables of `rows` elements). */
struct slab_region {
    char what;      /* 'K', 'V', 'v' (transposed values), 'R' and 'S' (recurrent), 'M' (other recurrent/SWA state) */
    uint16_t layer; /* counted within its kind of layers */
    uint16_t type;  /* the codec's number of the element type */
    uint32_t rows;
    uint64_t row_bytes, offset, size; /* offset within the payload; size == rows x row_bytes, but for 'M' */
    uint32_t crc;                     /* filled in by slab_encode(); tells which layer of a damaged slab is bad */
};

struct slab_head {
    enum slab_kind kind;
    enum slab_reason reason;
    struct identity identity;
    struct slab_key key;    /* of the tokens [0, end) */
    struct slab_key parent; /* of the parent, which has the tokens before `start`; all zero where start is 0 */
    int32_t start, end;     /* a STATE slab whose rows are stored has start == end */
    struct tokens tokens;   /* [start, end) */
    struct slab_region *regions;
    size_t n_regions;
    uint64_t payload_size;
    int64_t created_ms; /* since 1970 */
    int64_t used_ms;    /* time of last use; this and hits are rewritten in place, and no CRC covers them */
    uint32_t hits;
};

void slab_head_release(struct slab_head *head);

/* Bytes of the whole slab with that head; uses its n_regions, tokens and payload_size. */
uint64_t slab_size(const struct slab_head *head);

/* Encodes the front (and fills in the regions' CRCs) and the trailer. */
void slab_encode(struct slab_head *head, const void *payload, struct buf *front, uint8_t trailer[SLAB_TRAILER_BYTES]);

/* The brief front, for the index file: without the region table. slab_decode() reads it, given slab_brief_bytes() as
 * the slab's size. */
void slab_encode_brief(const struct slab_head *head, struct buf *front);
uint64_t slab_brief_bytes(const void *front, size_t size);

/* Reads the name alone, unchecked. False: it is too short for one. */
bool slab_brief_name(const void *front, size_t size, struct slab_name *name);

/* How many bytes the front has, from its first SLAB_HEADER_BYTES; 0: this is no slab, or one of a newer version. */
size_t slab_front_size(const void *header);

/* Whether it is a slab of a newer version, which must not be deleted. */
bool slab_is_newer(const void *header);

/* Reads a front of `size` bytes, for a slab of slab_bytes in all. Checks lengths, ranges, order and CRC; `head` needs
 * slab_head_release() only where 0 is returned. Else HEARTH_INVALID and what is wrong. */
int slab_decode(const void *front, size_t size, uint64_t slab_bytes, struct slab_head *head, hearth_error *error);

/* Whether payload and trailer are those of the head. */
int slab_check(const struct slab_head *head, const void *front, size_t front_size, const void *payload,
               const uint8_t trailer[SLAB_TRAILER_BYTES], hearth_error *error);

/* The name of the first damaged region, for `hearth kv verify`: "keys of layer 3"; NULL: none is damaged. */
const char *slab_damaged_region(const struct slab_head *head, const void *payload, char text[64]);

/* A whole slab in memory. Its payload lies inside `bytes`, which may be shared. */
struct slab {
    struct slab_head head;
    struct slab_bytes *bytes;
    const uint8_t *payload;
};

/* Memory with a reference count; any thread. */
struct slab_bytes {
    uint8_t *v; /* from malloc */
    size_t size;
    _Atomic size_t refs;
};

struct slab_bytes *slab_bytes_open(uint8_t *v, size_t size); /* takes v; returns one reference */
struct slab_bytes *slab_bytes_ref(struct slab_bytes *bytes);
void slab_bytes_unref(struct slab_bytes *bytes); /* NULL is fine */

void slab_release(struct slab *slab);

/* The bytes of the header, at SLAB_USE_OFFSET, that are rewritten when a slab is used: hits and time of last use. */
#define SLAB_USE_BYTES 12
void slab_encode_use(uint32_t hits, int64_t used_ms, uint8_t bytes[SLAB_USE_BYTES]);
void slab_decode_use(const uint8_t bytes[SLAB_USE_BYTES], uint32_t *hits, int64_t *used_ms);
extern const uint64_t SLAB_USE_OFFSET;

#endif
