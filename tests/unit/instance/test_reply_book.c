/* The reply book (instance/requests/reply_book.h): conversations of random replies, beside a plain list of what was
 * said. */
#include "vocabulary.h"

#include "instance/requests/reply_book.h"

#include <pthread.h>

#define ROOM ((size_t)1 << 20)

static struct tokens ask(struct reply_book *book, uint64_t scope, const struct buf *text, struct reply_place *place)
{
    struct tokens out = {0};
    reply_book_tokenise(book, scope, &(struct prompt_text){weights, text->v, text->len, tokenise, text}, &out, place);
    assert_int_equal(place->n_bytes, text->len);
    assert_int_equal(place->n_tokens, out.len);
    return out;
}

/* ---- One conversation ---- */

struct talk {
    uint64_t scope;
    struct buf text;
    struct tokens said; /* all tokens, those of replies as they were sampled */
};

static void close_talk(struct talk *talk)
{
    buf_release(&talk->text);
    tokens_release(&talk->said);
}

/* The user says something: expected is what was said before, and the tokens of the new text alone. */
static void take_turn(struct talk *talk, struct reply_book *book, unsigned *seed)
{
    struct reply_place place;
    size_t before = talk->text.len;
    buf_puts(&talk->text, "<|im_end|>\n<|im_start|>user\n");
    add_random_text(seed, 1 + rolled(seed, 20), &talk->text);
    buf_puts(&talk->text, "<|im_end|>\n<|im_start|>assistant\n");
    tokenise(&talk->text, before, talk->text.len, &talk->said);
    struct tokens asked = ask(book, talk->scope, &talk->text, &place), reply = {0};
    assert_same(&asked, &talk->said);
    assert_spells(&asked, &talk->text);
    add_words(seed, 1 + rolled(seed, 40), &reply);
    reply_book_add(book, &place, &reply);
    spell(&reply, &talk->text);
    tokens_append(&talk->said, reply.v, reply.len);
    tokens_release(&reply);
    tokens_release(&asked);
}

static void replies_that_come_back_have_the_tokens_that_were_sampled(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(ROOM);
    struct talk talks[6] = {0};
    unsigned seed = 45, differ = 0;
    for (size_t i = 0; i < 6; i++) talks[i].scope = i / 3; /* the same words may be said in both */
    for (int turn = 0; turn < 60; turn++) {
        struct talk *talk = &talks[rolled(&seed, 6)];
        take_turn(talk, book, &seed);
        struct tokens plain = plainly(&talk->text);
        differ += tokens_common_prefix(&plain, &talk->said) < talk->said.len;
        tokens_release(&plain);
    }
    assert_true(differ > 50); /* else nothing would be shown */
    for (size_t i = 0; i < 6; i++) close_talk(&talks[i]);
    reply_book_close(book);
}

/* ---- What is not taken ---- */

/* A conversation of one turn, and its reply's tokens. */
static struct talk begun(struct reply_book *book, uint64_t scope, struct tokens *reply)
{
    struct talk talk = {.scope = scope};
    struct reply_place place;
    unsigned seed = 7;
    buf_puts(&talk.text, "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n");
    talk.said = ask(book, scope, &talk.text, &place);
    add_words(&seed, 150, reply);
    reply_book_add(book, &place, reply);
    return talk;
}

static void assert_plain(struct reply_book *book, uint64_t scope, const struct buf *text)
{
    struct reply_place place;
    struct tokens asked = ask(book, scope, text, &place), plain = plainly(text);
    assert_same(&asked, &plain);
    tokens_release(&asked);
    tokens_release(&plain);
}

static void other_scopes_and_other_places_get_none(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(ROOM);
    struct tokens reply = {0};
    struct talk talk = begun(book, 1, &reply);
    struct buf elsewhere = {0};
    buf_puts(&elsewhere, "<|im_start|>user\nWho are we?<|im_end|>\n<|im_start|>assistant\n");
    spell(&reply, &talk.text);
    spell(&reply, &elsewhere);
    assert_plain(book, 2, &talk.text);
    assert_plain(book, 0, &talk.text);
    assert_plain(book, 1, &elsewhere);
    buf_release(&elsewhere);
    tokens_release(&reply);
    close_talk(&talk);
    reply_book_close(book);
}

