/* JPEG by libjpeg-turbo. A photograph may lie on its side, as the camera was held: its Exif header says how it is
 * turned upright, and only this is read of it. Pictures for printing have four inks, which Adobe's programs, that is
 * nearly all, write inverted, and say so. */
#include "media/decoders.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

static _Thread_local char why[200];

static bool fail(tjhandle jpeg, const char **reason)
{
    snprintf(why, sizeof why, "%s", tjGetErrorStr2(jpeg));
    *reason = why;
    if (jpeg != NULL) tjDestroy(jpeg);
    return false;
}

/* ---- Segments ---- */

enum { ORIENTATION = 0x0112, UPRIGHT = 1, TURNED_FROM = 5 }; /* from 5 on, width and height change places */

static unsigned read_number(const uint8_t *v, size_t bytes, bool little)
{
    unsigned n = 0;
    for (size_t i = 0; i < bytes; i++) n = n << 8 | v[little ? bytes - 1 - i : i];
    return n;
}

/* Of a TIFF header and its first directory, as Exif has them: the orientation, 1 to 8. */
static unsigned orientation_in(const uint8_t *tiff, size_t len)
{
    bool little = len >= 8 && memcmp(tiff, "II*\0", 4) == 0;
    if (len < 8 || (!little && memcmp(tiff, "MM\0*", 4) != 0)) return UPRIGHT;
    size_t at = read_number(tiff + 4, 4, little);
    if (at > len - 2 || len < 10) return UPRIGHT;
    size_t entries = read_number(tiff + at, 2, little);
    for (size_t i = 0; i < entries && at + 2 + (i + 1) * 12 <= len; i++) {
        const uint8_t *entry = tiff + at + 2 + i * 12;
        unsigned value = read_number(entry + 8, 2, little);
        if (read_number(entry, 2, little) == ORIENTATION) return value >= 1 && value <= 8 ? value : UPRIGHT;
    }
    return UPRIGHT;
}

/* What a segment of this kind holds behind its name. Segments come before the picture: a marker, and a length that
 * counts itself. NULL: there is none. */
static const uint8_t *find_segment(const struct media_bytes *bytes, uint8_t kind, const struct media_bytes *name,
                                   size_t *rest)
{
    for (size_t at = 2; at + 4 <= bytes->len && bytes->v[at] == 0xff && bytes->v[at + 1] != 0xda;) {
        size_t len = read_number(bytes->v + at + 2, 2, false);
        if (len < 2 || at + 2 + len > bytes->len) break;
        *rest = len - 2 - name->len;
        if (bytes->v[at + 1] == kind && len >= 2 + name->len && memcmp(bytes->v + at + 4, name->v, name->len) == 0)
            return bytes->v + at + 4 + name->len;
        at += 2 + len;
    }
    return NULL;
}

static unsigned orientation_of(const struct media_bytes *bytes)
{
    static const struct media_bytes exif = {(const uint8_t *)"Exif\0\0", 6};
    size_t len;
    const uint8_t *tiff = find_segment(bytes, 0xe1, &exif, &len);
    return tiff == NULL ? UPRIGHT : orientation_in(tiff, len);
}

static bool is_by_adobe(const struct media_bytes *bytes)
{
    static const struct media_bytes adobe = {(const uint8_t *)"Adobe", 5};
    size_t len;
    return find_segment(bytes, 0xee, &adobe, &len) != NULL;
}

/* Where the pixel (x, y) of the upright picture lies in the stored one, of width w and height h. */
static void stored_place(unsigned orientation, uint32_t w, uint32_t h, uint32_t *x, uint32_t *y)
{
    uint32_t a = *x, b = *y;
    switch (orientation) {
    case 2:
        *x = w - 1 - a;
        break;
    case 3:
        *x = w - 1 - a, *y = h - 1 - b;
        break;
    case 4:
        *y = h - 1 - b;
        break;
    case 5:
        *x = b, *y = a;
        break;
    case 6:
        *x = b, *y = h - 1 - a;
        break;
    case 7:
        *x = w - 1 - b, *y = h - 1 - a;
        break;
    case 8:
        *x = w - 1 - b, *y = a;
        break;
    default:
        break;
    }
}

