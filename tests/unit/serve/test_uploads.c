/* Images, sounds and documents in bodies: what each API sends, as messages and bytes, and what is refused. In bodies
 * here ' stands for ". */
#include "base/base64.h"
#include "base/error.h"
#include "base/memory.h"
#include "json_trees.h"
#include "serve/anthropic/anthropic.h"
#include "serve/ollama/ollama.h"
#include "serve/responses/responses.h"
#include "unit/serve/dialect_rig.h"

#include <stdint.h>

static char *quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *at = copy; *at != '\0'; at++)
        if (*at == '\'') *at = '"';
    return copy;
}

static struct fields *read_body(const struct fields_api *api, const char *text, hearth_error *error)
{
    char *body = quoted(text);
    *error = (hearth_error){0};
    json_t *tree = fields_parse(body, strlen(body), error);
    if (tree == NULL) fail_msg("%s: %s", body, error->message);
    struct fields *fields = fields_open_tree(tree, FIELDS_CHAT, api, error);
    free(body);
    return fields;
}

/* ---- What is taken ---- */

struct taken {
    const struct fields_api *api; /* NULL: OpenAI's chats */
    const char *body, *messages;
    struct {
        const char *bytes, *field;
    } media[4];
};

static void assert_messages(const struct fields *fields, const struct taken *row)
{
    char *text = quoted(row->messages);
    json_t *wanted = rig_json(text), *got = rig_json(text_of_json(fields->params.messages));
    if (!json_equal(wanted, got)) fail_msg("%s: %s", row->body, text_of_json(fields->params.messages));
    json_decref(wanted);
    json_decref(got);
    free(text);
}

static void assert_taken(const struct taken *row)
{
    hearth_error error;
    struct fields *fields = read_body(row->api, row->body, &error);
    size_t n = 0;
    if (fields == NULL) fail_msg("%s: %s", row->body, error.message);
    assert_messages(fields, row);
    while (n < 4 && row->media[n].bytes != NULL) n++;
    if (fields->params.n_media != n) fail_msg("%s: %zu media", row->body, fields->params.n_media);
    for (size_t i = 0; i < n; i++) {
        const hearth_medium *medium = &fields->params.media[i];
        assert_int_equal(medium->len, strlen(row->media[i].bytes));
        assert_memory_equal(medium->bytes, row->media[i].bytes, medium->len);
        assert_string_equal(medium->field, row->media[i].field);
    }
    fields_close(fields);
}

#define ASSERT_ALL_TAKEN(rows)                                                                                         \
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_taken(&rows[i])

#define USER(parts) "[{'role':'user','content':[" parts "]}]"
#define CHAT(parts) "{'messages':" USER(parts) "}"
#define TEXT(text)  "{'type':'text','text':'" text "'}"
#define IMAGE(n)    "{'type':'image_url','media':" n "}"
#define AUDIO(n)    "{'type':'input_audio','media':" n "}"
#define VIDEO(n)    "{'type':'input_video','media':" n "}"
#define DOCUMENT(n) "{'type':'file','media':" n "}"

