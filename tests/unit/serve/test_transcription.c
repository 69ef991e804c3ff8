/* POST /v1/audio/transcriptions: forms, the chats that they become, answers in each format, errors. */
#include "json_trees.h"
#include "unit/serve/harness.h"

#define ROUTE "/v1/audio/transcriptions"
#define TYPE  "multipart/form-data; boundary=b"
#define SOUND "RIFF\x01\xff\r\n--" /* what the fake takes for a sound, with a zero behind it */

/* A field of a form; without a name there is none. */
struct field {
    const char *name, *value;
};

#define FIELDS_MAX 6

static void put_form(struct buf *body, const struct field *fields)
{
    for (size_t i = 0; i < FIELDS_MAX && fields[i].name != NULL; i++) {
        bool is_sound = strcmp(fields[i].value, SOUND) == 0;
        buf_printf(body, "--b\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n", fields[i].name,
                   is_sound ? "; filename=\"a.wav\"" : "");
        buf_append(body, fields[i].value, is_sound ? sizeof SOUND : strlen(fields[i].value));
        buf_puts(body, "\r\n");
    }
    buf_puts(body, "--b--\r\n");
}

static struct response post(struct client *client, const char *type, const struct buf *body)
{
    struct buf out = {0};
    buf_printf(&out,
               "POST " ROUTE " HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r\r\nContent-Type: %s\r\n"
               "Content-Length: %zu\r\n\r\n",
               type, body->len);
    buf_append(&out, body->v, body->len);
    assert_int_equal(send(client->fd, out.v, out.len, MSG_NOSIGNAL), out.len);
    buf_release(&out);
    return client_read(client, true);
}

static struct response send_form(struct client *client, const struct field *fields)
{
    struct buf body = {0};
    put_form(&body, fields);
    struct response response = post(client, TYPE, &body);
    buf_release(&body);
    return response;
}

/* A server whose model hears, and says something else than content too. */
static struct client start(struct harness *h)
{
    static const char *const texts[] = {"~rHm", "Hello", " \"you\""};
    static const struct fake_script script = {
        .texts = texts, .n_texts = 3, .result = {.cache_n = 8, .prompt_n = 2, .predicted_n = 3}};
    fake_take_sounds(true);
    fake_play(&script);
    return harness_start(h);
}

/* ---- What is asked ---- */

static void a_form_becomes_a_chat_with_the_sound_behind_the_line_that_asks(void **state)
{
    static const struct {
        struct field fields[FIELDS_MAX];
        const char *line;
    } rows[] = {
        {{{"file", SOUND}, {"model", "demo"}}, "Write it down:"},
        {{{"file", SOUND}, {"language", ""}, {"prompt", ""}, {"model", ""}}, "Write it down:"},
        {{{"language", "de"}, {"file", SOUND}}, "Write it down: (language: de)"},
        {{{"file", SOUND}, {"prompt", "Names: H\xc3\xa9loise"}}, "Names: H\xc3\xa9loise"},
        {{{"prompt", "\\\"Names\\\""}, {"language", "fr"}, {"file", SOUND}}, "\\\\\\\"Names\\\\\\\" (language: fr)"},
    };
    struct client client = start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = send_form(&client, rows[i].fields);
        assert_int_equal(response.status, 200);
        response_release(&response);
        const hearth_params *p = fake_wait(i);
        struct buf expected = {0};
        buf_printf(&expected,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%s\"},"
                   "{\"type\":\"input_audio\",\"media\":0}]}]",
                   rows[i].line);
        assert_string_equal(text_of_json(p->messages), expected.v);
        buf_release(&expected);
        assert_int_equal(p->n_media, 1);
        assert_int_equal(p->media[0].len, sizeof SOUND);
        assert_memory_equal(p->media[0].bytes, SOUND, sizeof SOUND);
        assert_string_equal(p->media[0].field, "file");
        assert_null(p->media[0].fault);
        assert_true(p->sampling.temperature == 0);
    }
    client_close(&client);
}

