/* Members: see member.h. */
#include "serve/core/member.h"

#include "base/utf8.h"

#include <string.h>

void member_put(struct buf *out, const char *name, const char *text, size_t len)
{
    buf_printf(out, "\"%s\":", name);
    utf8_put_json_string(out, text == NULL ? "" : text, len);
}

void member_puts(struct buf *out, const char *name, const char *text)
{
    member_put(out, name, text, strlen(text));
}
