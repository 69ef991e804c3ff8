/* Fuzzes forms: the first line is the Content-Type, the rest the body. Parts lie in the body one behind the other, no
 * value has a delimiter in it, and what is refused has a message. */
#include "http/multipart.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data, *end = size == 0 ? NULL : memchr(data, '\n', size);
    struct multipart form;
    struct multipart_part part;
    hearth_error error = {0};
    if (end == NULL) return 0;
    char *type = strndup(line, (size_t)(end - line));
    const struct multipart_bytes body = {end + 1, size - (size_t)(end + 1 - line)};
    const char *at = body.v;
    size_t n = 0;
    int rc = multipart_open(&form, type, body, &error);
    for (rc = rc == HEARTH_OK ? 1 : rc; rc == 1 && (rc = multipart_next(&form, &part, &error)) == 1; n++) {
        require(part.name.len > 0 && part.name.v > at && part.name.v + part.name.len < part.value.v);
        at = part.value.v + part.value.len;
        require(at < body.v + body.len);
        require(memmem(part.value.v, part.value.len, form.delimiter, strlen(form.delimiter)) == NULL);
        require(memchr(part.name.v, '\0', part.name.len) == NULL);
    }
    require(n <= MULTIPART_PARTS_MAX);
    require(rc == 0 || error.message[0] != '\0');
    free(type);
    return 0;
}
