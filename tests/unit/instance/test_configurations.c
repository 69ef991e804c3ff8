/* Random configurations of every architecture that hearth-mkmodel makes: each serves four clients at once, twice,
 * within a bound of time, or is refused in one line that names a key which was set.
 *
 * Each runs in a process of its own, so that a crash or a hang is one failed test. HEARTH_SEED (1) alone decides what
 * is tried, HEARTH_CONFIGURATIONS (8; `make thorough`: 25) of each architecture: a failure names the seed with which it
 * comes first. */
#include "support.h"

#include "fakes/cases.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 4, LONGEST_PROMPT = 160, SHORT_PROMPT = 24, FEW_ROWS = 16, REPLY = 6, CELLS = 65536, MAX_SET = 64 };

/* A hundred times the CPU time that is needed. Threads that spin on each other use CPU time, which is a better measure
 * than the clock on a machine with other load. */
enum { BOUND_CPU_S = 60, BOUND_S = 240 };

/* ---- Drawing configurations ---- */

static uint64_t next(uint64_t *random)
{
    *random += 0x9e3779b97f4a7c15U;
    uint64_t z = *random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static int below(uint64_t *random, int n)
{
    return (int)(next(random) % (uint64_t)n);
}

/* Keys of a model that change llama.cpp's parameters or how the store packs states. Each is set in one of `in`
 * configurations. */
static const struct {
    const char *key;
    int in;
    const char *values[14];
} keys[] = {
    {"models.m.context_window", 2, {"16", "64", "100", "256", "300", "1000", "2048", "4096", "5000"}},
    {"models.m.n_seq_max", 2, {"0", "1", "2", "3", "4", "5", "8", "16", "17", "40", "64", "255", "256"}},
    {"models.m.n_seq_spare", 4, {"-1", "0", "1", "7", "60", "254"}},
    {"models.m.queue_depth", 4, {"1", "2", "8"}},
    {"models.m.n_batch", 2, {"1", "2", "4", "8", "31", "32", "64", "65", "100", "512", "2048", "4096"}},
    {"models.m.n_ubatch", 2, {"1", "2", "7", "8", "32", "64", "100", "512", "1000"}},
    {"models.m.max_decode_gap_ms", 4, {"1", "50", "1000"}},
    {"models.m.kv_unified", 2, {"auto", "true", "false"}},
    {"models.m.deterministic", 5, {"true", "false"}},
    {"models.m.cache_type_k", 4, {"auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}},
    {"models.m.cache_type_v", 4, {"auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}},
    {"models.m.flash_attention", 2, {"auto", "on", "off"}},
    {"models.m.system_prompt_cache", 6, {"true", "false"}},
    {"models.m.incremental_cache", 6, {"false", "true"}},
    {"models.m.cache_min_tokens", 2, {"0", "10"}},
    {"models.m.threads", 16, {"0", "1", "2", "3", "5", "64", "1024"}},
    {"models.m.cpus", 12, {"0", "0-0"}},
    {"models.m.cpu_strict", 12, {"true", "false"}},
    {"models.m.thread_priority", 12, {"low", "normal"}},
    {"models.m.n_gpu_layers", 6, {"-1", "0", "1"}},
    {"models.m.split_mode", 6, {"none", "layer", "row"}},
    {"models.m.n_cpu_moe", 10, {"0", "1", "4000"}},
    {"models.m.cpu_moe", 10, {"true", "false"}},
    {"models.m.load_mode", 12, {"auto", "none", "mmap", "mlock", "mmap+mlock", "dio"}},
    {"models.m.offload_kqv", 6, {"true", "false"}},
    {"models.m.op_offload", 6, {"true", "false"}},
    {"models.m.reply_tokens", 6, {"true", "false"}},
    {"models.m.rope_scaling", 5, {"none", "linear", "yarn"}},
    {"models.m.rope_freq_base", 10, {"1", "10000", "1000000"}},
    {"models.m.rope_freq_scale", 10, {"0.000001", "0.25", "1", "4", "1000000"}},
    {"models.m.yarn_ext_factor", 10, {"0", "1", "100"}},
    {"models.m.yarn_attn_factor", 10, {"0", "1", "100"}},
    {"models.m.yarn_beta_fast", 10, {"0", "32", "10000"}},
    {"models.m.yarn_beta_slow", 10, {"0", "1", "10000"}},
    {"models.m.yarn_orig_ctx", 10, {"0", "1", "64", "4096"}},
    {"models.m.embedding", 12, {"auto", "true", "false"}},
    {"models.m.truncate", 12, {"true", "false"}},
    {"models.m.pooling", 12, {"auto", "none", "mean", "cls", "last", "rank"}},
    {"cache.tiers.ram.quota_mb", 2, {"64", "0"}},
    {"cache.boundary_align_tokens", 4, {"1", "16", "100"}},
};

enum { N_KEYS = sizeof keys / sizeof *keys, MAX_VALUES = sizeof keys->values / sizeof *keys->values };

struct configuration {
    uint64_t seed;   /* from which it was drawn */
    uint64_t random; /* for its prompts */
    struct setting {
        const char *key;
        char value[16];
    } set[MAX_SET];
    size_t n;
    int64_t window, slots; /* 0: not set */
    int64_t rows;          /* batch tokens computed together at most */
    bool deterministic;
};

static void put(struct configuration *c, const char *key, const char *value)
{
    struct setting *setting = &c->set[c->n++];
    setting->key = key;
    snprintf(setting->value, sizeof setting->value, "%s", value);
    int64_t *size = strcmp(key, "models.m.context_window") == 0 ? &c->window
                    : strcmp(key, "models.m.n_seq_max") == 0    ? &c->slots
                                                                : NULL;
    if (size != NULL) *size = strtoll(value, NULL, 10);
}

/* Cells are zeroed when they are allocated: a bound on their number keeps that short. */
static void bound_cells(struct configuration *c)
{
    int64_t slots = c->slots > 0 ? c->slots : 1, window = c->window > 0 ? c->window : 4096;
    if (window * slots <= CELLS) return;
    if (c->window == 0) put(c, "models.m.context_window", "");
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->set[i].key, "models.m.context_window") == 0)
            snprintf(c->set[i].value, sizeof c->set[i].value, "%d", (int)(c->window = CELLS / slots));
}

static struct configuration configuration_of(const char *name, uint64_t seed)
{
    struct configuration c = {.seed = seed, .random = seed};
    for (; *name != '\0'; name++) c.random = c.random * 31 + (unsigned char)*name;
    for (size_t i = 0; i < N_KEYS; i++) {
        int n = 0;
        while (n < MAX_VALUES && keys[i].values[n] != NULL) n++;
        if (below(&c.random, keys[i].in) == 0) put(&c, keys[i].key, keys[i].values[below(&c.random, n)]);
    }
    bound_cells(&c);
    return c;
}

/* ---- Four clients; from here on in the child, where nothing of cmocka may be called ---- */

struct client {
    int n_tokens;
    int32_t tokens[REPLY];
    bool ended, fine;
    char fault[512];
    hearth_request *request;
    hearth_embedding *embedding;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void child_fails(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    fflush(stderr);
    _exit(1);
}

static void on_event(void *ud, const hearth_event *event)
{
    struct client *client = ud;
    pthread_mutex_lock(&mutex);
    if (event->type == HEARTH_EVENT_TEXT && event->token >= 0 && client->n_tokens < REPLY)
        client->tokens[client->n_tokens++] = event->token;
    if (event->type == HEARTH_EVENT_FAILED) snprintf(client->fault, sizeof client->fault, "%s", event->error->message);
    client->ended = event->type == HEARTH_EVENT_DONE || event->type == HEARTH_EVENT_FAILED;
    client->fine = event->type == HEARTH_EVENT_DONE;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static void on_vectors(void *ud, const hearth_embedded *result, const hearth_error *error)
{
    struct client *client = ud;
    pthread_mutex_lock(&mutex);
    if (error != NULL) snprintf(client->fault, sizeof client->fault, "%s", error->message);
    client->fine = result != NULL && result->n_inputs == 2 && result->inputs[1].n_vectors > 0;
    client->ended = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static void await_all(struct client *clients, int n)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n; i++)
        while (!clients[i].ended) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < n; i++) {
        if (!clients[i].fine) child_fails("a client was not served", clients[i].fault);
        hearth_request_release(clients[i].request);
        hearth_embedding_release(clients[i].embedding);
    }
}

/* A prompt; its end is unique to the client. */
struct prompt {
    int32_t tokens[LONGEST_PROMPT];
    int n, reply;
    bool fresh; /* without the cache */
};

static void ask(hearth *instance, struct client *client, const struct prompt *prompt)
{
    hearth_error error;
    hearth_params params = greedy(prompt->reply);
    params.tokens = prompt->tokens;
    params.n_tokens = (size_t)prompt->n;
    params.sampling.ignore_eos = true;
    params.cache_prompt = !prompt->fresh;
    *client = (struct client){.ended = false};
    client->request = hearth_submit(instance, &params, on_event, client, &error);
    if (client->request == NULL) child_fails("a request was not taken", error.message);
}

static void expect_replies(const struct client *clients, int n, const struct prompt *prompts)
{
    for (int i = 0; i < n; i++)
        if (clients[i].n_tokens != prompts[i].reply) child_fails("a reply has another length", "than was asked for");
}

/* Where few batch tokens are computed together a long prompt takes many decode calls. */
static int longest_prompt(const struct configuration *c, const hearth_model_info *info)
{
    int longest = c->rows < FEW_ROWS ? SHORT_PROMPT : LONGEST_PROMPT;
    return info->context_window / 2 < longest ? info->context_window / 2 : longest;
}

static void converse(hearth *instance, struct configuration *c, const hearth_model_info *info)
{
    struct client clients[CLIENTS], again;
    struct prompt prompts[CLIENTS], first;
    int longest = longest_prompt(c, info);
    for (int i = 0; i < CLIENTS; i++) {
        struct prompt *p = &prompts[i];
        *p = (struct prompt){.n = 1 + below(&c->random, longest - 5)};
        p->reply = info->context_window - p->n - 5 < REPLY ? 1 : REPLY;
        for (int t = 0; t < LONGEST_PROMPT; t++) p->tokens[t] = below(&c->random, info->n_vocab);
        /* The second client's prompt shares a prefix with the first one's. */
        if (i == 1) memcpy(p->tokens, prompts[0].tokens, (size_t)(p->n / 2) * sizeof *p->tokens);
    }
    for (int i = 0; i < CLIENTS; i++) ask(instance, &clients[i], &prompts[i]);
    await_all(clients, CLIENTS);
    expect_replies(clients, CLIENTS, prompts);
    first = prompts[0];
    first.fresh = true;
    struct client before = clients[0];
    for (int i = 0; i < CLIENTS; i++) prompts[i].n += 4; /* the next turn, which differs from the reply */
    for (int i = 0; i < CLIENTS; i++) ask(instance, &clients[i], &prompts[i]);
    await_all(clients, CLIENTS);
    expect_replies(clients, CLIENTS, prompts);
    if (!c->deterministic) return;
    ask(instance, &again, &first);
    await_all(&again, 1);
    if (memcmp(again.tokens, before.tokens, sizeof again.tokens) != 0)
        child_fails("deterministic", "a reply is not the same alone as it was beside others");
}

static void turn_into_vectors(hearth *instance, bool ranks)
{
    static const char text[] = "one two three four five six seven eight nine ten eleven twelve thirteen";
    struct client clients[CLIENTS];
    hearth_input inputs[2] = {{.text = text, .len = strlen(text)}, {.text = text, .len = 13}};
    for (int i = 0; i < CLIENTS; i++) {
        hearth_error error;
        hearth_embed_params params = hearth_embed_params_default();
        params.inputs = inputs;
        params.n_inputs = 2;
        params.truncate = HEARTH_TRUNCATE_WINDOW;
        if (ranks) params.query = "two";
        params.query_len = ranks ? 3 : 0;
        clients[i] = (struct client){.ended = false};
        clients[i].embedding = hearth_embed(instance, &params, on_vectors, &clients[i], &error);
        if (clients[i].embedding == NULL) child_fails("a request was not taken", error.message);
    }
    await_all(clients, CLIENTS);
}

/* ---- A configuration ---- */

/* Refused: in one line, which names a key that was set. */
static void check_refusal(const struct configuration *c, const hearth_error *error)
{
    if (strchr(error->message, '\n') != NULL) child_fails("refused in more than one line", error->message);
    for (size_t i = 0; i < c->n; i++)
        if (strstr(error->message, strrchr(c->set[i].key, '.') + 1) != NULL) _exit(0);
    child_fails("refused without naming a key", error->message);
}

static void set_all(hearth_config *config, const char *path, const struct configuration *c)
{
    static const char *const always[][2] = {{"cache.tiers.disk.quota_mb", "0"},
                                            {"cache.save_tier", "ram"},
                                            {"models.m.threads", "1"},
                                            {"models.m.admission_timeout", "3600"},
                                            {"models.m.cache_slot_timeout", "3600"}};
    hearth_error error;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (hearth_config_set(config, always[i][0], always[i][1], &error) != HEARTH_OK)
            child_fails("a setting was not taken", error.message);
    if (hearth_config_set(config, "models.m.path", path, &error) != HEARTH_OK)
        child_fails("the path was not taken", error.message);
    for (size_t i = 0; i < c->n; i++)
        if (hearth_config_set(config, c->set[i].key, c->set[i].value, &error) != HEARTH_OK)
            child_fails("a setting was not taken", error.message);
}

static void serve(const char *path, struct configuration *c)
{
    hearth_error error;
    hearth_model_info info;
    hearth_config *config = hearth_config_new();
    hearth_log_open(NULL, "error", "text", NULL);
    set_all(config, path, c);
    c->deterministic = strcmp(hearth_config_get(config, "models.m.deterministic"), "true") == 0;
    c->rows = strtoll(hearth_config_get(config, "models.m.n_ubatch"), NULL, 10);
    hearth *instance = hearth_open(config, &error);
    if (instance == NULL || hearth_load(instance, NULL, NULL, &error) != HEARTH_OK) check_refusal(c, &error);
    if (!hearth_model(instance, 0, &info)) child_fails("no model", "is there");
    if (info.type == HEARTH_MODEL_CHAT)
        converse(instance, c, &info);
    else
        turn_into_vectors(instance, info.type == HEARTH_MODEL_RERANK);
    hearth_close(instance);
    _exit(0);
}

/* ---- In the parent ---- */

static char *folder;

static void print_file(const char *path)
{
    char text[2000];
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    print_error("%s", text);
}

static void print_failure(const char *path, const struct configuration *c, int status, const char *output)
{
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGALRM || signal == SIGXCPU || signal == SIGKILL)
        print_error("somebody was not served within %d s, %d s of a CPU's time\n", BOUND_S, BOUND_CPU_S);
    else if (signal != 0)
        print_error("the process was ended by signal %d (%s)\n", signal, strsignal(signal));
    print_file(output);
    print_error("HEARTH_SEED=%llu %s", (unsigned long long)c->seed, path);
    for (size_t i = 0; i < c->n; i++) print_error(" %s=%s", strchr(c->set[i].key, '.') + 1, c->set[i].value);
    print_error("\n");
}

static bool succeeds(const char *path, struct configuration *c)
{
    char *output = mem_format("%s/output", folder);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen(output, "w", stderr) == NULL) _exit(1);
        setenv("GGML_NO_BACKTRACE", "1", 1);
        alarm(BOUND_S);
        setrlimit(RLIMIT_CPU, &(struct rlimit){BOUND_CPU_S, BOUND_CPU_S});
        serve(path, c);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!fine) print_failure(path, c, status, output);
    free(output);
    return fine;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* An architecture; `options` may give it heads that are no multiple of a block of quantised elements. */
struct kind {
    const char *name, *arch, *vocab, *options;
};

static char *make_model(const struct kind *kind)
{
    char *demo = source_path("models/demo.gguf"), *path = mem_format("%s/%s.gguf", folder, kind->name);
    char *command =
        mem_format("'%s/bin/hearth-mkmodel' --arch %s --vocab '%s' %s -o '%s' >/dev/null", getenv("HEARTH_BUILD"),
                   kind->arch, kind->vocab != NULL ? kind->vocab : demo, kind->options, path);
    assert_int_equal(system(command), 0);
    free(command);
    free(demo);
    return path;
}

static void every_configuration_serves_or_is_refused(void **state)
{
    const struct kind *kind = *state;
    char *path = make_model(kind);
    uint64_t seed = number("HEARTH_SEED", 1), n = number("HEARTH_CONFIGURATIONS", (uint64_t)cases(25, 4)), failed = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct configuration c = configuration_of(kind->name, seed + i);
        failed += !succeeds(path, &c);
    }
    free(path);
    if (failed > 0) fail_msg("%llu of %llu configurations", (unsigned long long)failed, (unsigned long long)n);
}

