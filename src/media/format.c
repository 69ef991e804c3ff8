/* Finds the format of a file by its first bytes. One table; no state. */
#include "media/media.h"

#include <stdbool.h>
#include <string.h>

/* Bytes that a format has at its beginning, and where it has them; "?" stands for any. */
struct signature {
    enum media_format format;
    size_t at;
    const char *bytes;
    size_t len;
    const char *then; /* and behind them, at `then_at`; NULL: nothing */
    size_t then_at;
};

#define BYTES(text) (text), sizeof(text) - 1

static const struct signature signatures[] = {
    {MEDIA_PNG, 0, BYTES("\x89PNG\r\n\x1a\n"), NULL, 0},
    {MEDIA_JPEG, 0, BYTES("\xff\xd8\xff"), NULL, 0},
    {MEDIA_WEBP, 0, BYTES("RIFF"), "WEBP", 8},
    {MEDIA_GIF, 0, BYTES("GIF87a"), NULL, 0},
    {MEDIA_GIF, 0, BYTES("GIF89a"), NULL, 0},
    {MEDIA_WAV, 0, BYTES("RIFF"), "WAVE", 8},
    {MEDIA_VIDEO, 0, BYTES("RIFF"), "AVI ", 8},
    {MEDIA_FLAC, 0, BYTES("fLaC"), NULL, 0},
    {MEDIA_MP3, 0, BYTES("ID3"), NULL, 0},
    {MEDIA_VIDEO, 4, BYTES("ftyp"), NULL, 0},
    {MEDIA_VIDEO, 0, BYTES("\x1a\x45\xdf\xa3"), NULL, 0},
    {MEDIA_VIDEO, 0, BYTES("OggS"), NULL, 0},
    {MEDIA_PDF, 0, BYTES("%PDF-"), NULL, 0},
};

static bool has_at(const struct media_bytes *bytes, size_t at, const char *text, size_t len)
{
    return bytes->len >= at + len && memcmp(bytes->v + at, text, len) == 0;
}

/* A frame of MPEG audio: eleven bits set, then a version, a layer, a bit rate and a sampling rate that there are. */
static bool is_mpeg_frame(const struct media_bytes *bytes)
{
    if (bytes->len < 4 || bytes->v[0] != 0xff || (bytes->v[1] & 0xe0) != 0xe0) return false;
    unsigned version = bytes->v[1] >> 3 & 3, layer = bytes->v[1] >> 1 & 3, rate = bytes->v[2] >> 4;
    return version != 1 && layer == 1 && rate != 0 && rate != 15 && (bytes->v[2] >> 2 & 3) != 3;
}

/* Two letters say too little: the size of the header, which is one of few, tells as well. */
static bool is_bmp(const struct media_bytes *bytes)
{
    static const uint8_t sizes[] = {12, 16, 40, 52, 56, 64, 108, 124};
    bool is_known = false;
    if (!has_at(bytes, 0, "BM", 2) || !has_at(bytes, 15, "\0\0\0", 3)) return false;
    for (size_t i = 0; i < sizeof sizes; i++) is_known = is_known || bytes->v[14] == sizes[i];
    return is_known;
}

enum media_format media_format_of(const struct media_bytes *bytes)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *s = &signatures[i];
        bool then = s->then == NULL || has_at(bytes, s->then_at, s->then, strlen(s->then));
        if (then && has_at(bytes, s->at, s->bytes, s->len)) return s->format;
    }
    if (is_bmp(bytes)) return MEDIA_BMP;
    return is_mpeg_frame(bytes) ? MEDIA_MP3 : MEDIA_UNKNOWN;
}

static const struct {
    const char *name;
    enum media_kind kind;
} formats[] = {
    [MEDIA_UNKNOWN] = {"file of an unknown type", MEDIA_NOTHING},
    [MEDIA_PNG] = {"PNG", MEDIA_IMAGE},
    [MEDIA_JPEG] = {"JPEG", MEDIA_IMAGE},
    [MEDIA_WEBP] = {"WebP", MEDIA_IMAGE},
    [MEDIA_GIF] = {"GIF", MEDIA_IMAGE},
    [MEDIA_BMP] = {"BMP", MEDIA_IMAGE},
    [MEDIA_WAV] = {"WAV", MEDIA_AUDIO},
    [MEDIA_MP3] = {"MP3", MEDIA_AUDIO},
    [MEDIA_FLAC] = {"FLAC", MEDIA_AUDIO},
    [MEDIA_VIDEO] = {"video", MEDIA_FRAMES},
    [MEDIA_PDF] = {"PDF", MEDIA_DOCUMENT},
};

enum media_kind media_kind_of(enum media_format format)
{
    return formats[format].kind;
}

const char *media_format_name(enum media_format format)
{
    return formats[format].name;
}
