/* Stored token lists in the place of the tokenizer's (instance/requests/reply_book.h): random conversations beside a
 * plain array of lists. */
#include "vocabulary.h"

#include "instance/requests/reply_book.h"

/* ---- What is stored ---- */

enum { LISTS_MAX = 64 };

struct lists {
    struct tokens v[LISTS_MAX];
    size_t n;
};

static int32_t common(const void *ud, const int32_t *tokens, int32_t n)
{
    const struct lists *lists = ud;
    const struct tokens asked = {.v = (int32_t *)tokens, .len = (size_t)n};
    size_t most = 0;
    for (size_t i = 0; i < lists->n; i++) {
        size_t same = tokens_common_prefix(&lists->v[i], &asked);
        if (same > most) most = same;
    }
    return (int32_t)most;
}

/* As a tree of lists has it: up to where two of them part. Never more than 3 tokens, so that many edges are followed.
 */
static size_t ways_on(const void *ud, const int32_t *tokens, int32_t n, struct tokens *ways, size_t max)
{
    const struct lists *lists = ud;
    const struct tokens asked = {.v = (int32_t *)tokens, .len = (size_t)n};
    size_t n_ways = 0;
    for (size_t i = 0; i < lists->n; i++) {
        const struct tokens *list = &lists->v[i];
        if (list->len <= asked.len || tokens_common_prefix(list, &asked) < asked.len) continue;
        struct tokens rest = {.v = list->v + n, .len = list->len - asked.len < 3 ? list->len - asked.len : 3};
        size_t k = 0;
        while (k < n_ways && ways[k].v[0] != rest.v[0]) k++;
        if (k < n_ways)
            ways[k].len = tokens_common_prefix(&ways[k], &rest);
        else if (n_ways < max)
            tokens_append(&ways[n_ways++], rest.v, rest.len);
    }
    return n_ways;
}

static void store(struct lists *lists, const struct tokens *tokens)
{
    assert_true(lists->n < LISTS_MAX);
    tokens_append(&lists->v[lists->n++], tokens->v, tokens->len);
}

static void close_lists(struct lists *lists)
{
    for (size_t i = 0; i < lists->n; i++) tokens_release(&lists->v[i]);
    *lists = (struct lists){.n = 0};
}

static struct tokens take(const struct lists *lists, const struct buf *text)
{
    struct tokens tokens = plainly(text), plain = plainly(text);
    const struct prompt_text prompt = {weights, text->v, text->len, tokenise, text};
    bool taken = stored_replies_take(&(struct stored_lists){common, ways_on, lists}, &prompt, &tokens);
    if (!taken) assert_same(&tokens, &plain);
    tokens_release(&plain);
    return tokens;
}

static void assert_plain(const struct lists *lists, const struct buf *text)
{
    struct tokens tokens = take(lists, text), plain = plainly(text);
    assert_same(&tokens, &plain);
    tokens_release(&tokens);
    tokens_release(&plain);
}

/* ---- Replies as models write them ---- */

/* A token that spells what the two do; -1: there is none. */
static int32_t joined(int32_t a, int32_t b)
{
    struct buf bytes = {0};
    struct tokens one = {0};
    llm_token_bytes(weights, a, false, &bytes);
    llm_token_bytes(weights, b, false, &bytes);
    llm_tokenize(weights, bytes.v, bytes.len, false, false, &one);
    int32_t token = one.len == 1 ? one.v[0] : -1;
    tokens_release(&one);
    buf_release(&bytes);
    return token;
}

/* Usual words; one of the last of them is spelled in two tokens, where some two spell it. Returns whether it is. */
static bool add_reply(unsigned *seed, struct tokens *out)
{
    static const char *const sentences[] = {"The children went to the market together. ", "It was a very cold day! ",
                                            "How many apples are there? ", "I think that the answer is 42. "};
    struct tokens usual = {0};
    for (int i = 0; i < 4; i++) {
        const char *sentence = sentences[rolled(seed, 4)];
        llm_tokenize(weights, sentence, strlen(sentence), false, true, &usual);
    }
    bool split = false;
    for (size_t i = 0; i < usual.len; i++) {
        bool wants = !split && i > usual.len / 2;
        for (int32_t a = 0; wants && !split && a < llm_model_info(weights)->n_vocab; a++) {
            struct buf whole = {0}, first = {0};
            llm_token_bytes(weights, usual.v[i], false, &whole);
            llm_token_bytes(weights, a, false, &first);
            bool begins = first.len > 1 && first.len < whole.len && memcmp(first.v, whole.v, first.len) == 0;
            struct tokens rest = {0};
            if (begins) llm_tokenize(weights, whole.v + first.len, whole.len - first.len, false, false, &rest);
            split = begins && rest.len == 1 && joined(a, rest.v[0]) == usual.v[i];
            if (split) tokens_push(out, a);
            if (split) tokens_push(out, rest.v[0]);
            tokens_release(&rest);
            buf_release(&whole);
            buf_release(&first);
        }
        if (!wants || !split) tokens_push(out, usual.v[i]);
    }
    tokens_release(&usual);
    return split;
}

