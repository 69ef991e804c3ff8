/* hearth kv: lists, checks and removes the slabs that tiers have stored in folders. No server needs to run. Main
 * thread.
 */
#include "cli/args.h"
#include "cli/setup.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* ---- All commands ---- */

#define MODEL_MOST 64 /* characters of a model's name that are printed */
#define KEY_DIGITS 16 /* digits of a key that are printed; `show` accepts so many */

struct wanted;

/* A command, and what runs it with a configuration of which only the section `cache` is used. */
struct action {
    struct args_spec spec;
    int (*run)(const char *command, const hearth_config *config, const struct wanted *wanted);
    int (*drop)(const hearth_config *config, hearth_kv_removed *removed, hearth_error *error); /* of run_removing() */
    bool has_json; /* it has the option --json */
};

/* The action of a command line, with its arguments but those of the configuration. */
struct wanted {
    const struct action *action;
    const char *key; /* NULL: none */
    bool as_json;
};

static int run_action(const char *command, const hearth_config *config, void *ud)
{
    const struct wanted *wanted = ud;
    hearth_log_open(NULL, "error", "text", NULL);
    return wanted->action->run(command, config, wanted);
}

static int act(const struct action *action, int argc, char **argv)
{
    struct wanted wanted = {.action = action};
    struct setup setup = {.keys_only = true};
    const struct args_option options[] = {setup_option_config(&setup), setup_option_set(&setup),
                                          json_output_option(&wanted.as_json)};
    struct args_spec spec = action->spec;
    spec.options = options;
    spec.n_options = sizeof options / sizeof *options - (action->has_json ? 0 : 1); /* the last is --json */
    spec.operand_value = &wanted.key;
    return setup_run(&spec, &setup, argc, argv, run_action, &wanted);
}

struct sums {
    uint64_t entries, bytes, damaged;
};

static void add(struct sums *sums, const hearth_kv_entry *entry)
{
    sums->entries++;
    sums->bytes += entry->bytes;
    sums->damaged += entry->damage != NULL;
}

static void print_sums(const struct sums *sums)
{
    printf("%" PRIu64 " %s, %" PRIu64 " bytes\n", sums->entries, sums->entries == 1 ? "entry" : "entries", sums->bytes);
}

/* ---- ls ---- */

static void print_entry(void *ud, const hearth_kv_entry *entry)
{
    struct sums *sums = ud;
    if (sums->entries == 0)
        printf("%-8s  %-*s  %-5s  %-9s  %8s  %8s  %12s  %6s  %-19s  %-5s  %s\n", "tier", KEY_DIGITS, "key", "kind",
               "reason", "from", "to", "bytes", "hits", "used", "quant", "model");
    add(sums, entry);
    printf("%-8s  %.*s  %-5s  %-9s  %8" PRId32 "  %8" PRId32 "  %12" PRIu64 "  %6" PRIu32, entry->tier, KEY_DIGITS,
           entry->key, entry->kind, entry->reason, entry->start, entry->end, entry->bytes, entry->hits);
    char text[32] = "";
    struct tm tm;
    const time_t seconds = (time_t)(entry->used_ms / 1000);
    if (localtime_r(&seconds, &tm)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    printf("  %-19s", text);
    printf("  %-5s  %.*s\n", entry->quant, entry->model_name[0] == '\0' ? 8 : MODEL_MOST,
           entry->model_name[0] == '\0' ? entry->model : entry->model_name);
}

static void add_json(void *ud, const hearth_kv_entry *entry)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s}", "tier", entry->tier, "key",
        entry->key, "parent", entry->parent, "kind", entry->kind, "reason", entry->reason, "start", (int)entry->start,
        "end", (int)entry->end, "bytes", (json_int_t)entry->bytes, "hits", (json_int_t)entry->hits, "created_ms",
        (json_int_t)entry->created_ms, "used_ms", (json_int_t)entry->used_ms, "quant", entry->quant, "model",
        entry->model_name, "model_digest", entry->model, "context", entry->context);
    json_array_append_new(ud, json);
}

static int run_ls(const char *command, const hearth_config *config, const struct wanted *wanted)
{
    struct sums sums = {0};
    json_t *entries = json_array();
    hearth_error error;
    const int rc = wanted->as_json ? hearth_kv_list(config, add_json, entries, &error)
                                   : hearth_kv_list(config, print_entry, &sums, &error);
    if (rc >= 0 && wanted->as_json) json_output_print(json_pack("{s:O}", "entries", entries));
    if (rc >= 0 && !wanted->as_json) print_sums(&sums);
    json_decref(entries);
    return rc < 0 ? args_fail(command, &error, EXIT_FAILED) : EXIT_FINE;
}

static int ls(int argc, char **argv)
{
    static const struct action action = {
        .spec = {.command = "hearth kv ls",
                 .about =
                     "Lists what is stored, oldest use first: the tokens of a prefix that each entry holds, from and\n"
                     "to, why it was saved, and the model: by its name, or by its digest where the name is not known\n"
                     "(models under adapters have a digest of their own). A server may be running.",
                 .examples = "  hearth kv ls\n"
                             "  hearth kv ls --config hearth.yaml\n"
                             "  hearth kv ls --set cache.tiers.disk.path=/srv/kv\n"
                             "  hearth kv ls --json\n"},
        .run = run_ls,
        .has_json = true,
    };
    return act(&action, argc, argv);
}

