/* Images: limits, and a decoder of each format, by the library that knows it; BMP's is in bmp.c. A photograph may lie
 * on its side, as the camera was held: its Exif header says how it is turned upright, and only this is read of it.
 * JPEGs for printing have four inks, which Adobe's programs, that is nearly all, write inverted, and say so. No state.
 */
#include "base/error.h"
#include "base/memory.h"
#include "media/bmp.h"
#include "media/media.h"

#include <gif_lib.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <webp/decode.h>
#include <webp/demux.h>

/* ---- PNG by libpng's simplified interface, which reads every kind ---- */

/* The libraries' reasons lie in what they free. */
static _Thread_local char why[200];

static bool fail_png(png_image *png, const char **reason)
{
    snprintf(why, sizeof why, "%s", png->message);
    *reason = why;
    png_image_free(png);
    return false;
}

static bool begin_png(const struct media_bytes *bytes, png_image *png)
{
    memset(png, 0, sizeof *png);
    png->version = PNG_IMAGE_VERSION;
    return png_image_begin_read_from_memory(png, bytes->v, bytes->len) != 0;
}

static bool measure_png(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    png_image png;
    if (!begin_png(bytes, &png)) return fail_png(&png, reason);
    image->width = png.width;
    image->height = png.height;
    png_image_free(&png);
    return true;
}

static bool decode_png(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    static const png_color white = {255, 255, 255};
    png_image png;
    if (!begin_png(bytes, &png)) return fail_png(&png, reason);
    png.format = PNG_FORMAT_RGB;
    if (png_image_finish_read(&png, &white, image->rgb, 0, NULL) == 0) return fail_png(&png, reason);
    return true;
}

static const struct media_decoder media_png = {measure_png, decode_png};

/* ---- WebP by libwebp; of an animation the first frame ---- */

static bool measure_webp(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    WebPBitstreamFeatures features;
    *reason = "its header cannot be read";
    if (WebPGetFeatures(bytes->v, bytes->len, &features) != VP8_STATUS_OK) return false;
    image->width = (uint32_t)features.width;
    image->height = (uint32_t)features.height;
    return true;
}

/* Lays the pixels over white. */
static void put_on_white(const uint8_t *rgba, const struct media_image *image)
{
    for (size_t i = 0; i < (size_t)image->width * image->height; i++)
        for (size_t c = 0; c < 3; c++) {
            unsigned alpha = rgba[i * 4 + 3];
            image->rgb[i * 3 + c] = (uint8_t)((rgba[i * 4 + c] * alpha + 255 * (255 - alpha) + 127) / 255);
        }
}

static bool decode_first_frame(const struct media_bytes *bytes, const struct media_image *image)
{
    WebPAnimDecoderOptions options;
    WebPAnimInfo info;
    uint8_t *frame; /* the decoder's */
    int at_ms;
    if (!WebPAnimDecoderOptionsInit(&options)) return false;
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&(WebPData){.bytes = bytes->v, .size = bytes->len}, &options);
    bool decoded = decoder != NULL && WebPAnimDecoderGetInfo(decoder, &info) && info.canvas_width == image->width &&
                   info.canvas_height == image->height && WebPAnimDecoderGetNext(decoder, &frame, &at_ms);
    if (decoded) put_on_white(frame, image);
    WebPAnimDecoderDelete(decoder);
    return decoded;
}

static bool decode_webp(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    WebPBitstreamFeatures features;
    *reason = "its pixels cannot be read";
    if (WebPGetFeatures(bytes->v, bytes->len, &features) != VP8_STATUS_OK) return false;
    if (features.has_animation) return decode_first_frame(bytes, image);
    size_t size = (size_t)image->width * image->height * 4;
    uint8_t *rgba = mem_grow(NULL, size, 1);
    bool decoded = WebPDecodeRGBAInto(bytes->v, bytes->len, rgba, size, (int)image->width * 4) != NULL;
    if (decoded) put_on_white(rgba, image);
    free(rgba);
    return decoded;
}

static const struct media_decoder media_webp = {measure_webp, decode_webp};

/* ---- GIF by giflib: the first frame, on white ---- */

/* The bytes that giflib has yet to read. */
struct source {
    struct media_bytes bytes;
    size_t at;
};

static int read_gif_bytes(GifFileType *gif, GifByteType *to, int n)
{
    struct source *source = gif->UserData;
    size_t left = source->bytes.len - source->at, len = (size_t)n < left ? (size_t)n : left;
    memcpy(to, source->bytes.v + source->at, len);
    source->at += len;
    return (int)len;
}

static GifFileType *open_gif(struct source *source, const char **reason)
{
    int fault = 0;
    GifFileType *gif = DGifOpen(source, read_gif_bytes, &fault);
    const char *text = GifErrorString(fault);
    if (gif == NULL && text != NULL) *reason = text;
    return gif;
}

