/* URLs that models are pulled from: where they lead, what of them may be shown, and which redirects are followed. And
 * one GET at a time of a source's server, by libcurl. Redirects are followed one by one, since each may lead to another
 * host, and the token goes to its own origin alone. Proxies come from the environment, as libcurl reads it; no cookies,
 * no credentials of the user's files.
 *
 * Any thread; a request belongs to one. pull_web_get() blocks; download.c runs several requests at once. */
#ifndef PULL_WEB_H
#define PULL_WEB_H

#include "base/buf.h"
#include "hearth.h"

#include <curl/curl.h>
#include <stdbool.h>

/* ---- URLs ---- */

struct pull_url {
    char *text;
    char *origin; /* scheme://host:port, in small letters: the scope of a token */
    bool secure;  /* https */
    bool loopback;
};

/* HEARTH_INVALID for anything but a whole http or https URL without a user's name. Frees what was in `url`. */
int pull_url_read(const char *text, struct pull_url *url, hearth_error *error);
void pull_url_release(struct pull_url *url);

/* HEARTH_UNSUPPORTED unless bytes may be fetched from there: https, or http on this machine or where it is allowed. */
int pull_url_allow(const struct pull_url *url, bool allow_http, hearth_error *error);

/* HEARTH_UNSUPPORTED unless a redirect may lead there: never from https to http, nor from another machine to this one.
 */
int pull_url_allow_redirect(const struct pull_url *from, const struct pull_url *to, bool allow_http,
                            hearth_error *error);

/* Appends the URL without its query, which may be signed: a secret; control characters are escaped. */
void pull_url_put(struct buf *out, const char *url);

/* Appends the last part of the URL's path, decoded. False: it has none, or with a zero byte in it. */
bool pull_url_put_file(struct buf *out, const char *url);

/* A copy with another last part of its path, which is encoded; the query stays. */
char *pull_url_with_file(const char *url, const char *file);

/* Appends a path of several parts, encoded but for its slashes. */
void pull_url_put_path(struct buf *out, const char *path);

/* ---- Requests ---- */

/* The settings of all requests of a pull. Strings are borrowed. */
struct pull_web {
    const char *token;        /* a bearer token; NULL: none */
    const char *token_origin; /* the only origin that gets it, as in struct pull_url */
    bool allow_http;
    bool public_only;  /* connects to public addresses alone, redirects included, and through no proxy, which would not
                          look at them */
    int stall_seconds; /* without a kilobyte: the connection is given up */
    int retries;       /* of a request that fails without having brought anything */
    /* Asked several times a second, and once a second while nothing comes; true ends what is under way with
     * HEARTH_CANCELLED. NULL: never. */
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* The head of an answer; numbers that it does not have are -1. */
struct pull_head {
    long status;
    int64_t length;                         /* Content-Length */
    int64_t range_first, range_last, total; /* Content-Range */
    bool has_end;                           /* without a length: it is sent in chunks, so that its end is marked */
    bool is_encoded;                        /* Content-Encoding: not the bytes themselves */
    char *etag;                             /* a strong one; NULL: none */
    char *next;                             /* Link: rel="next" */
};

struct pull_request {
    const struct pull_web *web;
    const char *url;   /* where it begins; borrowed */
    const char *range; /* "0-99"; NULL: all. Borrowed, as the next */
    const char *etag;  /* the range is wanted only where this is still the entity's (If-Range); NULL: in any case */
    /* Takes bytes of the body of a 200 or 206, whose head is whole. False ends the request, which then counts as
     * ended well where `enough` is set, and otherwise has failed with `error`. */
    bool (*take)(struct pull_request *request, const char *bytes, size_t len);
    void *ud;
    bool enough;
    hearth_error error;

    struct pull_head head;
    CURL *curl;
    struct curl_slist *fields;
    struct pull_url at; /* where it has got to */
    int redirects;
    size_t ignored; /* bytes of a body that is not wanted */
};

/* How a request ended. */
enum pull_end {
    PULL_FINE,
    PULL_REDIRECTED, /* perform it once more */
    PULL_AGAIN,      /* failed in a way that may pass */
    PULL_FAILED      /* for good */
};

/* HEARTH_CANCELLED where the pull is not to go on. */
int pull_web_check(const struct pull_web *web, hearth_error *error);

/* Makes the request ready to be performed, for the first time or again. */
int pull_request_begin(struct pull_request *request, hearth_error *error);

/* Decides how a request ended, once libcurl is through. PULL_AGAIN and PULL_FAILED come with an error. */
enum pull_end pull_request_end(struct pull_request *request, CURLcode code, hearth_error *error);

/* Seconds to wait before the next attempt: ever longer, no less than the answer's Retry-After, but 60 at most. */
double pull_request_pause(const struct pull_request *request, int failures);

void pull_request_release(struct pull_request *request);

/* Performs a request with its redirects and retries, and blocks meanwhile. The answer's head stays in the request. */
int pull_web_get(struct pull_request *request, hearth_error *error);

#endif
