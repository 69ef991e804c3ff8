/* What a test may see of a reader: how much work it has done. */
#ifndef CHAT_READER_H
#define CHAT_READER_H

#include "chat/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes that it has parsed so far, each as often as it was. */
size_t chat_reader_work(const struct chat_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
