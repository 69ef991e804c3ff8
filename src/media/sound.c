/* Sound by libsndfile, resampled by libsamplerate. What a header says of a sound's length may be a lie: it is refused
 * where it says too much, and what really comes is counted. */
#include "media/media.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <samplerate.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, CHANNELS_MOST = 8, RATE_LEAST = 4000, RATE_MOST = 384000 };

/* ---- Bytes in memory as a file ---- */

struct source {
    struct media_bytes bytes;
    sf_count_t at;
};

static sf_count_t source_len(void *ud)
{
    return (sf_count_t)((struct source *)ud)->bytes.len;
}

static sf_count_t source_seek(sf_count_t offset, int whence, void *ud)
{
    struct source *source = ud;
    sf_count_t from = whence == SEEK_CUR ? source->at : whence == SEEK_END ? source_len(ud) : 0;
    if (from + offset < 0 || from + offset > source_len(ud)) return -1;
    return source->at = from + offset;
}

static sf_count_t source_read(void *to, sf_count_t n, void *ud)
{
    struct source *source = ud;
    sf_count_t left = source_len(ud) - source->at, len = n < left ? n : left;
    if (len <= 0) return 0;
    memcpy(to, source->bytes.v + source->at, (size_t)len);
    source->at += len;
    return len;
}

static sf_count_t source_tell(void *ud)
{
    return ((struct source *)ud)->at;
}

/* ---- Reading ---- */

static int is_too_long(uint32_t most_seconds, hearth_error *error)
{
    return error_set(error, HEARTH_TOO_LONG, "the sound is longer than %u seconds", most_seconds);
}

static int check_info(const SF_INFO *info, const struct media_sound_limits *limits, hearth_error *error)
{
    if (info->channels < 1 || info->channels > CHANNELS_MOST)
        return error_set(error, HEARTH_INVALID, "the sound has %d channels: at most %d are mixed", info->channels,
                         CHANNELS_MOST);
    if (info->samplerate < RATE_LEAST || info->samplerate > RATE_MOST)
        return error_set(error, HEARTH_INVALID, "the sound has %d samples a second: it may have %d to %d",
                         info->samplerate, RATE_LEAST, RATE_MOST);
    if (info->frames / info->samplerate > limits->most_seconds) return is_too_long(limits->most_seconds, error);
    return HEARTH_OK;
}

/* A growable sound. */
struct mix {
    float *v;
    size_t n, room;
};

static void add_mixed(struct mix *mix, const float *frames, size_t n, int channels)
{
    if (mix->n + n > mix->room) {
        mix->room = 2 * (mix->n + n);
        mix->v = mem_grow(mix->v, mix->room, sizeof *mix->v);
    }
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int c = 0; c < channels; c++) sum += frames[i * (size_t)channels + (size_t)c];
        mix->v[mix->n++] = isfinite(sum) ? sum / (float)channels : 0;
    }
}

static int read_mixed(SNDFILE *file, const SF_INFO *info, const struct media_sound_limits *limits, struct mix *mix,
                      hearth_error *error)
{
    float frames[BLOCK * CHANNELS_MOST];
    size_t most = (size_t)limits->most_seconds * (size_t)info->samplerate;
    for (;;) {
        sf_count_t n = sf_readf_float(file, frames, BLOCK);
        if (n <= 0) break;
        add_mixed(mix, frames, (size_t)n, info->channels);
        if (mix->n > most) return is_too_long(limits->most_seconds, error);
    }
    if (mix->n > 1) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, "the sound is empty, damaged or cut off");
}

/* ---- Resampling ---- */

static int resample(struct mix *mix, int from, uint32_t to, hearth_error *error)
{
    double ratio = (double)to / from;
    if ((uint32_t)from == to) return HEARTH_OK;
    size_t room = (size_t)((double)mix->n * ratio) + 16;
    SRC_DATA data = {.data_in = mix->v,
                     .data_out = mem_grow(NULL, room, sizeof(float)),
                     .input_frames = (long)mix->n,
                     .output_frames = (long)room,
                     .src_ratio = ratio};
    int fault = src_simple(&data, SRC_SINC_MEDIUM_QUALITY, 1);
    free(mix->v);
    *mix = (struct mix){.v = data.data_out, .n = (size_t)data.output_frames_gen, .room = room};
    if (fault == 0 && mix->n > 1) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, "the sound cannot be resampled: %s",
                     fault == 0 ? "it is too short" : src_strerror(fault));
}

/* ---- Whole files ---- */

/* Reads the header. NULL with HEARTH_INVALID; else `source` must live as long as the file. */
static SNDFILE *open_sound(struct source *source, SF_INFO *info, hearth_error *error)
{
    static SF_VIRTUAL_IO io = {
        .get_filelen = source_len, .seek = source_seek, .read = source_read, .tell = source_tell};
    enum media_format format = media_format_of(&source->bytes);
    *info = (SF_INFO){0};
    if (media_kind_of(format) != MEDIA_AUDIO) {
        error_set(error, HEARTH_INVALID, "a %s is no sound: WAV, MP3 and FLAC are", media_format_name(format));
        return NULL;
    }
    SNDFILE *file = sf_open_virtual(&io, SFM_READ, info, source);
    if (file == NULL)
        error_set(error, HEARTH_INVALID, "the %s is damaged or cut off: %s", media_format_name(format),
                  sf_strerror(NULL));
    return file;
}

int media_sound_measure(const struct media_bytes *bytes, double *seconds, hearth_error *error)
{
    struct source source = {.bytes = *bytes};
    SF_INFO info;
    SNDFILE *file = open_sound(&source, &info, error);
    if (file == NULL) return HEARTH_INVALID;
    sf_close(file);
    if (info.samplerate < 1 || info.frames < 1)
        return error_set(error, HEARTH_INVALID, "the sound is empty, damaged or cut off");
    *seconds = (double)info.frames / info.samplerate;
    return HEARTH_OK;
}

int media_sound_decode(const struct media_bytes *bytes, const struct media_sound_limits *limits,
                       struct media_sound *sound, hearth_error *error)
{
    struct source source = {.bytes = *bytes};
    SF_INFO info;
    struct mix mix = {0};
    *sound = (struct media_sound){0};
    SNDFILE *file = open_sound(&source, &info, error);
    if (file == NULL) return HEARTH_INVALID;
    int rc = check_info(&info, limits, error);
    if (rc == HEARTH_OK) rc = read_mixed(file, &info, limits, &mix, error);
    sf_close(file);
    if (rc == HEARTH_OK) rc = resample(&mix, info.samplerate, limits->rate, error);
    if (rc != HEARTH_OK) {
        free(mix.v);
        return rc;
    }
    *sound = (struct media_sound){.samples = mix.v, .n = mix.n, .rate = limits->rate};
    return HEARTH_OK;
}
