/* Sound by libsndfile, resampled by libsamplerate. A header may lie about a sound's length. A sound is refused where
 * its header says too much, and the samples that really come are counted. */
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

/* A sound that is being read: blocks are mixed and resampled as they come, so that no more is kept than what is given
 * out. */
struct reader {
    SNDFILE *file;
    int channels;
    double ratio;         /* samples given out for each one read */
    SRC_STATE *converter; /* NULL: both rates are the same */
    float *v;             /* what is given out */
    size_t n, room;
};

static void add_samples(struct reader *reader, const float *samples, size_t n)
{
    if (n == 0) return;
    if (reader->n + n > reader->room) {
        reader->room = reader->room / 2 + reader->n + n;
        reader->v = mem_grow(reader->v, reader->room, sizeof *reader->v);
    }
    memcpy(reader->v + reader->n, samples, n * sizeof *samples);
    reader->n += n;
}

/* `is_last`: nothing comes after these samples, of which there may be none. */
static int resample(struct reader *reader, const float *samples, size_t n, bool is_last, hearth_error *error)
{
    float out[BLOCK];
    SRC_DATA data = {.data_in = samples,
                     .data_out = out,
                     .input_frames = (long)n,
                     .output_frames = BLOCK,
                     .src_ratio = reader->ratio,
                     .end_of_input = is_last};
    do {
        int fault = src_process(reader->converter, &data);
        if (fault != 0)
            return error_set(error, HEARTH_INVALID, "the sound cannot be resampled: %s", src_strerror(fault));
        add_samples(reader, out, (size_t)data.output_frames_gen);
        data.data_in += data.input_frames_used;
        data.input_frames -= data.input_frames_used;
    } while (data.input_frames > 0 || data.output_frames_gen == BLOCK);
    return HEARTH_OK;
}

static int read_all(struct reader *reader, const SF_INFO *info, const struct media_sound_limits *limits,
                    const struct media_stop *stop, hearth_error *error)
{
    float frames[BLOCK * CHANNELS_MOST];
    uint64_t read = 0, most = (uint64_t)limits->most_seconds * (uint64_t)info->samplerate;
    for (sf_count_t n = BLOCK; n > 0;) {
        if (media_has_to_stop(stop)) return error_set(error, HEARTH_CANCELLED, "request was cancelled");
        n = sf_readf_float(reader->file, frames, BLOCK);
        size_t got = n > 0 ? (size_t)n : 0;
        if ((read += got) > most) return is_too_long(limits->most_seconds, error);
        /* Frames of all channels become samples of one, in place. */
        for (size_t i = 0; i < got; i++) {
            float sum = 0;
            for (int c = 0; c < reader->channels; c++) sum += frames[i * (size_t)reader->channels + (size_t)c];
            frames[i] = isfinite(sum) ? sum / (float)reader->channels : 0;
        }
        if (reader->converter == NULL) {
            add_samples(reader, frames, got);
        } else {
            int rc = resample(reader, frames, got, got == 0, error);
            if (rc != HEARTH_OK) return rc;
        }
    }
    if (read > 1 && reader->n > 1) return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, "the sound is empty, damaged or cut off");
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
                       const struct media_stop *stop, struct media_sound *sound, hearth_error *error)
{
    struct source source = {.bytes = *bytes};
    SF_INFO info;
    int fault = 0;
    *sound = (struct media_sound){0};
    struct reader reader = {.file = open_sound(&source, &info, error)};
    if (reader.file == NULL) return HEARTH_INVALID;
    int rc = check_info(&info, limits, error);
    reader.channels = info.channels;
    if (rc == HEARTH_OK && (uint32_t)info.samplerate != limits->rate) {
        reader.ratio = (double)limits->rate / info.samplerate;
        reader.converter = src_new(SRC_SINC_MEDIUM_QUALITY, 1, &fault);
        if (reader.converter == NULL)
            rc = error_set(error, HEARTH_INTERNAL, "the sound cannot be resampled: %s", src_strerror(fault));
    }
    if (rc == HEARTH_OK) rc = read_all(&reader, &info, limits, stop, error);
    sf_close(reader.file);
    src_delete(reader.converter);
    if (rc == HEARTH_OK)
        *sound = (struct media_sound){.samples = reader.v, .n = reader.n, .rate = limits->rate};
    else
        free(reader.v);
    return rc;
}
