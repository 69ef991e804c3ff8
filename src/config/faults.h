/* Errors found in a configuration: each is passed to the caller's report, and the first one becomes the call's error.
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

struct config_location {
    const char *file; /* "": the value came from no file */
    int line;         /* 0: unknown */
    const char *key;  /* "": the fault is not that of a key */
};

void config_fault(struct config_faults *faults, hearth_code code, struct config_location location, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

#endif