static void add_question(unsigned *seed, struct buf *text)
{
    static const char *const questions[] = {"Who are you?", "Tell me a story.", "And then?"};
    buf_puts(text, "<|im_start|>user\n");
    buf_puts(text, questions[rolled(seed, 3)]);
    buf_puts(text, "<|im_end|>\n<|im_start|>assistant\n");
}

/* A conversation, as it is in the cells. */
struct talk {
    struct buf text;
    struct tokens said;
};

static void close_talk(struct talk *talk)
{
    buf_release(&talk->text);
    tokens_release(&talk->said);
}

static bool add_turn(struct talk *talk, unsigned *seed)
{
    size_t before = talk->text.len;
    struct tokens reply = {0};
    add_question(seed, &talk->text);
    tokenise(&talk->text, before, talk->text.len, &talk->said);
    bool split = add_reply(seed, &reply);
    spell(&reply, &talk->text);
    tokens_append(&talk->said, reply.v, reply.len);
    tokens_release(&reply);
    before = talk->text.len;
    buf_puts(&talk->text, "<|im_end|>\n");
    tokenise(&talk->text, before, talk->text.len, &talk->said);
    return split;
}

static void what_is_stored_is_taken_reply_by_reply(void **state)
{
    (void)state;
    struct lists lists = {.n = 0};
    struct talk talks[8] = {0};
    unsigned seed = 45, n_split = 0;
    for (size_t i = 0; i < 8; i++) {
        for (int turn = 0; turn < 5; turn++) {
            n_split += add_turn(&talks[i], &seed);
            store(&lists, &talks[i].said); /* as after each turn */
        }
    }
    assert_true(n_split > 20);
    for (size_t i = 0; i < 8; i++) {
        struct buf next = {0};
        buf_append(&next, talks[i].text.v, talks[i].text.len);
        add_question(&seed, &next);
        struct tokens tokens = take(&lists, &next), plain = plainly(&next);
        assert_true(tokens_common_prefix(&plain, &talks[i].said) < talks[i].said.len);
        assert_int_equal(tokens_common_prefix(&tokens, &talks[i].said), talks[i].said.len);
        assert_spells(&tokens, &next);
        tokens_release(&tokens);
        tokens_release(&plain);
        buf_release(&next);
        close_talk(&talks[i]);
    }
    close_lists(&lists);
}

/* ---- What is not taken ---- */

static void where_nothing_is_stored_or_looked_for_the_tokens_stay(void **state)
{
    (void)state;
    struct lists none = {.n = 0};
    struct talk talk = {0};
    unsigned seed = 1;
    add_turn(&talk, &seed);
    assert_plain(&none, &talk.text);
    struct tokens tokens = plainly(&talk.text);
    const struct prompt_text prompt = {weights, talk.text.v, talk.text.len, tokenise, &talk.text};
    assert_false(stored_replies_take(&(struct stored_lists){.common = NULL}, &prompt, &tokens));
    tokens_release(&tokens);
    close_talk(&talk);
}

