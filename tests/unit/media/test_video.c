/* Frames of videos: which of them are kept, and what is no video. */
#include "unit/media/fake_ffmpeg.h"

#include <unistd.h>

static char folder[] = "/tmp/hearth-video-XXXXXX";

/* Frame i is one pixel of that grey. */
static struct buf greys(int n)
{
    struct buf frames = {0};
    for (int i = 0; i < n; i++) add_frame(&frames, (const uint8_t[]){(uint8_t)i, (uint8_t)i, (uint8_t)i}, 1, 1);
    return frames;
}

static int decode(const struct buf *frames, size_t most, struct media_video *video, hearth_error *error)
{
    const struct media_video_limits limits = {.fps = 4, .most_frames = most, .most_side = 64};
    struct buf upload = video_of(frames);
    const struct media_bytes bytes = bytes_of(&upload);
    assert_int_equal(media_format_of(&bytes), MEDIA_VIDEO);
    int rc = media_video_decode(&bytes, &limits, NULL, video, error);
    buf_release(&upload);
    return rc;
}

static void frames_are_evenly_spaced(void **state)
{
    (void)state;
    static const struct {
        int frames;
        size_t most, n;
        int step;
    } rows[] = {{1, 8, 1, 1},  {7, 8, 7, 1},    {8, 8, 8, 1},     {9, 8, 5, 2}, {16, 8, 8, 2},
                {17, 8, 5, 4}, {200, 8, 7, 32}, {200, 1, 1, 256}, {5, 1, 1, 8}, {200, 3, 2, 128}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf frames = greys(rows[i].frames);
        struct media_video video;
        hearth_error error;
        if (decode(&frames, rows[i].most, &video, &error) != HEARTH_OK) fail_msg("%s", error.message);
        assert_int_equal(video.n, rows[i].n);
        assert_true(video.fps == 4.0 / rows[i].step);
        for (size_t k = 0; k < video.n; k++) {
            assert_int_equal(video.frames[k].width, 1);
            assert_int_equal(video.frames[k].rgb[2], (int)k * rows[i].step);
        }
        media_video_release(&video);
        buf_release(&frames);
    }
}

static void a_frame_comes_in_pieces(void **state)
{
    (void)state;
    enum { SIDE = 60, N = 50 };
    struct buf frames = {0};
    uint8_t *pixels = gradient(SIDE, SIDE);
    struct media_video video;
    hearth_error error;
    for (int i = 0; i < N; i++) add_frame(&frames, pixels, SIDE, SIDE); /* more than a pipe holds */
    if (decode(&frames, 64, &video, &error) != HEARTH_OK) fail_msg("%s", error.message);
    assert_int_equal(video.n, N);
    for (int i = 0; i < N; i++) assert_memory_equal(video.frames[i].rgb, pixels, SIDE * SIDE * 3);
    media_video_release(&video);
    buf_release(&frames);
    free(pixels);
}

static void what_is_no_frame_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"",
                                       "P5\n1 1\n255\nx",
                                       "P6\n65 1\n255\n",
                                       "P6\n1 0\n255\n",
                                       "P6\n-1 1\n255\nabc",
                                       "P6\n1 1\n65535\nabcabc",
                                       "P6\n1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
                                       "P6\n8 8\n255\ntoo few",
                                       "P6\n1 1\n255\nabcP6\n99999 99999\n255\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf frames = {0};
        struct media_video video;
        hearth_error error;
        buf_puts(&frames, rows[i]);
        assert_int_equal(decode(&frames, 8, &video, &error), HEARTH_INVALID);
        assert_non_null(strstr(error.message, "cannot be read by ffmpeg"));
        assert_null(video.frames);
        buf_release(&frames);
    }
}

static void without_ffmpeg_the_error_names_it(void **state)
{
    (void)state;
    char *search = mem_strdup(getenv("PATH"));
    struct buf frames = greys(1);
    struct media_video video;
    hearth_error error;
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(decode(&frames, 8, &video, &error), HEARTH_UNSUPPORTED);
    assert_non_null(strstr(error.message, "needs ffmpeg, which is not installed here"));
    setenv("PATH", search, 1);
    buf_release(&frames);
    free(search);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    install_ffmpeg(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    int rc = system(command);
    free(command);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_evenly_spaced),
        cmocka_unit_test(a_frame_comes_in_pieces),
        cmocka_unit_test(what_is_no_frame_is_refused),
        cmocka_unit_test(without_ffmpeg_the_error_names_it),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
