/* Reading images: decoding one and cutting it into chunks, and what that costs, which decides where it is done.
 * Process- wide; any thread. */
#ifndef LIB_MEDIA_IMAGES_H
#define LIB_MEDIA_IMAGES_H

#include "lib/media/model_media.h"

/* Pixels of an image that the model takes, as its header says; 0: it is none, or one that is refused when it is read.
 */
uint64_t image_pixels(const struct model_media *model, const struct media_bytes *bytes);

/* Nanoseconds that reading an image of so many pixels will take, by what others took. */
int64_t image_expect_ns(uint64_t pixels);

/* Large ones are read one after the other, in the order of their arrival, since each has its pixels in memory; one that
 * is wanted no more when its turn comes is not. `stop` may be NULL. The caller closes the chunks. */
struct llm_medium *image_read(const struct model_media *model, const struct media_bytes *bytes,
                              const struct media_stop *stop, hearth_error *error);

#endif