/* Each byte of the reply changed in turn: what comes before the word is as it was sampled, and the text is the
 * client's. */
static void of_a_reply_that_was_changed_whole_words_are_kept(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(ROOM);
    struct tokens reply = {0};
    struct talk talk = begun(book, 1, &reply);
    size_t at = talk.text.len, kept = 0;
    spell(&reply, &talk.text);
    buf_puts(&talk.text, "<|im_end|>\n");
    for (size_t i = at; i < talk.text.len - 11; i++) {
        struct reply_place place;
        char was = talk.text.v[i];
        talk.text.v[i] = was == '#' ? '+' : '#';
        struct tokens asked = ask(book, 1, &talk.text, &place);
        assert_spells(&asked, &talk.text);
        struct tokens sampled = {0};
        tokens_append(&sampled, talk.said.v, talk.said.len);
        tokens_append(&sampled, reply.v, reply.len);
        size_t common = tokens_common_prefix(&asked, &sampled);
        struct buf spelled = {0};
        spell(&(struct tokens){.v = asked.v, .len = common}, &spelled);
        assert_true(spelled.len <= i);
        kept += spelled.len > at;
        buf_release(&spelled);
        tokens_release(&sampled);
        tokens_release(&asked);
        talk.text.v[i] = was;
    }
    assert_true(kept > 10);
    tokens_release(&reply);
    close_talk(&talk);
    reply_book_close(book);
}

/* The same question asked again and again: the reply that goes on for longest counts. */
static void of_several_replies_at_a_place_each_is_found(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(ROOM);
    struct tokens none = {0}, replies[6] = {0};
    struct talk talk = begun(book, 1, &none);
    struct reply_place place;
    unsigned seed = 9;
    struct tokens prompt = ask(book, 1, &talk.text, &place);
    for (size_t i = 0; i < 6; i++) {
        add_words(&seed, 1, &replies[i]);
        if (i % 2 == 1) tokens_append(&replies[i], replies[i - 1].v, replies[i - 1].len); /* one begins like another */
        add_words(&seed, 20, &replies[i]);
        reply_book_add(book, &place, &replies[i]);
        reply_book_add(book, &place, &replies[i]); /* it is known */
    }
    for (size_t i = 0; i < 6; i++) {
        struct talk back = {.scope = 1};
        buf_append(&back.text, talk.text.v, talk.text.len);
        spell(&replies[i], &back.text);
        buf_puts(&back.text, "<|im_end|>");
        tokens_append(&back.said, prompt.v, prompt.len);
        tokens_append(&back.said, replies[i].v, replies[i].len);
        tokenise(&(struct buf){.v = "<|im_end|>", .len = 10}, 0, 10, &back.said);
        struct tokens asked = ask(book, 1, &back.text, &place);
        assert_same(&asked, &back.said);
        tokens_release(&asked);
        close_talk(&back);
        tokens_release(&replies[i]);
    }
    tokens_release(&none);
    tokens_release(&prompt);
    close_talk(&talk);
    reply_book_close(book);
}

/* ---- Tokens that mean more than their bytes ---- */

#define END "<|im_end|>"

static int32_t end_token(void)
{
    struct tokens tokens = {0};
    llm_tokenize(weights, END, strlen(END), false, true, &tokens);
    assert_int_equal(tokens.len, 1);
    int32_t token = tokens.v[0];
    tokens_release(&tokens);
    return token;
}

static size_t count(const struct tokens *tokens, int32_t token)
{
    size_t n = 0;
    for (size_t i = 0; i < tokens->len; i++) n += tokens->v[i] == token;
    return n;
}

