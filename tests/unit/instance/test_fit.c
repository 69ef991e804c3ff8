/* What fits a machine: the choice as a pure function of fake machines and models, the figures against those that
 * llama.cpp reports for real files, and the defaults that are taken. */
#include "support.h"

#include "instance/models/fit.h"

#include <unistd.h>

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)

/* ---- Fake models ---- */

#define MOST_LAYERS 96

struct shape {
    const char *name;
    hearth_model_kind kind;
    double weights_gib;
    int32_t layers, every; /* each so-many-th layer has KV cells */
    int32_t kv_heads, head, trained;
    double state_mib, experts; /* part of each layer */
    int32_t n_experts, used;
    int32_t heads; /* MTP heads behind the layers */
};

/* Compute buffers of all: 0.3 GiB, and 1 KiB a cell. */
static const struct shape dense = {"dense 8B", HEARTH_KIND_DENSE, 8, 36, 1, 8, 128, 40960, 0, 0, 0, 0, 0};
static const struct shape brief = {"dense 8B, 8192 tokens", HEARTH_KIND_DENSE, 8, 36, 1, 8, 128, 8192, 0, 0, 0, 0, 0};
static const struct shape hybrid = {"hybrid 35B", HEARTH_KIND_HYBRID, 20, 40, 4, 2, 256, 262144, 64, 0, 0, 0, 0};
static const struct shape tiny = {"tiny", HEARTH_KIND_DENSE, 0.01, 4, 1, 6, 32, 2048, 0, 0, 0, 0, 0};
static const struct shape moe30 = {"experts 30B-A3B", HEARTH_KIND_MOE, 17.3, 48, 1, 4, 128, 40960, 0, 0.94, 128, 8, 0};
static const struct shape moe235 = {
    "experts 235B-A22B", HEARTH_KIND_MOE, 132, 94, 1, 4, 128, 40960, 0, 0.95, 128, 8, 0};
static const struct shape odd = {"heads of 80", HEARTH_KIND_DENSE, 8, 36, 1, 8, 80, 40960, 0, 0, 0, 0, 0};

static void choose(const struct shape *shape, const struct config_model *config, const struct fit_machine *machine,
                   hearth_fit *fit)
{
    int32_t heads[MOST_LAYERS] = {0, 0};
    uint64_t layers[MOST_LAYERS + 1] = {0}, experts[MOST_LAYERS + 1] = {0};
    for (int32_t i = 0; i < shape->layers; i += shape->every) heads[i] = shape->kv_heads;
    for (int32_t i = 0; i <= shape->layers; i++) layers[i] = (uint64_t)(shape->weights_gib * GIB / (shape->layers + 1));
    for (int32_t i = 0; i < shape->layers; i++) experts[i] = (uint64_t)(shape->experts * (double)layers[i]);
    struct llm_model_info info = {.kind = shape->kind,
                                  .has_decoder = true,
                                  .n_layer = shape->layers,
                                  .n_blocks = shape->layers + shape->heads,
                                  .n_expert = shape->n_experts,
                                  .n_expert_used = shape->used,
                                  .n_head_kv = heads,
                                  .layer_bytes = layers,
                                  .expert_bytes = shape->experts > 0 ? experts : NULL,
                                  .n_embd_head_k = shape->head,
                                  .n_embd_head_v = shape->head,
                                  .n_ctx_train = shape->trained,
                                  .state_bytes = (uint64_t)(shape->state_mib * MIB)};
    struct fit_model model = {.config = config, .info = &info, .weights = shape->weights_gib * GIB};
    /* Of all places that compute. */
    bool on_devices = machine->n_devices > 0 && config->n_gpu_layers >= 0;
    for (size_t i = on_devices; i <= (on_devices ? machine->n_devices : 0); i++)
        model.compute[i] = (struct fit_compute){0.3 * GIB, 1024};
    fit_choose(&model, machine, fit);
}

/* GiB that are free; gpu 0: there is none. */
static struct fit_machine machine_of(double memory, double gpu)
{
    struct fit_machine machine = {.memory = memory * GIB, .n_devices = gpu > 0};
    if (gpu > 0) machine.devices[0] = (struct llm_device){"the GPU", false, (uint64_t)(gpu * GIB), 1};
    return machine;
}

static hearth_config *config_with(const char *const *sets)
{
    hearth_config *config = hearth_config_new();
    set(config, "models.m.path", "m.gguf");
    for (; *sets != NULL; sets += 2) {
        char *key = mem_format("models.m.%s", sets[0]);
        set(config, key, sets[1]);
        free(key);
    }
    return config;
}

/* ---- The choice ---- */

