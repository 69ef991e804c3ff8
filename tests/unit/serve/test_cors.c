/* Web pages at the routes: allowed origins, Host headers, content types, and CORS headers of answers. Each row is
 * one request, as its bytes. */
#include "unit/serve/harness.h"

#include "serve/core/cors.h"

#include <stdio.h>
#include <sys/un.h>

#define CHAT_ROUTE "/v1/chat/completions"
#define CHAT       "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"
#define JSON       "Content-Type: application/json\r\n"

static const hearth_result result = {.prompt_n = 2, .predicted_n = 1};

/* What a row expects, beside its status: CORS headers for this origin (NULL: none), and this error code. */
struct row {
    const char *origin, *host, *type;
    int status;
    bool readable;
    const char *code;
};

static struct response say_and_read(struct harness *h, const char *text, bool has_body)
{
    struct client client = client_open(h->port, 0);
    client_say(&client, text);
    struct response response = client_read(&client, has_body);
    client_close(&client);
    return response;
}

static struct response ask_row(struct harness *h, const char *method, const char *target, const struct row *row,
                               const char *more)
{
    struct buf text = {0};
    bool has_body = strcmp(method, "POST") == 0;
    buf_printf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, target, row->host, more);
    if (row->origin != NULL) buf_printf(&text, "Origin: %s\r\n", row->origin);
    if (row->type != NULL) buf_printf(&text, "Content-Type: %s\r\n", row->type);
    if (has_body) buf_printf(&text, "Content-Length: %zu\r\n", strlen(CHAT));
    buf_printf(&text, "\r\n%s", has_body ? CHAT : "");
    struct response response = say_and_read(h, text.v, strcmp(method, "OPTIONS") != 0);
    buf_release(&text);
    return response;
}

static void check_row(const struct row *row, const char *method, const struct response *response)
{
    const char *allowed = response_header(response, "Access-Control-Allow-Origin");
    const char *origin = row->origin == NULL ? "no origin" : row->origin;
    if (response->status != row->status)
        fail_msg("%d for %s of %s to %s: %s", response->status, method, origin, row->host, response->body.v);
    if ((allowed != NULL) != row->readable) fail_msg("%s may%s read", origin, row->readable ? " not" : "");
    if (allowed != NULL) assert_string_equal(allowed, origin);
    assert_null(response_header(response, "Access-Control-Allow-Credentials"));
    assert_string_equal(response_header(response, "Vary"), "Origin");
    if (row->code != NULL && response->body.len > 0) assert_contains(response->body.v, row->code);
}

static void check_rows(struct harness *h, const char *method, const char *target, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct response response = ask_row(h, method, target, &rows[i], "");
        check_row(&rows[i], method, &response);
        response_release(&response);
    }
}

#define CHECK(h, method, target, rows) check_rows(h, method, target, rows, sizeof(rows) / sizeof *(rows))

static void start(struct harness *h)
{
    static const char *const texts[] = {"Hello"};
    static struct fake_script script = {.texts = texts, .n_texts = 1};
    script.result = result;
    fake_play(&script);
    struct client client = harness_start(h);
    client_close(&client);
}

/* ---- Origins ---- */