/* The place behind a prompt, its tokens, and a reply that has the end of a turn in its middle: as a control token, or
 * spelled. */
struct middle {
    struct reply_book *book;
    struct buf text;
    struct tokens prompt, reply;
};

static struct middle open_middle(bool as_control)
{
    struct middle it = {.book = reply_book_open(ROOM)};
    struct reply_place place;
    unsigned seed = 21;
    buf_puts(&it.text, "Who are you?");
    it.prompt = ask(it.book, 0, &it.text, &place);
    add_words(&seed, 20, &it.reply);
    llm_tokenize(weights, END, strlen(END), false, as_control, &it.reply);
    add_words(&seed, 20, &it.reply);
    assert_int_equal(count(&it.reply, end_token()), as_control);
    reply_book_add(it.book, &place, &it.reply);
    spell(&it.reply, &it.text);
    return it;
}

static void close_middle(struct middle *it)
{
    reply_book_close(it->book);
    buf_release(&it->text);
    tokens_release(&it->prompt);
    tokens_release(&it->reply);
}

/* A client's text that spells a control token is none, whatever was sampled; a template's is one. */
static void a_control_token_is_taken_only_where_the_tokenizer_finds_it(void **state)
{
    (void)state;
    for (int sampled = 0; sampled < 2; sampled++) {
        for (int parsed = 0; parsed < 2; parsed++) {
            struct middle it = open_middle(sampled);
            struct reply_place place;
            struct tokens said = {0};
            parses_special = parsed;
            struct tokens asked = ask(it.book, 0, &it.text, &place);
            parses_special = true;
            tokens_append(&said, it.prompt.v, it.prompt.len);
            tokens_append(&said, it.reply.v, it.reply.len);
            assert_spells(&asked, &it.text);
            assert_int_equal(count(&asked, end_token()), parsed);
            size_t common = tokens_common_prefix(&asked, &said);
            if (sampled == parsed)
                assert_int_equal(common, said.len);
            else
                assert_in_range(common, it.prompt.len + 1, it.prompt.len + 20);
            tokens_release(&said);
            tokens_release(&asked);
            close_middle(&it);
        }
    }
}

/* Somebody has the same text written letter by letter: others do not get the letters. */
static void of_two_replies_with_the_same_bytes_the_shorter_counts(void **state)
{
    (void)state;
    static const char text[] = " Hello! How can I help you? ";
    for (int order = 0; order < 2; order++) {
        struct reply_book *book = reply_book_open(ROOM);
        struct buf prompt = {0};
        struct reply_place place;
        struct tokens usual = {0}, letters = {0};
        buf_puts(&prompt, "<|im_start|>");
        struct tokens before = ask(book, 0, &prompt, &place);
        llm_tokenize(weights, text, strlen(text), false, true, &usual);
        for (size_t i = 0; i < strlen(text); i++) llm_tokenize(weights, text + i, 1, false, true, &letters);
        assert_true(letters.len > usual.len);
        reply_book_add(book, &place, order == 0 ? &usual : &letters);
        reply_book_add(book, &place, order == 0 ? &letters : &usual);
        buf_puts(&prompt, text);
        struct tokens asked = ask(book, 0, &prompt, &place);
        tokens_append(&before, usual.v, usual.len);
        assert_same(&asked, &before);
        tokens_release(&asked);
        tokens_release(&before);
        tokens_release(&usual);
        tokens_release(&letters);
        buf_release(&prompt);
        reply_book_close(book);
    }
}

