/* The file of API keys: one key a line, `KEY [NAME] [GRANTS] [LIMITS]`; docs/security.md has the form.
 *
 * Beside them authorization: the key in a request's headers, and whether it has the grant of the route.
 *
 * Only the SHA-256 of a key stays in memory, and no message shows a key. A set of keys is immutable: reloading opens
 * another one. Any thread may read it; access_check() is the HTTP thread's. */
#ifndef SERVE_CORE_KEYS_H
#define SERVE_CORE_KEYS_H

#include "base/sha256.h"
#include "hearth.h"

#define KEYS_NAME_MAX 64

/* Groups of routes, a bit each. */
enum keys_grant {
    KEYS_CHAT = 1 << 0,
    KEYS_COMPLETIONS = 1 << 1,
    KEYS_EMBEDDINGS = 1 << 2,
    KEYS_RERANK = 1 << 3,
    KEYS_MODELS = 1 << 4,
    KEYS_STATUS = 1 << 5,
    KEYS_CACHE = 1 << 6,
    KEYS_ADMIN = 1 << 7,
    KEYS_ALL = (1 << 8) - 1, /* of a route: any key may use it */
    KEYS_PUBLIC = 1 << 8     /* of a route: no key is needed. Not 0, so that a route without a grant is closed */
};

/* Rate limits; 0: unlimited. */
struct key_limits {
    int64_t requests, tokens; /* a minute */
    int64_t slots;            /* slots used at once */
};

struct key {
    uint8_t digest[SHA256_BYTES];
    char name[KEYS_NAME_MAX + 1]; /* "": unnamed; keys of one name have one owner */
    int grants;                   /* at least one */
    struct key_limits limits;
};

struct http_request;
struct keys;
struct server;

/* NULL: the error names file and line. Unwise settings (short keys, a readable file) are logged as warnings. */
struct keys *keys_open(const char *path, hearth_error *error);

/* The same for a file's contents; `file` is its name in messages. */
struct keys *keys_parse(const char *file, const char *text, size_t len, hearth_error *error);
void keys_close(struct keys *keys);

/* The key that a client gave, or NULL. Constant time, whether and whichever it is. */
const struct key *keys_find(const struct keys *keys, const char *given);

/* Whether the keys belong to more than one owner. */
bool keys_have_several_owners(const struct keys *keys);

/* "chat": the name of the first of the grants. */
const char *keys_grant_name(int grants);

/* HEARTH_OK if the request may use a route that needs that grant. `key` gets the request's API key,
 * which lives until the keys are reloaded; NULL if it has none. */
int access_check(const struct server *server, const struct http_request *http, int grant, const struct key **key,
                 hearth_error *error);

/* The owner of an API key, in the form that cache salts use: "name alice", or "key " and its digest. free() it. No
 * client can write a salt that begins with another owner's, since names have no blanks and no line ends. */
char *access_owner(const struct key *key);

#endif
