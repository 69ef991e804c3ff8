/* Sounds of each format against the sine that they were made of; bad ones, and lies about their length. */
#include "samples.h"

enum { RATE = 16000 };

static const struct media_sound_limits limits = {.rate = RATE, .most_seconds = 60};

/* How much of the sound is the sine of 440 Hz at the rate, from 0 to 1, whatever its phase. */
static double purity(const struct media_sound *sound)
{
    double sine = 0, cosine = 0, all = 0;
    for (size_t i = 0; i < sound->n; i++) {
        double angle = 2 * 3.14159265358979 * 440 * (double)i / RATE, v = (double)sound->samples[i];
        sine += v * sin(angle);
        cosine += v * cos(angle);
        all += v * v;
    }
    return (sine * sine + cosine * cosine) * 2 / (all * (double)sound->n);
}

static void expect_sine(int format, int rate, int channels)
{
    struct buf file = sound_of(format, rate, channels, 1.5);
    struct media_bytes bytes = bytes_of(&file);
    struct media_sound sound;
    hearth_error error = {0};
    if (media_sound_decode(&bytes, &limits, NULL, &sound, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_int_equal(sound.rate, RATE);
    assert_in_range(sound.n, RATE * 149 / 100, RATE * 160 / 100); /* MP3 is padded to whole frames */
    assert_true(purity(&sound) > 0.98);
    double seconds = 0;
    assert_int_equal(media_sound_measure(&bytes, &seconds, &error), HEARTH_OK);
    assert_true(seconds > 1.49 && seconds < 1.6);
    free(sound.samples);
    buf_release(&file);
}

static void sounds_of_every_format_become_one_channel_at_the_rate(void **state)
{
    (void)state;
    expect_sine(SF_FORMAT_WAV | SF_FORMAT_PCM_16, RATE, 1);
    expect_sine(SF_FORMAT_WAV | SF_FORMAT_PCM_24, 44100, 2);
    expect_sine(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 1);
    expect_sine(SF_FORMAT_WAV | SF_FORMAT_ULAW, 8000, 1);
    expect_sine(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 48000, 6);
    expect_sine(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 2);
}

static void expect_refused(const struct buf *file, int code, const char *says)
{
    struct media_bytes bytes = bytes_of(file);
    struct media_sound sound;
    hearth_error error = {0};
    double seconds;
    int rc = media_sound_measure(&bytes, &seconds, &error);
    assert_true(rc == HEARTH_OK || rc == HEARTH_INVALID); /* a header may promise what the file has not */
    assert_int_equal(media_sound_decode(&bytes, &limits, NULL, &sound, &error), code);
    if (strstr(error.message, says) == NULL) fail_msg("%s", error.message);
    assert_null(sound.samples);
}

static void what_is_too_long_is_refused_and_says_the_limit(void **state)
{
    (void)state;
    struct buf file = sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, 62);
    expect_refused(&file, HEARTH_TOO_LONG, "longer than 60 seconds");
    buf_release(&file);
}

/* A header that announces years. */
static void lies_about_the_length_cost_nothing(void **state)
{
    (void)state;
    struct buf flac = sound_of(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, RATE, 1, 0.5);
    flac.v[21] = (char)(flac.v[21] | 0x0f); /* the number of samples, 36 bits */
    memset(flac.v + 22, 0xff, 4);
    expect_refused(&flac, HEARTH_TOO_LONG, "longer than 60 seconds");
    buf_release(&flac);
}

static void odd_rates_and_one_sample_are_refused(void **state)
{
    (void)state;
    struct buf slow = sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 1, 20),
               one = sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, RATE, 1, 1.5 / RATE);
    expect_refused(&slow, HEARTH_INVALID, "1 samples a second");
    expect_refused(&one, HEARTH_INVALID, "empty");
    buf_release(&slow);
    buf_release(&one);
}

static bool is_asked(void *ud)
{
    return ++*(int *)ud > 3;
}

static void reading_stops_in_the_middle(void **state)
{
    (void)state;
    struct buf file = sound_of(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 48000, 1, 30);
    struct media_bytes bytes = bytes_of(&file);
    struct media_sound sound;
    hearth_error error = {0};
    int asked = 0;
    assert_int_equal(media_sound_decode(&bytes, &limits, &(struct media_stop){is_asked, &asked}, &sound, &error),
                     HEARTH_CANCELLED);
    assert_int_equal(asked, 4);
    assert_null(sound.samples);
    buf_release(&file);
}

static void what_is_cut_off_is_refused_or_shorter(void **state)
{
    (void)state;
    struct buf file = sound_of(SF_FORMAT_WAV | SF_FORMAT_PCM_16, RATE, 1, 1);
    size_t whole = file.len;
    for (size_t len = 0; len < whole; len += 1 + len / 3) {
        struct media_bytes bytes = {(const uint8_t *)file.v, len};
        struct media_sound sound;
        if (media_sound_decode(&bytes, &limits, NULL, &sound, NULL) == HEARTH_OK) assert_true(sound.n < RATE);
        free(sound.samples);
    }
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sounds_of_every_format_become_one_channel_at_the_rate),
        cmocka_unit_test(what_is_too_long_is_refused_and_says_the_limit),
        cmocka_unit_test(reading_stops_in_the_middle),
        cmocka_unit_test(lies_about_the_length_cost_nothing),
        cmocka_unit_test(odd_rates_and_one_sample_are_refused),
        cmocka_unit_test(what_is_cut_off_is_refused_or_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