static void fields_of_chats_are_read_as_numbers_and_words(void **state)
{
    static const struct field fields[FIELDS_MAX] = {{"file", SOUND},           {"temperature", "0.5"},
                                                    {"max_tokens", "7"},       {"seed", "123456"},
                                                    {"cache_prompt", "False"}, {"cache_salt", "42"}};
    struct client client = start(*state);
    struct response response = send_form(&client, fields);
    assert_int_equal(response.status, 200);
    response_release(&response);
    const hearth_params *p = fake_wait(0);
    assert_true(p->sampling.temperature == 0.5 && p->max_tokens == 7 && p->sampling.seed == 123456);
    assert_false(p->cache_prompt);
    assert_string_equal(p->cache_salt, "42");
    client_close(&client);
}

static void unknown_fields_are_named(void **state)
{
    struct client client = start(*state);
    struct response response =
        send_form(&client, (const struct field[FIELDS_MAX]){{"file", SOUND},
                                                            {"temprature", "1"},
                                                            {"timestamp_granularities[]", "segment"},
                                                            {"timestamp_granularities[]", "segment"},
                                                            {"chunking_strategy", "auto"},
                                                            {"temprature", "2"}});
    assert_int_equal(response.status, 200);
    assert_string_equal(response_header(&response, "X-Hearth-Unknown-Fields"), "temprature");
    response_release(&response);
    client_close(&client);
}

/* ---- What is answered ---- */

#define TOKENS                                                                                                         \
    "\"usage\":{\"type\":\"tokens\",\"input_tokens\":10,\"output_tokens\":3,\"total_tokens\":13,"                      \
    "\"input_token_details\":{\"audio_tokens\":0,\"text_tokens\":10},"                                                 \
    "\"input_tokens_details\":{\"cached_tokens\":8}}}"

static void every_format_has_the_content_alone(void **state)
{
    static const struct {
        struct field fields[FIELDS_MAX];
        const char *type, *body;
    } rows[] = {
        {{{"file", SOUND}}, "application/json", "{\"text\":\"Hello \\\"you\\\"\"," TOKENS},
        {{{"file", SOUND}, {"response_format", "json"}}, "application/json", "{\"text\":\"Hello \\\"you\\\"\"," TOKENS},
        {{{"file", SOUND}, {"response_format", "text"}}, "text/plain; charset=utf-8", "Hello \"you\"\n"},
        {{{"file", SOUND}, {"response_format", "verbose_json"}},
         "application/json",
         "{\"task\":\"transcribe\",\"language\":\"unknown\",\"duration\":1.500,\"text\":\"Hello \\\"you\\\"\","
         "\"usage\":{\"type\":\"duration\",\"seconds\":1.500}}"},
        {{{"file", SOUND}, {"response_format", "verbose_json"}, {"language", "en"}},
         "application/json",
         "{\"task\":\"transcribe\",\"language\":\"en\",\"duration\":1.500,\"text\":\"Hello \\\"you\\\"\","
         "\"usage\":{\"type\":\"duration\",\"seconds\":1.500}}"},
        {{{"file", SOUND}, {"stream", "true"}},
         "text/event-stream",
         "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hello\"}\n\n"
         "data: {\"type\":\"transcript.text.delta\",\"delta\":\" \\\"you\\\"\"}\n\n"
         "data: {\"type\":\"transcript.text.done\",\"text\":\"Hello \\\"you\\\"\"," TOKENS "\n\ndata: [DONE]\n\n"},
    };
    struct client client = start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = send_form(&client, rows[i].fields);
        assert_int_equal(response.status, 200);
        assert_string_equal(response_header(&response, "Content-Type"), rows[i].type);
        assert_string_equal(response.body.v, rows[i].body);
        response_release(&response);
    }
    client_close(&client);
}

static void a_stream_that_breaks_off_ends_with_the_error(void **state)
{
    static const char *const texts[] = {"Hel"};
    static const struct fake_script script = {
        .texts = texts, .n_texts = 1, .fail = HEARTH_CANCELLED, .message = "the disk is gone"};
    struct client client = start(*state);
    fake_play(&script);
    struct response response =
        send_form(&client, (const struct field[FIELDS_MAX]){{"file", SOUND}, {"stream", "true"}});
    assert_contains(response.body.v,
                    "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hel\"}\n\ndata: {\"error\":");
    assert_contains(response.body.v, "the disk is gone");
    response_release(&response);
    client_close(&client);
}