/* image->rgb, of the upright size, from the stored pixels. */
static void turn_upright(const struct media_image *image, const uint8_t *stored, unsigned orientation)
{
    bool turned = orientation >= TURNED_FROM;
    uint32_t w = turned ? image->height : image->width, h = turned ? image->width : image->height;
    uint8_t *to = image->rgb;
    for (uint32_t row = 0; row < image->height; row++)
        for (uint32_t column = 0; column < image->width; column++, to += 3) {
            uint32_t x = column, y = row;
            stored_place(orientation, w, h, &x, &y);
            memcpy(to, stored + ((size_t)y * w + x) * 3, 3);
        }
}

/* ---- The picture ---- */

struct header {
    int width, height, colours;
};

static bool read_header(tjhandle jpeg, const struct media_bytes *bytes, struct header *header)
{
    int subsampling;
    return jpeg != NULL &&
           tjDecompressHeader3(jpeg, bytes->v, bytes->len, &header->width, &header->height, &subsampling,
                               &header->colours) == 0 &&
           header->width > 0;
}

static bool measure(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    tjhandle jpeg = tjInitDecompress();
    struct header header = {0};
    if (!read_header(jpeg, bytes, &header)) return fail(jpeg, reason);
    bool turned = orientation_of(bytes) >= TURNED_FROM;
    image->width = (uint32_t)(turned ? header.height : header.width);
    image->height = (uint32_t)(turned ? header.width : header.height);
    tjDestroy(jpeg);
    return true;
}

/* Cameras write bytes that nobody needs, which is worth a warning; that the picture ends too early is one as well, and
 * no picture. */
static bool is_whole(tjhandle jpeg)
{
    return tjGetErrorCode(jpeg) == TJERR_WARNING && strstr(tjGetErrorStr2(jpeg), "Premature end") == NULL;
}

static bool read_pixels(tjhandle jpeg, const struct media_bytes *bytes, const struct header *header, uint8_t *to,
                        enum TJPF format)
{
    return tjDecompress2(jpeg, bytes->v, bytes->len, to, header->width, 0, header->height, (int)format,
                         TJFLAG_LIMITSCANS) == 0 ||
           is_whole(jpeg);
}

/* Inks become colours, as of light: what cyan and black leave is red. */
static bool read_inks(tjhandle jpeg, const struct media_bytes *bytes, const struct header *header, uint8_t *to)
{
    const size_t n = (size_t)header->width * (size_t)header->height;
    const unsigned inverted = is_by_adobe(bytes) ? 0 : 255;
    uint8_t *inks = mem_grow(NULL, n, 4);
    bool good = read_pixels(jpeg, bytes, header, inks, TJPF_CMYK);
    for (size_t i = 0; good && i < n; i++)
        for (size_t k = 0; k < 3; k++)
            to[3 * i + k] = (uint8_t)(((inks[4 * i + k] ^ inverted) * (inks[4 * i + 3] ^ inverted) + 127) / 255);
    free(inks);
    return good;
}

static bool decode(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    unsigned orientation = orientation_of(bytes);
    uint8_t *stored = orientation == UPRIGHT ? image->rgb : mem_grow(NULL, (size_t)image->width * image->height, 3);
    tjhandle jpeg = tjInitDecompress();
    struct header header;
    bool decoded = read_header(jpeg, bytes, &header);
    if (decoded && (header.colours == TJCS_CMYK || header.colours == TJCS_YCCK))
        decoded = read_inks(jpeg, bytes, &header, stored);
    else if (decoded)
        decoded = read_pixels(jpeg, bytes, &header, stored, TJPF_RGB);
    if (decoded && orientation != UPRIGHT) turn_upright(image, stored, orientation);
    if (orientation != UPRIGHT) free(stored);
    if (!decoded) return fail(jpeg, reason);
    tjDestroy(jpeg);
    return true;
}

const struct media_decoder media_jpeg = {measure, decode};
