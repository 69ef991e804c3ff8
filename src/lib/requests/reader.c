/* hearth_reader: parses the text of a chat's reply into reasoning, content and tool calls, by the format that was
 * chosen when its prompt was rendered. A reader has a reference to the format and none to the request. */
#include "lib/requests/request.h"

#include "base/memory.h"

#include <stdlib.h>

struct hearth_reader {
    struct chat_reader *reader;
};

hearth_reader *hearth_reader_open(hearth_request *request)
{
    if (request->format == NULL) return NULL;
    hearth_reader *reader = mem_alloc(sizeof *reader);
    reader->reader = chat_reader_open(request->format);
    return reader;
}

void hearth_reader_close(hearth_reader *reader)
{
    if (reader == NULL) return;
    chat_reader_close(reader->reader);
    free(reader);
}

void hearth_reader_add(hearth_reader *reader, const char *text, size_t len, hearth_delta_fn each, void *ud)
{
    chat_reader_add(reader->reader, text, len, each, ud);
}

void hearth_reader_end(hearth_reader *reader, hearth_delta_fn each, void *ud)
{
    chat_reader_end(reader->reader, each, ud);
}

bool hearth_reader_is_whole(const hearth_reader *reader)
{
    return chat_reader_is_whole(reader->reader);
}
