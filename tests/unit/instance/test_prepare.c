/* Preparing chats (instance/requests/prepare.h): the tokens of the prompt, and where in it messages end. The
 * vocabularies are the demo model's and one of llama.cpp's that adds BOS. */
#include "support.h"

#include "instance/requests/prepare.h"
#include "llm/tokenizer_cache.h"

#define TURNS                                                                                                          \
    "[" SYSTEM("Be brief.") "," USER("Who are you?") "," ASSISTANT("A program.") "," USER("What is 2 + 2?") "]"

#define CHATML                                                                                                         \
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"     \
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"

static const struct prepare_wishes everything = {.checkpoints = true};

/* ---- Preparing ---- */

struct fixture {
    struct llm_model *weights;
    struct chat_template *template_;
};

/* Takes ownership of the path. */
static struct llm_model *open_vocabulary(char *path)
{
    hearth_error error;
    struct llm_model_params params = {.path = path, .split_mode = "layer"};
    llm_init();
    struct llm_model *weights = llm_model_open(&params, &error);
    if (weights == NULL) fail_msg("%s", error.message);
    free(path);
    return weights;
}

/* Without a source: the vocabulary's own template. */
static struct fixture with_template(struct llm_model *weights, const char *source)
{
    hearth_error error;
    const struct llm_model_info *info = llm_model_info(weights);
    struct chat_template_params params = {.source = source != NULL ? source : info->chat_template,
                                          .bos = info->bos_text,
                                          .eos = info->eos_text,
                                          .adds_bos = info->adds_bos,
                                          .adds_eos = info->adds_eos};
    struct fixture f = {.weights = weights, .template_ = chat_template_open(&params, &error)};
    if (f.template_ == NULL) fail_msg("%s", error.message);
    return f;
}

static struct fixture opened(char *vocabulary, const char *source)
{
    return with_template(open_vocabulary(vocabulary), source);
}

static struct fixture demo(const char *source)
{
    return opened(source_path("models/demo.gguf"), source);
}

static void close_fixture(struct fixture *f)
{
    chat_template_close(f->template_);
    llm_model_close(f->weights);
}

static struct prepare_chat chat_of(const struct fixture *f, const char *messages)
{
    static const atomic_bool never = false;
    return (struct prepare_chat){.weights = f->weights,
                                 .template_ = f->template_,
                                 .how = {.stop = &never},
                                 .request = {.messages = tree_of(messages),
                                             .parallel_tool_calls = -1,
                                             .add_generation_prompt = true,
                                             .now = 1772352000}};
}

