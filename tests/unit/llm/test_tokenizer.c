/* Long texts are tokenised in chunks: with every vocabulary that llama.cpp ships the tokens are those of the whole
 * text, and texts without split points are recognised. */
#include "support.h"

#include "llm/model_struct.h"
#include "llm/tokenizer.h"

#include <dirent.h>

/* ---- Random text ---- */

static uint32_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % below;
}

static const char *const scraps[] = {
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    "a",
    "The",
    "word",
    "Don't",
    "I'll",
    "x1",
    "12345",
    "1,0",
    ".",
    "...",
    "!?",
    "();",
    "<tag>",
    "</s>",
    "<|im_end|>",
    "<s>",
    "=== ",
    "\xc3\xa4",
    "\xc3\xa9t\xc3\xa9",
    "\xe4\xb8\xad\xe6\x96\x87",
    "\xe3\x80\x82",
    "\xf0\x9f\x98\x80",
    "\xe2\x96\x81",
    "\xc2\xa0",
    "http://x.y/z",
    "_",
    "__init__",
    "\xd0\x9f\xd1\x80\xd0\xb8",
    " a b c ",
    "\n  if (x) {\n",
    "}\n",
    "e.g. ",
    "A B",
    "q ",
    "[INST]",
    "user",
};

static void fill(struct buf *text, size_t len)
{
    while (text->len < len) {
        buf_puts(text, scraps[draw(sizeof scraps / sizeof *scraps)]);
        if (draw(3) == 0) buf_puts(text, draw(8) == 0 ? "\n" : " ");
    }
}

/* ---- Vocabularies ---- */

static void compare(const struct llm_model *model, const struct buf *text, bool add_special, bool parse_special)
{
    struct tokens whole = {0}, slices = {0};
    struct llm_tokenizer_input in = {text->v, text->len, add_special, parse_special};
    llm_tokenize_whole(model, &in, &whole);
    llm_tokenize(model, text->v, text->len, add_special, parse_special, &slices);
    assert_int_equal(slices.len, whole.len);
    assert_memory_equal(slices.v, whole.v, whole.len * sizeof *whole.v);
    tokens_release(&whole);
    tokens_release(&slices);
}

/* At every split point, not only where its length demands it. */
static size_t compare_at_every_cut(const struct llm_model *model, const struct buf *text, bool parse_special)
{
    struct tokens whole = {0}, slices = {0};
    size_t n = 0;
    llm_tokenize_whole(model,
                       &(struct llm_tokenizer_input){.text = text->v, .len = text->len, .parse_special = parse_special},
                       &whole);
    for (size_t from = 0; from < text->len; n++) {
        struct llm_split cut = llm_next_split(model->splitter, text->v, text->len, from);
        llm_tokenize_whole(model,
                           &(struct llm_tokenizer_input){
                               .text = text->v + from, .len = cut.end - from, .parse_special = parse_special},
                           &slices);
        from = cut.next;
    }
    size_t same = tokens_common_prefix(&whole, &slices);
    if (same < whole.len || same < slices.len) {
        struct buf until = {0};
        for (size_t i = 0; i <= same && i < whole.len; i++) llm_token_bytes(model, whole.v[i], true, &until);
        fail_msg("%zu tokens of the whole, %zu of %zu parts, which differ in '%s'", whole.len, slices.len, n,
                 until.v + (until.len < 40 ? 0 : until.len - 40));
    }
    tokens_release(&whole);
    tokens_release(&slices);
    return n - 1;
}

/* Texts of characters that patterns match in runs, since some recurse: as long as allowed. */
static void tokenise_runs(const struct llm_model *model)
{
    static const char *const characters[] = {"a", "A", "1", " ", "\n", ".", "\xc3\xa4", "\xe4\xb8\xad"};
    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        struct buf text = {0};
        struct tokens tokens = {0};
        hearth_error error;
        while (text.len < 50000) buf_puts(&text, characters[i]);
        if (llm_check_text(model, text.v, text.len, &error) != HEARTH_OK) text.len = 30000;
        assert_int_equal(llm_check_text(model, text.v, text.len, &error), HEARTH_OK);
        llm_tokenize(model, text.v, text.len, false, false, &tokens);
        assert_true(tokens.len > 0 || strchr(" \n", characters[i][0]) != NULL); /* some vocabularies leave blanks out */
        tokens_release(&tokens);
        buf_release(&text);
    }
}

