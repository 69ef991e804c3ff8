/* Streams one reply of a backend to standard output. Main thread only. */
#ifndef CLI_CHAT_REPLY_OUTPUT_H
#define CLI_CHAT_REPLY_OUTPUT_H

#include "base/buf.h"
#include "cli/chat/chat_backend.h"
#include "cli/chat/editor.h"
#include "cli/chat/screen.h"

/* Where a reply is shown and stopped. */
struct reply_terminal {
    const struct screen *screen;
    struct editor *editor; /* whose terminal it is; NULL: nothing is typed */
    int signals;
};

struct reply {
    struct buf content; /* without its reasoning, which is no part of the next prompt */
    bool is_whole;      /* it has ended by itself, and result is valid */
    hearth_result result;
    enum signal_kind signal; /* what stopped it: SIGNAL_STOP, SIGNAL_END or SIGNAL_NONE */
};

/* Asks for a reply and prints it until it ends, fails, or a signal stops it: what has come by then is in the content.
 * Returns HEARTH_OK, also where it was stopped, or the code of its failure. */
int chat_reply_stream(struct backend *backend, const struct conversation *chat, const struct reply_terminal *terminal,
                      struct reply *reply, hearth_error *error);

void chat_reply_release(struct reply *reply);

#endif
