/* A program in the place of ffmpeg, so that no test of what becomes of frames needs the real one: it writes what
 * follows an upload's first bytes, which are to be PPM images. */
#ifndef UNIT_MEDIA_FAKE_FFMPEG_H
#define UNIT_MEDIA_FAKE_FFMPEG_H

#include "unit/media/samples.h"

#include <stdio.h>
#include <sys/stat.h>

static inline void put_file(const char *path, const struct buf *bytes)
{
    FILE *file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->v, 1, bytes->len, file), bytes->len);
    assert_int_equal(fclose(file), 0);
}

/* Puts it into `folder`, and that in front of PATH. */
static inline void install_ffmpeg(const char *folder)
{
    struct buf script = {0};
    char *path = mem_format("%s/ffmpeg", folder), *search = mem_format("%s:%s", folder, getenv("PATH"));
    buf_puts(&script, "#!/bin/sh\nexec tail -c +13\n");
    put_file(path, &script);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("PATH", search, 1);
    buf_release(&script);
    free(search);
    free(path);
}

/* An upload of which the program writes `frames`, whatever they are. */
static inline struct buf video_of(const struct buf *frames)
{
    struct buf upload = {0};
    buf_append(&upload,
               "\0\0\0\x10"
               "ftypisom",
               12);
    buf_append(&upload, buf_text(frames), frames->len);
    return upload;
}

static inline void add_frame(struct buf *frames, const uint8_t *rgb, uint32_t width, uint32_t height)
{
    char *header = mem_format("P6\n%u %u\n255\n", width, height);
    buf_puts(frames, header);
    buf_append(frames, rgb, (size_t)width * height * 3);
    free(header);
}

#endif
