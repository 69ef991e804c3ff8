/* The table of all configuration keys, and the lookups from a key's path to its row and field. Constant data. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "base/buf.h"
#include "config/config.h"

enum config_type {
    CONFIG_BOOL,    /* bool */
    CONFIG_INT,     /* int64_t */
    CONFIG_NUMBER,  /* double */
    CONFIG_SECONDS, /* double */
    CONFIG_PATH,    /* char *, "~/" expanded */
    CONFIG_TEXT,    /* char * */
    CONFIG_ENUM,    /* int: the place of one of the choices among them, from 0 */
    CONFIG_NAME,    /* char *, one of the choices */
    CONFIG_STRINGS, /* struct config_strings */
    CONFIG_LORAS,   /* struct config_loras */
    CONFIG_OBJECT   /* char *, JSON */
};

struct config_row {
    const char *path; /* with "models.*" for any model */
    enum config_type type;
    size_t offset;             /* of the field: in struct config_model for models.*, else in struct hearth_config */
    const char *default_value; /* in its YAML spelling */
    const char *meaning;       /* one line */
    bool null_ok;              /* null is read as NULL, NAN or 0 */
    bool
        derived; /* its default depends on other keys, the model or the disk: a dump comments it out unless it is set */
    double min, max;     /* of numbers */
    const char *choices; /* of an enum, joined by '|' */
};

extern const struct config_row config_rows[];
extern const size_t config_n_rows;

/* The top-level sections, in the order of the rows; `meaning` is a sentence or two. */
struct config_section {
    const char *name, *prefix, *meaning;
};

#define CONFIG_SECTIONS 3
extern const struct config_section config_sections[CONFIG_SECTIONS];

/* `pattern` is a path with snake_case keys and "*" for the model's name. */
const struct config_row *config_row_find(const char *pattern);
bool config_is_section(const char *pattern);

/* Appends the path of the known key or section whose name is most similar to an unknown one. */
void config_put_nearest(struct buf *out, const char *pattern);

/* The path of the key ("models.*.n_seq_max") that corresponds to an option of llama-server or vLLM, or a setting of
 * Ollama; NULL: there is none. `name` is in any case, with underscores, without leading dashes. */
const char *foreign_key(const char *name, size_t len);

bool config_row_in_model(const struct config_row *row);
size_t config_row_index(const struct config_row *row);

/* The address of the row's value; `owner` is a struct config_model for models.*, else a struct hearth_config. */
void *config_field(const struct config_row *row, const void *owner);

#endif
