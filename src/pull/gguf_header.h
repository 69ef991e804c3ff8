/* Finds the end of a GGUF file's header, which has the metadata and the places of the tensors. Whether it is right is
 * llama.cpp's to say (hearth_model_check()), which wants all of it. Pure functions; any thread. */
#ifndef PULL_GGUF_HEADER_H
#define PULL_GGUF_HEADER_H

#include <stdbool.h>
#include <stddef.h>

/* False: the header goes on beyond these first bytes of a file. True: it ends within them, or they are those of no
 * file that llama.cpp reads, whatever follows. */
bool gguf_header_is_whole(const char *bytes, size_t len);

#endif
