/* WebP by libwebp; of an animation the first frame. */
#include "media/decoders.h"

#include "base/memory.h"

#include <stdlib.h>
#include <webp/decode.h>
#include <webp/demux.h>

static bool measure(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    WebPBitstreamFeatures features;
    *reason = "its header cannot be read";
    if (WebPGetFeatures(bytes->v, bytes->len, &features) != VP8_STATUS_OK) return false;
    image->width = (uint32_t)features.width;
    image->height = (uint32_t)features.height;
    return true;
}

/* Lays the pixels over white. */
static void put_on_white(const uint8_t *rgba, const struct media_image *image)
{
    for (size_t i = 0; i < (size_t)image->width * image->height; i++)
        for (size_t c = 0; c < 3; c++) {
            unsigned alpha = rgba[i * 4 + 3];
            image->rgb[i * 3 + c] = (uint8_t)((rgba[i * 4 + c] * alpha + 255 * (255 - alpha) + 127) / 255);
        }
}

static bool decode_still(const struct media_bytes *bytes, const struct media_image *image)
{
    size_t size = (size_t)image->width * image->height * 4;
    uint8_t *rgba = mem_grow(NULL, size, 1);
    bool decoded = WebPDecodeRGBAInto(bytes->v, bytes->len, rgba, size, (int)image->width * 4) != NULL;
    if (decoded) put_on_white(rgba, image);
    free(rgba);
    return decoded;
}

static bool decode_first_frame(const struct media_bytes *bytes, const struct media_image *image)
{
    WebPAnimDecoderOptions options;
    WebPAnimInfo info;
    uint8_t *frame; /* the decoder's */
    int at_ms;
    if (!WebPAnimDecoderOptionsInit(&options)) return false;
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&(WebPData){.bytes = bytes->v, .size = bytes->len}, &options);
    bool decoded = decoder != NULL && WebPAnimDecoderGetInfo(decoder, &info) && info.canvas_width == image->width &&
                   info.canvas_height == image->height && WebPAnimDecoderGetNext(decoder, &frame, &at_ms);
    if (decoded) put_on_white(frame, image);
    WebPAnimDecoderDelete(decoder);
    return decoded;
}

static bool decode(const struct media_bytes *bytes, struct media_image *image, const char **reason)
{
    WebPBitstreamFeatures features;
    *reason = "its pixels cannot be read";
    if (WebPGetFeatures(bytes->v, bytes->len, &features) != VP8_STATUS_OK) return false;
    return features.has_animation ? decode_first_frame(bytes, image) : decode_still(bytes, image);
}

const struct media_decoder media_webp = {measure, decode};
