/* The file of API keys: one a line, `KEY [NAME] [GRANTS] [LIMITS]`, and who of them may do what; docs/security.md has
 * the form.
 *
 * Of a key only its digest stays in memory, and no message shows a key. A set of keys never changes: reloading opens
 * another one. Any thread may read it. */
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
    KEYS_ALL = (1 << 8) - 1, /* of a route: any key will do */
    KEYS_PUBLIC = 1 << 8     /* of a route: no key is needed. Not 0: a route that says nothing is closed */
};

/* 0: none. */
struct key_limits {
    int64_t requests, tokens; /* a minute */
    int64_t slots;            /* at once */
};

struct key {
    uint8_t digest[SHA256_BYTES];
    char name[KEYS_NAME_MAX + 1]; /* ""; several keys may have one name: they are the same owner's */
    int grants;                   /* at least one */
    struct key_limits limits;
};

struct keys;

/* NULL: the error names file and line. What is unwise but no fault goes to the log. */
struct keys *keys_open(const char *path, hearth_error *error);

/* The same of a file's contents; `file` is its name in messages. */
struct keys *keys_parse(const char *file, const char *text, size_t len, hearth_error *error);
void keys_close(struct keys *keys);

/* The key that was given, or NULL. Takes the same time whichever of them it is, and if it is none. */
const struct key *keys_find(const struct keys *keys, const char *given);

/* Whether they belong to more than one owner. */
bool keys_have_several_owners(const struct keys *keys);

/* "chat": the name of the first of the grants. */
const char *keys_grant_name(int grants);

#endif
