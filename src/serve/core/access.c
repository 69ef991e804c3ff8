/* Authorization: the headers that an API key may come in, and the errors for a missing, unknown or insufficient one.
 * HTTP thread only; no state. */
#include "serve/core/access.h"

#include "base/error.h"
#include "base/memory.h"
#include "serve/core/errors.h"

#include <string.h>
#include <strings.h>

/* The word after the scheme; NULL for other schemes. */
static const char *bearer(const char *value)
{
    static const char scheme[] = "Bearer ";
    if (value == NULL || strncasecmp(value, scheme, sizeof scheme - 1) != 0) return NULL;
    return value + sizeof scheme - 1 + strspn(value + sizeof scheme - 1, " ");
}

int access_check(const struct server *server, const struct http_request *http, int grant, const struct key **key,
                 hearth_error *error)
{
    bool given = false;
    *key = NULL;
    if (server->keys == NULL || grant == KEYS_PUBLIC) return HEARTH_OK;
    /* Clients that speak several APIs send more than one of these: one right key is enough. */
    const char *const values[] = {bearer(http_header(http, "Authorization")), http_header(http, "X-Api-Key"),
                                  http_header(http, "Api-Key")};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i] == NULL || values[i][0] == '\0') continue;
        given = true;
        if (*key == NULL) *key = keys_find(server->keys, values[i]);
    }
    if (*key == NULL)
        return error_set(error, ERRORS_NO_KEY, "%s",
                         given ? "the API key is not known here"
                               : "an API key is missing: send the header 'Authorization: Bearer KEY'");
    if (((*key)->grants & grant) != 0) return HEARTH_OK;
    return error_set(error, ERRORS_NO_GRANT, "this API key lacks the grant '%s' that this route needs",
                     keys_grant_name(grant));
}

char *access_owner(const struct key *key)
{
    char digest[2 * SHA256_BYTES + 1];
    sha256_to_hex(key->digest, digest);
    return key->name[0] != '\0' ? mem_format("name %s", key->name) : mem_format("key %s", digest);
}
