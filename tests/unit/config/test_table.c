/* The table, and what is generated from it: every default, the dump, the manual. */
#include "support.h"

#include "config/table.h"
#include "config/value.h"

#include <stdio.h>

static void every_default_reads_back_to_itself(void **state)
{
    (void)state;
    unsetenv("HOME"); /* "~" is then taken from the user database */
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        _Alignas(16) char first[64] = {0};
        _Alignas(16) char again[64] = {0};
        struct buf why = {0}, spelling = {0}, second = {0};
        if (!value_read_text(row, row->default_value, first, &why)) fail_msg("%s: %s", row->path, why.v);
        value_put_yaml(row, first, &spelling);
        if (!value_read_text(row, spelling.v, again, &why)) fail_msg("%s: %s", row->path, why.v);
        value_put_yaml(row, again, &second);
        assert_string_equal(spelling.v, second.v);
        if (row->type != CONFIG_NUMBER && strchr(row->default_value, '~') == NULL) {
            assert_string_equal(spelling.v, row->default_value);
        }
        value_release(row, first);
        value_release(row, again);
        buf_release(&why);
        buf_release(&spelling);
        buf_release(&second);
    }
}

static void every_row_is_found_by_its_path_and_only_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_n_rows; i++) {
        assert_ptr_equal(config_row_find(config_rows[i].path), &config_rows[i]);
        assert_false(config_is_section(config_rows[i].path));
        assert_true(config_rows[i].meaning[0] != '\0' && strchr(config_rows[i].meaning, '\n') == NULL);
    }
}

/* ---- Random configurations ---- */

static uint64_t random_state;

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

/* Words with everything that is special in YAML. */
static void put_word(struct buf *out)
{
    static const char *const parts[] = {"a",  "Z",   "9",    "null", "true", ":", ": ", " #",    "#",  "-",  "- ",
                                        "\"", "'",   "\\",   "[",    "]",    "{", "}",  ",",     "&x", "*x", "!t",
                                        "|",  ">",   "%",    "@",    "`",    "~", "/",  ".",     "é",  "語", "😀",
                                        "=",  "1e5", "0x10", "? ",   "<<",   " ", "$",  "\u00a0"};
    for (uint64_t n = 1 + random_below(6); n > 0; n--) buf_puts(out, parts[random_below(sizeof parts / sizeof *parts)]);
}

static void put_quoted_word(struct buf *out)
{
    struct buf word = {0};
    put_word(&word);
    buf_puts(out, "'");
    for (size_t i = 0; i < word.len; i++) buf_puts(out, (char[]){word.v[i], word.v[i] == '\'' ? '\'' : '\0', '\0'});
    buf_puts(out, "'");
    buf_release(&word);
}

static void put_choice(const struct config_row *row, struct buf *out)
{
    const char *choice = row->choices;
    for (uint64_t n = random_below(4); n > 0 && strchr(choice, '|') != NULL; n--) choice = strchr(choice, '|') + 1;
    buf_append(out, choice, strcspn(choice, "|"));
}

static void put_random_value(const struct config_row *row, struct buf *out)
{
    double share = (double)random_below(1000001) / 1e6;
    if (row->null_ok && random_below(4) == 0) {
        buf_puts(out, "null");
        return;
    }
    switch (row->type) {
    case CONFIG_BOOL:
        buf_puts(out, random_below(2) ? "true" : "false");
        break;
    case CONFIG_INT:
        buf_printf(out, "%.0f", row->min + (row->max - row->min) * share * share * share);
        break;
    case CONFIG_NUMBER:
    case CONFIG_SECONDS:
        buf_printf(out, "%.17g", row->min + (row->max - row->min) * share / 3);
        break;
    case CONFIG_PATH:
    case CONFIG_TEXT:
        put_quoted_word(out);
        break;
    case CONFIG_ENUM:
    case CONFIG_NAME:
        put_choice(row, out);
        break;
    case CONFIG_OBJECT:
        buf_puts(out, "{");
        for (uint64_t n = random_below(4); n > 0; n--) {
            put_quoted_word(out);
            buf_printf(out, ": [%.17g, true, null, ", share * 7);
            put_quoted_word(out);
            buf_puts(out, n > 1 ? "], " : "]");
        }
        buf_puts(out, "}");
        break;
    case CONFIG_STRINGS:
    case CONFIG_LORAS:
        buf_puts(out, "[");
        for (uint64_t n = random_below(4); n > 0; n--) {
            buf_puts(out, row->type == CONFIG_LORAS ? "{path: " : "");
            put_quoted_word(out);
            if (row->type == CONFIG_LORAS) buf_printf(out, ", scale: %.17g}", share * 7);
            buf_puts(out, n > 1 ? ", " : "");
        }
        buf_puts(out, "]");
        break;
    }
}

