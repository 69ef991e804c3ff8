/* BMP, decoded here: no library has it apart from those that are never to see an upload. All kinds that Windows writes:
 * 1, 4, 8 bits with colours from a table, plain or run-length encoded; 16, 24, 32 bits, with masks or without.
 *
 * A header of one of several sizes says where the rest lies; whatever it says, nothing beyond the file is read, and
 * nothing beyond the picture written. */
#include "media/bmp.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_HEADER = 14, OLD_HEADER = 12, LEAST_HEADER = 40, MASKS_AT = FILE_HEADER + LEAST_HEADER };
enum { PLAIN, RUNS_OF_8, RUNS_OF_4, MASKS, MASKS_WITH_ALPHA = 6 };
enum { RED, GREEN, BLUE, ALPHA, N_CHANNELS };

struct bmp {
    struct media_bytes bytes;
    uint32_t width, height;
    bool is_top_down;
    uint32_t bits, compression;
    size_t table, n_colours, colour_bytes; /* where the table of colours is, and its entries */
    size_t pixels;                         /* where the rows begin */
    uint32_t masks[N_CHANNELS];
};

static uint32_t number_at(const struct bmp *bmp, size_t at, size_t bytes)
{
    uint32_t n = 0;
    while (bytes-- > 0) n = n << 8 | bmp->bytes.v[at + bytes];
    return n;
}

/* ---- The header ---- */

/* Masks lie in newer headers, and behind that of 40 bytes. False: they are not all there. */
static bool read_masks(struct bmp *bmp, uint32_t header)
{
    static const uint32_t of_16[] = {0x7c00, 0x3e0, 0x1f, 0}, of_32[] = {0xff0000, 0xff00, 0xff, 0};
    const bool given = bmp->compression == MASKS || bmp->compression == MASKS_WITH_ALPHA;
    const size_t n = header >= 56 || bmp->compression == MASKS_WITH_ALPHA ? N_CHANNELS : ALPHA;
    memcpy(bmp->masks, bmp->bits == 16 ? of_16 : of_32, sizeof bmp->masks);
    if (!given) return true;
    if (header == LEAST_HEADER) bmp->table += n * 4;
    if (bmp->bytes.len < MASKS_AT + n * 4) return false;
    for (size_t i = 0; i < N_CHANNELS; i++) bmp->masks[i] = i < n ? number_at(bmp, MASKS_AT + i * 4, 4) : 0;
    return true;
}

static bool has_known_kind(const struct bmp *bmp)
{
    switch (bmp->compression) {
    case PLAIN:
        return bmp->bits == 1 || bmp->bits == 4 || bmp->bits == 8 || bmp->bits == 16 || bmp->bits == 24 ||
               bmp->bits == 32;
    case RUNS_OF_8:
        return bmp->bits == 8 && !bmp->is_top_down;
    case RUNS_OF_4:
        return bmp->bits == 4 && !bmp->is_top_down;
    case MASKS:
    case MASKS_WITH_ALPHA:
        return bmp->bits == 16 || bmp->bits == 32;
    default:
        return false;
    }
}

static bool read_header(const struct media_bytes *bytes, struct bmp *bmp, const char **reason)
{
    *bmp = (struct bmp){.bytes = *bytes};
    if (bytes->len < FILE_HEADER + OLD_HEADER) return false;
    const uint32_t header = number_at(bmp, FILE_HEADER, 4);
    bmp->pixels = number_at(bmp, 10, 4);
    bmp->table = FILE_HEADER + (size_t)header;
    if (bytes->len < bmp->table) return false;
    if (header == OLD_HEADER) { /* with fields of two bytes each */
        bmp->width = number_at(bmp, FILE_HEADER + 4, 2);
        bmp->height = number_at(bmp, FILE_HEADER + 6, 2);
        bmp->bits = number_at(bmp, FILE_HEADER + 10, 2);
        bmp->colour_bytes = 3;
    } else {
        int32_t height = (int32_t)number_at(bmp, FILE_HEADER + 8, 4); /* below 0: the rows come from above */
        bmp->width = number_at(bmp, FILE_HEADER + 4, 4);
        bmp->is_top_down = height < 0;
        bmp->height = height < 0 ? 0u - (uint32_t)height : (uint32_t)height;
        bmp->bits = number_at(bmp, FILE_HEADER + 14, 2);
        bmp->colour_bytes = 4;
    }
    if (header >= LEAST_HEADER) {
        bmp->compression = number_at(bmp, FILE_HEADER + 16, 4);
        bmp->n_colours = number_at(bmp, FILE_HEADER + 32, 4);
    }
    *reason = "its bits a pixel, or its compression, are none that BMP has";
    if (!has_known_kind(bmp) || !read_masks(bmp, header)) return false;
    if (bmp->n_colours == 0 || bmp->n_colours > 256) bmp->n_colours = bmp->bits <= 8 ? (size_t)1 << bmp->bits : 0;
    *reason = "its size is none";
    return bmp->width > 0 && bmp->height > 0 && bmp->width <= INT32_MAX && bmp->height <= INT32_MAX;
}

static bool measure_bmp(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct bmp bmp;
    *reason = "it ends too early";
    if (!read_header(bytes, &bmp, reason)) return false;
    image->width = bmp.width;
    image->height = bmp.height;
    return true;
}

/* ---- Pixels ---- */

/* The row and column count from below, or from above where the file does. */
static uint8_t *place_of(const struct bmp *bmp, const struct media_image *image, uint32_t x, uint32_t y)
{
    uint32_t row = bmp->is_top_down ? y : bmp->height - 1 - y;
    return image->rgb + ((size_t)row * bmp->width + x) * 3;
}

