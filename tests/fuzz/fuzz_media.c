/* Fuzzes what an upload is decoded by: whatever the bytes say, within the limits. */
#include "media/media.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct media_image_limits pixels = {.most_pixels = 1 << 16, .most_side = 1 << 12};
    static const struct media_sound_limits seconds = {.rate = 16000, .most_seconds = 5};
    struct media_bytes bytes = {data, size};
    struct media_image image = {0};
    struct media_sound sound = {0};
    hearth_error error;
    switch (media_kind_of(media_format_of(&bytes))) {
    case MEDIA_IMAGE:
        if (media_image_decode(&bytes, &pixels, &image, &error) == HEARTH_OK &&
            (uint64_t)image.width * image.height > pixels.most_pixels)
            abort();
        break;
    case MEDIA_AUDIO:
        if (media_sound_decode(&bytes, &seconds, NULL, &sound, &error) == HEARTH_OK && sound.n > 6 * seconds.rate)
            abort();
        break;
    default:
        break;
    }
    free(image.rgb);
    free(sound.samples);
    return 0;
}
