/* Reads FILE.sha256 beside a model's file, in the form of sha256sum: the digest that the file should have. No state;
 * any thread. */
#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "llm/llm_parts.h"
#include "llm/model_identity.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *sidecar_of(const char *path)
{
    return mem_format("%s.sha256", path);
}

bool llm_file_has_sidecar(const char *path)
{
    char *sidecar = sidecar_of(path);
    bool there = access(sidecar, F_OK) == 0;
    free(sidecar);
    return there;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* "DIGEST  NAME", "DIGEST *NAME" or the digest alone; without its end of line. */
static bool is_line_for(char *line, const char *name, uint8_t digest[SHA256_BYTES])
{
    enum { DIGITS = 2 * SHA256_BYTES };
    line[strcspn(line, "\r\n")] = '\0';
    if (strlen(line) < DIGITS) return false;
    char *rest = line + DIGITS;
    if (*rest != '\0') *rest++ = '\0';
    for (char *c = line; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    rest += strspn(rest, " *");
    return (*rest == '\0' || strcmp(base_name(rest), name) == 0) && sha256_from_hex(line, digest);
}

int llm_sidecar_read(const char *path, uint8_t digest[SHA256_BYTES], hearth_error *error)
{
    char *sidecar = sidecar_of(path), line[4096];
    FILE *file = fopen(sidecar, "re");
    bool found = false;
    int code = HEARTH_OK;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = is_line_for(line, base_name(path), digest);
    if (file == NULL)
        code = error_at(error, HEARTH_IO, sidecar, "cannot read %s: %s", sidecar, strerror(errno));
    else if (!found)
        code = error_at(error, HEARTH_INVALID, sidecar,
                        "%s has no SHA-256 digest of %s: write it with sha256sum, or remove the file", sidecar,
                        base_name(path));
    if (file != NULL) fclose(file);
    free(sidecar);
    return code;
}
