/* The HTTP client of commands: see remote.h. */
#include "cli/remote.h"

#include "base/memory.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

/* Seconds. A POST may have megabytes to send, and wait in the server's admission queue. */
#define GET_TIMEOUT  10L
#define POST_TIMEOUT 300L

struct remote remote_open(const char *url)
{
    size_t len = strlen(url);
    const char *key = getenv("HEARTH_API_KEY");
    while (len > 0 && url[len - 1] == '/') len--;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return (struct remote){.url = mem_strndup(url, len), .key = key != NULL ? key : "none"};
}

void remote_close(struct remote *remote)
{
    free(remote->url);
    curl_global_cleanup();
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *ud)
{
    buf_append(ud, bytes, size * n);
    return size * n;
}

static void set_body(CURL *curl, const struct buf *body)
{
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, buf_text(body));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
}

long remote_ask(const struct remote *remote, const char *path, const struct buf *body, struct buf *answer)
{
    long status = 0;
    char *url = mem_format("%s%s", remote->url, path), *key = mem_format("Authorization: Bearer %s", remote->key);
    struct curl_slist *headers = curl_slist_append(NULL, key);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, body == NULL ? GET_TIMEOUT : POST_TIMEOUT);
    if (body != NULL) set_body(curl, body);
    if (curl_easy_perform(curl) == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(key);
    free(url);
    return status;
}
