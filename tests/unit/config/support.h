/* Helpers of the configuration tests: reading a YAML text into a configuration, with everything that was reported. */
#ifndef TESTS_CONFIG_SUPPORT_H
#define TESTS_CONFIG_SUPPORT_H

#include "base/buf.h"
#include "config/edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* Appends "line|key|message\n". */
static inline void note_fault(void *ud, const char *file, int line, const char *key, const char *message)
{
    (void)file;
    buf_printf(ud, "%d|%s|%s\n", line, key, message);
}

/* Reads the text as the file "test.yaml". `reported` gets a line for every fault. */
static inline int load(hearth_config *config, const char *text, struct buf *reported, hearth_error *error)
{
    struct config_faults faults = {.report = reported != NULL ? note_fault : NULL, .ud = reported, .error = error};
    return config_load_text(config, "test.yaml", text, strlen(text), &faults);
}

static inline hearth_config *loaded(const char *text)
{
    hearth_error error = {0};
    hearth_config *config = hearth_config_new();
    if (load(config, text, NULL, &error) != HEARTH_OK) fail_msg("%s", error.message);
    return config;
}

/* Reads a text with faults, and compares all that is reported. */
static inline void assert_faults(const char *text, const char *expected)
{
    struct buf reported = {0};
    hearth_error error = {0};
    hearth_config *config = hearth_config_new();
    assert_int_equal(load(config, text, &reported, &error), HEARTH_INVALID);
    assert_string_equal(reported.v, expected);
    buf_release(&reported);
    hearth_config_free(config);
}

static inline void set(hearth_config *config, const char *key, const char *value)
{
    hearth_error error = {0};
    if (hearth_config_set(config, key, value, &error) != HEARTH_OK) fail_msg("%s", error.message);
}

#endif
