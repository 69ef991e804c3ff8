/* Media that programs of the machine read (child.h): frames of video, and the text of PDF files, which poppler's
 * pdftotext writes.
 *
 * ffmpeg writes frames one after the other as PPM images. They are read as they come, so that no more than those that
 * are kept are in memory. How long a video is, its header may not know, or may lie about. So frames are not chosen
 * beforehand: when there are more than may be, every second one is dropped, and from then on every second one that
 * comes. */
#include "base/error.h"
#include "base/memory.h"
#include "media/child.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const struct media_video_limits *limits;
    struct media_video *video;
    size_t number, stride; /* of the frame that is read; of those that are kept */
    char header[32];       /* "P6\nWIDTH HEIGHT\n255\n" */
    size_t header_len;
    struct media_image frame; /* rgb NULL: its header is not complete */
    size_t filled;            /* bytes of rgb */
    bool is_broken;           /* this is no PPM: the rest is not read */
};

/* ---- Frames ---- */

static void keep_frame(struct reader *reader)
{
    struct media_video *video = reader->video;
    bool wanted = reader->number++ % reader->stride == 0;
    if (wanted && video->n == reader->limits->most_frames) { /* every second one is dropped */
        for (size_t i = 1; i < video->n; i += 2) free(video->frames[i].rgb);
        video->n = (video->n + 1) / 2;
        for (size_t i = 1; i < video->n; i++) video->frames[i] = video->frames[2 * i];
        reader->stride *= 2;
        wanted = (reader->number - 1) % reader->stride == 0;
    }
    if (wanted)
        video->frames[video->n++] = reader->frame;
    else
        free(reader->frame.rgb);
    reader->frame = (struct media_image){0};
    reader->header_len = 0;
}

/* ---- PPM ---- */

static const char magic[] = "P6\n";

/* A side, which is followed by `end`; 0: it is none, or more than it may be. */
static uint32_t read_side(const char **at, char end, uint32_t most)
{
    char *behind;
    unsigned long side = **at >= '1' && **at <= '9' ? strtoul(*at, &behind, 10) : 0;
    if (side == 0 || side > most || *behind != end) return 0;
    *at = behind + 1;
    return (uint32_t)side;
}

/* Its three lines are there. */
static bool header_is_complete(const struct reader *reader)
{
    size_t lines = 0;
    for (size_t i = 0; i < reader->header_len; i++) lines += reader->header[i] == '\n';
    return lines == 3;
}

static size_t take_header(struct reader *reader, const char *bytes, size_t n)
{
    struct media_image *frame = &reader->frame;
    const char *at = reader->header + strlen(magic);
    size_t i = 0;
    while (i < n && reader->header_len < sizeof reader->header - 1 && !header_is_complete(reader))
        reader->header[reader->header_len++] = bytes[i++];
    if (!header_is_complete(reader)) {
        reader->is_broken = reader->header_len == sizeof reader->header - 1;
        return i;
    }
    reader->header[reader->header_len] = '\0';
    reader->is_broken = strncmp(reader->header, magic, strlen(magic)) != 0;
    if (!reader->is_broken) frame->width = read_side(&at, ' ', reader->limits->most_side);
    if (frame->width > 0) frame->height = read_side(&at, '\n', reader->limits->most_side);
    reader->is_broken = frame->height == 0 || strcmp(at, "255\n") != 0;
    if (reader->is_broken) return i;
    frame->rgb = mem_alloc((size_t)frame->width * frame->height * 3);
    reader->filled = 0;
    return i;
}

static size_t take_pixels(struct reader *reader, const char *bytes, size_t n)
{
    struct media_image *frame = &reader->frame;
    size_t whole = (size_t)frame->width * frame->height * 3, missing = whole - reader->filled;
    size_t taken = n < missing ? n : missing;
    memcpy(frame->rgb + reader->filled, bytes, taken);
    reader->filled += taken;
    if (reader->filled == whole) keep_frame(reader);
    return taken;
}

