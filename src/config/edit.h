/* Functions that change a configuration, for the files of this folder. A change is made on a draft, so that one that
 * fails leaves the configuration as it was. */
#ifndef CONFIG_EDIT_H
#define CONFIG_EDIT_H

#include "config/table.h"

#define CONFIG_MAX_MODELS 256
#define CONFIG_MAX_NAME   128

/* Errors found in a configuration: each is passed to the caller's report, and the first one becomes the call's error.
 * Lives on the stack of one call. */
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

/* Why no model with that name can be added; NULL: it can. */
const char *config_name_fault(const struct hearth_config *config, const char *name, size_t len);

/* The model with that name; a new one is added with default values. The caller has called config_name_fault(). Valid
 * until the next one is added. */
struct config_model *config_declare_model(struct hearth_config *config, const char *name);

/* Reads a YAML text into the draft. `name` is the file's, for messages and notes. */
void config_read(struct hearth_config *draft, const char *name, const char *text, size_t len,
                 struct config_faults *faults);

/* hearth_config_check(), which adds to the faults found before. */
void config_check_all(const struct hearth_config *config, struct config_faults *faults);

/* hearth_config_load() of a text in memory. */
int config_load_text(struct hearth_config *config, const char *name, const char *text, size_t len,
                     struct config_faults *faults);

#endif
