/* The table in three forms for people: a YAML file with every key, its value and meaning; docs/config.md; and
 * hearth.yaml(5). Functions without state. */
#include "base/buf.h"
#include "config/table.h"
#include "config/text.h"
#include "config/value.h"

#include <stdlib.h>
#include <string.h>

/* ---- YAML ---- */

struct dump {
    struct buf *out;
    const char *margin; /* before every line */
    int indent;         /* of the keys of the section */
    bool with_comments;
};

static void start_line(const struct dump *d, int indent)
{
    buf_printf(d->out, "%s%*s", d->margin, indent, "");
}

/* A derived value is written as a comment unless it was set: read back as a set value, it would no longer depend on
 * other keys. */
static void put_rows(const struct dump *d, const char *prefix, const void *owner, const struct config_note *notes)
{
    const char *before = "";
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        if (strncmp(row->path, prefix, strlen(prefix))) continue;
        const char *key = row->path + strlen(prefix), *name = key;
        /* The headings of the sections that it is in and the key before it is not: for "tiers.disk.path" after
         * "tiers.ram.quota_mb", "disk:". */
        int indent = d->indent;
        bool open = true;
        for (const char *dot; (dot = strchr(name, '.')) != NULL; name = dot + 1, indent += 2) {
            size_t len = (size_t)(dot - name) + 1;
            open = open && !strncmp(name, before, len);
            if (open) {
                before += len;
                continue;
            }
            start_line(d, indent);
            buf_printf(d->out, "%.*s:\n", (int)len - 1, name);
        }
        if (d->with_comments) {
            start_line(d, indent);
            buf_printf(d->out, "# %s\n", row->meaning);
            start_line(d, indent);
            buf_puts(d->out, "# (");
            value_put_expected(row, d->out);
            buf_printf(d->out, "; default %s)\n", row->default_value);
        }
        start_line(d, indent);
        buf_printf(d->out, "%s%s: ", row->derived && !notes[i].set ? "# " : "", name);
        value_put_yaml(row, config_field(row, owner), d->out);
        buf_puts(d->out, "\n");
        before = key;
    }
}

char *hearth_config_dump(const hearth_config *config)
{
    struct buf out = {0};
    buf_puts(&out, "# Every key of hearth's configuration, with its value.\n");
    for (size_t i = 0; i < CONFIG_SECTIONS; i++) {
        const struct config_section *section = &config_sections[i];
        buf_printf(&out, "\n# %s\n%s:\n", section->meaning, section->name);
        if (strchr(section->prefix, '*') == NULL) {
            put_rows(&(struct dump){&out, "", 2, true}, section->prefix, config, config->notes);
            continue;
        }
        for (size_t m = 0; m < config->n_models; m++) {
            buf_puts(&out, "  ");
            text_put_yaml(config->models[m].name, &out);
            buf_puts(&out, ":\n");
            put_rows(&(struct dump){&out, "", 4, m == 0}, section->prefix, &config->models[m], config->models[m].notes);
        }
        /* Without a model, the keys of one are shown as a comment. */
        if (config->n_models == 0) {
            hearth_config *example = hearth_config_new();
            hearth_config_set(example, "models.NAME.n_batch", "2048", NULL);
            buf_puts(&out, "  # NAME:\n");
            put_rows(&(struct dump){&out, "  # ", 2, true}, "models.*.", &example->models[0], example->models[0].notes);
            hearth_config_free(example);
        }
    }
    return buf_take(&out);
}

/* ---- Manual ---- */

static const char manual_intro[] =
    "# Configuration\n"
    "\n"
    "hearth reads YAML files. Every key has a default, only a model's `path` must be given:\n"
    "\n"
    "```yaml\n"
    "models:\n"
    "  demo:\n"
    "    path: models/demo.gguf\n"
    "```\n"
    "\n"
    "Later entries of this list override earlier ones:\n"
    "\n"
    "1. the defaults in the tables below\n"
    "2. `/etc/hearth/hearth.yaml`, then `~/.config/hearth/hearth.yaml` (`$XDG_CONFIG_HOME`), where they are there; in\n"
    "   their place the one file that `--config FILE` or `HEARTH_CONFIG` names (`HEARTH_CONFIG=` alone: none)\n"
    "3. the environment: `HEARTH_` and a key's path in capitals, dots as underscores (`HEARTH_SERVER_LISTEN`); a key "
    "of\n"
    "   the only model by its name alone (`HEARTH_N_SEQ_MAX`). `HEARTH_MODEL` is `--model`. Empty ones are not set;\n"
    "   unknown ones are ignored with a line that names them. `HEARTH_API_KEY` is no key of the configuration: "
    "clients\n"
    "   (`hearth launch`, `hearth cache`) send it.\n"
    "4. the command line: `--host`, `--port` and the like, then `--set KEY=VALUE`, which sets one key by its path, "
    "for\n"
    "   instance `--set models.demo.n_seq_max=4`, or one of the only model's by its name\n"
    "\n"
    "- Keys are in snake_case; kebab-case (`n-seq-max`) is read too.\n"
    "- A list of one may be written without brackets.\n"
    "- In a path `~/` is the home folder, and `~/.cache/` is `$XDG_CACHE_HOME` where that is set; any other relative\n"
    "  path starts at the folder that hearth runs in.\n"
    "- YAML aliases (`*name`) and tags (`!name`) are refused.\n"
    "- `context_window`, `n_seq_max` and the types of KV cells that are not set are chosen so that they fit the "
    "machine:\n"
    "  [models.md](models.md#what-fits-a-machine).\n"
    "- `hearth config check FILE` reports every error with file, line and key; `hearth config dump` writes all keys "
    "with\n"
    "  their values, as a file to start from.\n";

