/* Caching of chats through hearth.h, with real templates and tokenizers: every mode, every kind of model, templates
 * whose text changes from turn to turn. */
#include "support.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- Conversations ---- */

#define CALLERS_MAX 16

struct session {
    hearth *instance;
    struct caller callers[CALLERS_MAX];
    size_t n;
};

static struct session session_open(hearth_config *config)
{
    return (struct session){.instance = start(config)};
}

static void session_close(struct session *s)
{
    end(s->instance, s->callers, s->n);
}

static struct caller *ask(struct session *s, const char *messages, int32_t max_tokens)
{
    struct caller *caller = &s->callers[s->n++];
    hearth_params params = greedy(max_tokens);
    params.messages = json_of(messages);
    run(caller, s->instance, &params);
    if (caller->failed) fail_msg("%s", caller->error.message);
    return caller;
}

static int32_t length_of(const struct caller *caller)
{
    return caller->result.cache_n + caller->result.prompt_n;
}

/* Tokens of a text in which the template's special tokens count as such. */
static int32_t tokens_of(struct session *s, const char *text)
{
    int32_t *tokens = NULL;
    int32_t n = hearth_tokenize(s->instance, NULL, text, strlen(text), true, true, &tokens, NULL);
    assert_true(n > 0);
    free(tokens);
    return n;
}

/* hearth_slots() reports the slots as they were after the last tick. */
static void await_idle(struct session *s, hearth_slot *slots, size_t max)
{
    bool idle = false;
    while (!idle) {
        size_t n = hearth_slots(s->instance, slots, max);
        idle = true;
        for (size_t i = 0; i < n; i++) idle = idle && slots[i].state == HEARTH_SLOT_IDLE;
    }
}

#define RULES                                                                                                          \
    "You are a careful assistant in a small shop. You answer every question in one short sentence, you never make up " \
    "a price, and you always stay friendly, also where somebody is not. If you do not know something, say so."

#define FIRST  SYSTEM(RULES) "," USER("Who are you?")
#define SECOND FIRST "," ASSISTANT("I am the assistant of this shop.") "," USER("What do you sell?")
#define THIRD  SECOND "," ASSISTANT("I sell tea and cups.") "," USER("Do you sell shoes?")

/* ---- Turns ---- */

/* 2, 4 and 6 messages: all but the last are cached, and computed once. */
static void each_turn_computes_its_new_messages(void **state)
{
    (void)state;
    struct session s = session_open(DEMO("cache_min_tokens", "0", "n_seq_max", "2"));
    static const char *const turns[] = {"[" FIRST "]", "[" SECOND "]", "[" THIRD "]"};
    int32_t before = 0;
    for (int32_t i = 0; i < 3; i++) {
        hearth_slot slots[2];
        struct caller *caller = ask(&s, turns[i], 1);
        /* The slot has the last prompt, and with a reply of one token nothing else. */
        assert_in_range(caller->result.cache_n, before, i == 0 ? 0 : before + 1);
        before = length_of(caller);
        await_idle(&s, slots, 2);
        assert_int_equal(slots[caller->result.slot].cached_messages, 2 * i + 1);
        assert_int_equal(slots[1 - caller->result.slot].cached_messages, 0);
        assert_int_equal(strlen(slots[caller->result.slot].hash), 16);
    }
    session_close(&s);
}

static void a_short_conversation_is_not_reused(void **state)
{
    (void)state;
    struct session s = session_open(DEMO("cache_min_tokens", "100"));
    ask(&s, "[" USER("Hello.") "]", 2);
    assert_int_equal(ask(&s, "[" USER("Hello.") "]", 2)->result.cache_n, 0);
    session_close(&s);
}

/* ---- System prompts ---- */

static void of_a_chat_only_a_system_message_at_its_beginning_is_kept(void **state)
{
    (void)state;
    struct session s = session_open(DEMO("system_prompt_cache", "true", "cache_min_tokens", "0"));
    int32_t system = tokens_of(&s, "<|im_start|>system\n" RULES "<|im_end|>\n");
    assert_int_equal(ask(&s, "[" FIRST "]", 2)->result.cache_n, 0);
    assert_int_equal(ask(&s, "[" SECOND "]", 2)->result.cache_n, system);
    assert_int_equal(ask(&s, "[" FIRST "]", 2)->result.cache_n, system);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ask(&s, "[" USER(RULES) "," ASSISTANT("Yes.") "," USER("Who?") "]", 2)->result.cache_n, 0);
    session_close(&s);
}