static void set_random(hearth_config *config, const struct config_row *row, const char *name)
{
    struct buf key = {0}, value = {0};
    const char *star = strchr(row->path, '*');
    if (star == NULL) {
        buf_puts(&key, row->path);
    } else {
        buf_printf(&key, "models.%s%s", name, star + 1);
    }
    put_random_value(row, &value);
    set(config, key.v, value.v);
    buf_release(&key);
    buf_release(&value);
}

static void put_name(struct buf *out)
{
    struct buf word = {0};
    put_word(&word);
    for (size_t i = 0; i < word.len; i++) {
        if (word.v[i] == ' ') word.v[i] = '_';
    }
    buf_printf(out, "m%s", word.v);
    buf_release(&word);
}

static hearth_config *random_config(void)
{
    hearth_config *config = hearth_config_new();
    struct buf names[2] = {{0}};
    for (size_t i = 0; i < 2; i++) put_name(&names[i]);
    for (uint64_t n = random_below(30); n > 0; n--) {
        set_random(config, &config_rows[random_below(config_n_rows)], names[random_below(2)].v);
    }
    for (size_t i = 0; i < 2; i++) buf_release(&names[i]);
    return config;
}

static void assert_same_values(const struct config_row *row, const void *a, const void *b)
{
    struct buf first = {0}, second = {0};
    value_put_yaml(row, config_field(row, a), &first);
    value_put_yaml(row, config_field(row, b), &second);
    assert_string_equal(first.v, second.v);
    buf_release(&first);
    buf_release(&second);
}

/* Derived values must stay derived after a dump is read back. */
static void assert_same_notes(const struct config_note *a, const struct config_note *b)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].derived) assert_int_equal(a[i].set, b[i].set);
    }
}

static void assert_same(const hearth_config *a, const hearth_config *b)
{
    assert_int_equal(a->n_models, b->n_models);
    assert_same_notes(a->notes, b->notes);
    for (size_t m = 0; m < a->n_models; m++) assert_same_notes(a->models[m].notes, b->models[m].notes);
    for (size_t i = 0; i < config_n_rows; i++) {
        bool in_model = config_row_in_model(&config_rows[i]);
        if (!in_model) assert_same_values(&config_rows[i], a, b);
        for (size_t m = 0; in_model && m < a->n_models; m++) {
            assert_string_equal(a->models[m].name, b->models[m].name);
            assert_same_values(&config_rows[i], &a->models[m], &b->models[m]);
        }
    }
}

static void a_dump_reads_back_to_the_same_configuration(void **state)
{
    (void)state;
    setenv("HOME", "/home/~ 'somebody", 1);
    for (uint64_t seed = 0; seed < 500; seed++) {
        random_state = seed;
        hearth_config *config = random_config();
        char *text = hearth_config_dump(config);
        hearth_config *again = loaded(text);
        assert_same(config, again);
        free(text);
        hearth_config_free(config);
        hearth_config_free(again);
    }
}

/* ---- Text for people ---- */

