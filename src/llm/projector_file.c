/* Reads from a projector's file what it is for, before libmtmd loads it: libmtmd ends the process on some files that
 * are none. No state; any thread. */
#include "base/error.h"
#include "llm/llm_parts.h"
#include "llm/projector.h"

#include <string.h>

/* Its images have a row and a column that count from the prompt's first image, not from their own position. */
static bool is_unsupported(const struct gguf_context *file)
{
    static const char *const keys[] = {"clip.projector_type", "clip.vision.projector_type"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *type = llm_file_text(file, keys[i]);
        found = found || (type != NULL && strcmp(type, "hunyuanvl") == 0);
    }
    return found;
}

int llm_projector_inspect(const char *path, struct llm_projector_kinds *kinds, hearth_error *error)
{
    hearth_error reason;
    struct gguf_context *file = llm_file_open(path, &reason);
    if (file == NULL) return error_at(error, reason.code, "mmproj", "mmproj: %s", reason.message);
    const char *architecture = llm_file_text(file, "general.architecture");
    bool is_projector = architecture != NULL && strcmp(architecture, "clip") == 0;
    *kinds = (struct llm_projector_kinds){.images = llm_file_number(file, "clip.has_vision_encoder", 0) != 0,
                                          .sounds = llm_file_number(file, "clip.has_audio_encoder", 0) != 0};
    bool unsupported = is_unsupported(file);
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
