/* GIF by giflib: the first frame, on white. */
#include "media/decoders.h"

#include "base/memory.h"

#include <gif_lib.h>
#include <stdlib.h>
#include <string.h>

/* What giflib has yet to read. */
struct source {
    struct media_bytes bytes;
    size_t at;
};

static int read_bytes(GifFileType *gif, GifByteType *to, int n)
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
    GifFileType *gif = DGifOpen(source, read_bytes, &fault);
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

static bool measure(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct source source = {.bytes = *bytes};
    GifFileType *gif = open_gif(&source, reason);
    if (gif == NULL) return false;
    image->width = (uint32_t)gif->SWidth;
    image->height = (uint32_t)gif->SHeight;
    return close_gif(gif, true, reason);
}

/* ---- The first frame ---- */

/* The transparent colour of a graphics control block; NO_TRANSPARENT_COLOR: none. */
static int transparent_of(GifFileType *gif, int code, const GifByteType *block)
{
    GraphicsControlBlock control;
    bool is_control =
        code == GRAPHICS_EXT_FUNC_CODE && block != NULL && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK;
    (void)gif;
    return is_control ? control.TransparentColor : NO_TRANSPARENT_COLOR;
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
        int colour = transparent_of(gif, code, block);
        if (colour != NO_TRANSPARENT_COLOR) *transparent = colour;
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

static bool decode(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    struct source source = {.bytes = *bytes};
    int transparent;
    GifFileType *gif = open_gif(&source, reason);
    if (gif == NULL) return false;
    memset(image->rgb, 255, (size_t)image->width * image->height * 3);
    return close_gif(gif, find_picture(gif, &transparent) && read_rows(gif, image, transparent), reason);
}

const struct media_decoder media_gif = {measure, decode};
