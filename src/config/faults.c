/* One error of a configuration, told twice: in parts to whoever asked for all, as one line in the hearth_error. */
#include "config/faults.h"

#include "base/buf.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static void put_place(struct buf *out, const struct config_place *place)
{
    if (place->file[0] != '\0') buf_puts(out, place->file);
    if (place->file[0] != '\0' && place->line > 0) buf_printf(out, ":%d", place->line);
    if (place->file[0] != '\0') buf_puts(out, ": ");
    if (place->key[0] != '\0') buf_printf(out, "%s: ", place->key);
}

void config_fault(struct config_faults *faults, hearth_code code, struct config_place place, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (faults->report != NULL) faults->report(faults->ud, place.file, place.line, place.key, message);
    if (faults->code != 0) return;
    struct buf line = {0};
    put_place(&line, &place);
    buf_puts(&line, message);
    faults->code = error_at(faults->error, code, place.key, "%s", line.v);
    buf_release(&line);
}
