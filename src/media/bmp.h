/* BMP's decoder, one of those that media_image_measure() and media_image_decode() choose from. */
#ifndef MEDIA_BMP_H
#define MEDIA_BMP_H

#include "media/media.h"

/* `measure` reads width and height from the header. `decode` fills in image->rgb, of the size that was measured, which
 * is within the limits. Both return false where the file is damaged or cut off, with the library's reason. */
struct media_decoder {
    bool (*measure)(const struct media_bytes *bytes, struct media_image *image, const char **reason);
    bool (*decode)(const struct media_bytes *bytes, struct media_image *image, const char **reason);
};

extern const struct media_decoder media_bmp;

#endif
