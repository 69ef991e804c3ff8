/* Images and sounds for tests, written by the libraries that the product reads with, and a gradient in which every
 * pixel can be told. */
#ifndef UNIT_MEDIA_SAMPLES_H
#define UNIT_MEDIA_SAMPLES_H

#include "fakes/cmocka_all.h"

#include "base/buf.h"
#include "base/memory.h"
#include "media/media.h"

#include <gif_lib.h>
#include <math.h>
#include <png.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <webp/encode.h>

/* ---- Pixels ---- */

/* Red grows to the right, green downwards; blue tells the quarter. Free it. */
static inline uint8_t *gradient(uint32_t width, uint32_t height)
{
    uint8_t *rgb = mem_grow(NULL, (size_t)width * height, 3), *at = rgb;
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++, at += 3) {
            at[0] = (uint8_t)(255 * x / width);
            at[1] = (uint8_t)(255 * y / height);
            at[2] = (uint8_t)((x < width / 2 ? 0 : 64) + (y < height / 2 ? 0 : 128));
        }
    return rgb;
}

/* The largest difference between two pictures in one colour of one pixel. */
static inline int difference(const uint8_t *a, const uint8_t *b, uint32_t width, uint32_t height)
{
    int most = 0;
    for (size_t i = 0; i < (size_t)width * height * 3; i++) most = abs(a[i] - b[i]) > most ? abs(a[i] - b[i]) : most;
    return most;
}

/* ---- Files ---- */

static inline struct buf png_of(const uint8_t *pixels, uint32_t width, uint32_t height, png_uint_32 format)
{
    png_image png = {.version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = format};
    png_alloc_size_t size = 0;
    assert_true(png_image_write_get_memory_size(png, size, 0, pixels, 0, NULL));
    struct buf file = {0};
    uint8_t *bytes = mem_alloc(size);
    assert_true(png_image_write_to_memory(&png, bytes, &size, 0, pixels, 0, NULL));
    buf_append(&file, bytes, size);
    free(bytes);
    return file;
}

/* An orientation of 1 to 8 is written as a camera does; 0: none. */
static inline struct buf jpeg_of(const uint8_t *rgb, uint32_t width, uint32_t height, uint8_t orientation)
{
    const uint8_t exif[] = {0xff, 0xe1, 0,    34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M',         0, '*', 0, 0, 0, 8,
                            0,    1,    0x01, 0x12, 0,   3,   0,   0,   0, 1, 0,   orientation, 0, 0,   0, 0, 0, 0};
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    tjhandle jpeg = tjInitCompress();
    assert_int_equal(tjCompress2(jpeg, rgb, (int)width, 0, (int)height, TJPF_RGB, &bytes, &size, TJSAMP_444, 95, 0), 0);
    struct buf file = {0};
    buf_append(&file, bytes, 2);
    if (orientation > 0) buf_append(&file, exif, sizeof exif);
    buf_append(&file, bytes + 2, size - 2);
    tjFree(bytes);
    tjDestroy(jpeg);
    return file;
}

static inline struct buf webp_of(const uint8_t *rgb, uint32_t width, uint32_t height)
{
    uint8_t *bytes = NULL;
    size_t size = WebPEncodeLosslessRGB(rgb, (int)width, (int)height, (int)width * 3, &bytes);
    struct buf file = {0};
    assert_true(size > 0);
    buf_append(&file, bytes, size);
    WebPFree(bytes);
    return file;
}

static inline int append_gif(GifFileType *gif, const GifByteType *bytes, int n)
{
    buf_append(gif->UserData, bytes, (size_t)n);
    return n;
}

