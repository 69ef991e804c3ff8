/* The web page: see page.h.
 *
 * The page may run its own scripts and nothing else, ask this server and no other, and stand in no frame. A model's
 * reply cannot change that, whatever the page's renderer lets through. */
#include "serve/page/page.h"

#include "base/sha256.h"
#include "serve/core/errors.h"
#include "serve/page/page_files.h"
#include "serve/status/status.h"

#include <string.h>

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
                             "media-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'";

static const char *type_of(const char *name)
{
    static const struct {
        const char *ending, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".svg", "image/svg+xml"},
                 {".txt", "text/plain; charset=utf-8"}};
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(ending, types[i].ending) == 0) return types[i].type;
    return "application/octet-stream";
}

static const struct page_file *find_file(const char *name)
{
    for (size_t i = 0; i < page_n_files; i++)
        if (strcmp(page_files[i].name, name) == 0) return &page_files[i];
    return NULL;
}

static void send_file(struct call *call, const struct page_file *file)
{
    char tag[2 * SHA256_BYTES + 3];
    const char *known = http_header(call->http, "If-None-Match");
    struct buf body = {0};
    uint8_t digest[SHA256_BYTES];
    sha256_of(file->bytes, file->len, digest);
    sha256_to_hex(digest, tag + 1);
    tag[0] = tag[2 * SHA256_BYTES + 1] = '"'; /* a strong ETag: of the bytes alone */
    tag[2 * SHA256_BYTES + 2] = '\0';
    const struct {
        const char *name, *value;
    } headers[] = {{"Content-Security-Policy", policy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Opener-Policy", "same-origin"},
                   {"Cache-Control", "no-cache"},
                   {"ETag", tag},
                   {"Cross-Origin-Resource-Policy", "same-origin"}};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        http_set_header(call->http, headers[i].name, headers[i].value);
    if (known != NULL && strstr(known, tag) != NULL) {
        call_reply(call, 304, NULL, &body);
        return;
    }
    buf_append(&body, file->bytes, file->len);
    call_reply(call, 200, type_of(file->name), &body);
}

/* Clients look at GET / whether a server runs; browsers ask for a page. */
void page_root(struct call *call)
{
    const char *accepted = http_header(call->http, "Accept");
    const struct page_file *index = find_file("index.html");
    http_set_header(call->http, "Vary", "Accept");
    if (accepted == NULL || strstr(accepted, "text/html") == NULL || index == NULL)
        status_root(call);
    else
        send_file(call, index);
}

void page_file(struct call *call)
{
    const struct page_file *file = find_file(call_path_rest(call));
    if (file != NULL)
        send_file(call, file);
    else
        call_refuse(call, errors_put, HEARTH_NOT_FOUND, "", "the page has no file of that name");
}