static void a_chat_has_media_among_its_parts(void **unused)
{
    (void)unused;
    static const struct taken rows[] = {
        {NULL,
         CHAT(TEXT("a") ",{'type':'image_url','image_url':{'url':'data:image/png;base64,aGk=','detail':'high'}},"
                        "" TEXT("b") ",{'type':'image_url','image_url':'eW8='}"),
         USER(TEXT("a") "," IMAGE("0") "," TEXT("b") "," IMAGE("1")),
         {{"hi", "messages[0].content[1].image_url.url"}, {"yo", "messages[0].content[3].image_url"}}},
        {NULL,
         CHAT("{'type':'input_audio','input_audio':{'data':'aGk=','format':'wav'}},"
              "{'type':'file','file':{'filename':'a.pdf','file_data':'data:application/pdf;base64,eW8='}},"
              "{'type':'audio_url','audio_url':{'url':'data:audio/mpeg;base64,YQ=='}}"),
         USER(AUDIO("0") "," DOCUMENT("1") "," AUDIO("2")),
         {{"hi", "messages[0].content[0].input_audio.data"},
          {"yo", "messages[0].content[1].file.file_data"},
          {"a", "messages[0].content[2].audio_url.url"}}},
        {NULL,
         CHAT("{'type':'video_url','video_url':{'url':'aGk='}},{'type':'input_video','input_video':{'data':'eW8='}},"
              "{'type':'input_video','input_video':{'url':'YQ=='}},{'type':'video_url','video_url':'Yg=='}"),
         USER(VIDEO("0") "," VIDEO("1") "," VIDEO("2") "," VIDEO("3")),
         {{"hi", "messages[0].content[0].video_url.url"},
          {"yo", "messages[0].content[1].input_video.data"},
          {"a", "messages[0].content[2].input_video.url"},
          {"b", "messages[0].content[3].video_url"}}},
        /* Any message may have media. One without content, or with null, has none. */
        {NULL,
         "{'messages':[{'role':'user','content':null},{'role':'assistant'},{'role':'system','content':'s'},"
         "{'role':'tool','tool_call_id':'c','content':[{'type':'image_url','image_url':{'url':'aGk='}}]}]}",
         "[{'role':'user','content':null},{'role':'assistant'},{'role':'system','content':'s'},"
         "{'role':'tool','tool_call_id':'c','content':[" IMAGE("0") "]}]",
         {{"hi", "messages[3].content[0].image_url.url"}}},
        /* Which medium a part names is not the client's to say; parts of other types lose their data. */
        {NULL,
         CHAT("{'type':'image_url','media':5,'image_url':{'url':'aGk='}},{'type':'thing','media':0,'data':'aGk='},"
              "{'type':'refusal','refusal':'no','media':0},{'type':'text','text':'a','media':0}"),
         USER(IMAGE("0") ",{'type':'thing'},{'type':'refusal','refusal':'no'}," TEXT("a")),
         {{"hi", "messages[0].content[0].image_url.url"}}},
    };
    ASSERT_ALL_TAKEN(rows);
}