/* Each byte changed in turn: the text is the client's, and nothing behind the change is taken. */
static void of_a_text_that_was_changed_what_comes_before_is_taken(void **state)
{
    (void)state;
    struct lists lists = {.n = 0};
    struct talk talk = {0};
    unsigned seed = 2;
    size_t n_taken = 0;
    for (int turn = 0; turn < 2; turn++) add_turn(&talk, &seed);
    store(&lists, &talk.said);
    for (size_t i = 0; i < talk.text.len; i++) {
        char was = talk.text.v[i];
        talk.text.v[i] = was == '#' ? '+' : '#';
        struct tokens tokens = take(&lists, &talk.text), plain = plainly(&talk.text);
        struct buf spelled = {0};
        assert_means_the_same(&tokens, &plain);
        size_t same = tokens_common_prefix(&tokens, &talk.said);
        n_taken += same > tokens_common_prefix(&plain, &talk.said);
        spell(&(struct tokens){.v = tokens.v, .len = same}, &spelled);
        assert_true(spelled.len <= i);
        buf_release(&spelled);
        tokens_release(&tokens);
        tokens_release(&plain);
        talk.text.v[i] = was;
    }
    assert_true(n_taken > 20);
    close_talk(&talk);
    close_lists(&lists);
}

/* Who may store may spell any words letter by letter: others' prompts do not get the letters. */
static void what_is_spelled_oddly_is_not_taken(void **state)
{
    static const char text[] =
        "<|im_start|>user\nThe children went to the market together. It was a very cold day, and "
        "they bought many apples there.<|im_end|>\n";
    (void)state;
    struct lists lists = {.n = 0};
    struct tokens letters = {0};
    struct buf prompt = {0};
    size_t begin = strlen("<|im_start|>user\n");
    buf_puts(&prompt, text);
    tokenise(&prompt, 0, begin, &letters);
    for (const char *c = text + begin; *c != '<'; c++) llm_tokenize(weights, c, 1, false, true, &letters);
    store(&lists, &letters);
    struct tokens tokens = take(&lists, &prompt), plain = plainly(&prompt);
    assert_true(letters.len > plain.len + 30);
    assert_true(tokens.len <= plain.len + 8);
    assert_means_the_same(&tokens, &plain);
    tokens_release(&tokens);
    tokens_release(&plain);
    tokens_release(&letters);
    buf_release(&prompt);
    close_lists(&lists);
}

/* ---- Every vocabulary ---- */

/* What is stored holds any tokens at all, control tokens too, in the middle of what a prompt goes on with. */
static void in_every_vocabulary_text_and_control_tokens_stay(void **state)
{
    static const char *const names[] = {"llama-spm", "phi-3", "llama-bpe", "qwen2", "gpt-2", "deepseek-llm", "falcon"};
    static const char *const between[] = {"</s>", "<|im_end|>\n", "<|end|>", "\n", " and ", "<|endoftext|>"};
    (void)state;
    unsigned seed = 78;
    size_t n_taken = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        close_vocabulary(NULL);
        open_vocabulary(mem_format("%s/source/models/ggml-vocab-%s.gguf", getenv("HEARTH_LLAMA"), names[i]));
        for (int round = 0; round < 60; round++) {
            struct lists lists = {.n = 0};
            struct buf text = {0};
            parses_special = round % 2 == 0;
            for (int turn = 0; turn < 4; turn++) {
                buf_puts(&text, between[rolled(&seed, 6)]);
                add_random_text(&seed, 1 + rolled(&seed, 9), &text);
                struct tokens said = take(&lists, &text), plain = plainly(&text);
                assert_means_the_same(&said, &plain);
                n_taken += tokens_common_prefix(&said, &plain) < plain.len;
                size_t n_before = said.len;
                for (int k = 0; k < 6; k++) {
                    if (rolled(&seed, 6) == 0)
                        tokens_push(&said, any_token(&seed));
                    else
                        add_words(&seed, 1, &said);
                }
                if (turn % 2 == 1) llm_tokenize(weights, "</s>", 4, false, rolled(&seed, 2) == 0, &said);
                store(&lists, &said);
                spell(&(struct tokens){.v = said.v + n_before, .len = said.len - n_before}, &text);
                tokens_release(&said);
                tokens_release(&plain);
            }
            buf_release(&text);
            close_lists(&lists);
        }
    }
    assert_true(n_taken > 20);
    parses_special = true;
    close_vocabulary(NULL);
    demo(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stored_is_taken_reply_by_reply),
        cmocka_unit_test(where_nothing_is_stored_or_looked_for_the_tokens_stay),
        cmocka_unit_test(of_a_text_that_was_changed_what_comes_before_is_taken),
        cmocka_unit_test(what_is_spelled_oddly_is_not_taken),
        cmocka_unit_test(in_every_vocabulary_text_and_control_tokens_stay),
    };
    return cmocka_run_group_tests(tests, demo, close_vocabulary);
}