/* A picture of grey values, of which 0 is transparent. */
static inline struct buf gif_of(const uint8_t *grey, uint32_t width, uint32_t height, bool interlaced)
{
    struct buf file = {0};
    int fault = 0;
    GifFileType *gif = EGifOpen(&file, append_gif, &fault);
    GifColorType colours[256];
    for (int i = 0; i < 256; i++) colours[i] = (GifColorType){(GifByteType)i, (GifByteType)i, (GifByteType)i};
    ColorMapObject *map = GifMakeMapObject(256, colours);
    GifByteType control[4];
    assert_non_null(gif);
    EGifSetGifVersion(gif, true);
    assert_int_equal(EGifPutScreenDesc(gif, (int)width, (int)height, 256, 0, map), GIF_OK);
    EGifGCBToExtension(&(GraphicsControlBlock){.TransparentColor = 0}, control);
    EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, 4, control);
    assert_int_equal(EGifPutImageDesc(gif, 0, 0, (int)width, (int)height, interlaced, NULL), GIF_OK);
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < (interlaced ? 4 : 1); pass++)
        for (uint32_t y = interlaced ? first[pass] : 0; y < height; y += interlaced ? step[pass] : 1)
            assert_int_equal(EGifPutLine(gif, (GifPixelType *)(uintptr_t)(grey + (size_t)y * width), (int)width),
                             GIF_OK);
    EGifCloseFile(gif, &fault);
    GifFreeMapObject(map);
    return file;
}

/* ---- Sounds ---- */

static inline sf_count_t written_len(void *ud)
{
    return (sf_count_t)((struct buf *)ud)->len;
}

/* The file is written from its beginning to its end, but for the header, which is written again at last. */
struct sound_file {
    struct buf bytes;
    sf_count_t at;
};

static inline sf_count_t sound_len(void *ud)
{
    return written_len(&((struct sound_file *)ud)->bytes);
}

static inline sf_count_t sound_seek(sf_count_t offset, int whence, void *ud)
{
    struct sound_file *file = ud;
    return file->at = offset + (whence == SEEK_CUR ? file->at : whence == SEEK_END ? sound_len(ud) : 0);
}

static inline sf_count_t sound_read(void *to, sf_count_t n, void *ud)
{
    struct sound_file *file = ud;
    sf_count_t left = sound_len(ud) - file->at, len = n < left ? n : left;
    memcpy(to, file->bytes.v + file->at, (size_t)len);
    file->at += len;
    return len;
}

static inline sf_count_t sound_write(const void *from, sf_count_t n, void *ud)
{
    struct sound_file *file = ud;
    sf_count_t over = sound_len(ud) - file->at, inside = n < over ? n : over;
    if (inside > 0) memcpy(file->bytes.v + file->at, from, (size_t)inside);
    if (n > inside) buf_append(&file->bytes, (const char *)from + inside, (size_t)(n - inside));
    file->at += n;
    return n;
}

static inline sf_count_t sound_tell(void *ud)
{
    return ((struct sound_file *)ud)->at;
}

/* A sine of 440 Hz, the same in all channels. `format`: SF_FORMAT_WAV | SF_FORMAT_PCM_16, … */
static inline struct buf sound_of(int format, int rate, int channels, double seconds)
{
    SF_VIRTUAL_IO io = {sound_len, sound_seek, sound_read, sound_write, sound_tell};
    struct sound_file file = {0};
    SF_INFO info = {.samplerate = rate, .channels = channels, .format = format};
    SNDFILE *sound = sf_open_virtual(&io, SFM_WRITE, &info, &file);
    if (sound == NULL) fail_msg("%s", sf_strerror(NULL));
    for (int i = 0; i < (int)(seconds * rate); i++) {
        float frame[8];
        for (int c = 0; c < channels; c++) frame[c] = 0.5F * (float)sin(2 * 3.14159265358979 * 440 * i / rate);
        sf_writef_float(sound, frame, 1);
    }
    sf_close(sound);
    return file.bytes;
}

static inline struct media_bytes bytes_of(const struct buf *file)
{
    return (struct media_bytes){(const uint8_t *)file->v, file->len};
}

#endif