static struct job prepared(const struct fixture *f, const char *messages, const struct prepare_wishes *wishes)
{
    struct prepare_chat chat = chat_of(f, messages);
    struct job job = {.n_checkpoints = 0};
    hearth_error error;
    if (prepare_prompt(&chat, &job.prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    prepare_conversation(&chat, wishes, &job);
    prepare_release(&chat);
    return job;
}

static void release(struct job *job)
{
    tokens_release(&job->prompt);
    free(job->conversation.hashes);
}

/* ---- Looking at tokens ---- */

static void assert_text(const struct fixture *f, const struct job *job, int32_t from, int32_t to, const char *expected)
{
    struct buf text = {0};
    for (int32_t i = from; i < to; i++) llm_token_bytes(f->weights, job->prompt.v[i], true, &text);
    assert_string_equal(text.v != NULL ? text.v : "", expected);
    buf_release(&text);
}

static int32_t only_token(const struct fixture *f, const char *text)
{
    struct tokens tokens = {0};
    llm_tokenize(f->weights, text, strlen(text), false, true, &tokens);
    assert_int_equal(tokens.len, 1);
    int32_t token = tokens.v[0];
    tokens_release(&tokens);
    return token;
}

static size_t count(const struct job *job, int32_t token, int32_t to)
{
    size_t n = 0;
    for (int32_t i = 0; i < to; i++) n += job->prompt.v[i] == token;
    return n;
}

/* ---- Ends ---- */

#define SYSTEM_TEXT "<|im_start|>system\nBe brief.<|im_end|>\n"
#define MIDDLE_TEXT "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\nA program.<|im_end|>\n"
#define LAST_TEXT   "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
#define CUE         "<|im_start|>assistant\n"

static void messages_end_where_their_text_ends_and_never_after_the_generation_prompt(void **state)
{
    (void)state;
    struct fixture f = demo(NULL);
    struct job job = prepared(&f, TURNS, &everything);
    const struct conversation *c = &job.conversation;
    assert_int_equal(c->n_messages, 4);
    assert_text(&f, &job, 0, c->system_end, SYSTEM_TEXT);
    assert_text(&f, &job, c->system_end, c->stable_end, MIDDLE_TEXT);
    assert_int_equal(job.n_checkpoints, 3);
    assert_int_equal(job.checkpoints[0], c->system_end);
    assert_int_equal(job.checkpoints[1], c->stable_end);
    assert_text(&f, &job, job.checkpoints[1], job.checkpoints[2], LAST_TEXT);
    assert_text(&f, &job, job.checkpoints[2], (int32_t)job.prompt.len, CUE);
    release(&job);
    close_fixture(&f);
}

/* C78: were they not, every message would end inside of one. */
static void special_tokens_of_the_template_are_one_token_each(void **state)
{
    (void)state;
    struct fixture f = demo(NULL);
    struct job job = prepared(&f, TURNS, &everything);
    int32_t start = only_token(&f, "<|im_start|>"), stop = only_token(&f, "<|im_end|>");
    int32_t whole = (int32_t)job.prompt.len;
    assert_int_equal(count(&job, start, whole), 5);
    assert_int_equal(count(&job, stop, whole), 4);
    assert_int_equal(count(&job, start, job.conversation.stable_end), 3);
    assert_int_equal(count(&job, stop, job.conversation.stable_end), 3);
    assert_int_equal(job.prompt.v[job.conversation.system_end], start);
    assert_int_equal(job.prompt.v[job.conversation.stable_end], start);
    release(&job);
    close_fixture(&f);
}

static void ends_hold_where_a_message_spells_a_special_token(void **state)
{
    (void)state;
    struct fixture f = demo(NULL);
    struct job job = prepared(
        &f, "[" SYSTEM("Say <|im_end|>.") "," USER("a") "," ASSISTANT("<|im_start|>") "," USER("b") "]", &everything);
    assert_text(&f, &job, 0, job.conversation.system_end, "<|im_start|>system\nSay <|im_end|>.<|im_end|>\n");
    assert_int_equal(count(&job, only_token(&f, "<|im_end|>"), job.conversation.system_end), 1);
    assert_text(&f, &job, job.conversation.system_end, job.conversation.stable_end,
                "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<|im_start|><|im_end|>\n");
    release(&job);
    close_fixture(&f);
}

static char *file_text(const char *path)
{
    char *whole = mem_format("%s/source/models/%s", getenv("HEARTH_LLAMA"), path), chunk[4096];
    struct buf text = {0};
    FILE *file = fopen(whole, "rbe");
    assert_non_null(file);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) buf_append(&text, chunk, n);
    fclose(file);
    free(whole);
    return buf_take(&text);
}

static void assert_one_begin_token(const struct fixture *f, const char *messages)
{
    struct job job = prepared(f, messages, &everything);
    const struct conversation *c = &job.conversation;
    int32_t begin = only_token(f, "<|begin_of_text|>"), header = only_token(f, "<|start_header_id|>");
    assert_int_equal(job.prompt.v[0], begin);
    assert_int_equal(count(&job, begin, (int32_t)job.prompt.len), 1);
    assert_true(0 < c->system_end && c->system_end < c->stable_end && c->stable_end < (int32_t)job.prompt.len);
    assert_int_equal(job.prompt.v[c->system_end], header);
    assert_int_equal(job.prompt.v[c->stable_end], header);
    assert_int_equal(count(&job, header, c->system_end), 1);
    assert_int_equal(count(&job, header, c->stable_end), 3);
    release(&job);
}

/* The template writes BOS and tokenising would add one too, be it as a whole or part by part. */
static void there_is_one_bos_and_no_second(void **state)
{
    (void)state;
    char *source = file_text("templates/meta-llama-Llama-3.1-8B-Instruct.jinja");
    struct fixture f = opened(mem_format("%s/source/models/ggml-vocab-llama-bpe.gguf", getenv("HEARTH_LLAMA")), source);
    assert_true(llm_model_info(f.weights)->adds_bos);
    assert_one_begin_token(&f, TURNS);
    assert_one_begin_token(
        &f, "[" SYSTEM("Say <|eot_id|>.") "," USER("<|begin_of_text|>") "," ASSISTANT("<|eot_id|>") "," USER("b") "]");
    close_fixture(&f);
    free(source);
}

/* Most of its text precedes the last message, as in a long conversation. */
#define LONG_TURNS                                                                                                      \
    "[" SYSTEM("Be brief.") "," USER("Tell me about yourself, where you come from and what you can do.") "," ASSISTANT( \
        "I am a program. I was trained on text and I can go on with yours, which is all I do.") "," USER("Go on.") "]"

/* Tokenises the whole beginning of a conversation, which the code under test avoids where it can. */
static int32_t end_by_brute_force(const struct fixture *f, const struct job *job, size_t n_messages)
{
    struct chat_request request = {
        .messages = tree_of(LONG_TURNS), .n_messages = n_messages, .now = chat_of(f, LONG_TURNS).request.now};
    struct chat_prompt text;
    struct tokens tokens = {0};
    if (chat_render_parts(f->template_, &request, &text, NULL) != HEARTH_OK) return 0;
    llm_tokenize(f->weights, text.text, text.len, true, true, &tokens);
    int32_t end = (int32_t)tokens_common_prefix(&tokens, &job->prompt);
    tokens_release(&tokens);
    chat_prompt_release(&text);
    return end;
}

static void assert_ends_of(struct llm_model *weights, const char *name)
{
    char *path = mem_format("templates/%s", name), *source = file_text(path);
    struct fixture f = with_template(weights, source);
    struct job job = prepared(&f, LONG_TURNS, &everything);
    int32_t system_end = end_by_brute_force(&f, &job, 1), stable_end = end_by_brute_force(&f, &job, 3);
    if (job.conversation.system_end != system_end || job.conversation.stable_end != stable_end)
        fail_msg("%s: %d and %d, not %d and %d", name, job.conversation.system_end, job.conversation.stable_end,
                 system_end, stable_end);
    release(&job);
    chat_template_close(f.template_);
    free(path);
    free(source);
}

static void ends_are_right_for_templates_and_vocabularies_of_all_kinds(void **state)
{
    (void)state;
    static const char *const vocabularies[] = {"qwen2", "llama-spm", "phi-3"};
    static const char *const templates[] = {
        "Qwen-Qwen3-0.6B.jinja",      "Qwen3.5-4B.jinja",
        "openai-gpt-oss-120b.jinja",  "microsoft-Phi-3.5-mini-instruct.jinja",
        "llama-cpp-rwkv-world.jinja", "mistralai-Mistral-Nemo-Instruct-2407.jinja",
        "google-gemma-2-2b-it.jinja", "deepseek-ai-DeepSeek-V3.1.jinja",
    };
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        struct llm_model *weights =
            open_vocabulary(mem_format("%s/source/models/ggml-vocab-%s.gguf", getenv("HEARTH_LLAMA"), vocabularies[i]));
        for (size_t k = 0; k < sizeof templates / sizeof *templates; k++) assert_ends_of(weights, templates[k]);
        llm_model_close(weights);
    }
}