static bool close_gif(GifFileType *gif, bool good, const char **reason)
{
    int ignored;
    const char *text = GifErrorString(gif->Error);
    if (!good && text != NULL) *reason = text;
    DGifCloseFile(gif, &ignored);
    return good;
}

static bool measure_gif(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct source source = {.bytes = *bytes};
    GifFileType *gif = open_gif(&source, reason);
    if (gif == NULL) return false;
    image->width = (uint32_t)gif->SWidth;
    image->height = (uint32_t)gif->SHeight;
    return close_gif(gif, true, reason);
}

/* Reads up to the first picture. False: there is none. */
static bool find_picture(GifFileType *gif, int *transparent)
{
    GifRecordType record;
    *transparent = NO_TRANSPARENT_COLOR;
    while (DGifGetRecordType(gif, &record) == GIF_OK && record != TERMINATE_RECORD_TYPE) {
        int code;
        GifByteType *block;
        if (record == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
        if (record != EXTENSION_RECORD_TYPE || DGifGetExtension(gif, &code, &block) != GIF_OK) return false;
        GraphicsControlBlock control;
        bool is_control = code == GRAPHICS_EXT_FUNC_CODE && block != NULL &&
                          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK;
        if (is_control && control.TransparentColor != NO_TRANSPARENT_COLOR) *transparent = control.TransparentColor;
        while (block != NULL)
            if (DGifGetExtensionNext(gif, &block) != GIF_OK) return false;
    }
    return false;
}

/* Interlaced rows come in four passes. */
static uint32_t row_at(uint32_t n, uint32_t height, bool interlaced)
{
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (size_t pass = 0; interlaced && pass < 4; pass++) {
        uint32_t rows = height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (n < rows) return first[pass] + n * step[pass];
        n -= rows;
    }
    return n;
}

static bool read_rows(GifFileType *gif, const struct media_image *image, int transparent)
{
    const GifImageDesc *frame = &gif->Image;
    const ColorMapObject *colours = frame->ColorMap != NULL ? frame->ColorMap : gif->SColorMap;
    bool fits = frame->Left >= 0 && frame->Top >= 0 && frame->Width > 0 &&
                (uint32_t)frame->Left + (uint32_t)frame->Width <= image->width &&
                (uint32_t)frame->Top + (uint32_t)frame->Height <= image->height;
    if (colours == NULL || !fits) return false;
    GifPixelType *row = mem_grow(NULL, (size_t)frame->Width, sizeof *row);
    bool good = true;
    for (uint32_t n = 0; good && n < (uint32_t)frame->Height; n++) {
        uint32_t y = (uint32_t)frame->Top + row_at(n, (uint32_t)frame->Height, frame->Interlace);
        good = DGifGetLine(gif, row, frame->Width) == GIF_OK;
        for (uint32_t x = 0; good && x < (uint32_t)frame->Width; x++) {
            if (row[x] == transparent || row[x] >= colours->ColorCount) continue;
            const GifColorType *colour = &colours->Colors[row[x]];
            uint8_t *to = image->rgb + ((size_t)y * image->width + (uint32_t)frame->Left + x) * 3;
            to[0] = colour->Red, to[1] = colour->Green, to[2] = colour->Blue;
        }
    }
    free(row);
    return good;
}

static bool decode_gif(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct source source = {.bytes = *bytes};
    int transparent;
    GifFileType *gif = open_gif(&source, reason);
    if (gif == NULL) return false;
    memset(image->rgb, 255, (size_t)image->width * image->height * 3);
    return close_gif(gif, find_picture(gif, &transparent) && read_rows(gif, image, transparent), reason);
}

static const struct media_decoder media_gif = {measure_gif, decode_gif};

/* ---- JPEG by libjpeg-turbo ---- */

static bool fail_jpeg(tjhandle jpeg, const char **reason)
{
    snprintf(why, sizeof why, "%s", tjGetErrorStr2(jpeg));
    *reason = why;
    if (jpeg != NULL) tjDestroy(jpeg);
    return false;
}

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

/* The content of a segment of this kind, behind its name. Segments come before the picture: a marker, and a length that
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

struct header {
    int width, height, colours;
};

static bool read_jpeg_header(tjhandle jpeg, const struct media_bytes *bytes, struct header *header)
{
    int subsampling;
    return jpeg != NULL &&
           tjDecompressHeader3(jpeg, bytes->v, bytes->len, &header->width, &header->height, &subsampling,
                               &header->colours) == 0 &&
           header->width > 0;
}

static bool measure_jpeg(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    tjhandle jpeg = tjInitDecompress();
    struct header header = {0};
    if (!read_jpeg_header(jpeg, bytes, &header)) return fail_jpeg(jpeg, reason);
    bool turned = orientation_of(bytes) >= TURNED_FROM;
    image->width = (uint32_t)(turned ? header.height : header.width);
    image->height = (uint32_t)(turned ? header.width : header.height);
    tjDestroy(jpeg);
    return true;
}

static bool read_pixels(tjhandle jpeg, const struct media_bytes *bytes, const struct header *header, uint8_t *to,
                        enum TJPF format)
{
    /* Cameras write bytes that nobody needs, which is worth a warning; that the picture ends too early is one as well,
     * and no picture. */
    return tjDecompress2(jpeg, bytes->v, bytes->len, to, header->width, 0, header->height, (int)format,
                         TJFLAG_LIMITSCANS) == 0 ||
           (tjGetErrorCode(jpeg) == TJERR_WARNING && strstr(tjGetErrorStr2(jpeg), "Premature end") == NULL);
}

