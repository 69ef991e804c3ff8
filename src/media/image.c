/* Images: limits, and the decoder of each format. No state. */
#include "media/media.h"

#include "base/error.h"
#include "base/memory.h"
#include "media/decoders.h"

#include <stdlib.h>

static const struct media_decoder *decoder_of(enum media_format format)
{
    static const struct media_decoder *const decoders[] = {[MEDIA_PNG] = &media_png,
                                                           [MEDIA_JPEG] = &media_jpeg,
                                                           [MEDIA_WEBP] = &media_webp,
                                                           [MEDIA_GIF] = &media_gif,
                                                           [MEDIA_BMP] = &media_bmp};
    return media_kind_of(format) == MEDIA_IMAGE ? decoders[format] : NULL;
}

static int is_damaged(enum media_format format, const char *reason, hearth_error *error)
{
    return error_set(error, HEARTH_INVALID, "the %s is damaged or cut off: %s", media_format_name(format), reason);
}

static int check_limits(const struct media_image *image, const struct media_image_limits *limits, hearth_error *error)
{
    if (image->width > limits->most_side || image->height > limits->most_side)
        return error_set(error, HEARTH_TOO_LONG, "%u x %u pixels: a side may have %u", image->width, image->height,
                         limits->most_side);
    if ((uint64_t)image->width * image->height > limits->most_pixels)
        return error_set(error, HEARTH_TOO_LONG, "%u x %u pixels: an image may have %u of them", image->width,
                         image->height, limits->most_pixels);
    return HEARTH_OK;
}

int media_image_measure(const struct media_bytes *bytes, const struct media_image_limits *limits,
                        struct media_image *image, hearth_error *error)
{
    enum media_format format = media_format_of(bytes);
    const struct media_decoder *decoder = decoder_of(format);
    const char *reason = "its header says nothing that makes sense";
    *image = (struct media_image){0};
    if (decoder == NULL)
        return error_set(error, HEARTH_INVALID, "a %s is no image: PNG, JPEG, WebP, GIF and BMP are",
                         media_format_name(format));
    if (!decoder->measure(bytes, image, &reason) || image->width == 0 || image->height == 0)
        return is_damaged(format, reason, error);
    return check_limits(image, limits, error);
}

int media_image_decode(const struct media_bytes *bytes, const struct media_image_limits *limits,
                       struct media_image *image, hearth_error *error)
{
    int rc = media_image_measure(bytes, limits, image, error);
    if (rc != HEARTH_OK) return rc;
    enum media_format format = media_format_of(bytes);
    const char *reason = "it ends too early";
    image->rgb = mem_grow(NULL, (size_t)image->width * image->height, 3);
    if (decoder_of(format)->decode(bytes, image, &reason)) return HEARTH_OK;
    free(image->rgb);
    image->rgb = NULL;
    return is_damaged(format, reason, error);
}