/* ---- Wishes ---- */

static void only_what_is_wished_for_is_found_out(void **state)
{
    (void)state;
    static const struct {
        struct prepare_wishes wishes;
        bool identity, system_end, stable_end;
        size_t n_checkpoints;
    } cases[] = {
        {{.checkpoints = false}, false, false, false, 0},
        {{.system_end = true}, true, true, false, 0},
        {{.stable_end = true}, true, false, true, 0},
        {{.checkpoints = true}, true, true, true, 3},
        {{.checkpoints = true, .stable_end = true, .system_end = true}, true, true, true, 3},
    };
    struct fixture f = demo(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = prepared(&f, TURNS, &cases[i].wishes);
        assert_int_equal(job.conversation.n_messages, cases[i].identity ? 4 : 0);
        assert_int_equal(job.conversation.hashes != NULL, cases[i].identity);
        assert_int_equal(job.conversation.system_end > 0, cases[i].system_end);
        assert_int_equal(job.conversation.stable_end > 0, cases[i].stable_end);
        assert_int_equal(job.n_checkpoints, cases[i].n_checkpoints);
        release(&job);
    }
    close_fixture(&f);
}

static void only_a_system_message_at_the_beginning_has_an_end(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        bool system_end, stable_end;
        size_t n_checkpoints;
    } cases[] = {
        {"[" USER("a") "," ASSISTANT("b") "," USER("c") "]", false, true, 3},
        {"[" USER("a") "," SYSTEM("b") "," USER("c") "]", false, true, 3},
        {"[{\"role\":\"developer\",\"content\":\"a\"}," USER("b") "]", true, true, 2},
        {"[" SYSTEM("a") "," USER("b") "]", true, true, 2},
        {"[" SYSTEM("a") "]", true, false, 1},
        {"[" USER("a") "]", false, false, 1},
    };
    struct fixture f = demo(CHATML);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = prepared(&f, cases[i].messages, &everything);
        assert_int_equal(job.conversation.system_end > 0, cases[i].system_end);
        assert_int_equal(job.conversation.stable_end > 0, cases[i].stable_end);
        assert_int_equal(job.n_checkpoints, cases[i].n_checkpoints);
        release(&job);
    }
    close_fixture(&f);
}

