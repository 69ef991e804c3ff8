/* Writes GGUF files: the vocabulary by itself, which the trainer reads back through llama.cpp, and the model. One
 * thread; files are replaced only by complete ones. */
#ifndef DEMO_EXPORT_H
#define DEMO_EXPORT_H

#include "hearth.h"
#include "shape.h"
#include "vocabulary.h"

#include <stdbool.h>

/* The shape's keys, the tokenizer and the chat template, without tensors. */
int export_vocabulary(const char *path, const struct vocabulary *vocabulary, const struct shape *shape,
                      hearth_error *error);

/* The metadata of a file that export_vocabulary() wrote, and the weights: matrices as Q8_0, or everything as F32. */
struct export
{
    const char *vocabulary_path, *path;
    const struct layout *layout;
    const float *weights;
    bool full; /* F32 */
};

int export_model(const struct export *export, hearth_error *error);

#endif