/* The same question a thousand times: the newest replies are found, and other places keep theirs. */
static void a_place_has_few_replies(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(ROOM);
    struct tokens first = {0};
    struct talk other = begun(book, 1, &first);
    struct buf prompt = {0};
    struct reply_place place;
    struct tokens reply = {0};
    unsigned seed = 5;
    buf_puts(&prompt, "<|im_start|>Again<|im_end|>");
    struct tokens said = ask(book, 0, &prompt, &place);
    for (int i = 0; i < 1000; i++) {
        tokens_truncate(&reply, 0);
        add_words(&seed, 60, &reply);
        reply_book_add(book, &place, &reply);
    }
    tokens_append(&said, reply.v, reply.len);
    spell(&reply, &prompt);
    spell(&first, &other.text);
    tokens_append(&other.said, first.v, first.len);
    struct tokens asked = ask(book, 0, &prompt, &place), kept = ask(book, 1, &other.text, &place);
    assert_same(&asked, &said);
    assert_same(&kept, &other.said);
    tokens_release(&asked);
    tokens_release(&kept);
    tokens_release(&said);
    tokens_release(&reply);
    tokens_release(&first);
    buf_release(&prompt);
    close_talk(&other);
    reply_book_close(book);
}

/* ---- Bounds ---- */

static void the_oldest_are_dropped_and_the_text_stays(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(4000);
    struct talk talks[40] = {0};
    unsigned seed = 46;
    size_t kept = 0;
    for (size_t i = 0; i < 40; i++) {
        struct reply_place place;
        struct tokens reply = {0};
        add_random_text(&seed, 20, &talks[i].text);
        buf_puts(&talks[i].text, "<|im_start|>");
        talks[i].said = ask(book, 0, &talks[i].text, &place);
        add_words(&seed, 30, &reply);
        reply_book_add(book, &place, &reply);
        tokens_append(&talks[i].said, reply.v, reply.len);
        spell(&reply, &talks[i].text);
        tokens_release(&reply);
    }
    for (size_t i = 0; i < 40; i++) {
        struct reply_place place;
        struct tokens asked = ask(book, 0, &talks[i].text, &place), plain = plainly(&talks[i].text);
        bool same = asked.len == talks[i].said.len && tokens_common_prefix(&asked, &talks[i].said) == asked.len;
        if (!same) assert_same(&asked, &plain);
        if (i < 10) assert_false(same);
        kept += same;
        tokens_release(&asked);
        tokens_release(&plain);
        close_talk(&talks[i]);
    }
    assert_in_range(kept, 5, 30);
    reply_book_close(book);
}

static void a_reply_that_has_no_room_or_no_place_is_not_kept(void **state)
{
    (void)state;
    struct reply_book *book = reply_book_open(400);
    struct tokens reply = {0};
    struct talk talk = begun(book, 1, &reply);
    for (int i = 0; i < 200; i++) tokens_push(&reply, words.v[0]);
    reply_book_add(book, &(struct reply_place){.n_bytes = talk.text.len}, &reply);
    reply_book_add(book, &(struct reply_place){0}, &(struct tokens){.v = reply.v, .len = 1});
    reply_book_add(book, &(struct reply_place){.n_bytes = 5}, &(struct tokens){0});
    reply_book_close(book);
    reply_book_close(NULL);
    tokens_release(&reply);
    close_talk(&talk);
}

/* ---- A vocabulary that puts a blank before every text ---- */

static void where_the_text_would_change_nothing_is_taken(void **state)
{
    (void)state;
    close_vocabulary(NULL);
    open_vocabulary(mem_format("%s/source/models/ggml-vocab-llama-spm.gguf", getenv("HEARTH_LLAMA")));
    struct reply_book *book = reply_book_open(ROOM);
    static const struct {
        const char *rest;
        bool taken;
    } rests[] = {{"</s>", true}, {"</s>[INST] more", true}, {" [INST] more", false}, {"!", false}, {"", true}};
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        struct talk talk = {0};
        struct tokens reply = {0};
        struct reply_place place;
        unsigned seed = 3;
        buf_puts(&talk.text, "[INST] Who? [/INST]");
        talk.said = ask(book, 0, &talk.text, &place);
        add_words(&seed, 20, &reply);
        reply_book_add(book, &place, &reply);
        spell(&reply, &talk.text);
        buf_puts(&talk.text, rests[i].rest);
        struct tokens asked = ask(book, 0, &talk.text, &place), plain = plainly(&talk.text);
        tokens_append(&talk.said, reply.v, reply.len);
        assert_true(tokens_common_prefix(&plain, &talk.said) < talk.said.len);
        assert_int_equal(tokens_common_prefix(&asked, &talk.said) == talk.said.len, rests[i].taken);
        if (!rests[i].taken) assert_same(&asked, &plain);
        tokens_release(&asked);
        tokens_release(&plain);
        tokens_release(&reply);
        close_talk(&talk);
    }
    reply_book_close(book);
    close_vocabulary(NULL);
    demo(NULL);
}