/* Fewer batch tokens than sequences once ended the process; with more threads than CPUs a prompt once took minutes. */
static void what_once_ended_or_hung_the_process_serves(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *settings[12];
    } known[] = {{"llama", {"n_seq_max", "4", "n_batch", "32"}},
                 {"llama", {"n_seq_max", "16", "n_batch", "64"}},
                 {"llama", {"n_seq_max", "1", "n_batch", "8"}},
                 {"qwen35", {"n_seq_max", "16", "n_batch", "16", "n_ubatch", "1"}},
                 {"llama", {"context_window", "16"}},
                 {"gemma3",
                  {"kv_unified", "false", "n_ubatch", "8", "n_seq_max", "40", "context_window", "512",
                   "flash_attention", "off", "threads", "5"}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct configuration c = {.random = i};
        char names[6][64], *path = make_model(&(struct kind){known[i].arch, known[i].arch, NULL, ""});
        for (int k = 0; k < 6 && known[i].settings[2 * k] != NULL; k++) {
            snprintf(names[k], sizeof names[k], "models.m.%s", known[i].settings[2 * k]);
            put(&c, names[k], known[i].settings[2 * k + 1]);
        }
        assert_true(succeeds(path, &c));
        free(path);
    }
}

static int make_folder(void **state)
{
    (void)state;
    folder = mem_format("%s/unit-lib-XXXXXX", getenv("HEARTH_BUILD"));
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = mem_format("rm -r '%s'", folder);
    int status = system(command);
    free(command);
    free(folder);
    return status;
}