/* The first is generating its reply when the others are submitted, and none ends before all have been seen. */
static void eight_at_once_share_a_system_prompt_in_quantised_cells(void **state)
{
    (void)state;
    enum { N = 8 };
    struct session s = session_open(DEMO("system_prompt_cache", "true", "cache_min_tokens", "0", "n_seq_max", "8",
                                         "cache_type_k", "q8_0", "cache_type_v", "q8_0"));
    int32_t system = tokens_of(&s, "<|im_start|>system\nThe secret code is QX7B2.<|im_end|>\n");
    hearth_params params = chat_params(CODE_QUESTION);
    params.sampling.ignore_eos = true;
    for (int i = 0; i < N; i++) {
        caller_init(&s.callers[i]);
        caller_submit(&s.callers[i], s.instance, &params);
        if (i == 0) caller_await_tokens(&s.callers[i], 1);
    }
    s.n = N;
    for (int i = 0; i < N; i++) caller_await_tokens(&s.callers[i], 16);
    for (int i = 0; i < N; i++) {
        assert_false(caller_ended(&s.callers[i]));
        assert_int_equal(s.callers[i].first.cache_n, i == 0 ? 0 : system);
        for (int k = 0; k < i; k++) assert_int_not_equal(s.callers[i].first.slot, s.callers[k].first.slot);
    }
    for (int i = 0; i < N; i++) hearth_cancel(s.callers[i].request);
    for (int i = 0; i < N; i++) {
        caller_await_end(&s.callers[i]);
        assert_says(s.callers[i].text.v, "QX7B2");
    }
    session_close(&s);
}

/* ---- Memory ---- */

static double figure(const char *report, const char *name)
{
    const char *at = strstr(report, "allocated");
    assert_non_null(at);
    at = strstr(at, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

static void no_mode_takes_more_cells_than_another(void **state)
{
    (void)state;
    static const char *const modes[][2] = {{"false", "false"}, {"true", "false"}, {"false", "true"}};
    double cells[3];
    for (size_t i = 0; i < 3; i++) {
        hearth_error error;
        hearth_config *config = DEMO("n_seq_max", "4", "context_window", "2048", "system_prompt_cache", modes[i][0],
                                     "incremental_cache", modes[i][1]);
        char *report = hearth_memory_report(config, "demo", &error);
        assert_non_null(report);
        cells[i] = figure(report, "cells");
        assert_true(cells[i] > 0);
        assert_true(cells[i] == cells[0]);
        hearth_free(report);
        hearth_config_free(config);
    }
}

/* ---- Kinds of models, kinds of templates ---- */

struct kind {
    const char *arch;
    bool cuts_anywhere;
};

static const struct kind kinds[] = {{"qwen3", true}, {"qwen3moe", true}, {"qwen35", false}};

/* As the demo model's, but the number of messages comes after the first one: equal messages, other tokens. */
static const char counting[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- if loop.first -%}{{- messages | length | string + ' so far\\n' -}}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

/* No special tokens, no roles, no generation prompt of its own. */
static const char plain[] = "{%- for m in messages -%}{{- m.role + ': ' + m.content + '\\n' -}}{%- endfor -%}";

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = mem_format("%s/unit-lib-caching-XXXXXX", getenv("HEARTH_BUILD"));
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    int rc = system(command);
    free(command);
    free(folder);
    return rc;
}

static char *template_file(const char *source)
{
    char *path = mem_format("%s/template.jinja", folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(source, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static char *model_file(const char *arch)
{
    char *path = mem_format("%s/%s.gguf", folder, arch);
    if (access(path, R_OK) == 0) return path;
    char *command = mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s/models/demo.gguf' --head-dim 32 "
                               "--template '%s/template.jinja' -o '%s' >/dev/null",
                               getenv("HEARTH_BUILD"), arch, getenv("HEARTH_SOURCE"), folder, path);
    assert_int_equal(system(command), 0);
    free(command);
    return path;
}

/* "key", "value", …, NULL: of a model with a template of its own. */
static hearth_config *config_of(const struct kind *kind, const char *template_source, const char *const *more)
{
    hearth_config *config = hearth_config_new();
    set(config, "cache.tiers.disk.quota_mb", "0");
    char *jinja = template_file(template_source), *path = model_file(kind->arch);
    set(config, "models.m.path", path);
    set(config, "models.m.jinja_file", jinja);
    set(config, "models.m.threads", "1");
    set(config, "models.m.context_window", "1024");
    set(config, "models.m.cache_min_tokens", "10");
    for (; *more != NULL; more += 2) {
        char *key = mem_format("models.m.%s", more[0]);
        set(config, key, more[1]);
        free(key);
    }
    free(jinja);
    free(path);
    return config;
}

#define OF(kind, source, ...) config_of(kind, source, (const char *const[]){__VA_ARGS__, NULL})

static const char chatml[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static void assert_turns_go_on(struct session *s, const struct kind *kind, bool same_tokens)
{
    int32_t system = tokens_of(s, "<|im_start|>system\n" RULES "<|im_end|>\n");
    int32_t cue = tokens_of(s, "<|im_start|>assistant\n");
    int32_t first = length_of(ask(s, "[" FIRST "]", 3));
    struct caller *second = ask(s, "[" SECOND "]", 3), *third = ask(s, "[" THIRD "]", 3);
    if (!same_tokens) {
        assert_in_range(second->result.cache_n, system, system + 1);
        assert_in_range(third->result.cache_n, system, system + 1);
    } else if (kind->cuts_anywhere) {
        assert_in_range(second->result.cache_n, first, first + 3);
        assert_true(third->result.cache_n >= length_of(second));
    } else {
        assert_int_equal(second->result.cache_n, first - cue); /* messages end before the generation prompt */
        assert_int_equal(third->result.cache_n, length_of(second) - cue);
    }
}

static void every_kind_of_model_reuses_conversations_with_every_kind_of_template(void **state)
{
    (void)state;
    static const char *const layouts[] = {"true", "false"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int i = 0; i < 4; i++) {
            bool same_tokens = i < 2;
            const char *source = same_tokens ? chatml : counting;
            struct session s = session_open(OF(&kinds[k], source, "kv_unified", layouts[i % 2]));
            assert_turns_go_on(&s, &kinds[k], same_tokens);
            session_close(&s);
        }
    }
}

static void every_kind_of_model_keeps_system_prompts_with_every_kind_of_template(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int i = 0; i < 2; i++) {
            struct session s = session_open(OF(&kinds[k], i == 0 ? chatml : counting, "system_prompt_cache", "true"));
            int32_t system = tokens_of(&s, "<|im_start|>system\n" RULES "<|im_end|>\n");
            assert_int_equal(ask(&s, "[" FIRST "]", 3)->result.cache_n, 0);
            assert_in_range(ask(&s, "[" SECOND "]", 3)->result.cache_n, system, system + (i == 0 ? 0 : 1));
            assert_in_range(ask(&s, "[" FIRST "]", 3)->result.cache_n, system, system + (i == 0 ? 0 : 1));
            session_close(&s);
        }
    }
}

static void a_template_without_special_tokens_will_do(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct session s = session_open(OF(&kinds[0], plain, "system_prompt_cache", i == 0 ? "false" : "true",
                                           "incremental_cache", i == 0 ? "true" : "false"));
        struct caller *first = ask(&s, "[" FIRST "]", 3), *second = ask(&s, "[" SECOND "]", 3);
        int32_t rules = tokens_of(&s, "system: " RULES);
        if (i == 0)
            assert_true(second->result.cache_n >= length_of(first) - 1);
        else
            assert_in_range(second->result.cache_n, rules, rules + 2);
        session_close(&s);
    }
}

