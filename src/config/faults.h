/* Errors found in a configuration: every one goes to the caller's report, the first one is what the call returns.
 * Lives on the stack of one call. */
#ifndef CONFIG_FAULTS_H
#define CONFIG_FAULTS_H

#include "hearth.h"

struct config_faults {
    hearth_config_report report; /* may be NULL */
    void *ud;
    hearth_error *error; /* may be NULL */
    int code;            /* of the first; 0 while there is none */
};

struct config_place {
    const char *file; /* "" where the value came from no file */
    int line;         /* 0: unknown */
    const char *key;  /* "" where it is no key's fault */
};

void config_fault(struct config_faults *faults, hearth_code code, struct config_place place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