static const struct {
    const struct shape *shape;
    double memory, gpu;  /* GiB that are free; gpu 0: there is none */
    const char *sets[7]; /* key, value, … */
    int32_t window, slots;
    const char *type_k, *type_v, *reason; /* type NULL: nothing fits */
} cases[] = {
    /* One after the other, as memory becomes less: a quarter is left to others. */
    {&dense, 64, 0, {NULL}, 40960, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 40, 0, {NULL}, 32768, 4, "f16", "f16", "needs 30.96 GiB of memory, 30.00 GiB are for it"},
    {&dense, 24, 0, {NULL}, 32768, 2, "f16", "f16", "of memory"},
    {&dense, 18, 0, {NULL}, 32768, 1, "f16", "f16", "of memory"},
    {&dense, 15, 0, {NULL}, 16384, 1, "f16", "f16", "of memory"},
    {&dense, 13, 0, {NULL}, 16384, 1, "q8_0", "q8_0", "of memory"},
    {&dense, 12.65, 0, {NULL}, 8192, 1, "f16", "f16", "of memory"},
    {&dense, 12, 0, {NULL}, 8192, 1, "q8_0", "q8_0", "of memory"},
    {&dense, 11.85, 0, {NULL}, 4096, 1, "f16", "f16", "of memory"},
    {&dense, 11.6, 0, {NULL}, 4096, 1, "q8_0", "q8_0", "of memory"},
    {&dense, 11.3, 0, {NULL}, 2048, 1, "q8_0", "q8_0", "of memory"},
    {&dense, 11, 0, {NULL}, 0, 0, NULL, NULL, "the weights fit, KV cells do not: 2048 tokens in 1 slots"},
    {&dense, 10, 0, {NULL}, 0, 0, NULL, NULL, "the weights do not fit: those in memory are 8.00 GiB, and 7.50 GiB"},
    /* Windows are no longer than trained; where memory is not known, nothing is assumed. */
    {&brief, 64, 0, {NULL}, 8192, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 0, 0, {NULL}, 8192, 1, "f16", "f16", "not known how much memory is free"},
    /* Small models are the same everywhere. */
    {&tiny, 512, 0, {NULL}, 2048, 1, "f16", "f16", "a small model"},
    {&tiny, 1, 0, {NULL}, 2048, 1, "f16", "f16", "a small model"},
    {&tiny, 512, 80, {"n_seq_max", "4", NULL}, 2048, 4, "f16", "f16", "a small model"},
    /* States take memory for each sequence, and are never quantised; nor are heads that are no whole blocks. */
    {&hybrid, 36, 0, {NULL}, 65536, 4, "f16", "f16", "the best of the list fits"},
    {&hybrid, 28.1, 0, {NULL}, 16384, 1, "f16", "f16", "of memory"},
    {&hybrid, 27.7, 0, {NULL}, 4096, 1, "f16", "f16", "of memory"},
    {&odd, 12.2, 0, {NULL}, 8192, 1, "f16", "f16", "of memory"},
    {&dense, 13, 0, {"flash_attention", "off", NULL}, 8192, 1, "f16", "f16", "of memory"},
    /* On a GPU that is what counts; a sixteenth is left. */
    {&dense, 16, 24, {NULL}, 32768, 2, "f16", "f16", "on the GPU"},
    {&dense, 16, 12, {NULL}, 16384, 1, "f16", "f16", "on the GPU"},
    {&dense, 16, 8, {NULL}, 0, 0, NULL, NULL, "nothing fits the GPU: 2048 tokens in 1 slots"},
    {&dense, 16, 8, {NULL}, 0, 0, NULL, NULL, "keep fewer layers there with n_gpu_layers=32"},
    {&dense, 16, 0.5, {NULL}, 0, 0, NULL, NULL, "keep no layers there with n_gpu_layers=-1"},
    {&dense, 16, 8, {"n_gpu_layers", "24", NULL}, 16384, 1, "f16", "f16", "on the GPU"},
    {&dense, 64, 8, {"n_gpu_layers", "-1", NULL}, 40960, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 64, 12, {"offload_kqv", "false", NULL}, 40960, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 18, 12, {"offload_kqv", "false", NULL}, 32768, 2, "f16", "f16", "of memory"},
    /* What is set is kept, and the rest is chosen for it. */
    {&dense, 40, 0, {"n_seq_max", "3", NULL}, 40960, 3, "f16", "f16", "the best of the list fits"},
    {&dense, 40, 0, {"context_window", "16384", NULL}, 16384, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 24, 0, {"cache_type_k", "q8_0", "cache_type_v", "q8_0", NULL}, 32768, 4, "q8_0", "q8_0", "of memory"},
    {&dense, 13, 0, {"cache_type_k", "f16", NULL}, 8192, 1, "f16", "f16", "of memory"},
    {&dense, 12, 0, {"context_window", "32768", "n_seq_max", "4", NULL}, 0, 0, NULL, NULL, "leave them unset"},
    {&dense, 64, 0, {"context_window", "100000", NULL}, 40960, 4, "f16", "f16", "the best of the list fits"},
    {&dense, 64, 0, {"n_batch", "2", NULL}, 32768, 2, "f16", "f16", "the best of the list fits"},
    {&dense, 64, 0, {"n_batch", "2", "deterministic", "true", NULL}, 0, 0, NULL, NULL, "no context is possible"},
};

