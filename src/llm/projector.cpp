/* Projectors over libmtmd: see projector.h. libmtmd throws on bad files and out of memory, and asserts, which ends the
 * process, on sounds of less than two samples: both are kept from callers. */
#include "llm/projector.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mtmd.h>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
#include "base/error.h"
}

extern "C" llama_model *
llm_model_handle(const llm_model *model); /* as in model_struct.h, context.h, llama_log.h: C alone */
extern "C" void llm_on_log(enum ggml_log_level level, const char *text, void *ud);

struct mtmd_deleter {
    void operator()(mtmd_context *context) const { mtmd_free(context); }
    void operator()(mtmd_bitmap *bitmap) const { mtmd_bitmap_free(bitmap); }
    void operator()(mtmd_input_chunks *chunks) const { mtmd_input_chunks_free(chunks); }
};

template <typename T> using mtmd_owned = std::unique_ptr<T, mtmd_deleter>;

struct llm_projector {
    mtmd_owned<mtmd_context> context;
    llm_projector_facts facts;
    std::mutex encoding;
};

struct llm_medium {
    mtmd_owned<mtmd_input_chunks> chunks;
    std::vector<bool> causal; /* of each chunk */
};

/* Runs what may throw; the result is HEARTH_INTERNAL then. */
template <typename Work> static int guarded(const char *what, hearth_error *error, Work work)
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return error_set(error, HEARTH_NO_MEMORY, "not enough memory to %s", what);
    } catch (const std::exception &exception) {
        return error_set(error, HEARTH_INTERNAL, "libmtmd could not %s: %s", what, exception.what());
    }
}

template <typename Make> static llm_medium *made(const char *what, hearth_error *error, Make make)
{
    llm_medium *medium = nullptr;
    guarded(what, error, [&] {
        medium = make();
        return static_cast<int>(HEARTH_OK);
    });
    return medium;
}

/* ---- The projector ---- */

struct llm_projector *llm_projector_open(const struct llm_model *model, const struct llm_projector_params *params,
                                         hearth_error *error)
{
    assert(model != nullptr && params != nullptr && params->path != nullptr);
    auto projector = std::make_unique<llm_projector>();
    const llama_model *handle = llm_model_handle(model);
    int rc = guarded("open the projector", error, [&] {
        mtmd_log_set(llm_on_log, nullptr);
        mtmd_context_params p = mtmd_context_params_default();
        p.use_gpu = params->on_gpu;
        p.print_timings = false;
        p.n_threads = llm_count_threads(&params->threads);
        p.flash_attn_type = std::strcmp(params->flash_attention, "on") == 0    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                            : std::strcmp(params->flash_attention, "off") == 0 ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                                               : LLAMA_FLASH_ATTN_TYPE_AUTO;
        p.warmup = false;
        if (params->min_tokens > 0) p.image_min_tokens = params->min_tokens;
        if (params->max_tokens > 0) p.image_max_tokens = params->max_tokens;
        projector->context.reset(mtmd_init_from_file(params->path, handle, p));
        if (projector->context != nullptr) return static_cast<int>(HEARTH_OK);
        return error_at(error, HEARTH_INVALID, "mmproj", "%s is no projector of this model, or damaged", params->path);
    });
    if (rc != HEARTH_OK) return nullptr;
    const mtmd_context *context = projector->context.get();
    int rate = mtmd_get_audio_sample_rate(context);
    projector->facts = {mtmd_support_vision(context), mtmd_support_audio(context), mtmd_decode_use_mrope(context),
                        rate > 0 ? static_cast<uint32_t>(rate) : 0,
                        static_cast<size_t>(llama_model_n_embd_inp(handle))};
    return projector.release();
}

void llm_projector_close(struct llm_projector *projector)
{
    delete projector;
}

const struct llm_projector_facts *llm_projector_facts_of(const struct llm_projector *projector)
{
    return &projector->facts;
}

/* ---- Media ---- */

static bool is_media(const mtmd_input_chunk *chunk)
{
    return mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_TEXT;
}

static llm_medium *medium_of_parts(const struct llm_projector *projector, const std::vector<mtmd_input_part> &parts,
                                   hearth_error *error)
{
    auto medium = std::make_unique<llm_medium>();
    std::vector<const mtmd_input_part *> list;
    list.reserve(parts.size());
    for (const mtmd_input_part &part : parts) list.push_back(&part);
    medium->chunks.reset(mtmd_input_chunks_init());
    if (mtmd_tokenize_from_parts(projector->context.get(), medium->chunks.get(), list.data(), list.size(), false) !=
        0) {
        error_set(error, HEARTH_INVALID, "the projector cannot take images or a sound of this size");
        return nullptr;
    }
    for (size_t i = 0; i < mtmd_input_chunks_size(medium->chunks.get()); i++) {
        const mtmd_input_chunk *chunk = mtmd_input_chunks_get(medium->chunks.get(), i);
        medium->causal.push_back(!is_media(chunk) || !mtmd_decode_use_non_causal(projector->context.get(), chunk));
    }
    return medium.release();
}

static llm_medium *medium_of(const struct llm_projector *projector, mtmd_bitmap *bitmap, hearth_error *error)
{
    const mtmd_owned<mtmd_bitmap> owned(bitmap);
    return medium_of_parts(projector, {{nullptr, bitmap}}, error);
}