static int times_advised(const char *log, const char *fields)
{
    char line[4096];
    int n = 0;
    char *expected = mem_format(" warn  model: hybrid models are best kept in f16 cells model=m %s\n", fields);
    FILE *file = fopen(log, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) n += strstr(line, expected) != NULL;
    fclose(file);
    free(expected);
    return n;
}

static double cells_of(hearth_config *config)
{
    hearth_error error;
    char *report = hearth_memory_report(config, "m", &error);
    assert_non_null(report);
    double cells = figure(report, "cells");
    hearth_free(report);
    hearth_config_free(config);
    return cells;
}

/* Older servers forced f16 cells without flash attention on hybrids: here one log line recommends them. */
static void a_hybrid_takes_quantised_cells_and_flash_attention(void **state)
{
    (void)state;
    static const struct {
        const struct kind *kind;
        const char *type_k, *type_v, *unified;
        bool advised;
    } models[] = {{&kinds[2], "q8_0", "q8_0", "true", true},    {&kinds[2], "q8_0", "f16", "false", true},
                  {&kinds[2], "f16", "iq4_nl", "true", true},   {&kinds[2], "bf16", "auto", "true", false},
                  {&kinds[0], "q8_0", "iq4_nl", "true", false}, {&kinds[2], "f16", "f16", "false", false}};
    double small = cells_of(OF(&kinds[2], chatml, "cache_type_k", "q8_0", "cache_type_v", "q8_0"));
    assert_true(small <
                cells_of(OF(&kinds[2], chatml, "cache_type_k", "f16", "cache_type_v", "f16"))); /* as asked for */
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        hearth_error error;
        char *log = mem_format("%s/log", folder);
        char *fields = mem_format("cache_type_k=%s cache_type_v=%s", models[i].type_k, models[i].type_v);
        assert_int_equal(hearth_log_open(log, "warn", "text", &error), HEARTH_OK);
        struct session s = session_open(OF(models[i].kind, chatml, "cache_type_k", models[i].type_k, "cache_type_v",
                                           models[i].type_v, "flash_attention", "on", "kv_unified", models[i].unified));
        assert_turns_go_on(&s, models[i].kind, true);
        session_close(&s);
        assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);
        assert_int_equal(times_advised(log, fields), models[i].advised);
        assert_int_equal(unlink(log), 0);
        free(fields);
        free(log);
    }
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_turn_computes_its_new_messages),
        cmocka_unit_test(a_short_conversation_is_not_reused),
        cmocka_unit_test(of_a_chat_only_a_system_message_at_its_beginning_is_kept),
        cmocka_unit_test(eight_at_once_share_a_system_prompt_in_quantised_cells),
        cmocka_unit_test(no_mode_takes_more_cells_than_another),
        cmocka_unit_test(every_kind_of_model_reuses_conversations_with_every_kind_of_template),
        cmocka_unit_test(every_kind_of_model_keeps_system_prompts_with_every_kind_of_template),
        cmocka_unit_test(a_template_without_special_tokens_will_do),
        cmocka_unit_test(a_hybrid_takes_quantised_cells_and_flash_attention),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
