/* The prompt but for its last token is decoded, its cells are damaged, and the reply goes on from there. */
#include "damage.h"

#include "base/error.h"
#include "base/memory.h"
#include "rows.h"

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 2048, REPLY = 40, SEED = 77 };

/* One conversation: its prompt, and where in it the code lies. */
struct prompt {
    llama_token *tokens;
    int n;
    int code_begin, code_end; /* tokens */
    int system_end;
    char *code;
};

struct lab {
    struct llama_model *model;
    struct llama_context *context;
    const struct prompt *prompt, *other;
    llama_seq_id sequence; /* the reply continues this one, */
    int position;          /* at this position, */
    llama_token next;      /* from this token */
};

/* ---- Prompts ---- */

/* A piece_fn. */
static void append(void *ud, enum piece piece, const char *text, size_t len)
{
    (void)piece;
    buf_append(ud, text, len);
}

/* The token in which byte `at` of the prompt's text lies. */
static int token_at(const struct lab *lab, const struct prompt *prompt, size_t at)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(lab->model);
    size_t end = 0;
    for (int i = 0; i < prompt->n; i++) {
        char piece[64];
        int len = llama_token_to_piece(vocab, prompt->tokens[i], piece, sizeof piece, 0, true);
        end += len > 0 ? (size_t)len : 0;
        if (end > at) return i;
    }
    return prompt->n;
}

static void tokenise(const struct lab *lab, struct prompt *prompt, const struct buf *text)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(lab->model);
    int32_t len = (int32_t)text->len, n = -llama_tokenize(vocab, text->v, len, NULL, 0, false, true);
    prompt->tokens = mem_grow(NULL, (size_t)n, sizeof *prompt->tokens);
    prompt->n = llama_tokenize(vocab, text->v, len, prompt->tokens, n, false, true);
}

static struct prompt make_prompt(const struct lab *lab, int i)
{
    struct conversation conversation = {0};
    struct random random = random_of(SEED, (uint64_t)i);
    struct scene scene;
    struct prompt prompt = {0};
    struct buf text = {0};
    scene_open(&scene, &random, &conversation);
    rows_secret(&scene, i);
    prompt.code = mem_strdup(scene.facts[0].value);
    scene_close(&scene);
    conversation_pieces(&conversation, conversation.n_messages - 1, append, &text);
    buf_puts(&text, "<|im_start|>assistant\n");
    conversation_release(&conversation);
    tokenise(lab, &prompt, &text);
    size_t code = (size_t)(strstr(text.v, prompt.code) - text.v);
    prompt.code_begin = token_at(lab, &prompt, code);
    prompt.code_end = token_at(lab, &prompt, code + strlen(prompt.code) - 1) + 1;
    prompt.system_end = token_at(lab, &prompt, (size_t)(strstr(text.v, "<|im_end|>") - text.v)) + 1;
    buf_release(&text);
    return prompt;
}

static void release_prompt(struct prompt *prompt)
{
    free(prompt->tokens);
    free(prompt->code);
}

/* ---- Decoding ---- */

static bool decode(struct lab *lab, const llama_token *tokens, int n)
{
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    for (int i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = lab->position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = lab->sequence;
        batch.logits[i] = i == n - 1;
    }
    batch.n_tokens = n;
    bool done = llama_decode(lab->context, batch) == 0;
    llama_batch_free(batch);
    lab->position += n;
    return done;
}

/* Decodes a prompt but for its last token, into a cache that is empty. */
static bool prefill(struct lab *lab, const struct prompt *prompt)
{
    llama_memory_clear(llama_get_memory(lab->context), true);
    lab->sequence = lab->position = 0;
    lab->next = prompt->tokens[prompt->n - 1];
    return decode(lab, prompt->tokens, prompt->n - 1);
}

