/* A fake of src/llm without weights: the next token is a hash of all tokens that the sequence's cells hold, so that a
 * missing, foreign or misplaced cell shows as a wrong reply. The tests of the engine link it in place of src/llm/. */
#ifndef FAKES_FAKE_LLM_H
#define FAKES_FAKE_LLM_H

#include "fakes/fake_clock.h"
#include "llm/logprobs.h"
#include "llm/sampler.h"
#include "llm/state_slices.h"

#define FAKE_VOCAB                                                                                                     \
    200               /* tokens 0..199; the text of token t is the letter 'a' + t % 26, as a special one 'A' + t % 26 */
#define FAKE_WIDTH  2 /* of a row of a medium */
#define FAKE_ROW    4 /* length of a hidden row */
#define FAKE_LAYERS 3 /* whose inputs an EAGLE-3 head reads */
#define FAKE_END    199 /* ends generation; the hash never gives it */

struct fake_llm {
    /* Set by the test before engine_open(). */
    bool cuts;           /* sequences can be cut (false: like a recurrent model) */
    int32_t cuts_back;   /* without cuts: so many cells can be cut from the end all the same, as in a window */
    int32_t n_cells;     /* cells of all sequences together; more give LLM_NO_CELLS */
    int32_t block_cells; /* sequences of one call fill blocks of so many cells; 0: the lowest that are free */
    /* Of a context whose model is not NULL, a draft model: it guesses as the model with these cells would reply. One of
     * an MTP head guesses as the model would behind the tokens that its rows stand for. */
    int64_t draft_ns;          /* nanoseconds that a call takes on `clock` */
    bool draft_wrong;          /* its guesses are other tokens */
    bool draft_fails;          /* its calls fail */
    bool encode_fails;         /* it makes no rows of the model's */
    int32_t draft_vocab;       /* it has so many tokens; 0: all */
    float draft_chance;        /* that it gives to its guesses; 0: 0.9 */
    int64_t token_ns, call_ns; /* nanoseconds that a decode takes on `clock`: per token, per call */
    int64_t few_ns;            /* and more for each of the first 8 tokens of a call */
    int32_t copies_from;       /* llm_copies_from() … */
    int64_t copy_ns;           /* … and what such a call takes more */
    int64_t sample_ns;         /* nanoseconds that sampling a token takes for requests that ignore EOS */
    int64_t score_ns;          /* and the logprobs of a token */
    double masked_ns;          /* and for each cell that is masked for a token: all up to the highest one in use */
    int64_t switch_ns;         /* and more in the first call after a switch to another set of adapters */
    int32_t threads;           /* number of threads; 0: one */
    int64_t thread_ns;         /* nanoseconds that each of those that compute adds to a call */
    struct fake_clock *clock;
    int32_t alphabet;    /* replies have so many different tokens; 0: all */
    int32_t poison;      /* a batch with this token fails with LLM_FAILED; -1: none */
    int32_t end_after;   /* the reply ends after so many tokens; 0: never */
    int32_t fail_after;  /* from then on no token fits the grammar; 0: never */
    int32_t newline;     /* the text of this token is a new line; -1: of none */
    int32_t torn_tokens; /* tokens of an aborted call that reach their cells. If not 0, every call that breaks off
                            empties the sequences that cannot be cut */
    int64_t load_ns;     /* nanoseconds that loading a state takes on `clock` */
    int64_t state_ns;    /* and copying one out, and going back to one */
    int64_t move_ns;     /* and moving a row */
    int64_t save_ns;     /* and copying a row out */
    bool move_fails;     /* rows that are moved are lost */
    bool load_fails;     /* snapshots, checkpoints and slices are refused */
    bool save_fails;     /* states cannot be copied out, although they have a size */
    int32_t checkpoints_refused; /* so many loads of a checkpoint find no room for it */
    bool no_format;              /* the state format is not supported: states cannot be sliced */
    int32_t stray_cells;         /* cells that every sequence reports beyond those of its tokens */
    void (*on_call)(void *ud);   /* called when a decode call begins, on the engine's thread; NULL: not called */
    void *ud;

    /* What happened; read it when the engine is idle, or under fake_llm_lock(). */
    int32_t contexts; /* opened */
    int32_t calls;
    int32_t draft_calls, draft_tokens; /* of draft models, which count nowhere else */
    int32_t encoded_rows;              /* that an EAGLE-3 head made its own of */
    int32_t max_tokens, max_seqs;      /* of one call */
    int32_t max_logits;                /* rows of them, of one call */
    int32_t batch_tokens[4096];        /* tokens of each call */
    struct llm_batch_token last_batch[4096];
    int32_t last_n;
    int32_t last_threads;
    int32_t shares;                  /* prefixes given to another sequence */
    int32_t saves, loads, rewinds;   /* states saved; whole ones loaded; checkpoints loaded */
    int32_t rows_saved, rows_loaded; /* KV rows, of slices */
    int32_t rows_moved;
    int32_t rows_computed; /* of media */
    int32_t beyond;        /* calls with a token behind the window, which are refused */
    int32_t no_room;       /* calls, and loads, that found too few cells */
    int32_t switches;      /* from one set of adapters to another */

    /* A test can hold decode calls: each then waits for fake_llm_step() or for the abort callback. */
    bool held;
};

extern struct fake_llm fake_llm;

void fake_llm_reset(struct fake_clock *clock);

/* With `held`: lets `n` more decode calls through. */
void fake_llm_step(int n);

/* With `held`: waits until a decode call waits at the gate. */
void fake_llm_await_call(void);

/* The reply that the model gives to the prompt when nothing goes wrong: n tokens. */
void fake_llm_reply(const int32_t *prompt, size_t len, int32_t *reply, size_t n);

/* The logprob that the model gives to this token behind the others. */
double fake_llm_logprob(int32_t adapted, const int32_t *tokens, size_t len, int32_t next);

/* The same under adapters; and what n of them with these scales amount to for the model. */
void fake_llm_reply_under(int32_t adapted, const int32_t *prompt, size_t len, int32_t *reply, size_t n);
int32_t fake_llm_adapted(const double *scales, size_t n);

/* The row that stands for a token of a medium, and back: a foreign row shows in the reply. */
void fake_llm_row_of_token(int32_t token, float row[FAKE_WIDTH]);
int32_t fake_llm_token_of_row(const float row[FAKE_WIDTH]);

/* The tokens that the sequence's cells hold; on the engine's thread, or when it is idle. */
const struct tokens *fake_llm_cells(const struct llm_context *context, int32_t seq);

/* Whether the count of used cells is that of the different cells that the sequences hold. */
bool fake_llm_cells_add_up(const struct llm_context *context);

/* Leading cells that two sequences share. */
int32_t fake_llm_cells_in_common(const struct llm_context *context, int32_t a, int32_t b);

#endif