/* ---- What is refused ---- */

static void what_cannot_be_asked_names_its_field(void **state)
{
    static const struct {
        struct field fields[FIELDS_MAX];
        int status;
        const char *param, *says;
    } rows[] = {
        {{{"model", "demo"}}, 400, "file", "'file' is missing"},
        {{{"file", ""}}, 400, "file", "'file': a text is no sound"},
        {{{"file", "path/of/a.wav"}}, 400, "file", "'file': a text is no sound"},
        {{{"file", SOUND}, {"file", SOUND}}, 400, "file", "twice"},
        {{{"file", SOUND}, {"model", "other"}}, 404, "model", "does not exist"},
        {{{"file", SOUND}, {"model", "demo"}, {"model", "demo"}}, 400, "model", "twice"},
        {{{"file", SOUND}, {"model", "\xff"}}, 400, "model", "UTF-8"},
        {{{"file", SOUND}, {"language", "\xc3"}}, 400, "language", "UTF-8"},
        {{{"file", SOUND}, {"response_format", "srt"}}, 400, "response_format", "time stamps"},
        {{{"file", SOUND}, {"response_format", "vtt"}}, 400, "response_format", "time stamps"},
        {{{"file", SOUND}, {"response_format", "diarized_json"}}, 400, "response_format", "json, text or verbose_json"},
        {{{"file", SOUND}, {"timestamp_granularities[]", "word"}}, 400, "timestamp_granularities[]", "time stamps"},
        {{{"file", SOUND}, {"include[]", "logprobs"}}, 400, "include[]", "not supported"},
        {{{"file", SOUND}, {"known_speaker_names[]", "Ann"}}, 400, "known_speaker_names[]", "not supported"},
        {{{"file", SOUND}, {"temperature", "warm"}}, 400, "temperature", "a number"},
        {{{"file", SOUND}, {"temperature", "-101"}}, 400, "temperature", "from -100"},
        {{{"file", SOUND}, {"seed", "true"}}, 400, "seed", "a number"},
        {{{"file", SOUND}, {"stream", "maybe"}}, 400, "stream", "true or false"},
    };
    struct client client = start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = send_form(&client, rows[i].fields);
        struct buf param = {0};
        buf_printf(&param, "\"param\":\"%s\"", rows[i].param);
        if (response.status != rows[i].status) fail_msg("row %zu: %d %s", i, response.status, response.body.v);
        assert_contains(response.body.v, param.v);
        assert_contains(response.body.v, rows[i].says);
        buf_release(&param);
        response_release(&response);
    }
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void a_model_without_a_projector_for_sound_is_refused(void **state)
{
    struct client client = start(*state);
    fake_take_sounds(false);
    struct response response = send_form(&client, (const struct field[FIELDS_MAX]){{"file", SOUND}});
    assert_int_equal(response.status, 400);
    assert_contains(response.body.v, "model 'demo' takes no sound: name one that has a projector for it");
    assert_contains(response.body.v, "\"code\":\"not_supported\",\"param\":\"model\"");
    response_release(&response);
    assert_int_equal(fake_submitted(), 0);
    client_close(&client);
}

static void what_is_no_form_is_refused(void **state)
{
    static const struct {
        const char *type, *body, *says;
    } rows[] = {
        {"application/json", "{\"file\":\"a.wav\"}", "multipart/form-data"},
        {"multipart/form-data", "--b--", "boundary"},
        {TYPE, "", "does not begin with the boundary"},
        {TYPE, "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF", "'file' breaks off"},
    };
    struct client client = start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0};
        buf_puts(&body, rows[i].body);
        struct response response = post(&client, rows[i].type, &body);
        assert_int_equal(response.status, 400);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
        buf_release(&body);
    }
    client_close(&client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_form_becomes_a_chat_with_the_sound_behind_the_line_that_asks),
        TEST(fields_of_chats_are_read_as_numbers_and_words),
        TEST(unknown_fields_are_named),
        TEST(every_format_has_the_content_alone),
        TEST(a_stream_that_breaks_off_ends_with_the_error),
        TEST(what_cannot_be_asked_names_its_field),
        TEST(a_model_without_a_projector_for_sound_is_refused),
        TEST(what_is_no_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