/* ---- Experts ---- */

/* One slot's choice with the experts of so many layers in memory: that of the window and type, or the best. */
static const hearth_fit_choice *with_experts_kept(const struct shape *shape, const struct fit_machine *machine,
                                                  int32_t n, const hearth_fit_choice *like, hearth_fit *fit)
{
    char number[16];
    snprintf(number, sizeof number, "%d", n);
    const char *sets[] = {"n_cpu_moe", number, NULL};
    hearth_config *config = config_with(sets);
    choose(shape, config_find_model(config, NULL), machine, fit);
    hearth_config_free(config);
    for (size_t i = 0; i < fit->n_choices; i++)
        if (like == NULL ? fit->choices[i].n_seq_max == 1
                         : fit->choices[i].context_window == like->context_window &&
                               fit->choices[i].n_seq_max == like->n_seq_max &&
                               strcmp(fit->choices[i].cache_type_k, like->cache_type_k) == 0)
            return &fit->choices[i];
    return NULL;
}

/* As many layers' experts leave the GPU as have to, and not one more. Dense models have none. */
static void experts_leave_the_gpu_as_far_as_they_have_to(void **state)
{
    (void)state;
    static const struct shape *const shapes[] = {&moe30, &moe235, &dense};
    static const double gpus[] = {8, 12, 24}, memories[] = {16, 64, 256};
    static const char *const nothing[] = {NULL};
    int kept = 0;
    for (size_t i = 0; i < 27; i++) {
        const struct shape *shape = shapes[i / 9];
        struct fit_machine machine = machine_of(memories[i % 3], gpus[i / 3 % 3]);
        hearth_config *config = config_with(nothing);
        hearth_fit fit = {0}, other = {0};
        choose(shape, config_find_model(config, NULL), &machine, &fit);
        hearth_config_free(config);
        print_message("%s, GPU %g, memory %g GiB: %s\n", shape->name, gpus[i / 3 % 3], memories[i % 3], fit.reason);
        if (fit.recommended >= 0 || shape->experts == 0) {
            assert_int_equal(fit.n_cpu_moe, 0);
            continue;
        }
        if (fit.n_cpu_moe == 0) {
            assert_false(with_experts_kept(shape, &machine, shape->layers, NULL, &other)->fits);
            continue;
        }
        kept++;
        assert_says(fit.reason, "set n_cpu_moe=");
        assert_true(with_experts_kept(shape, &machine, fit.n_cpu_moe, &fit.suggested, &other)->fits);
        if (fit.n_cpu_moe > 1)
            assert_false(with_experts_kept(shape, &machine, fit.n_cpu_moe - 1, &fit.suggested, &other)->fits);
    }
    assert_true(kept >= 5);
}

static void the_choice_is_the_best_that_fits_the_machine(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fit_machine machine = machine_of(cases[i].memory, cases[i].gpu);
        hearth_config *config = config_with(cases[i].sets);
        hearth_fit fit = {0};
        choose(cases[i].shape, config_find_model(config, NULL), &machine, &fit);
        bool fits = cases[i].type_k != NULL;
        if ((fit.recommended >= 0) != fits)
            fail_msg("case %zu, %s in %g GiB: %s", i, cases[i].shape->name, cases[i].memory, fit.reason);
        const hearth_fit_choice *choice = &fit.choices[fits ? fit.recommended : 0];
        if (fits &&
            (choice->context_window != cases[i].window || choice->n_seq_max != cases[i].slots ||
             strcmp(choice->cache_type_k, cases[i].type_k) != 0 || strcmp(choice->cache_type_v, cases[i].type_v) != 0))
            fail_msg("case %zu, %s in %g GiB: %d x %d, %s/%s", i, cases[i].shape->name, cases[i].memory,
                     choice->context_window, choice->n_seq_max, choice->cache_type_k, choice->cache_type_v);
        if (strstr(fit.reason, cases[i].reason) == NULL)
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].reason, fit.reason);
        hearth_config_free(config);
    }
}