/* A colour that the table lacks is black. */
static void put_indexed(const struct bmp *bmp, uint8_t *to, uint32_t index)
{
    size_t at = bmp->table + index * bmp->colour_bytes;
    bool is_known = index < bmp->n_colours && at + 3 <= bmp->bytes.len;
    for (size_t i = 0; i < 3; i++) to[i] = is_known ? bmp->bytes.v[at + 2 - i] : 0;
}

/* The bits under a mask, as a number from 0 to 255. */
static uint32_t channel_of(uint32_t pixel, uint32_t mask)
{
    if (mask == 0) return 0;
    unsigned shift = 0;
    while ((mask >> shift & 1) == 0) shift++;
    return (uint32_t)((uint64_t)((pixel & mask) >> shift) * 255 / (mask >> shift));
}

static size_t row_bytes(const struct bmp *bmp)
{
    return (size_t)(((uint64_t)bmp->width * bmp->bits + 31) / 32 * 4);
}

/* Whether any pixel is opaque: where none is, the program that wrote the file had no use for the byte. */
static bool uses_alpha(const struct bmp *bmp)
{
    for (uint32_t y = 0; bmp->masks[ALPHA] != 0 && y < bmp->height; y++)
        for (uint32_t x = 0; x < bmp->width; x++) {
            size_t at = bmp->pixels + y * row_bytes(bmp) + (size_t)x * (bmp->bits / 8);
            if ((number_at(bmp, at, bmp->bits / 8) & bmp->masks[ALPHA]) != 0) return true;
        }
    return false;
}

static bool decode_rows(const struct bmp *bmp, const struct media_image *image)
{
    const size_t len = row_bytes(bmp), bytes = bmp->bits / 8;
    if (bmp->pixels > bmp->bytes.len || (bmp->bytes.len - bmp->pixels) / bmp->height < len) return false;
    const bool has_alpha = bmp->bits > 8 && uses_alpha(bmp);
    for (uint32_t y = 0; y < bmp->height; y++)
        for (uint32_t x = 0; x < bmp->width; x++) {
            size_t row = bmp->pixels + y * len, bit = (size_t)x * bmp->bits;
            uint8_t *to = place_of(bmp, image, x, y);
            if (bmp->bits <= 8) {
                put_indexed(bmp, to,
                            bmp->bytes.v[row + bit / 8] >> (8 - bmp->bits - bit % 8) & ((1u << bmp->bits) - 1));
                continue;
            }
            /* A transparent pixel lies on white. */
            uint32_t pixel = number_at(bmp, row + x * bytes, bytes);
            uint32_t alpha = has_alpha ? channel_of(pixel, bmp->masks[ALPHA]) : 255;
            for (size_t i = 0; i < 3; i++)
                to[i] = (uint8_t)((channel_of(pixel, bmp->masks[i]) * alpha + 255 * (255 - alpha)) / 255);
        }
    return true;
}

/* ---- Runs ---- */

/* Where the next pixel goes, and which byte is read next. */
struct runs {
    const struct bmp *bmp;
    const struct media_image *image;
    size_t at;
    uint32_t x, y;
};

static void put_next(struct runs *runs, uint32_t index)
{
    const struct bmp *bmp = runs->bmp;
    if (runs->x < bmp->width && runs->y < bmp->height)
        put_indexed(bmp, place_of(bmp, runs->image, runs->x, runs->y), index);
    runs->x += runs->x < bmp->width;
}

/* The n-th index of bytes that hold one each, or two. */
static uint32_t index_of(const struct bmp *bmp, size_t at, size_t n)
{
    if (bmp->bits == 8) return bmp->bytes.v[at + n];
    return n % 2 == 0 ? bmp->bytes.v[at + n / 2] >> 4 : bmp->bytes.v[at + n / 2] & 15;
}

static bool decode_runs(const struct bmp *bmp, const struct media_image *image)
{
    enum { END_OF_ROW, END, JUMP };
    struct runs runs = {.bmp = bmp, .image = image, .at = bmp->pixels};
    const uint8_t *v = bmp->bytes.v;
    for (size_t i = 0; i < (size_t)bmp->width * bmp->height; i++) put_indexed(bmp, image->rgb + i * 3, 0);
    while (runs.at + 2 <= bmp->bytes.len && runs.y < bmp->height) {
        const uint8_t n = v[runs.at], what = v[runs.at + 1];
        runs.at += 2;
        if (n > 0) {
            for (size_t i = 0; i < n; i++) put_next(&runs, index_of(bmp, runs.at - 1, bmp->bits == 8 ? 0 : i % 2));
        } else if (what == END_OF_ROW) {
            runs.x = 0;
            runs.y++;
        } else if (what == END) {
            return true;
        } else if (what == JUMP) {
            if (runs.at + 2 > bmp->bytes.len) return false;
            uint32_t right = runs.x + v[runs.at];
            runs.x = right < bmp->width ? right : bmp->width;
            runs.y += v[runs.at + 1];
            runs.at += 2;
        } else { /* indices as they are, filled up to an even number of bytes */
            size_t bytes = bmp->bits == 8 ? what : (what + (size_t)1) / 2;
            if (bmp->bytes.len - runs.at < bytes) return false;
            for (size_t i = 0; i < what; i++) put_next(&runs, index_of(bmp, runs.at, i));
            runs.at += bytes + bytes % 2;
        }
    }
    return runs.y >= bmp->height;
}

static bool decode_bmp(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct bmp bmp;
    if (!read_header(bytes, &bmp, reason)) return false;
    *reason = "it ends too early";
    bool has_runs = bmp.compression == RUNS_OF_8 || bmp.compression == RUNS_OF_4;
    return has_runs ? decode_runs(&bmp, image) : decode_rows(&bmp, image);
}

const struct media_decoder media_bmp = {measure_bmp, decode_bmp};