/* ---- Every vocabulary ---- */

/* Replies hold any tokens at all, control tokens too, and what follows begins in any way. */
static void in_every_vocabulary_text_and_control_tokens_stay(void **state)
{
    static const char *const names[] = {"llama-spm", "phi-3", "llama-bpe", "qwen2", "gpt-2", "deepseek-llm", "falcon"};
    static const char *const between[] = {"</s>", "<|im_end|>\n", "<|end|>", "\n", " and ", "<|endoftext|>"};
    (void)state;
    unsigned seed = 77;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        close_vocabulary(NULL);
        open_vocabulary(mem_format("%s/source/models/ggml-vocab-%s.gguf", getenv("HEARTH_LLAMA"), names[i]));
        for (int round = 0; round < 40; round++) {
            struct reply_book *book = reply_book_open(ROOM);
            struct buf text = {0};
            parses_special = round % 2 == 0;
            for (int turn = 0; turn < 4; turn++) {
                struct reply_place place;
                struct tokens reply = {0};
                buf_puts(&text, between[rolled(&seed, 6)]);
                add_random_text(&seed, 1 + rolled(&seed, 9), &text);
                struct tokens asked = ask(book, 0, &text, &place), plain = plainly(&text);
                assert_means_the_same(&asked, &plain);
                for (int k = 0; k < 20; k++) {
                    if (rolled(&seed, 3) == 0)
                        tokens_push(&reply, any_token(&seed));
                    else
                        add_words(&seed, 1, &reply);
                }
                if (turn % 2 == 1) llm_tokenize(weights, "</s>", 4, false, rolled(&seed, 2) == 0, &reply);
                reply_book_add(book, &place, &reply);
                spell(&reply, &text);
                tokens_release(&reply);
                tokens_release(&asked);
                tokens_release(&plain);
            }
            buf_release(&text);
            reply_book_close(book);
        }
    }
    parses_special = true;
    close_vocabulary(NULL);
    demo(NULL);
}

/* ---- Threads ---- */

static struct reply_book *shared;

static void *converse(void *ud)
{
    unsigned seed = (unsigned)(uintptr_t)ud;
    struct talk talk = {.scope = seed % 2};
    for (int turn = 0; turn < 30; turn++) take_turn(&talk, shared, &seed);
    close_talk(&talk);
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[4];
    shared = reply_book_open(ROOM);
    for (uintptr_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, converse, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    reply_book_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_that_come_back_have_the_tokens_that_were_sampled),
        cmocka_unit_test(other_scopes_and_other_places_get_none),
        cmocka_unit_test(of_a_reply_that_was_changed_whole_words_are_kept),
        cmocka_unit_test(of_several_replies_at_a_place_each_is_found),
        cmocka_unit_test(a_control_token_is_taken_only_where_the_tokenizer_finds_it),
        cmocka_unit_test(of_two_replies_with_the_same_bytes_the_shorter_counts),
        cmocka_unit_test(a_place_has_few_replies),
        cmocka_unit_test(the_oldest_are_dropped_and_the_text_stays),
        cmocka_unit_test(a_reply_that_has_no_room_or_no_place_is_not_kept),
        cmocka_unit_test(where_the_text_would_change_nothing_is_taken),
        cmocka_unit_test(in_every_vocabulary_text_and_control_tokens_stay),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, demo, close_vocabulary);
}
