/* Tokens beside the bytes of a text (instance/requests/prompt_text.h). In the demo model's vocabulary a letter's token
 * is its code. */
#include "vocabulary.h"

#include "instance/requests/prompt_text.h"

static struct prompt_text text_of(struct buf *bytes, const char *text)
{
    buf_clear(bytes);
    buf_puts(bytes, text);
    return (struct prompt_text){weights, bytes->v, bytes->len, tokenise, bytes};
}

static struct tokens letters_of(const char *text)
{
    struct tokens letters = {0};
    for (; *text != '\0'; text++) tokens_push(&letters, (unsigned char)*text);
    return letters;
}

/* Where the text leaves the tokens within a word, the word is not taken in pieces. */
static void whole_words_are_matched(void **state)
{
    static const struct {
        const char *tokens, *text;
        size_t n_bytes;
    } cases[] = {{"The cat", "The cat", 7},
                 {"The cat", "The cat!", 7},
                 {"The cat", "The cats", 3},
                 {"The cat", "The car is", 3},
                 {"The cat", "The", 3},
                 {"The cat", "Thus", 0},
                 {"The cat is", "The cat, and", 7},
                 {"a1 b2", "a1 b22", 2},
                 {"", "The", 0},
                 {"caf\xc3\xa9", "caf\xc3\xa9s", 0},
                 {"caf\xc3\xa9", "caf\xc3\xa8", 0},
                 {"\xe4\xb8\xad\xe5\x9b\xbd", "\xe4\xb8\xad\xe5\x9c\x8b", 3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf bytes = {0};
        struct prompt_text text = text_of(&bytes, cases[i].text);
        struct tokens letters = letters_of(cases[i].tokens);
        struct text_match match = text_match(&text, letters.v, letters.len, 0);
        assert_int_equal(match.n_bytes, cases[i].n_bytes);
        assert_int_equal(match.n, cases[i].n_bytes);
        tokens_release(&letters);
        buf_release(&bytes);
    }
}

static void seams_are_found_from_the_end(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct prompt_text text = text_of(&bytes, "<|im_start|>user\nThe children went to the market.<|im_end|>\n");
    struct tokens tokens = plainly(&bytes);
    size_t at = bytes.len;
    for (size_t n = tokens.len; n > 0; n--) {
        struct text_seam seam, by_bytes;
        assert_true(text_seam_before(&text, &tokens, &(struct text_seam){.n_tokens = n}, &seam));
        assert_int_equal(seam.n_tokens, n);
        assert_int_equal(seam.n_bytes, at);
        assert_true(text_seam_before(&text, &tokens, &(struct text_seam){.n_bytes = at}, &by_bytes));
        assert_int_equal(by_bytes.n_bytes, at);
        struct buf last = {0};
        llm_token_bytes(weights, tokens.v[n - 1], true, &last);
        at -= last.len;
        buf_release(&last);
    }
    assert_int_equal(at, 0);
    struct text_seam seam;
    tokens.v[tokens.len / 2] = 'x';
    assert_false(text_seam_before(&text, &tokens, &(struct text_seam){.n_tokens = 1}, &seam));
    tokens_release(&tokens);
    buf_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_words_are_matched),
        cmocka_unit_test(seams_are_found_from_the_end),
    };
    return cmocka_run_group_tests(tests, demo, close_vocabulary);
}