char *hearth_config_manual(void)
{
    struct buf out = {0};
    buf_puts(&out, manual_intro);
    for (size_t s = 0; s < CONFIG_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        bool models = strchr(section->prefix, '*') != NULL;
        buf_printf(&out, "\n## %s%s\n\n%s\n\n", section->name, models ? ".NAME" : "", section->meaning);
        buf_puts(&out, "| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for (size_t i = 0; i < config_n_rows; i++) {
            const struct config_row *row = &config_rows[i];
            if (strncmp(row->path, section->prefix, strlen(section->prefix))) continue;
            buf_printf(&out, "| `%s` | ", row->path + strlen(section->prefix));
            value_put_expected(row, &out);
            buf_printf(&out, " | `%s` | %s |\n", row->default_value, row->meaning);
        }
    }
    return buf_take(&out);
}

/* ---- hearth.yaml(5) ---- */

static const char man_intro[] =
    ".SH NAME\n"
    "hearth.yaml \\- configuration of hearth\n"
    ".SH SYNOPSIS\n"
    ".nf\n"
    "models:\n"
    "  qwen3:\n"
    "    path: /srv/models/Qwen3\\-8B\\-Q8_0.gguf\n"
    ".fi\n"
    ".SH DESCRIPTION\n"
    "A YAML file. Every key has a default; only the path of a model must be given. Keys are in snake_case; "
    "kebab\\-case is read too. A list of one may be written without brackets. In a path ~/ is the home folder, and "
    "~/.cache/ is $XDG_CACHE_HOME where that is set; any other relative path starts at the folder that hearth runs in. "
    "Aliases and tags of YAML are refused.\n"
    ".PP\n"
    ".B hearth config check\n"
    "reports every error with file, line and key;\n"
    ".B hearth config dump\n"
    "writes all keys with their defaults, as a file to start from.\n"
    ".SH FILES\n"
    ".TP\n"
    ".I /etc/hearth/hearth.yaml\n"
    "is read first, where it is there,\n"
    ".TP\n"
    ".I ~/.config/hearth/hearth.yaml\n"
    "next, over it. With\n"
    ".B \\-\\-config\n"
    "or\n"
    ".B HEARTH_CONFIG\n"
    "only the file that these name is read.\n"
    ".SH ENVIRONMENT\n"
    "Variables are set over files, and the command line over both.\n"
    ".TP\n"
    ".B HEARTH_CONFIG\n"
    "The file to read in place of the others; empty: none.\n"
    ".TP\n"
    ".B HEARTH_MODEL\n"
    "The model, by path or name, as with\n"
    ".BR \\-\\-model .\n"
    ".TP\n"
    ".BI HEARTH_ KEY\n"
    "Each key by its path in capitals, dots as underscores: HEARTH_SERVER_LISTEN. Those of models by their names "
    "alone, for the only one: HEARTH_N_SEQ_MAX. Empty variables are not set; unknown ones are ignored, with a "
    "warning.\n";

/* A text within a line: no character of it is a command, and hyphens stay what they are. */
static void put_roff(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            buf_puts(out, "\\e");
        else if (*text == '-')
            buf_puts(out, "\\-");
        else
            buf_append(out, text, 1);
    }
}

char *hearth_config_man(void)
{
    struct buf out = {0};
    buf_puts(&out, ".TH HEARTH.YAML 5 \"\" \"hearth " HEARTH_VERSION "\" \"File formats\"\n");
    buf_puts(&out, man_intro);
    for (size_t s = 0; s < CONFIG_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        buf_printf(&out, ".SH \"KEYS OF %s\"\n%s\n", section->name, section->meaning);
        for (size_t i = 0; i < config_n_rows; i++) {
            const struct config_row *row = &config_rows[i];
            if (strncmp(row->path, section->prefix, strlen(section->prefix))) continue;
            const char *star = strchr(row->path, '*');
            struct buf expected = {0};
            buf_puts(&out, ".TP\n.B ");
            if (star != NULL) buf_printf(&out, "%.*sNAME%s", (int)(star - row->path), row->path, star + 1);
            if (star == NULL) buf_puts(&out, row->path);
            buf_puts(&out, "\n\\&"); /* a line that begins with a dot or a quote would be a command */
            put_roff(&out, row->meaning);
            buf_puts(&out, "\n.br\n(");
            value_put_expected(row, &expected);
            put_roff(&out, buf_text(&expected));
            buf_puts(&out, "; default ");
            put_roff(&out, row->default_value);
            buf_puts(&out, ")\n");
            buf_release(&expected);
        }
    }
    buf_puts(&out, ".SH SEE ALSO\n.BR hearth (1)\n");
    return buf_take(&out);
}
