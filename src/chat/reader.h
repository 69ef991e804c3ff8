/* For tests: the work that a reader has done. */
#ifndef CHAT_READER_H
#define CHAT_READER_H

#include "chat/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes parsed so far, counting every time that a byte was parsed. */
size_t chat_reader_work(const struct chat_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