/* ---- show ---- */

static int run_show(const char *command, const hearth_config *config, const struct wanted *wanted)
{
    hearth_error error;
    char *text = hearth_kv_show(config, wanted->key, &error);
    if (!text) return args_fail(command, &error, error.code == HEARTH_INVALID ? EXIT_USAGE : EXIT_FAILED);
    fputs(text, stdout);
    hearth_free(text);
    return EXIT_FINE;
}

static int show(int argc, char **argv)
{
    static const struct action action = {
        .spec = {.command = "hearth kv show",
                 .about = "Prints all about one entry: what it belongs to, its tokens, the regions of its state.\n"
                          "KEY may be the first digits of a key, as ls prints them.",
                 .operand = "KEY",
                 .examples = "  hearth kv show 3f2a91c07be4d815\n"},
        .run = run_show,
    };
    return act(&action, argc, argv);
}

/* ---- verify ---- */

static void print_damage(void *ud, const hearth_kv_entry *entry)
{
    add(ud, entry);
    if (entry->damage)
        printf("%-8s  %.*s  %-5s  %s\n", entry->tier, KEY_DIGITS, entry->key, entry->kind, entry->damage);
}

static int run_verify(const char *command, const hearth_config *config, const struct wanted *wanted)
{
    (void)wanted;
    struct sums sums = {0};
    hearth_error error;
    if (hearth_kv_verify(config, print_damage, &sums, &error) < 0) return args_fail(command, &error, EXIT_FAILED);
    print_sums(&sums);
    if (sums.damaged == 0) return EXIT_FINE;
    snprintf(error.message, sizeof error.message,
             "%" PRIu64 " damaged: a server never uses them, and quarantines those that it reads; hearth kv gc "
             "removes them",
             sums.damaged);
    return args_fail(command, &error, EXIT_FAILED);
}

static int verify(int argc, char **argv)
{
    static const struct action action = {
        .spec = {.command = "hearth kv verify",
                 .about = "Reads every entry whole and checks lengths, checksums, keys and parents. Prints a line for "
                          "each that\n"
                          "is damaged; the exit status is 1 where there are some. A server may be running.",
                 .examples = "  hearth kv verify\n"
                             "  hearth kv verify --config hearth.yaml\n"},
        .run = run_verify,
    };
    return act(&action, argc, argv);
}

/* ---- gc, clear ---- */

static int run_removing(const char *command, const hearth_config *config, const struct wanted *wanted)
{
    hearth_kv_removed removed;
    hearth_error error;
    const int rc = wanted->action->drop(config, &removed, &error);
    if (rc == HEARTH_OK || removed.files > 0)
        printf("removed %" PRIu64 " %s, %" PRIu64 " bytes\n", removed.files, removed.files == 1 ? "file" : "files",
               removed.bytes);
    if (removed.kept > 0)
        printf("%" PRIu64 " %s: not readable now, or with a parent that is not, or that is of a newer version\n",
               removed.kept, removed.kept == 1 ? "entry stays" : "entries stay");
    return rc == HEARTH_OK ? EXIT_FINE : args_fail(command, &error, EXIT_FAILED);
}

static int gc(int argc, char **argv)
{
    static const struct action action = {
        .spec = {.command = "hearth kv gc",
                 .about = "Removes half-written and quarantined files, entries that verify calls damaged, and the "
                          "least recently\n"
                          "used entries of tiers beyond their quota. Reads every entry whole. What cannot be read now "
                          "stays, and\n"
                          "is counted. No server may use the folders.",
                 .examples = "  hearth kv gc\n"
                             "  hearth kv gc --set cache.tiers.disk.quota_mb=1024\n"},
        .run = run_removing,
        .drop = hearth_kv_gc,
    };
    return act(&action, argc, argv);
}

static int clear(int argc, char **argv)
{
    static const struct action action = {
        .spec = {.command = "hearth kv clear",
                 .about = "Removes all that is stored in the folders of tiers. No server may use the folders.",
                 .examples = "  hearth kv clear\n"
                             "  hearth kv clear --config hearth.yaml\n"},
        .run = run_removing,
        .drop = hearth_kv_clear,
    };
    return act(&action, argc, argv);
}

int command_kv(int argc, char **argv)
{
    static const struct command commands[] = {
        {"ls", "list what is stored", ls},       {"show", "print all about one entry", show},
        {"verify", "check every entry", verify}, {"gc", "remove damaged and surplus entries", gc},
        {"clear", "remove everything", clear},
    };
    static const struct command_group group = {
        .program = "hearth kv",
        .about = "The KV states of prompts and conversations that are stored in files.",
        .examples = "  hearth kv ls\n"
                    "  hearth kv verify --config hearth.yaml\n",
        ARGS_COMMANDS(commands),
    };
    return command_dispatch(&group, argc, argv);
}
