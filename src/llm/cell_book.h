/* llama.cpp's own book of the cells of a unified KV cache. Its C interface does not tell which cell holds what; this
 * reaches the classes behind it, of the pinned version, and only reads. The thread of the context. */
#ifndef LLM_CELL_BOOK_H
#define LLM_CELL_BOOK_H

#include "llm/cell_map.h"

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As those of cell_map.h. */
bool llm_book_map(struct llama_context *context, struct llm_cell_map *out);
int32_t llm_book_above(struct llama_context *context, int32_t cell);
struct llm_positions llm_book_positions_above(struct llama_context *context, int32_t seq, int32_t cell);

#ifdef __cplusplus
}
#endif

#endif