/* Inks become colours, as of light: cyan and black leave red. */
static bool read_inks(tjhandle jpeg, const struct media_bytes *bytes, const struct header *header, uint8_t *to)
{
    const size_t n = (size_t)header->width * (size_t)header->height;
    static const struct media_bytes adobe = {(const uint8_t *)"Adobe", 5};
    size_t len;
    const unsigned inverted = find_segment(bytes, 0xee, &adobe, &len) != NULL ? 0 : 255;
    uint8_t *inks = mem_grow(NULL, n, 4);
    bool good = read_pixels(jpeg, bytes, header, inks, TJPF_CMYK);
    for (size_t i = 0; good && i < n; i++)
        for (size_t k = 0; k < 3; k++)
            to[3 * i + k] = (uint8_t)(((inks[4 * i + k] ^ inverted) * (inks[4 * i + 3] ^ inverted) + 127) / 255);
    free(inks);
    return good;
}

static bool decode_jpeg(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    unsigned orientation = orientation_of(bytes);
    uint8_t *stored = orientation == UPRIGHT ? image->rgb : mem_grow(NULL, (size_t)image->width * image->height, 3);
    tjhandle jpeg = tjInitDecompress();
    struct header header;
    bool decoded = read_jpeg_header(jpeg, bytes, &header);
    if (decoded && (header.colours == TJCS_CMYK || header.colours == TJCS_YCCK))
        decoded = read_inks(jpeg, bytes, &header, stored);
    else if (decoded)
        decoded = read_pixels(jpeg, bytes, &header, stored, TJPF_RGB);
    if (decoded && orientation != UPRIGHT) turn_upright(image, stored, orientation);
    if (orientation != UPRIGHT) free(stored);
    if (!decoded) return fail_jpeg(jpeg, reason);
    tjDestroy(jpeg);
    return true;
}

static const struct media_decoder media_jpeg = {measure_jpeg, decode_jpeg};

/* ---- All of them ---- */

static const struct media_decoder *decoder_of(enum media_format format)
{
    static const struct media_decoder *const decoders[] = {[MEDIA_PNG] = &media_png,
                                                           [MEDIA_JPEG] = &media_jpeg,
                                                           [MEDIA_WEBP] = &media_webp,
                                                           [MEDIA_GIF] = &media_gif,
                                                           [MEDIA_BMP] = &media_bmp};
    return media_kind_of(format) == MEDIA_IMAGE ? decoders[format] : NULL;
}

static int is_damaged(enum media_format format, const char *reason, hearth_error *error)
{
    return error_set(error, HEARTH_INVALID, "the %s is damaged or cut off: %s", media_format_name(format), reason);
}

int media_image_measure(const struct media_bytes *bytes, const struct media_image_limits *limits,
                        struct media_image *image, hearth_error *error)
{
    enum media_format format = media_format_of(bytes);
    const struct media_decoder *decoder = decoder_of(format);
    const char *reason = "its header says nothing that makes sense";
    *image = (struct media_image){0};
    if (decoder == NULL)
        return error_set(error, HEARTH_INVALID, "a %s is no image: PNG, JPEG, WebP, GIF and BMP are",
                         media_format_name(format));
    if (!decoder->measure(bytes, image, &reason) || image->width == 0 || image->height == 0)
        return is_damaged(format, reason, error);
    if (image->width > limits->most_side || image->height > limits->most_side)
        return error_set(error, HEARTH_TOO_LONG, "%u x %u pixels: a side may have %u", image->width, image->height,
                         limits->most_side);
    if ((uint64_t)image->width * image->height > limits->most_pixels)
        return error_set(error, HEARTH_TOO_LONG, "%u x %u pixels: an image may have %u of them", image->width,
                         image->height, limits->most_pixels);
    return HEARTH_OK;
}

int media_image_decode(const struct media_bytes *bytes, const struct media_image_limits *limits,
                       struct media_image *image, hearth_error *error)
{
    int rc = media_image_measure(bytes, limits, image, error);
    if (rc != HEARTH_OK) return rc;
    enum media_format format = media_format_of(bytes);
    const char *reason = "it ends too early";
    image->rgb = mem_grow(NULL, (size_t)image->width * image->height, 3);
    if (decoder_of(format)->decode(bytes, image, &reason)) return HEARTH_OK;
    free(image->rgb);
    image->rgb = NULL;
    return is_damaged(format, reason, error);
}