static void base64_comes_in_several_forms(void **unused)
{
    (void)unused;
    static const char *const texts[][2] = {{"data:image/png;base64,aGk=", "hi"},
                                           {"DATA:image/svg+xml;charset=utf-8;BASE64,aGk", "hi"},
                                           {"data:;base64,aGk=", "hi"},
                                           {"data:image/png;name=a.png;base64, aG\\r\\nk=\\n", "hi"},
                                           {"aGk", "hi"},
                                           {" a G k =", "hi"},
                                           {"Pz8_Pj4-", "?\?\?>>>"},
                                           {"Pz8\\/Pj4+", "?\?\?>>>"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buf body = {0};
        buf_printf(&body, CHAT("{'type':'image_url','image_url':{'url':'%s'}}"), texts[i][0]);
        struct taken row = {NULL, body.v, USER(IMAGE("0")), {{texts[i][1], "messages[0].content[0].image_url.url"}}};
        assert_taken(&row);
        buf_release(&body);
    }
}

static void messages_of_anthropic_have_media_as_sources(void **unused)
{
    (void)unused;
    static const struct taken rows[] = {
        {&anthropic_api,
         "{'system':[{'type':'text','text':'s'},{'type':'image','source':{'type':'base64','data':'YQ=='}}],"
         "'messages':[{'role':'user','content':["
         "{'type':'image','source':{'type':'base64','media_type':'image/png','data':'aGk='}},"
         "{'type':'text','text':'a'},"
         "{'type':'document','title':'t','source':{'type':'base64','media_type':'application/pdf','data':'eW8='}}]}]}",
         "[{'role':'system','content':[" TEXT("s") "," IMAGE("0") "]},{'role':'user','content':[" IMAGE("1") "," TEXT(
             "a") "," TEXT("t") "," DOCUMENT("2") "]}]",
         {{"a", "system[1].source.data"},
          {"hi", "messages[0].content[0].source.data"},
          {"yo", "messages[0].content[2].source.data"}}},
        /* What a tool gave, what is in a document of blocks, and a data URL as a URL. */
        {&anthropic_api,
         "{'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'t','content':["
         "{'type':'text','text':'a'},{'type':'image','source':{'type':'base64','data':'aGk='}}]},"
         "{'type':'document','source':{'type':'content','content':["
         "{'type':'image','source':{'type':'base64','data':'eW8='}}]}},"
         "{'type':'image','source':{'type':'url','url':'data:image/png;base64,YQ=='}}]}]}",
         "[{'role':'tool','tool_call_id':'t','content':[" TEXT("a") "," IMAGE(
             "0") "]},{'role':'user','content':[" IMAGE("1") "," IMAGE("2") "]}]",
         {{"hi", "messages[0].content[0].content[1].source.data"},
          {"yo", "messages[0].content[1].source.content[0].source.data"},
          {"a", "messages[0].content[2].source.url"}}},
        /* Documents of text are text. */
        {&anthropic_api,
         "{'messages':" USER("{'type':'document','source':{'type':'text','media_type':'text/plain','data':'a'}}") "}",
         "[{'role':'user','content':'a'}]",
         {{NULL, NULL}}},
    };
    ASSERT_ALL_TAKEN(rows);
}

static void items_of_responses_have_media_among_their_parts(void **unused)
{
    (void)unused;
    static const struct taken rows[] = {
        {&responses_api,
         "{'input':[{'role':'user','content':[{'type':'input_text','text':'a'},{'type':'input_image','detail':'auto',"
         "'file_id':null,'image_url':'data:image/png;base64,aGk='},{'type':'input_audio','input_audio':{'data':'eW8=',"
         "'format':'wav'}},{'type':'input_file','filename':'a.pdf','file_data':'data:application/pdf;base64,YQ=='}]},"
         "{'type':'function_call_output','call_id':'c','output':[{'type':'input_image','image_url':{'url':'Yg=='}}]}]}",
         "[{'role':'user','content':[" TEXT("a") "," IMAGE("0") "," AUDIO("1") "," DOCUMENT(
             "2") "]},{'role':'tool','tool_call_id':'c','content':[" IMAGE("3") "]}]",
         {{"hi", "input[0].content[1].image_url"},
          {"yo", "input[0].content[2].input_audio.data"},
          {"a", "input[0].content[3].file_data"},
          {"b", "input[1].output[0].image_url.url"}}},
    };
    ASSERT_ALL_TAKEN(rows);
}

static void images_of_ollama_stand_before_the_text(void **unused)
{
    (void)unused;
    static const struct taken rows[] = {
        {&ollama_chat_api,
         "{'messages':[{'role':'user','content':'a','images':['aGk=','eW8=']},{'role':'tool','content':'b',"
         "'images':['YQ==']},{'role':'user','content':null,'images':[]},{'role':'user','images':['Yg==']}]}",
         "[{'role':'user','content':[{'type':'image_url','media':0},{'type':'image_url','media':1},"
         "{'type':'text','text':'a'}]},"
         "{'role':'tool','tool_call_id':'call','content':[{'type':'image_url','media':2},{'type':'text','text':'b'}]},"
         "{'role':'user','content':''},"
         "{'role':'user','content':[{'type':'image_url','media':3},{'type':'text','text':''}]}]",
         {{"hi", "messages[0].images[0]"},
          {"yo", "messages[0].images[1]"},
          {"a", "messages[1].images[0]"},
          {"b", "messages[3].images[0]"}}},
        {&ollama_generate_api,
         "{'prompt':'a','system':'s','images':['aGk=','data:image/png;base64,eW8=']}",
         "[{'role':'system','content':'s'},{'role':'user','content':[" IMAGE("0") "," IMAGE("1") "," TEXT("a") "]}]",
         {{"hi", "images[0]"}, {"yo", "images[1]"}}},
    };
    ASSERT_ALL_TAKEN(rows);
}

/* Nothing is fetched here, and nothing refused: that is for the model's configuration to say. */
static void a_url_stays_one(void **unused)
{
    (void)unused;
    static const char *const urls[] = {"https://example.com/a.png", "file:///etc/passwd", "HTTP://127.0.0.1/",
                                       "svn+ssh://a/b"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        hearth_error error;
        char *body = mem_format(
            "{'messages':[{'role':'user','content':[{'type':'image_url','image_url':{'url':'%s'}}]}]}", urls[i]);
        struct fields *fields = read_body(NULL, body, &error);
        assert_non_null(fields);
        assert_int_equal(fields->params.n_media, 1);
        const hearth_medium *medium = &fields->params.media[0];
        assert_string_equal(medium->url, urls[i]);
        assert_string_equal(medium->field, "messages[0].content[0].image_url.url");
        assert_true(medium->bytes == NULL && medium->len == 0 && medium->fault == NULL);
        fields_close(fields);
        free(body);
    }
}

/* ---- What is refused ---- */

struct refused {
    const struct fields_api *api;
    const char *body;
    int code;
    const char *field, *message;
};

enum { LATER = 0 }; /* by a model that takes such media: the medium has a fault */

/* Of the media the one with a fault, as an error. */
static void find_fault(const struct fields *fields, hearth_error *error)
{
    for (size_t i = 0; i < fields->params.n_media; i++) {
        const hearth_medium *medium = &fields->params.media[i];
        if (medium->fault == NULL) continue;
        assert_null(medium->bytes);
        error_at(error, HEARTH_OK, medium->field, "%s", medium->fault);
        return;
    }
    fail_msg("no medium has a fault");
}

#define URL(url)      CHAT("{'type':'image_url','image_url':{'url':'" url "'}}")
#define URL_FIELD     "messages[0].content[0].image_url.url"
#define SOURCE(inner) "{'messages':" USER("{'type':'image','source':{" inner "}}") "}"
#define INPUT(part)   "{'input':[{'role':'user','content':[" part "]}]}"

static void what_cannot_be_taken_is_refused_by_its_place(void **unused)
{
    (void)unused;
    static const struct refused rows[] = {
        {NULL, URL("data:image/svg+xml,%3Csvg/%3E"), LATER, URL_FIELD,
         "is a data URL without \";base64\": percent-encoded data is not read here, send base64"},
        {NULL, URL("data:image/png;base64,aGk%3D"), LATER, URL_FIELD,
         "is percent-encoded, which is not read here: send the data as plain base64"},
        {NULL, URL("data:image/png;base64"), LATER, URL_FIELD, "is a data URL without a comma"},
        {NULL, URL("data:image/png;base64,aG*="), LATER, URL_FIELD,
         "is not base64: its byte 25 is not of that alphabet. Send base64, or a data URL with it"},
        {NULL, URL("cat.png"), LATER, URL_FIELD, "is not base64: its byte 4 is not of that alphabet"},
        {NULL, URL("aGk=\\u0000"), LATER, URL_FIELD, "byte 5"},
        {NULL, URL("aGk=="), LATER, URL_FIELD, "is not base64: the padding (\"=\") at its end is wrong"},
        {NULL, URL("aGkhI"), LATER, URL_FIELD, "or characters are missing"},
        {NULL, URL(""), LATER, URL_FIELD, "is empty: send base64, or a data URL with it"},
        {NULL, URL("data:image/png;base64, "), LATER, URL_FIELD, "is empty"},
        {NULL, CHAT("{'type':'image_url'}"), LATER, URL_FIELD, "is missing: base64, or a data URL with it"},
        {NULL, CHAT("{'type':'image_url','media':0}"), LATER, URL_FIELD, "is missing"},
        {NULL, CHAT("{'type':'image_url','image_url':{'url':null}}"), LATER, URL_FIELD, "is missing"},
        {NULL, CHAT("{'type':'image_url','image_url':{'url':5}}"), LATER, URL_FIELD,
         "must be a string: base64, or a data URL with it"},
        {NULL, CHAT("{'type':'image_url','image_url':['aGk=']}"), LATER, URL_FIELD, "is missing"},
        {NULL, CHAT(TEXT("a") ",{'type':'input_audio','input_audio':{'data':'?'}}"), LATER,
         "messages[0].content[1].input_audio.data", "is not base64"},
        {NULL, CHAT("{'type':'file','file':{'file_id':'file-1'}}"), LATER, "messages[0].content[0].file.file_data",
         "is missing: a file_id names a file that was uploaded before, and none are kept here"},
        {&responses_api, INPUT("{'type':'input_image','file_id':'file-1'}"), LATER, "input[0].content[0].image_url.url",
         "a file_id names a file"},
        {&responses_api, INPUT("{'type':'input_file','file_id':'file-1'}"), LATER, "input[0].content[0].file_data",
         "a file_id names a file"},
        {&responses_api, "{'input':[{'type':'reasoning','content':[{'type':'input_image','image_url':'aGk='}]}]}",
         HEARTH_INVALID, "input[0]", "has media in its reasoning: send text alone"},
        {&anthropic_api, SOURCE("'type':'file','file_id':'file_1'"), LATER, "messages[0].content[0].source.data",
         "a file_id names a file"},
        {&anthropic_api, SOURCE("'type':'base64','data':'a.b'"), LATER, "messages[0].content[0].source.data",
         "is not base64"},
        {&anthropic_api,
         "{'messages':" USER("{'type':'tool_result','tool_use_id':'t','content':[{'type':'image'}]}") "}", LATER,
         "messages[0].content[0].content[0].source.data", "is missing"},
        {&anthropic_api,
         "{'messages':" USER("{'type':'document','source':{'type':'content','content':[{'type':'tool_use'}]}}") "}",
         HEARTH_UNSUPPORTED, "messages[0].content[0].source.content[0].type", "is \"tool_use\""},
        {&ollama_chat_api, "{'messages':[{'role':'user','content':'a','images':['aGk=','no!']}]}", LATER,
         "messages[0].images[1]", "is not base64: its byte 3"},
        {&ollama_chat_api, "{'messages':[{'role':'user','content':'a','images':[{}]}]}", LATER, "messages[0].images[0]",
         "must be a string"},
        {&ollama_generate_api, "{'prompt':'a','images':['/tmp/a.png']}", LATER, "images[0]",
         "is not base64: its byte 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hearth_error error;
        struct fields *fields = read_body(rows[i].api, rows[i].body, &error);
        if ((fields == NULL) != (rows[i].code != LATER)) fail_msg("%s: %s", rows[i].body, error.message);
        if (fields != NULL) find_fault(fields, &error);
        if (error.code != (hearth_code)rows[i].code || strcmp(error.param, rows[i].field) != 0 ||
            strstr(error.message, rows[i].field) != error.message + 1 || strstr(error.message, rows[i].message) == NULL)
            fail_msg("%s: %d %s: %s", rows[i].body, error.code, error.param, error.message);
        if (fields != NULL) fields_close(fields);
    }
}

/* ---- Images without a part ---- */

/* A file of 60 bytes that begins like this one, in base64: 80 characters. */
static char *file_of(const char *head, size_t len)
{
    uint8_t bytes[60];
    struct buf text = {0};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i < len ? (uint8_t)head[i] : (uint8_t)(i * 37);
    base64_put(&text, bytes, sizeof bytes);
    return buf_take(&text);
}

/* How many media the message is taken for. */
static size_t n_media_of(const char *role, const char *content)
{
    struct buf body = {0};
    hearth_error error;
    buf_printf(&body, "{'messages':[{'role':'%s','content':'%s'}]}", role, content);
    struct fields *fields = read_body(NULL, body.v, &error);
    if (fields == NULL) fail_msg("%s", error.message);
    size_t n = fields->params.n_media;
    if (n > 0) {
        assert_string_equal(text_of_json(fields->params.messages),
                            "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"media\":0}]}]");
        assert_string_equal(fields->params.media[0].field, "messages[0].content");
        assert_true(fields->params.media[0].len >= 46);
    } else {
        assert_non_null(strstr(text_of_json(fields->params.messages), content));
    }
    fields_close(fields);
    buf_release(&body);
    return n;
}

static void a_message_of_base64_alone_is_an_image_if_it_can_be_nothing_else(void **unused)
{
    (void)unused;
    static const struct {
        const char *head;
        size_t len, n;
    } files[] = {{"\x89PNG\r\n\x1a\n", 8, 1},
                 {"\xff\xd8\xff\xe0", 4, 1},
                 {"GIF87a", 6, 1},
                 {"GIF89a", 6, 1},
                 {"RIFF\x10\x20\0\0WEBPVP8 ", 16, 1},
                 {"RIFF\x10\x20\0\0WAVEfmt ", 16, 0},
                 {"GIF88a", 6, 0},
                 {"%PDF-1.7", 8, 0},
                 {"hello", 5, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text = file_of(files[i].head, files[i].len);
        if (n_media_of("user", text) != files[i].n) fail_msg("%s", text);
        assert_int_equal(n_media_of("assistant", text), 0);
        free(text);
    }
}

static void text_that_only_begins_like_an_image_stays_text(void **unused)
{
    (void)unused;
    char *png = file_of("\x89PNG\r\n\x1a\n", 8);
    struct buf text = {0};
    static const char *const more[] = {" ", ".", "?", "A", "AA", "AAA", "==", "A===", "AA==AAAA", "\\n"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        buf_clear(&text);
        buf_printf(&text, "%s%s", png, more[i]);
        if (n_media_of("user", text.v) != 0) fail_msg("%s", text.v);
    }
    buf_clear(&text);
    buf_printf(&text, "%.60s", png); /* whole, and short */
    assert_int_equal(n_media_of("user", text.v), 0);
    buf_clear(&text);
    buf_printf(&text, "%.62s==", png);
    assert_int_equal(n_media_of("user", text.v), 1);
    buf_release(&text);
    free(png);
}

/* ---- Memory ---- */

static void the_text_is_gone_when_its_bytes_are_there(void **unused)
{
    (void)unused;
    struct uploads uploads = {0};
    json_t *good = json_string("aGkh"), *bad = json_string("?");
    uploads_take(&uploads, good, "f");
    uploads_take(&uploads, bad, "f");
    assert_int_equal(json_string_length(good), 0);
    assert_int_equal(json_string_length(bad), 0);
    assert_int_equal(uploads.n, 2);
    assert_null(uploads.v[0].fault);
    assert_non_null(uploads.v[1].fault);
    uploads_release(&uploads);
    json_decref(good);
    json_decref(bad);
}

static void bytes_count_in_the_size_of_a_request_and_are_shared_by_its_choices(void **unused)
{
    (void)unused;
    enum { LEN = 100000 };
    hearth_error error;
    struct buf body = {0};
    size_t n;
    buf_puts(&body, "{'n':3,'messages':[{'role':'user','content':[{'type':'image_url','image_url':'");
    for (int i = 0; i < LEN / 4; i++) buf_puts(&body, "AAAA");
    buf_puts(&body, "'}]}]}");
    struct fields *fields = read_body(NULL, body.v, &error);
    assert_non_null(fields);
    assert_in_range(fields_size(fields), LEN / 4 * 3, LEN / 4 * 3 + 20000);
    hearth_params *choices = fields_choices(fields, &n);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(choices[i].media, fields->params.media);
        assert_int_equal(choices[i].n_media, 1);
    }
    free(choices);
    fields_close(fields);
    buf_release(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_has_media_among_its_parts),
        cmocka_unit_test(base64_comes_in_several_forms),
        cmocka_unit_test(messages_of_anthropic_have_media_as_sources),
        cmocka_unit_test(items_of_responses_have_media_among_their_parts),
        cmocka_unit_test(images_of_ollama_stand_before_the_text),
        cmocka_unit_test(a_url_stays_one),
        cmocka_unit_test(what_cannot_be_taken_is_refused_by_its_place),
        cmocka_unit_test(a_message_of_base64_alone_is_an_image_if_it_can_be_nothing_else),
        cmocka_unit_test(text_that_only_begins_like_an_image_stays_text),
        cmocka_unit_test(the_text_is_gone_when_its_bytes_are_there),
        cmocka_unit_test(bytes_count_in_the_size_of_a_request_and_are_shared_by_its_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
