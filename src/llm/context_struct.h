/* A context as the files of src/llm see it that save, load and move what its sequences hold. The engine's thread. */
#ifndef LLM_CONTEXT_STRUCT_H
#define LLM_CONTEXT_STRUCT_H

#include "llm/handle.h"

struct llm_context {
    struct llm_handle handle;
    struct llama_batch batch;
    int32_t capacity; /* tokens of the batch */
    bool unified;
    int32_t window, n_seq, n_vocab, n_swa;
    bool full_windows;
    bool on_devices; /* some device is one: decode calls may return before they are computed */
    bool divided;    /* some weights lie on a GPU, others in the machine's memory */
    bool recurrent;  /* in some layers or in all: their state cannot go back */
    enum llm_head head;
    int32_t n_row;                    /* of a hidden row of the output */
    float *rows;                      /* of a head: those of the batch */
    struct llm_layers hidden_layers;  /* llm_context_params.hidden_layers */
    float *hidden;                    /* room for one row of their inputs */
    bool mrope;                       /* positions have several dimensions */
    const struct media_spans **media; /* of each sequence; borrowed, NULL: none */
    int32_t *partial; /* of each sequence: where its rows end, if that is within an image; 0: it is not, or not known */
    uint8_t *copying; /* of each sequence: its role in copies between streams, which llm_seq_share() requests and the
                         next llm_decode() makes: enum llm_copying */
    int32_t scratch;  /* the scratch sequence, the last one, through which KV rows are saved and loaded; empty
                         between calls. -1: there is none, with a stream each or where all sequences are in use */
    bool flash_attention;
    struct llama_context_params translated; /* that it was opened with */
    int32_t trained;     /* context in tokens, as the file has it: llama.cpp's own number changes with RoPE scaling */
    bool window_factors; /* llm_model_info.window_factors */
    double freq_base, freq_scale; /* of RoPE, as logged */
};

enum llm_copying { LLM_COPIED_FROM = 1, LLM_COPIED_TO = 2 };

struct llama_context *llm_context_handle(const struct llm_context *context);

/* The media of a sequence, NULL: none; and llama.cpp's position of its token at that index. */
const struct media_spans *llm_seq_media(const struct llm_context *context, int32_t seq);
int32_t llm_position(const struct llm_context *context, int32_t seq, int32_t index);

/* Rows were added to the sequence, which has `end` of them now: within an image positions do not tell. 0: it has whole
 * images only. */
void llm_seq_note_end(struct llm_context *context, int32_t seq, int32_t end);

/* Whether there is such a sequence, the scratch sequence included. */
static inline bool llm_is_seq(const struct llm_context *context, int32_t seq)
{
    return context != NULL && seq >= 0 && seq < context->n_seq + (context->scratch >= 0);
}

/* Whether the rows of the span share positions, so that these do not say how many of them there are. */
static inline bool llm_is_packed(const struct media_span *span)
{
    return span != NULL && span->n_pos != span->n;
}

#endif
