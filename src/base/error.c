/* Formatting of error messages, cut to the size of a hearth_error. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(hearth_error *error, int code, const char *param, const char *format, va_list args)
{
    if (error == NULL) return;
    error->code = code;
    error->n_prompt = error->window = 0;
    snprintf(error->param, sizeof error->param, "%s", param);
    vsnprintf(error->message, sizeof error->message, format, args);
}

int error_set(hearth_error *error, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(error, code, "", format, args);
    va_end(args);
    return code;
}

int error_at(hearth_error *error, int code, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(error, code, param, format, args);
    va_end(args);
    return code;
}

void error_note_length(hearth_error *error, size_t n_prompt, size_t window)
{
    if (error == NULL) return;
    error->n_prompt = (int64_t)n_prompt;
    error->window = (int64_t)window;
}

void error_prefix(hearth_error *error, const char *format, ...)
{
    if (error == NULL) return;
    char before[sizeof error->message];
    char rest[sizeof error->message];
    va_list args;
    va_start(args, format);
    vsnprintf(before, sizeof before, format, args);
    va_end(args);
    memcpy(rest, error->message, sizeof rest);
    size_t used = (size_t)snprintf(error->message, sizeof error->message, "%s", before);
    if (used < sizeof error->message) snprintf(error->message + used, sizeof error->message - used, "%s", rest);
}