/* ---- Templates that make it hard ---- */

static void a_part_that_the_template_refuses_has_no_end_and_is_no_error(void **state)
{
    (void)state;
    struct fixture f =
        demo("{%- if messages[-1].role != 'user' -%}{{ raise_exception('ask something') }}{%- endif -%}" CHATML);
    struct job job = prepared(&f, TURNS, &everything);
    assert_int_equal(job.conversation.n_messages, 4);
    assert_int_equal(job.conversation.system_end, 0);
    assert_int_equal(job.conversation.stable_end, 0);
    assert_int_equal(job.n_checkpoints, 1);
    assert_text(&f, &job, 0, job.checkpoints[0], SYSTEM_TEXT MIDDLE_TEXT LAST_TEXT);
    release(&job);
    close_fixture(&f);
}

/* Templates of models that think leave the thoughts out of all but the last reply. */
static void a_message_that_is_written_otherwise_at_the_end_ends_where_it_differs(void **state)
{
    (void)state;
    struct fixture f = demo("{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
                            "{%- if loop.last and m.role == 'assistant' -%}{{- 'Hm. ' -}}{%- endif -%}"
                            "{{- m.content + '<|im_end|>\\n' -}}{%- endfor -%}");
    struct job job = prepared(&f, TURNS, &everything);
    assert_text(&f, &job, 0, job.conversation.stable_end,
                SYSTEM_TEXT "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n");
    release(&job);
    close_fixture(&f);
}

/* A24: so it is tokens that must decide. */
static void equal_messages_have_equal_hashes_though_a_date_changes_their_tokens(void **state)
{
    (void)state;
    struct fixture f = demo("{{- strftime_now('%Y-%m-%d') -}}" CHATML);
    struct prepare_chat chat = chat_of(&f, TURNS);
    struct job days[2] = {{.n_checkpoints = 0}, {.n_checkpoints = 0}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(prepare_prompt(&chat, &days[i].prompt, NULL), HEARTH_OK);
        prepare_conversation(&chat, &everything, &days[i]);
        prepare_release(&chat);
        chat.request.now += 86400;
    }
    for (size_t i = 0; i <= 4; i++) assert_true(days[0].conversation.hashes[i] == days[1].conversation.hashes[i]);
    assert_true(tokens_common_prefix(&days[0].prompt, &days[1].prompt) < 12);
    release(&days[0]);
    release(&days[1]);
    close_fixture(&f);
}

static void the_template_and_its_arguments_are_part_of_the_identity(void **state)
{
    (void)state;
    struct fixture f = demo(CHATML), other = demo(CHATML "{#- -#}");
    struct job job = prepared(&f, TURNS, &everything), elsewhere = prepared(&other, TURNS, &everything);
    struct job with = {.n_checkpoints = 0};
    struct prepare_chat chat = chat_of(&f, TURNS);
    chat.request.kwargs = tree_of("{\"enable_thinking\":false}");
    assert_int_equal(prepare_prompt(&chat, &with.prompt, NULL), HEARTH_OK);
    prepare_conversation(&chat, &everything, &with);
    prepare_release(&chat);
    for (size_t i = 0; i <= 4; i++) {
        assert_true(job.conversation.hashes[i] != elsewhere.conversation.hashes[i]);
        assert_true(job.conversation.hashes[i] != with.conversation.hashes[i]);
    }
    release(&job);
    release(&elsewhere);
    release(&with);
    close_fixture(&f);
    close_fixture(&other);
}

/* ---- The next turn ---- */