/* More memory never gives a worse choice, what is recommended has room, and nothing better would have. */
static void more_memory_never_gives_less(void **state)
{
    (void)state;
    hearth_config *config = config_with((const char *const[]){NULL});
    int32_t before = HEARTH_FIT_CHOICES;
    for (int quarters = 4 * 9; quarters < 4 * 80; quarters++) {
        double gib = quarters / 4.0;
        struct fit_machine machine = {.memory = gib * GIB};
        hearth_fit fit = {0};
        choose(&dense, config_find_model(config, NULL), &machine, &fit);
        for (int32_t i = 0; i < (int32_t)fit.n_choices; i++)
            assert_true(fit.choices[i].fits == (fit.choices[i].memory_bytes <= fit.memory_budget));
        int32_t place = fit.recommended >= 0 ? fit.recommended : HEARTH_FIT_CHOICES;
        assert_true(place <= before);
        for (int32_t i = 0; i < fit.recommended; i++) assert_false(fit.choices[i].fits);
        assert_true((double)fit.memory_budget < gib * GIB);
        before = place;
    }
    assert_int_equal(before, 0);
    hearth_config_free(config);
}

static void a_token_has_its_bytes_in_each_type(void **state)
{
    (void)state;
    hearth_config *config = config_with((const char *const[]){NULL});
    struct fit_machine machine = {.memory = 64 * GIB};
    hearth_fit fit = {0};
    choose(&dense, config_find_model(config, NULL), &machine, &fit);
    assert_string_equal(fit.types[0].name, "f16");
    assert_int_equal(fit.types[0].token_bytes, 36 * 8 * 256 * 2);
    assert_int_equal(fit.types[1].token_bytes, 36 * 8 * 256 * 34 / 32);
    assert_int_equal(fit.types[2].token_bytes, 36 * 8 * 256 * 18 / 32);
    assert_int_equal(fit.choices[0].cells_bytes, 40960.0 * 4 * 36 * 8 * 256 * 2);
    hearth_config_free(config);
}

/* Layers are alike, the output counts as one. Of 128 experts a token passes through 8. */
static void what_a_token_reads_is_what_it_passes_through_in_memory(void **state)
{
    (void)state;
    static const struct {
        const struct shape *shape;
        double gpu_gib;
        const char *sets[3];
        double gib;
    } reads[] = {
        {&dense, 0, {NULL}, 8},
        {&dense, 80, {NULL}, 0},
        {&dense, 80, {"n_gpu_layers", "27"}, 8.0 * 10 / 37},
        {&moe30, 0, {NULL}, 17.3 / 49 * (49 - 48 * 0.94 * 120 / 128)},
        {&moe30, 80, {NULL}, 0},
        {&moe30, 80, {"n_cpu_moe", "20"}, 17.3 / 49 * 20 * 0.94 * 8 / 128},
        {&moe30, 80, {"cpu_moe", "true"}, 17.3 / 49 * 48 * 0.94 * 8 / 128},
        {&moe30, 80, {"n_gpu_layers", "-1"}, 17.3 / 49 * (49 - 48 * 0.94 * 120 / 128)},
    };
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        hearth_config *config = config_with(reads[i].sets);
        struct fit_machine machine = machine_of(200, reads[i].gpu_gib);
        machine.read_rate = 5e9;
        hearth_fit fit = {0};
        choose(reads[i].shape, config_find_model(config, NULL), &machine, &fit);
        assert_true(fabs((double)fit.read_bytes / GIB - reads[i].gib) < 1e-6);
        assert_int_equal(fit.read_rate, 5000000000);
        hearth_config_free(config);
    }
}

/* Where experts have to stay in memory, they are read from there. */
static void what_a_token_reads_follows_what_is_suggested(void **state)
{
    (void)state;
    hearth_config *config = config_with((const char *const[]){NULL});
    struct fit_machine machine = machine_of(64, 12);
    hearth_fit fit = {0};
    choose(&moe30, config_find_model(config, NULL), &machine, &fit);
    assert_true(fit.n_cpu_moe > 0);
    assert_true(fabs((double)fit.read_bytes / GIB - 17.3 / 49 * fit.n_cpu_moe * 0.94 * 8 / 128) < 1e-6);
    hearth_config_free(config);
}

/* ---- Several devices ---- */

static uint64_t draw(uint64_t *random, uint64_t n)
{
    *random = *random * 6364136223846793005 + 1442695040888963407;
    return (*random >> 33) % n;
}

