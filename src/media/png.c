/* PNG by libpng's simplified interface, which reads every kind of PNG and lays transparent pixels over a colour. */
#include "media/decoders.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

/* libpng's reasons lie in the image that it frees. */
static _Thread_local char why[sizeof((png_image){0}.message)];

static bool fail(png_image *png, const char **reason)
{
    snprintf(why, sizeof why, "%s", png->message);
    *reason = why;
    png_image_free(png);
    return false;
}

static bool begin(const struct media_bytes *bytes, png_image *png)
{
    memset(png, 0, sizeof *png);
    png->version = PNG_IMAGE_VERSION;
    return png_image_begin_read_from_memory(png, bytes->v, bytes->len) != 0;
}

static bool measure(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    png_image png;
    if (!begin(bytes, &png)) return fail(&png, reason);
    image->width = png.width;
    image->height = png.height;
    png_image_free(&png);
    return true;
}

static bool decode(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    static const png_color white = {255, 255, 255};
    png_image png;
    if (!begin(bytes, &png)) return fail(&png, reason);
    png.format = PNG_FORMAT_RGB;
    if (png_image_finish_read(&png, &white, image->rgb, 0, NULL) == 0) return fail(&png, reason);
    return true;
}

const struct media_decoder media_png = {measure, decode};