static void pages_of_this_machine_and_of_desktop_apps_may_ask_and_others_not(void **state)
{
    static const struct row rows[] = {
        {NULL, "localhost", NULL, 200, false, NULL}, /* no browser */
        {"http://localhost", "localhost:8080", NULL, 200, true, NULL},
        {"http://localhost:3000", "localhost:8080", NULL, 200, true, NULL},
        {"https://localhost:3000", "127.0.0.1:8080", NULL, 200, true, NULL},
        {"HTTP://LOCALHOST:3000", "localhost", NULL, 200, true, NULL},
        {"http://127.0.0.1:5173", "localhost", NULL, 200, true, NULL},
        {"http://127.1.2.3", "localhost", NULL, 200, true, NULL},
        {"http://[::1]:3000", "localhost", NULL, 200, true, NULL},
        {"http://0.0.0.0:3000", "localhost", NULL, 200, true, NULL},
        {"https://tauri.localhost", "localhost", NULL, 200, true, NULL},
        {"tauri://localhost", "localhost", NULL, 200, true, NULL},
        {"vscode-webview://1abc", "localhost", NULL, 200, true, NULL},
        {"app://obsidian.md", "localhost", NULL, 200, true, NULL},
        {"file://", "localhost", NULL, 200, true, NULL},
        {"https://evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"null", "localhost", NULL, 403, false, "server.allowed_origins"},
        {"", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost.evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost@evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost:80@evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://evillocalhost", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://127.0.0.1.evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://128.0.0.1", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://192.168.1.5", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://[::2]", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://[::1].evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"localhost", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http:localhost", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"ftp://localhost", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"xapp://a", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"chrome-extension://abc", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost https://evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://evil.example http://localhost", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost, https://evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"http://localhost/x", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"*", "localhost", NULL, 403, false, "origin_not_allowed"},
    };
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
    CHECK(*state, "GET", "/health", rows); /* public routes refuse foreign origins too */
}

static void pages_that_are_listed_may_ask_too(void **state)
{
    static const struct row rows[] = {
        {"https://chat.example.org", "localhost", NULL, 200, true, NULL},
        {"HTTPS://Chat.Example.org", "localhost", NULL, 200, true, NULL},
        {"http://192.168.1.5:3000", "localhost", NULL, 200, true, NULL},
        {"https://port.example.org", "localhost", NULL, 200, true, NULL},
        {"chrome-extension://abcdef", "localhost", NULL, 200, true, NULL},
        {"https://a.pages.example", "localhost", NULL, 200, true, NULL},
        {"null", "localhost", NULL, 200, true, NULL},
        {"http://chat.example.org", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://chat.example.org:444", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://chat.example.org.evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://evil.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://evil.example/.pages.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://.pages.example.evil", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"https://pages.example", "localhost", NULL, 403, false, "origin_not_allowed"},
        {"moz-extension://abcdef", "localhost", NULL, 403, false, "origin_not_allowed"},
    };
    fake_set("server.allowed_origins", "https://chat.example.org,http://192.168.1.5:*,https://port.example.org:443,"
                                       "chrome-extension://*,https://*.pages.example,null");
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
}

static void a_star_lets_all_pages_in(void **state)
{
    static const struct row rows[] = {
        {"https://any.example", "localhost", NULL, 200, true, NULL},
        {"null", "localhost", NULL, 200, true, NULL},
        {"https://any.example", "any.example", NULL, 403, true,
         "host_not_allowed"}, /* "*" allows origins, not host names */
    };
    fake_set("server.allowed_origins", "*");
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
}

static void of_two_origins_none_is_believed(void **state)
{
    static const char *const rows[] = {"Origin: http://localhost\r\nOrigin: https://evil.example\r\n",
                                       "Origin: https://evil.example\r\norigin: http://localhost\r\n",
                                       "Origin: http://localhost\r\nOrigin: http://localhost\r\n"};
    start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask_row(*state, "GET", "/v1/models", &(struct row){.host = "localhost"}, rows[i]);
        assert_int_equal(response.status, 400);
        assert_contains(response.body.v, "more than one Origin header");
        response_release(&response);
    }
}

/* ---- Preflights ---- */

static void a_preflight_is_answered_to_pages_that_may_ask(void **state)
{
    static const struct row rows[] = {
        {NULL, "localhost", NULL, 204, false, NULL},
        {"http://localhost:3000", "localhost", NULL, 204, true, NULL},
        {"https://evil.example", "localhost", NULL, 403, false, NULL},
        {"null", "localhost", NULL, 403, false, NULL},
        {"http://evil.example", "evil.example", NULL, 403, true,
         NULL}, /* DNS rebinding: the page may read why it is refused */
    };
    static const char *const paths[] = {CHAT_ROUTE, "/v1/models", "/v1/models/demo", "/metrics", "/health"};
    start(*state);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) CHECK(*state, "OPTIONS", paths[i], rows);
    struct response response = ask_row(*state, "OPTIONS", CHAT_ROUTE, &rows[1],
                                       "Access-Control-Request-Method: POST\r\n"
                                       "Access-Control-Request-Headers: authorization, content-type\r\n");
    assert_string_equal(response_header(&response, "Access-Control-Allow-Methods"), "GET, HEAD, POST, DELETE, OPTIONS");
    assert_contains(response_header(&response, "Access-Control-Allow-Headers"), "Authorization, Content-Type");
    assert_null(response_header(&response, "Access-Control-Allow-Private-Network"));
    assert_contains(response_header(&response, "Access-Control-Expose-Headers"), "Retry-After");
    response_release(&response);
    response = ask_row(*state, "OPTIONS", CHAT_ROUTE, &rows[2], "Access-Control-Request-Method: POST\r\n");
    assert_null(response_header(&response, "Access-Control-Allow-Methods"));
    response_release(&response);
}

/* All headers that a page asks for are allowed; a value that could end the header or begin another is not repeated. */
static void a_preflight_repeats_what_the_page_names(void **state)
{
    static const struct row row = {"http://localhost:3000", "localhost", NULL, 204, true, NULL};
    start(*state);
    struct response response = ask_row(*state, "OPTIONS", CHAT_ROUTE, &row,
                                       "Access-Control-Request-Method: POST\r\n"
                                       "Access-Control-Request-Headers: x-mine, anthropic-beta\r\n"
                                       "Access-Control-Request-Private-Network: true\r\n");
    assert_contains(response_header(&response, "Access-Control-Allow-Headers"), ", x-mine, anthropic-beta, *");
    assert_contains(response_header(&response, "Access-Control-Allow-Headers"), "X-Stainless-Timeout");
    assert_string_equal(response_header(&response, "Access-Control-Allow-Private-Network"), "true");
    response_release(&response);
    response = ask_row(*state, "OPTIONS", CHAT_ROUTE, &row, "Access-Control-Request-Headers: a;b\r\n");
    assert_null(strstr(response_header(&response, "Access-Control-Allow-Headers"), "a;b"));
    response_release(&response);
}

/* ---- Bodies ---- */

static void a_body_that_any_page_could_send_is_refused_to_pages(void **state)
{
    static const char page[] = "http://localhost:3000", host[] = "localhost";
    static const struct row rows[] = {
        {page, host, "application/json", 200, true, NULL},
        {page, host, "application/json; charset=utf-8", 200, true, NULL},
        {page, host, "Application/JSON", 200, true, NULL},
        {page, host, "application/vnd.api+json", 200, true, NULL},
        {page, host, NULL, 415, true, "unsupported_media_type"},
        {page, host, "", 415, true, "unsupported_media_type"},
        {page, host, "text/plain", 415, true, "unsupported_media_type"},
        {page, host, "text/plain;charset=UTF-8", 415, true, "unsupported_media_type"},
        {page, host, "text/plain; application/json", 415, true, "unsupported_media_type"},
        {page, host, "text/plain, application/json", 415, true, "unsupported_media_type"},
        {page, host, "text/plain+json", 415, true, "unsupported_media_type"},
        {page, host, "application/x-www-form-urlencoded", 415, true, "unsupported_media_type"},
        {page, host, "multipart/form-data; boundary=application/json", 415, true, "unsupported_media_type"},
        {page, host, "+json", 415, true, "unsupported_media_type"},
        {"https://evil.example", host, "text/plain", 403, false, "origin_not_allowed"},
        {"null", host, "application/x-www-form-urlencoded", 403, false, "origin_not_allowed"},
        /* without Origin it is no browser: curl's default type is a form's */
        {NULL, host, "application/x-www-form-urlencoded", 200, false, NULL},
        {NULL, host, NULL, 200, false, NULL},
    };
    size_t n_good = 0;
    start(*state);
    CHECK(*state, "POST", CHAT_ROUTE, rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) n_good += rows[i].status == 200;
    assert_int_equal(fake_submitted(), n_good);
}

/* Where files are uploaded a page sends a form, and no page of another site does: here its body is none. */
static void a_form_is_taken_from_allowed_pages_where_files_are_uploaded(void **state)
{
    static const char page[] = "http://localhost:3000", host[] = "localhost",
                      form[] = "multipart/form-data; boundary=b";
    static const struct row rows[] = {
        {page, host, form, 400, true, "does not begin with the boundary"},
        {NULL, host, form, 400, false, "does not begin with the boundary"},
        {"https://chat.example.org", host, form, 403, false, "origin_not_allowed"},
        {"null", host, form, 403, false, "origin_not_allowed"},
        {"http://localhost.evil.example", host, form, 403, false, "origin_not_allowed"},
        {"http://evil.example", "evil.example", form, 403, true, "host_not_allowed"}, /* DNS rebinding */
        {page, host, "multipart/form-data2; boundary=b", 415, true, "multipart/form-data"},
        {page, host, "multipart/mixed; boundary=b", 415, true, "multipart/form-data"},
        {page, host, "application/x-www-form-urlencoded", 415, true, "multipart/form-data"},
        {page, host, "application/json", 415, true, "multipart/form-data"},
        {page, host, "text/plain", 415, true, "multipart/form-data"},
        {page, host, NULL, 415, true, "multipart/form-data"},
    };
    start(*state);
    CHECK(*state, "POST", "/v1/audio/transcriptions", rows);
    CHECK(*state, "POST", "/audio/transcriptions", rows);
    assert_int_equal(fake_submitted(), 0);
}

static void an_empty_post_of_a_page_is_a_body_too(void **state)
{
    static const char head[] = "POST /slots/0?action=erase HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n";
    struct buf text = {0};
    start(*state);
    buf_printf(&text, "%s\r\n", head);
    struct response response = say_and_read(*state, text.v, true);
    assert_int_equal(response.status, 415);
    response_release(&response);
    buf_release(&text);
}

/* The body is announced and never sent: only a server that does not wait for it can answer. */
static void a_foreign_page_is_refused_before_its_body_is_read(void **state)
{
    start(*state);
    struct response response = say_and_read(*state,
                                            "POST " CHAT_ROUTE " HTTP/1.1\r\nHost: localhost\r\n" JSON
                                            "Origin: https://evil.example\r\nContent-Length: 30000000\r\n\r\n",
                                            true);
    assert_int_equal(response.status, 403);
    assert_string_equal(response_header(&response, "Connection"), "close");
    response_release(&response);
}

static void the_refusal_has_the_form_of_the_api(void **state)
{
    start(*state);
    struct response response = ask_row(*state, "POST", "/v1/messages",
                                       &(struct row){"https://evil.example", "localhost", NULL, 0, false, NULL}, "");
    assert_int_equal(response.status, 403);
    assert_contains(response.body.v,
                    "{\"type\":\"error\",\"error\":{\"type\":\"permission_error\",\"message\":\"web pages "
                    "of this origin may not use this server: add it to server.allowed_origins\"}");
    response_release(&response);
    response = ask_row(*state, "POST", "/v1/messages",
                       &(struct row){"http://localhost", "localhost", "text/plain", 0, false, NULL}, "");
    assert_int_equal(response.status, 415);
    assert_contains(response.body.v, "\"type\":\"invalid_request_error\"");
    assert_contains(response.body.v, "'Content-Type: application/json'");
    response_release(&response);
}

/* ---- Hosts ---- */

static void without_keys_the_server_answers_to_its_own_names_only(void **state)
{
    static const struct row rows[] = {
        {NULL, "localhost", NULL, 200, false, NULL},
        {NULL, "LOCALHOST:1", NULL, 200, false, NULL},
        {NULL, "localhost.", NULL, 200, false, NULL},
        {NULL, "app.localhost", NULL, 200, false, NULL},
        {NULL, "127.0.0.1:8080", NULL, 200, false, NULL},
        {NULL, "127.9.9.9", NULL, 200, false, NULL},
        {NULL, "[::1]:8080", NULL, 200, false, NULL},
        {NULL, "[0:0:0:0:0:0:0:1]", NULL, 200, false, NULL},
        {NULL, "[::ffff:127.0.0.1]", NULL, 200, false, NULL},
        {NULL, "0.0.0.0:8080", NULL, 200, false, NULL},
        {NULL, "", NULL, 200, false, NULL}, /* no Host */
        {NULL, "named.example:8080", NULL, 200, false, NULL},
        {NULL, "NAMED.example.", NULL, 200, false, NULL},
        {NULL, "10.1.2.3", NULL, 200, false, NULL},
        {NULL, "[fd00::7]:1", NULL, 200, false, NULL},
        {NULL, "evil.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "evil.example:8080", NULL, 403, false, "server.allowed_hosts"},
        {"http://evil.example:8080", "evil.example:8080", NULL, 403, true, "host_not_allowed"}, /* DNS rebinding */
        {NULL, "localhost.evil.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "localhost:8080.evil.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "localhost@evil.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "evil.example@localhost", NULL, 403, false, "host_not_allowed"},
        {NULL, "localhost, evil.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "127.0.0.1.nip.io", NULL, 403, false, "host_not_allowed"},
        {NULL, "2130706433", NULL, 403, false, "host_not_allowed"},
        {NULL, "sub.named.example", NULL, 403, false, "host_not_allowed"},
        {NULL, "other.local", NULL, 403, false, "host_not_allowed"},
        {NULL, "192.168.1.5", NULL, 403, false, "host_not_allowed"}, /* the server listens on 127.0.0.1 only */
        {NULL, "[::2]", NULL, 403, false, "host_not_allowed"},
        {NULL, "[::1", NULL, 403, false, "host_not_allowed"},
        {NULL, "*", NULL, 403, false, "host_not_allowed"},
        {NULL, "b\xc3\xbcro", NULL, 403, false, "host_not_allowed"},
    };
    fake_set("server.allowed_hosts", "named.example,10.1.2.3,fd00::7");
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
    CHECK(*state, "GET", "/health", rows);
}

static void the_machine_is_known_by_its_own_name(void **state)
{
    char own[256] = "", label[256], local[300], longer[300];
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    snprintf(label, sizeof label, "%.*s", (int)strcspn(own, "."), own);
    snprintf(local, sizeof local, "%s.local:8080", label);
    snprintf(longer, sizeof longer, "%s.evil.example", label);
    const struct row rows[] = {
        {NULL, own, NULL, 200, false, NULL},
        {NULL, label, NULL, 200, false, NULL},
        {NULL, local, NULL, 200, false, NULL},
        {NULL, longer, NULL, 403, false, "host_not_allowed"},
    };
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
}

static void a_host_in_the_target_is_judged_as_well(void **state)
{
    static const struct {
        const char *target, *host;
        int status;
    } rows[] = {
        {"http://localhost:8080/v1/models", "localhost", 200},
        {"http://evil.example/v1/models", "localhost", 403},
        {"http://localhost/v1/models", "evil.example", 403},
        {"http://evil.example@localhost/v1/models", "localhost", 403},
        {"http://localhost@evil.example/v1/models", "localhost", 403},
        {"//evil.example/v1/models", "localhost", 404}, /* a path */
    };
    start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask_row(*state, "GET", rows[i].target, &(struct row){.host = rows[i].host}, "");
        if (response.status != rows[i].status) fail_msg("%d for %s", response.status, rows[i].target);
        response_release(&response);
    }
}

static void an_old_client_that_names_no_host_is_answered(void **state)
{
    start(*state);
    struct response response = say_and_read(*state, "GET /health HTTP/1.0\r\n\r\n", true);
    assert_int_equal(response.status, 200);
    response_release(&response);
    response = say_and_read(*state, "GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n", true);
    assert_int_equal(response.status, 403);
    response_release(&response);
}

/* Listening on all addresses allows any address: the machine's may change, and a container's host has others. */
static void a_server_on_all_addresses_answers_to_any_address_and_not_to_any_name(void **state)
{
    static const struct {
        const char *listen, *host;
        bool allowed;
    } rows[] = {
        {"0.0.0.0:8080", "192.168.1.5:8080", true}, {"0.0.0.0:8080", "[fd00::1]", true},
        {"[::]:8080", "192.168.1.5", true},         {"0.0.0.0:8080", "localhost", true},
        {"0.0.0.0:8080", "evil.example", false},    {"0.0.0.0:8080", "192.168.1.5.evil.example", false},
        {"192.168.1.5:8080", "192.168.1.5", true},  {"192.168.1.5:8080", "192.168.1.6", false},
        {"[fd00::1]:8080", "[FD00:0::1]:9", true},  {"box.example:8080", "Box.example", true},
        {"box.example:8080", "192.168.1.5", false}, {"127.0.0.1:8080", "192.168.1.5", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hosts *hosts = hosts_open(NULL);
        hosts_add(hosts, rows[i].listen);
        if (hosts_allow(hosts, rows[i].host) != rows[i].allowed) fail_msg("%s at %s", rows[i].host, rows[i].listen);
        hosts_close(hosts);
    }
}

static void a_star_among_the_hosts_ends_the_check(void **state)
{
    static const struct row rows[] = {{NULL, "any.example", NULL, 200, false, NULL},
                                      {"https://evil.example", "any.example", NULL, 403, false, "origin_not_allowed"}};
    fake_set("server.allowed_hosts", "*");
    start(*state);
    CHECK(*state, "GET", "/v1/models", rows);
}

static void a_page_of_the_server_itself_may_ask(void **state)
{
    static const struct row rows[] = {
        {"http://named.example:8080", "named.example:8080", "application/json", 200, true, NULL},
        {"https://named.example", "Named.Example", "application/json", 200, true,
         NULL}, /* a reverse proxy terminates TLS */
        {"http://named.example:8081", "named.example:8080", "application/json", 403, false, "origin_not_allowed"},
        {"http://evil.example", "named.example", "application/json", 403, false, "origin_not_allowed"},
        {"https://", "", "application/json", 403, false, "origin_not_allowed"},
    };
    fake_set("server.allowed_hosts", "named.example");
    start(*state);
    CHECK(*state, "POST", CHAT_ROUTE, rows);
}

static struct client client_open_unix(const char *path)
{
    struct client client = {.fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    assert_int_equal(connect(client.fd, (struct sockaddr *)&name, sizeof name), 0);
    return client;
}

static void a_unix_socket_takes_any_host_and_no_foreign_page(void **state)
{
    static const struct {
        const char *headers;
        int status;
    } rows[] = {{"Host: any.example\r\n", 200},
                {"Host: any.example\r\nOrigin: https://any.example\r\n", 200},
                {"Host: any.example\r\nOrigin: https://evil.example\r\n", 403}};
    struct harness *h = *state;
    char folder[] = "/tmp/test-cors-XXXXXX", path[64], listen[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(listen, sizeof listen, "unix:%s,127.0.0.1:0", path);
    h->listen = listen;
    start(h);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client = client_open_unix(path);
        struct buf text = {0};
        buf_printf(&text, "GET /v1/models HTTP/1.1\r\n%s\r\n", rows[i].headers);
        client_say(&client, text.v);
        struct response response = client_read(&client, true);
        assert_int_equal(response.status, rows[i].status);
        response_release(&response);
        buf_release(&text);
        client_close(&client);
    }
    kill(getpid(), SIGTERM);
    harness_join(h);
    rmdir(folder);
}

/* ---- With keys ---- */

static void with_keys_any_host_will_do_and_no_foreign_page(void **state)
{
    static const struct row rows[] = {
        {NULL, "any.example", NULL, 200, false, NULL},
        {"https://any.example", "any.example", NULL, 200, true, NULL},
        {"https://evil.example", "any.example", NULL, 403, false, "origin_not_allowed"},
    };
    static const char key[] = "X-Api-Key: a-key-of-tests-0123456789\r\n";
    char path[] = "/tmp/test-cors-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "a-key-of-tests-0123456789\n", 26) == 26);
    close(fd);
    fake_set("server.api_keys_file", path);
    start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask_row(*state, "GET", "/v1/models", &rows[i], key);
        check_row(&rows[i], "GET", &response);
        response_release(&response);
    }
    /* the origin is checked before the key */
    struct response response = ask_row(*state, "GET", "/v1/models", &rows[2], "");
    assert_int_equal(response.status, 403);
    response_release(&response);
    response = ask_row(*state, "GET", "/v1/models", &rows[1], "");
    assert_int_equal(response.status, 401);
    assert_string_equal(response_header(&response, "Access-Control-Allow-Origin"), "https://any.example");
    response_release(&response);
    unlink(path);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(pages_of_this_machine_and_of_desktop_apps_may_ask_and_others_not),
        ROW(pages_that_are_listed_may_ask_too),
        ROW(a_star_lets_all_pages_in),
        ROW(of_two_origins_none_is_believed),
        ROW(a_preflight_is_answered_to_pages_that_may_ask),
        ROW(a_preflight_repeats_what_the_page_names),
        ROW(a_body_that_any_page_could_send_is_refused_to_pages),
        ROW(a_form_is_taken_from_allowed_pages_where_files_are_uploaded),
        ROW(an_empty_post_of_a_page_is_a_body_too),
        ROW(a_foreign_page_is_refused_before_its_body_is_read),
        ROW(the_refusal_has_the_form_of_the_api),
        ROW(without_keys_the_server_answers_to_its_own_names_only),
        ROW(the_machine_is_known_by_its_own_name),
        ROW(a_host_in_the_target_is_judged_as_well),
        ROW(an_old_client_that_names_no_host_is_answered),
        ROW(a_server_on_all_addresses_answers_to_any_address_and_not_to_any_name),
        ROW(a_star_among_the_hosts_ends_the_check),
        ROW(a_page_of_the_server_itself_may_ask),
        ROW(a_unix_socket_takes_any_host_and_no_foreign_page),
        ROW(with_keys_any_host_will_do_and_no_foreign_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
