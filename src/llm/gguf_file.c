/* Checks a GGUF file before llama.cpp loads it (is it one, is it complete) and reads its metadata. A wrong path or an
 * unfinished download gets its one clear error line here, and so does a projector's file that libmtmd would end the
 * process on. No state; any thread. */
#include "llm/gguf_file.h"

#include "base/error.h"
#include "llm/llama_log.h"
#include "llm/model.h"
#include "llm/projector.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_open(const char *path, hearth_error *error)
{
    hearth_code code = errno == ENOENT ? HEARTH_NOT_FOUND : HEARTH_IO;
    return error_at(error, code, path, "cannot open the model %s: %s", path, strerror(errno));
}

/* Size in bytes of what looks like a model file, or a negative code. */
static int64_t check_kind(const char *path, hearth_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0) return cannot_open(path, error);
    if (S_ISDIR(st.st_mode))
        return error_at(error, HEARTH_INVALID, path, "%s is a folder: name the GGUF file in it", path);
    if (!S_ISREG(st.st_mode)) return error_at(error, HEARTH_INVALID, path, "%s is not a regular file", path);
    if (st.st_size == 0) return error_at(error, HEARTH_INVALID, path, "%s is empty: copy it again", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot_open(path, error);
    char magic[4];
    ssize_t n = pread(fd, magic, sizeof magic, 0);
    int code = HEARTH_OK;
    if (n < 0)
        code = cannot_open(path, error);
    else if (n != (ssize_t)sizeof magic || memcmp(magic, "GGUF", sizeof magic) != 0)
        code = error_at(error, HEARTH_INVALID, path, "%s is not a GGUF file: it does not begin with the letters GGUF",
                        path);
    close(fd);
    return code < 0 ? code : (int64_t)st.st_size;
}

struct gguf_context *llm_file_open(const char *path, hearth_error *error)
{
    assert(path != NULL);
    int64_t size = check_kind(path, error);
    if (size < 0) return NULL;
    struct llm_log_capture captured;
    llm_log_capture_begin(&captured);
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    llm_log_capture_end();
    if (file == NULL) {
        error_at(error, HEARTH_IO, path,
                 "%s is truncated or damaged within its first part (%s; %" PRId64 " bytes in all): copy it again", path,
                 captured.reason, size);
        return NULL;
    }
    uint64_t end = 0; /* of the tensors */
    for (int64_t i = 0; i < gguf_get_n_tensors(file); i++) {
        uint64_t tensor_end = gguf_get_tensor_offset(file, i) + gguf_get_tensor_size(file, i);
        if (tensor_end > end) end = tensor_end;
    }
    end += gguf_get_data_offset(file);
    if (gguf_get_n_tensors(file) == 0 || end <= (uint64_t)size) return file;
    error_at(error, HEARTH_IO, path,
             "%s is truncated: its tensors end at byte %" PRIu64 ", the file at byte %" PRId64 ": copy it again", path,
             end, size);
    gguf_free(file);
    return NULL;
}

int llm_file_check(const char *path, hearth_error *error)
{
    struct gguf_context *file = llm_file_open(path, error);
    if (file == NULL) return (int)error->code;
    gguf_free(file);
    return HEARTH_OK;
}

/* ---- Metadata ---- */

const char *llm_file_text(const struct gguf_context *file, const char *key)
{
    int64_t id = gguf_find_key(file, key);
    return id >= 0 && gguf_get_kv_type(file, id) == GGUF_TYPE_STRING ? gguf_get_val_str(file, id) : NULL;
}

static int64_t number_at(enum gguf_type type, const void *data, size_t index, int64_t otherwise)
{
    switch (type) {
    case GGUF_TYPE_UINT8:
        return ((const uint8_t *)data)[index];
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
        return ((const int8_t *)data)[index];
    case GGUF_TYPE_UINT16:
        return ((const uint16_t *)data)[index];
    case GGUF_TYPE_INT16:
        return ((const int16_t *)data)[index];
    case GGUF_TYPE_UINT32:
        return ((const uint32_t *)data)[index];
    case GGUF_TYPE_INT32:
        return ((const int32_t *)data)[index];
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
        return ((const int64_t *)data)[index];
    default:
        return otherwise;
    }
}

static int64_t number_of(const struct gguf_context *file, const char *key, int64_t index, int64_t otherwise)
{
    int64_t id = gguf_find_key(file, key);
    if (id < 0) return otherwise;
    enum gguf_type type = gguf_get_kv_type(file, id);
    if (type == GGUF_TYPE_STRING) return otherwise;
    if (type != GGUF_TYPE_ARRAY) return number_at(type, gguf_get_val_data(file, id), 0, otherwise);
    if (index < 0 || (size_t)index >= gguf_get_arr_n(file, id)) return otherwise;
    type = gguf_get_arr_type(file, id);
    if (type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY) return otherwise;
    return number_at(type, gguf_get_arr_data(file, id), (size_t)index, otherwise);
}

int64_t llm_file_number(const struct gguf_context *file, const char *key, int64_t otherwise)
{
    return number_of(file, key, 0, otherwise);
}

static void name_hparam(const struct gguf_context *file, const char *key, char *out, size_t size)
{
    const char *architecture = llm_file_text(file, "general.architecture");
    snprintf(out, size, "%s.%s", architecture == NULL ? "" : architecture, key);
}

int64_t llm_file_hparam(const struct gguf_context *file, const char *key, int64_t index, int64_t otherwise)
{
    char full[192];
    name_hparam(file, key, full, sizeof full);
    return number_of(file, full, index, otherwise);
}

bool llm_file_has_hparam(const struct gguf_context *file, const char *key)
{
    char full[192];
    name_hparam(file, key, full, sizeof full);
    return gguf_find_key(file, full) >= 0;
}

/* ---- Projectors ---- */

int llm_projector_inspect(const char *path, struct llm_projector_kinds *kinds, hearth_error *error)
{
    hearth_error reason = {.code = HEARTH_INVALID};
    struct gguf_context *file = llm_file_open(path, &reason);
    if (file == NULL) return error_at(error, reason.code, "mmproj", "mmproj: %s", reason.message);
    const char *architecture = llm_file_text(file, "general.architecture");
    bool is_projector = architecture != NULL && strcmp(architecture, "clip") == 0;
    *kinds = (struct llm_projector_kinds){.images = llm_file_number(file, "clip.has_vision_encoder", 0) != 0,
                                          .sounds = llm_file_number(file, "clip.has_audio_encoder", 0) != 0};
    /* Images of HunyuanVL have rows and columns that count from the prompt's first one, not from their own position. */
    static const char *const keys[] = {"clip.projector_type", "clip.vision.projector_type"};
    bool unsupported = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *type = llm_file_text(file, keys[i]);
        unsupported = unsupported || (type != NULL && strcmp(type, "hunyuanvl") == 0);
    }
    gguf_free(file);
    if (unsupported)
        return error_at(error, HEARTH_UNSUPPORTED, "mmproj",
                        "%s is a projector of HunyuanVL, which hearth cannot use: "
                        "leave mmproj out, and the model takes text",
                        path);
    if (is_projector && (kinds->images || kinds->sounds)) return HEARTH_OK;
    return error_at(
        error, HEARTH_INVALID, "mmproj",
        "%s is no projector (mmproj): it has no encoder of images or sounds; name the file that came beside "
        "the model",
        path);
}
