/* Reads the content blocks of Messages into the chat that is being converted. History is not judged: blocks of tools
 * that Anthropic's servers ran are calls with their results, what has text is text, and the rest is left out. What the
 * user asks now is refused where it is of an unknown type. No state; any thread. */
#ifndef SERVE_ANTHROPIC_ANTHROPIC_BLOCKS_H
#define SERVE_ANTHROPIC_ANTHROPIC_BLOCKS_H

#include "serve/fields/convert.h"

struct anthropic_block {
    const char *role; /* of its message */
    const json_t *json;
    struct field_path at;
};

int anthropic_read_block(struct convert *convert, const struct anthropic_block *block);

/* Collects the texts of a string, of a block or of a list of blocks, with media parts in order. */
int anthropic_collect_texts(struct convert *convert, const json_t *content, struct field_path at, json_t *texts);

/* Notes the calls of a message's content whose call or result is left out, before any message is read. */
void anthropic_find_lost_calls(struct convert *convert, const json_t *content);

#endif
