/* Reporting one error of a configuration twice: in parts to the report, and as one line in the hearth_error. */
#include "config/faults.h"

#include "base/buf.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static void put_location(struct buf *out, const struct config_location *location)
{
    if (location->file[0] != '\0') buf_puts(out, location->file);
    if (location->file[0] != '\0' && location->line > 0) buf_printf(out, ":%d", location->line);
    if (location->file[0] != '\0') buf_puts(out, ": ");
    if (location->key[0] != '\0') buf_printf(out, "%s: ", location->key);
}

void config_fault(struct config_faults *faults, hearth_code code, struct config_location location, const char *format,
                  ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (faults->report != NULL) faults->report(faults->ud, location.file, location.line, location.key, message);
    if (faults->code != 0) return;
    struct buf line = {0};
    put_location(&line, &location);
    buf_puts(&line, message);
    faults->code = error_at(faults->error, code, location.key, "%s", line.v);
    buf_release(&line);
}