struct llm_medium *llm_medium_of_image(const struct llm_projector *projector, const uint8_t *rgb, uint32_t width,
                                       uint32_t height, hearth_error *error)
{
    if (!projector->facts.images) {
        error_set(error, HEARTH_UNSUPPORTED, "this model takes no images");
        return nullptr;
    }
    return made("cut the image into chunks", error,
                [&] { return medium_of(projector, mtmd_bitmap_init(width, height, rgb), error); });
}

struct llm_medium *llm_medium_of_sound(const struct llm_projector *projector, const float *samples, size_t n,
                                       hearth_error *error)
{
    if (!projector->facts.sounds || n < 2) {
        error_set(error, projector->facts.sounds ? HEARTH_INVALID : HEARTH_UNSUPPORTED,
                  projector->facts.sounds ? "the sound is empty" : "this model takes no sound");
        return nullptr;
    }
    return made("cut the sound into chunks", error,
                [&] { return medium_of(projector, mtmd_bitmap_init_from_audio(n, samples), error); });
}

/* The texts and bitmaps of a video, in their order. The list points into what it owns, so it does not move. */
struct video_parts {
    std::vector<mtmd_owned<mtmd_bitmap>> bitmaps;
    std::deque<std::string> texts;
    std::deque<mtmd_input_text> inputs;
    std::vector<mtmd_input_part> list;

    void add_text(const std::string &text)
    {
        texts.push_back(text);
        inputs.push_back({texts.back().c_str(), texts.back().size(), false, false});
        list.push_back({&inputs.back(), nullptr});
    }

    void add_frame(const llm_frame &frame)
    {
        bitmaps.emplace_back(mtmd_bitmap_init(frame.width, frame.height, frame.rgb));
        mtmd_bitmap_set_mergeable(bitmaps.back().get(), true);
        list.push_back({nullptr, bitmaps.back().get()});
    }
};

/* As mtmd_helper_video_read_next() has it: a heading, and behind the first frame of each five seconds its time. */
static void put_frames(video_parts *parts, const struct llm_frame *frames, size_t n, double fps)
{
    constexpr double interval = 5;
    double next = 0;
    parts->add_text("Video:");
    for (size_t i = 0; i < n; i++) {
        char stamp[48];
        double at = static_cast<double>(i) / fps;
        parts->add_frame(frames[i]);
        if (at < next) continue;
        int minutes = static_cast<int>(at / 60);
        snprintf(stamp, sizeof stamp, "[%dm%.2fs]", minutes, at - minutes * 60);
        parts->add_text(stamp);
        next += interval;
    }
}

struct llm_medium *llm_medium_of_frames(const struct llm_projector *projector, const struct llm_frame *frames, size_t n,
                                        double fps, hearth_error *error)
{
    if (!projector->facts.images) {
        error_set(error, HEARTH_UNSUPPORTED, "this model takes no video");
        return nullptr;
    }
    return made("cut the video into chunks", error, [&] {
        video_parts parts;
        put_frames(&parts, frames, n, fps);
        return medium_of_parts(projector, parts.list, error);
    });
}

void llm_medium_close(struct llm_medium *medium)
{
    delete medium;
}

/* ---- Chunks ---- */

static const mtmd_input_chunk *chunk_at(const struct llm_medium *medium, size_t i)
{
    assert(i < mtmd_input_chunks_size(medium->chunks.get()));
    return mtmd_input_chunks_get(medium->chunks.get(), i);
}

size_t llm_medium_chunks(const struct llm_medium *medium)
{
    return mtmd_input_chunks_size(medium->chunks.get());
}

struct llm_chunk llm_medium_chunk(const struct llm_medium *medium, size_t i)
{
    const mtmd_input_chunk *chunk = chunk_at(medium, i);
    size_t n = mtmd_input_chunk_get_n_tokens(chunk), n_text = 0;
    const int32_t *tokens = is_media(chunk) ? nullptr : mtmd_input_chunk_get_tokens_text(chunk, &n_text);
    return {tokens, static_cast<int32_t>(n), mtmd_input_chunk_get_n_pos(chunk), medium->causal[i]};
}

struct llm_place llm_medium_place(const struct llm_medium *medium, size_t chunk, int32_t first, int32_t row)
{
    const mtmd_image_tokens *image = mtmd_input_chunk_get_tokens_image(chunk_at(medium, chunk));
    if (image == nullptr) return {first + row, first + row, first + row};
    mtmd_decoder_pos place = mtmd_image_tokens_get_decoder_pos(image, first, static_cast<size_t>(row));
    return {static_cast<int32_t>(place.t), static_cast<int32_t>(place.y), static_cast<int32_t>(place.x)};
}

int llm_medium_encode(struct llm_projector *projector, const struct llm_medium *medium, size_t chunk, float *rows,
                      hearth_error *error)
{
    return guarded("encode", error, [&] {
        const std::lock_guard<std::mutex> lock(projector->encoding);
        const mtmd_input_chunk *input = chunk_at(medium, chunk);
        if (mtmd_encode_chunk(projector->context.get(), input) != 0)
            return error_set(error, HEARTH_INTERNAL, "libmtmd could not encode an image or a sound");
        size_t n = mtmd_input_chunk_get_n_tokens(input) * projector->facts.row_floats;
        std::memcpy(rows, mtmd_get_output_embd(projector->context.get()), n * sizeof *rows);
        return static_cast<int>(HEARTH_OK);
    });
}
