/* Setups that tests open: one that must succeed, one that must end with a status, and a key of what was opened. Shared
 * by the tests of where a configuration comes from. */
#ifndef TESTS_CLI_SUPPORT_H
#define TESTS_CLI_SUPPORT_H

#include "cli/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline hearth_config *open_setup(const struct setup *setup)
{
    int status = -1;
    hearth_config *config = setup_open("hearth try", setup, &status);
    assert_non_null(config);
    return config;
}

static inline void expect_status(const struct setup *setup, int expected)
{
    int status = -1;
    assert_null(setup_open("hearth try", setup, &status));
    assert_int_equal(status, expected);
}

static inline void expect_key(const hearth_config *config, const char *key, const char *value)
{
    const char *got = hearth_config_get(config, key);
    assert_non_null(got);
    assert_string_equal(got, value);
}

#endif