static void draw_devices(struct fit_machine *machine, uint64_t *random)
{
    machine->n_devices = 1 + draw(random, 4);
    for (size_t i = 0; i < machine->n_devices; i++) {
        struct llm_device *device = &machine->devices[i];
        *device = (struct llm_device){.free_bytes = (1 + draw(random, 48)) << 30};
        snprintf(device->name, sizeof device->name, "GPU%zu", i);
    }
    bool parts = draw(random, 3) == 0; /* else by free memory */
    for (size_t i = 0; i < machine->n_devices; i++)
        machine->devices[i].part = parts ? (float)(1 + draw(random, 9)) : (float)machine->devices[i].free_bytes;
}

static void expect_room(const struct fit_machine *machine, const hearth_fit *fit, const hearth_fit_choice *choice)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < machine->n_devices; i++) {
        assert_true(choice->device_bytes[i] <= fit->devices[i].budget);
        sum += choice->device_bytes[i];
    }
    assert_true(choice->gpu_bytes - sum < machine->n_devices + 1);
    assert_true(choice->memory_bytes <= fit->memory_budget);
}

/* The configuration with what is suggested; the machine has its parts. */
static hearth_config *as_suggested(const hearth_fit *fit, struct fit_machine *machine)
{
    char layers[16], experts[16], window[16], slots[16];
    snprintf(layers, sizeof layers, "%d", fit->n_gpu_layers);
    snprintf(experts, sizeof experts, "%d", fit->n_cpu_moe);
    snprintf(window, sizeof window, "%d", fit->suggested.context_window);
    snprintf(slots, sizeof slots, "%d", fit->suggested.n_seq_max);
    int32_t divided = 0;
    for (size_t i = 0; i < machine->n_devices; i++) divided += fit->tensor_split[i];
    for (size_t i = 0; i < machine->n_devices && divided > 0; i++)
        machine->devices[i].part = (float)fit->tensor_split[i];
    return config_with((const char *const[]){"n_gpu_layers", layers, "n_cpu_moe", experts, "context_window", window,
                                             "n_seq_max", slots, "cache_type_k", fit->suggested.cache_type_k,
                                             "cache_type_v", fit->suggested.cache_type_v, NULL});
}

/* On any devices, what is recommended has room on each of them, and what is suggested has it once it is set. */
static void what_is_said_of_several_devices_is_so(void **state)
{
    (void)state;
    static const struct shape *const shapes[] = {&dense, &moe30, &moe235, &hybrid};
    int recommended = 0, divided = 0, fewer = 0, kept = 0, nothing = 0;
    uint64_t random = 11;
    for (int i = 0; i < 600; i++) {
        struct shape shape = *shapes[draw(&random, 4)];
        struct fit_machine machine = {.memory = (double)(16 << draw(&random, 5)) * GIB};
        shape.heads = (int32_t)draw(&random, 2);
        hearth_config *config = config_with((const char *const[]){NULL});
        hearth_fit fit = {0}, then = {0};
        draw_devices(&machine, &random);
        choose(&shape, config_find_model(config, NULL), &machine, &fit);
        hearth_config_free(config);
        if (fit.recommended >= 0) {
            expect_room(&machine, &fit, &fit.choices[fit.recommended]);
            recommended++;
        } else if (fit.suggested.context_window > 0) {
            expect_room(&machine, &fit, &fit.suggested);
            for (size_t k = 0; k < machine.n_devices; k++) divided += fit.tensor_split[k] > 0 && k == 1;
            fewer += fit.n_gpu_layers > 0;
            kept += fit.n_cpu_moe > 0;
            config = as_suggested(&fit, &machine);
            choose(&shape, config_find_model(config, NULL), &machine, &then);
            hearth_config_free(config);
            if (then.recommended < 0) fail_msg("run %d, %s: %s; then: %s", i, shape.name, fit.reason, then.reason);
            assert_true(then.choices[then.recommended].gpu_bytes - fit.suggested.gpu_bytes + 64 < 128);
        } else {
            nothing++;
        }
    }
    print_message("%d recommended, %d divided anew, %d fewer layers, %d experts kept, %d nothing\n", recommended,
                  divided, fewer, kept, nothing);
    assert_true(recommended > 50 && divided > 20 && fewer > 10 && kept > 20);
}