#define KIND(name, arch, vocab, options)                                                                               \
    {                                                                                                                  \
        "every_configuration_of_" name "_serves_or_is_refused", every_configuration_serves_or_is_refused, NULL, NULL,  \
            &(struct kind)                                                                                             \
        {                                                                                                              \
            name, arch, vocab, options                                                                                 \
        }                                                                                                              \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_once_ended_or_hung_the_process_serves),
        KIND("llama", "llama", NULL, ""),
        KIND("llama_with_heads_of_40", "llama", NULL, "--head-dim 40"),
        KIND("qwen3", "qwen3", NULL, ""),
        KIND("qwen3moe", "qwen3moe", NULL, ""),
        KIND("gemma3", "gemma3", NULL, ""),
        KIND("gemma3_with_heads_of_64", "gemma3", NULL, "--head-dim 64"),
        KIND("gpt_oss", "gpt-oss", NULL, ""),
        KIND("qwen35", "qwen35", NULL, ""),
        KIND("falcon_h1", "falcon-h1", NULL, ""),
        KIND("lfm2", "lfm2", NULL, ""),
        KIND("mamba2", "mamba2", NULL, ""),
        KIND("qwen2vl", "qwen2vl", NULL, ""),
        KIND("bert", "bert", "bert-bge", ""),
        KIND("reranker", "reranker", "bert-bge", ""),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