static llama_token likeliest(const struct lab *lab)
{
    int n = llama_vocab_n_tokens(llama_model_get_vocab(lab->model)), best = 0;
    const float *logits = llama_get_logits_ith(lab->context, -1);
    for (int i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The greedy reply. */
static bool generate(struct lab *lab, struct buf *reply)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(lab->model);
    for (int i = 0; i < REPLY; i++) {
        if (!decode(lab, &lab->next, 1)) return false;
        lab->next = likeliest(lab);
        if (llama_vocab_is_eog(vocab, lab->next)) return true;
        char piece[64];
        int len = llama_token_to_piece(vocab, lab->next, piece, sizeof piece, 0, true);
        if (len > 0) buf_append(reply, piece, (size_t)len);
    }
    return true;
}

/* ---- Damage ---- */

static bool keep(struct lab *lab)
{
    (void)lab;
    return true;
}

static bool move_to_another(struct lab *lab)
{
    size_t size = llama_state_seq_get_size(lab->context, 0);
    uint8_t *state = mem_alloc(size);
    bool done = llama_state_seq_get_data(lab->context, state, size, 0) > 0;
    llama_memory_clear(llama_get_memory(lab->context), true);
    done = done && llama_state_seq_set_data(lab->context, state, size, 1) > 0;
    free(state);
    lab->sequence = 1;
    return done;
}

static bool drop(const struct lab *lab, int begin, int end)
{
    return llama_memory_seq_rm(llama_get_memory(lab->context), lab->sequence, begin, end);
}

static bool decode_tail_again(struct lab *lab)
{
    int begin = lab->position / 2, n = lab->position - begin;
    bool done = drop(lab, begin, -1);
    lab->position = begin;
    return done && decode(lab, lab->prompt->tokens + begin, n);
}

static bool drop_code(struct lab *lab)
{
    return drop(lab, lab->prompt->code_begin, lab->prompt->code_end);
}

static bool drop_one_of_code(struct lab *lab)
{
    int middle = (lab->prompt->code_begin + lab->prompt->code_end) / 2;
    return drop(lab, middle, middle + 1);
}

static bool drop_system(struct lab *lab)
{
    return drop(lab, 0, lab->prompt->system_end);
}

static bool take_other(struct lab *lab)
{
    return prefill(lab, lab->other);
}

static bool drop_first(struct lab *lab)
{
    return drop(lab, 0, 8);
}

static bool shift_upper_half(struct lab *lab)
{
    llama_memory_seq_add(llama_get_memory(lab->context), lab->sequence, lab->position / 2, -1, 1);
    lab->position++;
    return true;
}

static const struct damage {
    const char *name;
    bool (*apply)(struct lab *lab);
} damages[] = {
    {"intact", keep},
    {"saved, restored into another sequence", move_to_another},
    {"second half removed and decoded again", decode_tail_again},
    {"the code's cells removed", drop_code},
    {"one of the code's cells removed", drop_one_of_code},
    {"the system prompt's cells not restored", drop_system},
    {"another conversation's state", take_other},
    {"the first 8 cells removed", drop_first},
    {"the upper half of the positions moved by one", shift_upper_half},
};

/* ---- The table ---- */

struct counts {
    int right, unknown; /* the code; that it is not known */
};

static int try_one(struct lab *lab, const struct damage *damage, struct counts *counts, hearth_error *error)
{
    struct buf reply = {0};
    if (!prefill(lab, lab->prompt) || !damage->apply(lab) || !generate(lab, &reply)) {
        buf_release(&reply);
        return error_set(error, HEARTH_INTERNAL, "llama.cpp cannot do this: %s", damage->name);
    }
    counts->right += strstr(buf_text(&reply), lab->prompt->code) != NULL;
    counts->unknown += strstr(buf_text(&reply), "do not know") != NULL;
    buf_release(&reply);
    return 0;
}

static int print_rows(struct lab *lab, const struct prompt *prompts, int n, hearth_error *error)
{
    printf("\n| state of the cache, %d conversations, greedy | right code | says it does not know | another code |\n"
           "| --- | ---: | ---: | ---: |\n",
           n);
    for (size_t d = 0; d < sizeof damages / sizeof *damages; d++) {
        struct counts counts = {0};
        for (int i = 0; i < n; i++) {
            lab->prompt = &prompts[i];
            lab->other = &prompts[(i + 1) % n];
            int code = try_one(lab, &damages[d], &counts, error);
            if (code != 0) return code;
        }
        printf("| %s | %d | %d | %d |\n", damages[d].name, counts.right, counts.unknown,
               n - counts.right - counts.unknown);
        fflush(stdout);
    }
    return 0;
}

static int open_lab(struct lab *lab, const char *path, hearth_error *error)
{
    struct llama_model_params model = llama_model_default_params();
    model.n_gpu_layers = 0;
    lab->model = llama_model_load_from_file(path, model);
    if (lab->model == NULL) return error_set(error, HEARTH_IO, "llama.cpp does not load %s", path);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 2 * CONTEXT;
    params.n_batch = CONTEXT;
    params.n_seq_max = 2;
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = 1; /* more would wait for each other longer than they compute */
    lab->context = llama_init_from_model(lab->model, params);
    return lab->context != NULL ? 0 : error_set(error, HEARTH_NO_MEMORY, "llama.cpp makes no context for %s", path);
}

int damage_table(const char *path, int conversations, hearth_error *error)
{
    struct lab lab = {0};
    int code = open_lab(&lab, path, error);
    struct prompt *prompts = mem_alloc((size_t)conversations * sizeof *prompts);
    for (int i = 0; code == 0 && i < conversations; i++) prompts[i] = make_prompt(&lab, i);
    if (code == 0) code = print_rows(&lab, prompts, conversations, error);
    for (int i = 0; i < conversations; i++) release_prompt(&prompts[i]);
    free(prompts);
    llama_free(lab.context);
    llama_model_free(lab.model);
    return code;
}