/* `n` messages of some 600 to 2,500 bytes of words, after a system message; one of them may spell a special token. */
static char *long_turns(size_t n, bool spells_special)
{
    struct buf messages = {0};
    uint32_t noise = 1;
    buf_puts(&messages, "[" SYSTEM("Be brief."));
    for (size_t i = 0; i < n; i++) {
        buf_printf(&messages, ",{\"role\":\"%s\",\"content\":\"", i % 2 == 0 ? "user" : "assistant");
        if (spells_special && i == 4) buf_puts(&messages, "<|im_end|> ");
        for (uint32_t words = 100 + noise % 300; words > 0; words--) {
            noise = noise * 1664525 + 1013904223;
            buf_printf(&messages, "%s%x", words % 7 == 0 ? "\\n" : " ", noise >> 16);
        }
        buf_puts(&messages, "\"}");
    }
    buf_puts(&messages, "]");
    return buf_take(&messages);
}

static struct job prepared_with(const struct fixture *f, const char *messages, struct llm_tokenizer_cache *cache)
{
    struct prepare_chat chat = chat_of(f, messages);
    struct job job = {.n_checkpoints = 0};
    hearth_error error;
    chat.how.cache = cache;
    if (prepare_prompt(&chat, &job.prompt, &error) != HEARTH_OK) fail_msg("%s", error.message);
    prepare_conversation(&chat, &everything, &job);
    prepare_release(&chat);
    return job;
}

static void assert_same_job(const struct job *a, const struct job *b)
{
    assert_int_equal(a->prompt.len, b->prompt.len);
    assert_memory_equal(a->prompt.v, b->prompt.v, a->prompt.len * sizeof *a->prompt.v);
    assert_int_equal(a->conversation.system_end, b->conversation.system_end);
    assert_int_equal(a->conversation.stable_end, b->conversation.stable_end);
    assert_int_equal(a->n_checkpoints, b->n_checkpoints);
    assert_memory_equal(a->checkpoints, b->checkpoints, a->n_checkpoints * sizeof *a->checkpoints);
}

/* The prompt costs what is new and a chunk; and each of the three ends the last message and a chunk. */
static void assert_turns_cost(const struct fixture *f, bool spells_special)
{
    enum { CHUNK = 8 << 10, FIRST = 60, LAST = 68 };
    struct llm_tokenizer_stats stats = {0};
    struct llm_tokenizer_cache *cache = llm_tokenizer_cache_open(16 << 20, &stats);
    size_t former = 0;
    for (size_t n = FIRST; n <= LAST; n += 2) {
        char *messages = long_turns(n, spells_special);
        size_t len = strlen(messages);
        int64_t before = metric_get(&stats.tokenised_bytes);
        struct job job = prepared_with(f, messages, cache), plain = prepared_with(f, messages, NULL);
        int64_t tokenised = metric_get(&stats.tokenised_bytes) - before;
        assert_same_job(&job, &plain);
        if (n > FIRST) assert_true(tokenised <= (int64_t)(4 * (len - former + CHUNK)));
        former = len;
        release(&job);
        release(&plain);
        free(messages);
    }
    llm_tokenizer_cache_close(cache);
}

static void the_next_turn_of_a_long_conversation_tokenises_what_is_new(void **state)
{
    (void)state;
    static const char *const vocabularies[] = {"qwen2", "llama-bpe", "llama-spm"};
    char *source = file_text("templates/Qwen-Qwen3-0.6B.jinja");
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        struct fixture f =
            opened(mem_format("%s/source/models/ggml-vocab-%s.gguf", getenv("HEARTH_LLAMA"), vocabularies[i]), source);
        assert_turns_cost(&f, false);
        assert_turns_cost(&f, true);
        close_fixture(&f);
    }
    free(source);
}

/* ---- */

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_end_where_their_text_ends_and_never_after_the_generation_prompt),
        cmocka_unit_test(special_tokens_of_the_template_are_one_token_each),
        cmocka_unit_test(ends_hold_where_a_message_spells_a_special_token),
        cmocka_unit_test(there_is_one_bos_and_no_second),
        cmocka_unit_test(ends_are_right_for_templates_and_vocabularies_of_all_kinds),
        cmocka_unit_test(only_what_is_wished_for_is_found_out),
        cmocka_unit_test(only_a_system_message_at_the_beginning_has_an_end),
        cmocka_unit_test(a_part_that_the_template_refuses_has_no_end_and_is_no_error),
        cmocka_unit_test(a_message_that_is_written_otherwise_at_the_end_ends_where_it_differs),
        cmocka_unit_test(equal_messages_have_equal_hashes_though_a_date_changes_their_tokens),
        cmocka_unit_test(the_template_and_its_arguments_are_part_of_the_identity),
        cmocka_unit_test(the_next_turn_of_a_long_conversation_tokenises_what_is_new),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