static void take_frames(void *ud, const char *bytes, size_t n)
{
    struct reader *reader = ud;
    for (size_t at = 0; at < n && !reader->is_broken;)
        at += (reader->frame.rgb == NULL ? take_header : take_pixels)(reader, bytes + at, n - at);
}

/* ---- The program ---- */

static struct media_program ffmpeg(bool unconfined)
{
    return (struct media_program){.name = "ffmpeg",
                                  .package = "ffmpeg",
                                  .seconds = 30,
                                  .most_memory = 2UL << 30,
                                  .most_output = SIZE_MAX,
                                  .unconfined = unconfined};
}

/* The kinds of file are those that the signatures in format.c let through: none of them can name another file. */
static int run_ffmpeg(const struct media_bytes *bytes, const struct media_stop *stop, struct reader *reader,
                      hearth_error *error)
{
    const struct media_video_limits *limits = reader->limits;
    char *filter = mem_format("fps=%.6f,scale='min(%u,iw)':'min(%u,ih)':force_original_aspect_ratio=decrease",
                              limits->fps, limits->most_side, limits->most_side);
    const char *const args[] = {"-nostdin",
                                "-v",
                                "error",
                                "-protocol_whitelist",
                                "file",
                                "-format_whitelist",
                                "mov,matroska,avi,ogg",
                                "-threads",
                                "2",
                                "-i",
                                MEDIA_CHILD_INPUT,
                                "-map",
                                "0:v:0",
                                "-vf",
                                filter,
                                "-c:v",
                                "ppm",
                                "-pix_fmt",
                                "rgb24",
                                "-f",
                                "image2pipe",
                                "pipe:1",
                                NULL};
    struct media_program program = ffmpeg(limits->unconfined);
    program.args = args;
    program.stop = stop;
    int rc = media_child_run(&program, bytes, &(struct media_sink){take_frames, reader}, error);
    free(filter);
    return rc;
}

int media_video_decode(const struct media_bytes *bytes, const struct media_video_limits *limits,
                       const struct media_stop *stop, struct media_video *video, hearth_error *error)
{
    struct reader reader = {.limits = limits, .video = video, .stride = 1};
    *video = (struct media_video){.frames = mem_alloc(limits->most_frames * sizeof *video->frames)};
    int rc = run_ffmpeg(bytes, stop, &reader, error);
    free(reader.frame.rgb);
    video->fps = limits->fps / (double)reader.stride;
    if (rc == HEARTH_OK && (video->n == 0 || reader.is_broken))
        rc = error_set(error, HEARTH_INVALID, "cannot be read by ffmpeg: it has no frames");
    if (rc != HEARTH_OK) media_video_release(video);
    return rc;
}

bool media_video_is_read(bool unconfined)
{
    const struct media_program program = ffmpeg(unconfined);
    return media_child_can_run(&program);
}

void media_video_release(struct media_video *video)
{
    for (size_t i = 0; i < video->n; i++) free(video->frames[i].rgb);
    free(video->frames);
    *video = (struct media_video){0};
}

/* ---- Documents ---- */

static void append(void *ud, const char *bytes, size_t n)
{
    buf_append(ud, bytes, n);
}

int media_document_text(const struct media_bytes *bytes, const struct media_document_limits *limits,
                        const struct media_stop *stop, struct buf *text, hearth_error *error)
{
    static const char *const args[] = {"-q", "-enc", "UTF-8", "-nopgbrk", MEDIA_CHILD_INPUT, "-", NULL};
    const struct media_program program = {.name = "pdftotext",
                                          .package = "poppler-utils",
                                          .args = args,
                                          .seconds = 20,
                                          .most_memory = 1U << 30,
                                          .most_output = limits->most_bytes,
                                          .output_key = "models.*.max_prompt_bytes",
                                          .unconfined = limits->unconfined,
                                          .stop = stop};
    return media_child_run(&program, bytes, &(struct media_sink){append, text}, error);
}