/* As llama.cpp has it: the place of a layer among those that devices take lies in the part of its device. */
static void layers_go_to_devices_by_their_parts(void **state)
{
    (void)state;
    static const struct {
        int32_t layers, blocks, n_gpu_layers;
        float parts[3];
        const char *places; /* a digit for each layer and the output; -: memory */
    } rows[] = {
        {7, 7, 0, {1, 0, 0}, "00000000"},  {7, 7, 0, {1, 1, 0}, "00001111"},  {7, 7, 4, {1, 1, 0}, "----0011"},
        {7, 7, 1, {1, 1, 1}, "-------0"},  {7, 7, -1, {1, 1, 1}, "--------"}, {7, 7, 0, {3, 1, 0}, "00000011"},
        {7, 7, 99, {0, 1, 0}, "11111111"}, {7, 7, 0, {2, 3, 3}, "00111222"},  {6, 7, 0, {1, 1, 0}, "0000111"},
        {7, 7, 0, {0, 0, 0}, "00112222"}, /* by free memory: 2, 2 and 4 of 8 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_model_info info = {.n_layer = rows[i].layers, .n_blocks = rows[i].blocks};
        struct llm_device devices[3] = {{.free_bytes = 2}, {.free_bytes = 2}, {.free_bytes = 4}};
        int8_t places[16];
        char seen[16] = "";
        for (size_t k = 0; k < 3; k++) devices[k].part = rows[i].parts[k];
        llm_assign_layers(&info, rows[i].n_gpu_layers, devices, 3, places);
        for (int32_t k = 0; k <= info.n_layer; k++) seen[k] = (char)(places[k] < 0 ? '-' : '0' + places[k]);
        assert_string_equal(seen, rows[i].places);
    }
}

/* ---- Real files ---- */

static char *make_model(const char *arguments)
{
    char *demo = source_path("models/demo.gguf"),
         *path = mem_format("%s/unit-lib-fit-%d.gguf", getenv("HEARTH_BUILD"), (int)getpid());
    char *command = mem_format("'%s/bin/hearth-mkmodel' --vocab '%s' %s -o '%s' >/dev/null", getenv("HEARTH_BUILD"),
                               demo, arguments, path);
    assert_int_equal(system(command), 0);
    free(command);
    free(demo);
    return path;
}

static void remove_model(char *path)
{
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* The number in the last line after the heading that begins with this name. */
static double figure(const char *report, const char *heading, const char *name)
{
    const char *at = strstr(report, heading);
    assert_non_null(at);
    for (at = strchr(at, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        const char *line = at + 1 + strspn(at + 1, " ");
        if (strncmp(line, name, strlen(name)) == 0) return strtod(line + strlen(name), NULL);
    }
    fail_msg("no '%s' in %s", name, report);
    return 0;
}

static void assert_near(double a, double b, double share)
{
    if (a < b * (1 - share) || a > b * (1 + share)) fail_msg("%.0f is not near %.0f", a, b);
}

static void the_demo_model_keeps_its_defaults(void **state)
{
    (void)state;
    hearth_error error;
    hearth_fit fit;
    hearth_config *config = DEMO(NULL);
    assert_int_equal(hearth_fit_model(config, "demo", &fit, &error), HEARTH_OK);
    const hearth_fit_choice *choice = &fit.choices[fit.recommended];
    assert_int_equal(choice->context_window, 2048);
    assert_int_equal(choice->n_seq_max, 1);
    assert_string_equal(choice->cache_type_k, "f16");
    assert_int_equal(fit.n_ctx_train, 2048);
    char *report = hearth_memory_report(config, "demo", &error);
    assert_true((double)choice->cells_bytes == figure(report, "estimate", "3 all slots"));
    assert_true((double)fit.weights_bytes == figure(report, "estimate", "weights"));
    hearth_free(report);
    hearth_config_free(config);
}

/* Compute buffers are planned at two sizes without being allocated; between these they follow a line. */
static void what_is_planned_agrees_with_what_is_allocated(void **state)
{
    (void)state;
    static const char *const models[] = {"--arch qwen3 --ctx 131072", "--arch gemma3 --ctx 131072",
                                         "--arch qwen35 --ctx 131072", "--arch llama --ctx 131072 --type f32"};
    static const char *const sizes[][2] = {{"8192", "1"}, {"32768", "2"}, {"65536", "4"}};
    for (size_t i = 0; i < sizeof models / sizeof *models * 3; i++) {
        char *path = make_model(models[i / 3]);
        hearth_config *config = DEMO("path", path, "context_window", sizes[i % 3][0], "n_seq_max", sizes[i % 3][1]);
        hearth_error error;
        hearth_fit fit;
        assert_int_equal(hearth_fit_model(config, NULL, &fit, &error), HEARTH_OK);
        assert_int_equal(fit.n_choices, 1);
        char *report = hearth_memory_report(config, NULL, &error);
        assert_non_null(report);
        assert_near((double)fit.choices[0].cells_bytes, figure(report, "allocated", "cells"), 0.02);
        assert_near((double)fit.choices[0].compute_bytes, figure(report, "allocated", "compute buffers"), 0.15);
        hearth_free(report);
        hearth_config_free(config);
        remove_model(path);
    }
}

static void what_cannot_be_said_is_an_error_that_names_why(void **state)
{
    (void)state;
    hearth_error error;
    hearth_fit fit;
    hearth_config *config = DEMO("path", "/nowhere/a.gguf");
    assert_int_equal(hearth_fit_model(config, NULL, &fit, &error), HEARTH_NOT_FOUND);
    assert_says(error.message, "/nowhere/a.gguf");
    assert_int_equal(hearth_fit_model(config, "other", &fit, &error), HEARTH_NOT_FOUND);
    assert_says(error.message, "other");
    hearth_config_free(config);
    static const struct {
        const char *key, *value;
        int rc;
    } placed[] = {{"rpc", "[127.0.0.1:1]", HEARTH_UNAVAILABLE},
                  {"tensor_split", "[3, 1]", HEARTH_INVALID},
                  {"devices", "[CUDA7]", HEARTH_INVALID},
                  {"override_tensors", "[a=nothing]", HEARTH_INVALID}};
    for (size_t i = 0; i < sizeof placed / sizeof *placed; i++) {
        config = DEMO(placed[i].key, placed[i].value);
        assert_int_equal(hearth_fit_model(config, NULL, &fit, &error), placed[i].rc);
        assert_string_equal(error.param, placed[i].key);
        hearth_config_free(config);
    }
}

static void a_model_for_vectors_has_nothing_to_choose(void **state)
{
    (void)state;
    hearth_error error;
    hearth_fit fit;
    hearth_config *config = DEMO("embedding", "true");
    assert_int_equal(hearth_fit_model(config, NULL, &fit, &error), HEARTH_OK);
    assert_int_equal(fit.type, HEARTH_MODEL_EMBEDDING);
    assert_int_equal(fit.n_choices, 0);
    assert_int_equal(fit.recommended, -1);
    assert_says(fit.reason, "keeps no KV cells");
    hearth_config_free(config);
}

/* ---- Defaults ---- */

static char *file_of(const char *name, off_t bytes)
{
    char *path = mem_format("%s/unit-lib-fit-%d-%s.gguf", getenv("HEARTH_BUILD"), (int)getpid(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), bytes), 0); /* without blocks on the disk */
    assert_int_equal(fclose(file), 0);
    return path;
}

static void a_model_in_parts_is_as_large_as_all_of_them(void **state)
{
    (void)state;
    struct fit_machine machine = machine_of(10, 0);
    hearth_config *config = hearth_config_new();
    char *parts[] = {file_of("a-00001-of-00002", 1), file_of("a-00002-of-00002", (off_t)(3 * GIB) - 1)};
    char *b = file_of("b", (off_t)GIB);
    set(config, "models.a.path", parts[0]);
    set(config, "models.b.path", b);
    assert_true(fit_share(config, &machine, 0).memory == 6 * GIB);
    assert_true(fit_share(config, &machine, 1).memory == 4 * GIB);
    hearth_config_free(config);
    remove_model(parts[0]);
    remove_model(parts[1]);
    remove_model(b);
}

static void several_models_share_what_their_files_leave(void **state)
{
    (void)state;
    const struct {
        double memory, gpu;
        const char *budget_mb;
        double a, b, b_on_gpu;
    } shares[] = {{10, 0, "0", 4, 6, 0},    {10, 20, "0", 4, 6, 11},     {2, 0, "0", 0.5, 1.5, 0},
                  {10, 0, "5120", 5, 5, 0}, {10, 0, "51200", 10, 10, 0}, {0, 0, "0", 0, 0, 0}};
    char *a = file_of("a", (off_t)GIB), *b = file_of("b", (off_t)(3 * GIB));
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct fit_machine machine = machine_of(shares[i].memory, shares[i].gpu);
        hearth_config *config = hearth_config_new();
        set(config, "models.a.path", a);
        set(config, "models.b.path", b);
        set(config, "server.memory_budget_mb", shares[i].budget_mb);
        assert_true(fit_share(config, &machine, 0).memory == shares[i].a * GIB);
        assert_true(fit_share(config, &machine, 1).memory == shares[i].b * GIB);
        assert_true((double)fit_share(config, &machine, 1).devices[0].free_bytes == shares[i].b_on_gpu * GIB);
        hearth_config_free(config);
    }
    remove_model(a);
    remove_model(b);
}

static void only_what_is_not_set_gets_another_default(void **state)
{
    (void)state;
    hearth_config *config = config_with((const char *const[]){"n_seq_max", "2", "cache_type_v", "q4_0", NULL});
    struct config_model *model = config->models;
    config_set_context(model, &(struct config_context){32768, 4, "q8_0", "q8_0"});
    assert_int_equal(model->context_window, 32768);
    assert_int_equal(model->n_seq_max, 2);
    assert_string_equal(model->cache_type_k, "q8_0");
    assert_string_equal(model->cache_type_v, "q4_0");
    assert_string_equal(hearth_config_get(config, "models.m.context_window"), "32768");
    assert_false(config_is_set(model->notes, "models.*.context_window"));
    hearth_config_free(config);
}

/* Whether the log of the defaults' choice warns of it. */
static bool warns(hearth_config *config)
{
    hearth_error error;
    char line[4096], log[] = "/tmp/hearth-log-XXXXXX";
    int fd = mkstemp(log);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(hearth_log_open(log, "warn", "text", &error), HEARTH_OK);
    fit_defaults(config);
    hearth_config_free(config);
    assert_int_equal(hearth_log_open(NULL, "error", "text", &error), HEARTH_OK);
    FILE *file = fopen(log, "re");
    assert_non_null(file);
    bool found = false;
    while (fgets(line, sizeof line, file) != NULL) found = found || strstr(line, "the next process may choose less");
    fclose(file);
    unlink(log);
    return found;
}

static void a_choice_that_the_next_process_may_not_repeat_is_warned_of(const char *path)
{
    hearth_config *kept = DEMO("path", path, "n_seq_max", "2", "context_window", "4096", "cache_type_k", "f16",
                               "cache_type_v", "f16"),
                  *chosen = DEMO("path", path, "n_seq_max", "2");
    set(kept, "server.handover", "/run/hearth/handover");
    set(chosen, "server.handover", "/run/hearth/handover");
    assert_false(warns(kept));
    assert_true(warns(chosen));
    assert_false(warns(DEMO("path", path, "n_seq_max", "2")));
}

/* Of 300 MB: models smaller than 256 MiB keep the same defaults everywhere. */
static void a_larger_model_gets_what_fits(void **state)
{
    (void)state;
    char *path = make_model("--arch llama --layers 2 --embd 1024 --heads 8 --kv-heads 1 --head-dim 32 --ff 12288 "
                            "--ctx 16384 --type f32");
    hearth_config *config = DEMO("path", path, "n_seq_max", "2");
    hearth_error error;
    hearth_fit fit;
    assert_int_equal(hearth_fit_model(config, NULL, &fit, &error), HEARTH_OK);
    assert_true((double)fit.weights_bytes > 256 * MIB);
    fit_defaults(config);
    const struct config_model *model = config_find_model(config, NULL);
    if (fit.recommended >= 0) {
        assert_int_equal(model->context_window, fit.choices[fit.recommended].context_window);
        assert_string_equal(model->cache_type_k, fit.choices[fit.recommended].cache_type_k);
    }
    assert_int_equal(model->n_seq_max, 2);
    assert_int_not_equal(model->context_window, 8192);
    hearth_config_free(config);
    a_choice_that_the_next_process_may_not_repeat_is_warned_of(path);
    remove_model(path);
}

int main(void)
{
    hearth_error error;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_the_best_that_fits_the_machine),
        cmocka_unit_test(experts_leave_the_gpu_as_far_as_they_have_to),
        cmocka_unit_test(more_memory_never_gives_less),
        cmocka_unit_test(a_token_has_its_bytes_in_each_type),
        cmocka_unit_test(what_a_token_reads_is_what_it_passes_through_in_memory),
        cmocka_unit_test(what_a_token_reads_follows_what_is_suggested),
        cmocka_unit_test(what_is_said_of_several_devices_is_so),
        cmocka_unit_test(layers_go_to_devices_by_their_parts),
        cmocka_unit_test(the_demo_model_keeps_its_defaults),
        cmocka_unit_test(what_is_planned_agrees_with_what_is_allocated),
        cmocka_unit_test(what_cannot_be_said_is_an_error_that_names_why),
        cmocka_unit_test(a_model_for_vectors_has_nothing_to_choose),
        cmocka_unit_test(a_model_in_parts_is_as_large_as_all_of_them),
        cmocka_unit_test(several_models_share_what_their_files_leave),
        cmocka_unit_test(only_what_is_not_set_gets_another_default),
        cmocka_unit_test(a_larger_model_gets_what_fits),
    };
    hearth_log_open(NULL, "error", "text", &error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