static void a_dump_of_nothing_shows_every_key_with_its_meaning(void **state)
{
    (void)state;
    hearth_config *config = hearth_config_new();
    char *text = hearth_config_dump(config);
    for (size_t i = 0; i < config_n_rows; i++) {
        struct buf line = {0};
        buf_printf(&line, "# %s\n", config_rows[i].meaning);
        assert_non_null(strstr(text, line.v));
        buf_clear(&line);
        buf_printf(&line, " %s: ", strrchr(config_rows[i].path, '.') + 1);
        assert_non_null(strstr(text, line.v));
        buf_release(&line);
    }
    assert_non_null(strstr(text, "  #   queue_depth: 2\n"));
    assert_non_null(strstr(text, "  #   # n_seq_max: 1\n")); /* what is not set depends on the machine */
    free(text);
    hearth_config_free(config);
}

static void the_manual_has_a_well_formed_line_for_every_key(void **state)
{
    (void)state;
    char *text = hearth_config_manual();
    size_t rows = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (line[0] != '|') continue;
        size_t bars = 0;
        for (char *c = line; c < end; c++) bars += *c == '|';
        assert_int_equal(bars, 5);
        rows += !strncmp(line, "| `", 3);
    }
    assert_int_equal(rows, config_n_rows);
    assert_non_null(strstr(text, "| `n_seq_max` | a whole number from 0 to 256 | `1` | "));
    free(text);
}

/* A line of a manual page that begins with a dot or a quote is a command. */
static void the_manual_page_has_every_key_and_no_line_that_is_taken_for_a_command(void **state)
{
    (void)state;
    static const char *const commands[] = {".TH ", ".SH ", ".PP\n", ".TP\n", ".B ",  ".BI ",
                                           ".BR ", ".I ",  ".br\n", ".nf\n", ".fi\n"};
    char *text = hearth_config_man();
    size_t keys = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        bool known = line[0] != '.' && line[0] != '\'';
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
            known = known || !strncmp(line, commands[i], strlen(commands[i]));
        if (!known) fail_msg("%.*s", (int)(end - line), line);
        keys +=
            !strncmp(line, ".B server.", 10) || !strncmp(line, ".B cache.", 9) || !strncmp(line, ".B models.NAME.", 15);
    }
    assert_int_equal(keys, config_n_rows);
    assert_non_null(strstr(text, ".B models.NAME.n_seq_spare\n\\&Conversations that stay"));
    assert_non_null(strstr(text, "(a whole number from \\-1 to 254; default \\-1)\n"));
    assert_non_null(strstr(text, "PATH.sha256"));
    free(text);
}

static void names_of_other_servers_map_to_known_keys(void **state)
{
    (void)state;
    static const char *const names[] = {"host",
                                        "api_key",
                                        "slot_save_path",
                                        "cache_ram",
                                        "alias",
                                        "ngl",
                                        "fa",
                                        "ctk",
                                        "cache_reuse",
                                        "chat_template",
                                        "embeddings",
                                        "reranking",
                                        "sleep_idle_seconds",
                                        "temp",
                                        "typical",
                                        "num_thread",
                                        "max_queue",
                                        "kv_cache_type",
                                        "OLLAMA_MAX_LOADED_MODELS",
                                        "verbose",
                                        "ssl_key_file",
                                        "ssl_cert_file",
                                        "batch_size",
                                        "ubatch_size",
                                        "sm",
                                        "t"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *key = foreign_key(names[i], strlen(names[i]));
        if (key == NULL || config_row_find(key) == NULL) fail_msg("%s leads to %s", names[i], key);
    }
    assert_null(foreign_key("n_seq_max", 9));
    assert_null(foreign_key("ollama_", 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_reads_back_to_itself),
        cmocka_unit_test(every_row_is_found_by_its_path_and_only_once),
        cmocka_unit_test(a_dump_reads_back_to_the_same_configuration),
        cmocka_unit_test(a_dump_of_nothing_shows_every_key_with_its_meaning),
        cmocka_unit_test(names_of_other_servers_map_to_known_keys),
        cmocka_unit_test(the_manual_has_a_well_formed_line_for_every_key),
        cmocka_unit_test(the_manual_page_has_every_key_and_no_line_that_is_taken_for_a_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
