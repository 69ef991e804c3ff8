/* Filling in a hearth_error, the one error type of the project.
 *
 * Functions return a hearth_code (0 or negative). The function that finds a fault writes the message: one line that
 * names what is wrong and what to do. Callers pass it up unchanged, or add context with error_prefix(). Any thread. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "hearth.h"

/* Fills in the error (which may be NULL) with no param and returns the code: a hearth_code, or one that a folder has
 * beside them (serve/core/errors.h). */
int error_set(hearth_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same, naming the field, key or file at fault. */
int error_at(hearth_error *error, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Says of an error that is filled in how many tokens the prompt has, and how many the context window holds. */
void error_note_length(hearth_error *error, size_t n_prompt, size_t window);

/* Puts context before the message of an error that is already filled in. */
void error_prefix(hearth_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