static struct llm_model *open_vocabulary(const char *path)
{
    hearth_error error;
    struct llm_model *model = llm_model_open(&(struct llm_model_params){.path = path, .split_mode = "layer"}, &error);
    if (model == NULL) fail_msg("%s", error.message);
    return model;
}

static size_t check_vocabulary(const char *path)
{
    struct llm_model *model = open_vocabulary(path);
    size_t cuts = 0;
    for (int i = 0; i < 200; i++) {
        struct buf text = {0};
        fill(&text, 300);
        cuts += compare_at_every_cut(model, &text, i % 2 == 0);
        buf_release(&text);
    }
    struct buf text = {0};
    fill(&text, 140 << 10); /* some thirty chunks */
    compare(model, &text, true, true);
    compare(model, &text, false, false);
    buf_release(&text);
    tokenise_runs(model);
    llm_model_close(model);
    return cuts;
}

/* The vocabulary files have no weights: mkmodel adds tiny ones. */
static void chunks_have_the_tokens_of_the_whole(void **state)
{
    (void)state;
    char *folder = folder_open(), *list = mem_format("%s/source/models", env("HEARTH_LLAMA"));
    DIR *dir = opendir(list);
    size_t n = 0, cut = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name, *end = strrchr(name, '.');
        if (strncmp(name, "ggml-vocab-", 11) != 0 || strcmp(end, ".gguf") != 0) continue;
        char *path = mem_format("%s/model.gguf", folder);
        char *command =
            mem_format("'%s/bin/hearth-mkmodel' --arch llama --vocab '%s/%s' --layers 1 --embd 32 --heads 1 "
                       "--kv-heads 1 --ff 32 -o '%s' >/dev/null",
                       env("HEARTH_BUILD"), list, name, path);
        run(command);
        print_message("%s\n", name);
        size_t cuts = check_vocabulary(path);
        print_message("%zu cuts\n", cuts);
        n++;
        cut += cuts > 0;
        free(command);
        free(path);
    }
    closedir(dir);
    assert_true(n >= 15);
    assert_true(cut >= 10);
    free(list);
    folder_remove(folder);
}

static void a_text_without_split_points_is_refused_by_its_length(void **state)
{
    (void)state;
    char *path = demo_path();
    struct llm_model *model = open_vocabulary(path);
    struct buf text = {0};
    hearth_error error;
    while (text.len < LLM_UNSPLITTABLE_MAX) buf_puts(&text, "word.wo\n\n");
    assert_int_equal(llm_check_text(model, text.v, text.len, &error), HEARTH_TOO_LONG);
    assert_non_null(strstr(error.message, "without a single blank between two words"));
    text.len = LLM_UNSPLITTABLE_MAX;
    assert_int_equal(llm_check_text(model, text.v, text.len, &error), HEARTH_OK);
    for (int i = 0; i < 10; i++) buf_puts(&text, "more and more");
    assert_int_equal(llm_check_text(model, text.v + 4000, text.len - 4000, &error), HEARTH_OK);
    assert_int_equal(llm_check_text(model, "", 0, &error), HEARTH_OK);
    assert_true(llm_longest_token(model) > 3 && llm_longest_token(model) < 1000);
    buf_release(&text);
    llm_model_close(model);
    free(path);
}

static void tokenising_stops_between_two_chunks(void **state)
{
    (void)state;
    char *path = demo_path();
    struct llm_model *model = open_vocabulary(path);
    struct buf text = {0};
    struct tokens tokens = {0};
    atomic_bool stop = true;
    const struct llm_tokenising how = {.stop = &stop};
    while (text.len < 300 << 10) buf_puts(&text, "some words ");
    llm_tokenize_until(model, &(struct llm_tokenizer_input){.text = text.v, .len = text.len}, &how, &tokens);
    assert_int_equal(tokens.len, 0);
    atomic_store(&stop, false);
    llm_tokenize_until(model, &(struct llm_tokenizer_input){.text = text.v, .len = text.len}, &how, &tokens);
    assert_true(tokens.len > 1000);
    tokens_release(&tokens);
    buf_release(&text);
    llm_model_close(model);
    free(path);
}

int main(void)
{
    llm_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_have_the_tokens_of_the_whole),
        cmocka_unit_test(a_text_without_split_points_is_refused_by_its_length),
        cmocka_unit_test(tokenising_stops_between_two_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
