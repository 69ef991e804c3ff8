/* What schemas cost: each is prepared in a process of its own, and refused, or ready, within half a second and 64 MiB.
 *
 * HEARTH_SCHEMA_SECONDS: how long schemas are drawn (default 6); HEARTH_SCHEMA_SEED. The dearest are printed. */
#include "fakes/sanitized.h"
#include "grammar/grammar.h"
#include "schema_kinds.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SLOWER 20
static const bool sanitized = true;
#else
#define SLOWER 1
static const bool sanitized = false;
#endif

static const double max_seconds = 0.5;
static const long max_kib = 64 << 10;
enum { MAX_SCHEMA = 64 << 10 };

/* ---- Preparing ---- */

/* The ways of a schema into a grammar. */
static const struct route {
    const char *name, *template_; /* NULL: a completion's */
    bool is_tool;
} routes[] = {
    {"completion", NULL, false},
    {"reply, Qwen3", "Qwen-Qwen3-0.6B.jinja", false},
    {"tool, Qwen3", "Qwen-Qwen3-0.6B.jinja", true},
    {"tool, Qwen3-Coder", "Qwen3-Coder.jinja", true},
    {"tool, MiniMax-M3", "MiniMax-M3.jinja", true},
    {"tool, DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.1.jinja", true},
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

static struct chat_template *templates[N_ROUTES];

struct price {
    double seconds;
    long kib, before_kib;
    bool taken;
    int signal; /* that ended it */
    hearth_error error;
};

static int32_t any_token(const void *ud, const char *text, size_t len)
{
    (void)ud, (void)text, (void)len;
    return 1;
}

static bool opens(const char *text, hearth_error *error)
{
    struct grammar_vocabulary vocabulary = {any_token, NULL};
    struct grammar *grammar = text == NULL ? NULL : grammar_open(text, &vocabulary, error);
    grammar_close(grammar);
    return text == NULL || grammar != NULL;
}

static bool prepare_completion(const char *schema, hearth_error *error)
{
    char *grammar = chat_schema_grammar(tree_of(schema), NULL, error);
    bool good = grammar != NULL && opens(grammar, error);
    free(grammar);
    return good;
}

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file != NULL) fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What the template does with the text of a tool is none of the schema's cost: it is as for any text. */
static double rendering_seconds(size_t route, const struct chat_request *request, struct chat_prompt *prompt)
{
    hearth_error error = {0};
    double began = cpu_seconds();
    if (!routes[route].is_tool) return 0;
    chat_render_parts(templates[route], request, prompt, &error);
    return cpu_seconds() - began;
}

static bool prepare_chat(size_t route, const char *schema, double *rendering, hearth_error *error)
{
    struct chat_request request = asking(USER_SAYS("Hi"));
    struct chat_prompt prompt = {0};
    const struct chat_format *format = NULL;
    char *tools = mem_format("[{\"type\":\"function\",\"function\":{\"name\":\"act\",\"parameters\":%s}}]", schema);
    request.parallel_tool_calls = -1;
    request.tool_choice = routes[route].is_tool ? HEARTH_TOOLS_REQUIRED : HEARTH_TOOLS_AUTO;
    if (routes[route].is_tool)
        request.tools = tree_of(tools);
    else
        request.json_schema = tree_of(schema);
    *rendering = rendering_seconds(route, &request, &prompt);
    bool good = chat_format_open(templates[route], &request, prompt.text == NULL ? NULL : &prompt, &format, error) ==
                    HEARTH_OK &&
                opens(format->grammar, error);
    chat_format_unref(format);
    chat_prompt_release(&prompt);
    free(tools);
    return good;
}

/* What goes on and on is ended. */
static void bound_process(void)
{
    const struct rlimit seconds = {15 * SLOWER, 15 * SLOWER}, bytes = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    setrlimit(RLIMIT_CPU, &seconds);
    if (!sanitized) setrlimit(RLIMIT_AS, &bytes);
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
}

static void prepare_and_tell(size_t route, const char *schema, int out)
{
    struct price price = {0};
    double rendering = 0;
    bound_process();
    price.before_kib = resident_kib();
    double began = cpu_seconds();
    price.taken = routes[route].template_ == NULL ? prepare_completion(schema, &price.error)
                                                  : prepare_chat(route, schema, &rendering, &price.error);
    price.seconds = cpu_seconds() - began - rendering;
    _exit(write(out, &price, sizeof price) == sizeof price ? 0 : 1);
}

static struct price price_once(size_t route, const char *schema)
{
    struct price price = {0};
    struct rusage used;
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    malloc_trim(0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) prepare_and_tell(route, schema, ends[1]);
    close(ends[1]);
    bool told = read(ends[0], &price, sizeof price) == sizeof price;
    close(ends[0]);
    while (wait4(child, &status, 0, &used) < 0) assert_int_equal(errno, EINTR);
    if (!told) price = (struct price){.seconds = 1e9, .signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1};
    price.kib = used.ru_maxrss > price.before_kib && told ? used.ru_maxrss - price.before_kib : 0;
    if (!told) price.kib = used.ru_maxrss;
    return price;
}

/* A tool's schema is no reason to refuse a request; what is wrong with another one names the field. */
static bool is_answered(size_t route, const struct price *price)
{
    if (price->signal != 0 || price->taken) return price->signal == 0;
    return !routes[route].is_tool && price->error.code == HEARTH_INVALID &&
           strcmp(price->error.param, "json_schema") == 0;
}

static bool is_cheap(const struct price *price)
{
    return price->signal == 0 && price->seconds <= max_seconds * SLOWER && (sanitized || price->kib <= max_kib);
}

/* What other programs take of the machine makes it dearer, never cheaper. */
static struct price price_of(size_t route, const char *schema)
{
    enum { TRIES = 4 };
    struct price least = price_once(route, schema);
    for (int i = 1; i < TRIES && least.signal == 0 && !is_cheap(&least); i++) {
        struct price price = price_once(route, schema);
        if (price.seconds < least.seconds) least.seconds = price.seconds;
        if (price.kib < least.kib) least.kib = price.kib;
    }
    return least;
}

/* ---- Drawing ---- */

static void describe(const char *what, size_t route, const struct price *price, const char *schema)
{
    if (price->signal != 0)
        print_message("%s, %s: ended by signal %d with %ld KiB: %.200s\n", what, routes[route].name, price->signal,
                      price->kib, schema);
    else
        print_message("%s, %s: %.3f s, %ld KiB, %s %s\n", what, routes[route].name, price->seconds, price->kib,
                      price->taken ? "taken" : "refused:", price->error.message);
}

struct dearest {
    struct price seconds, kib;
    char of_seconds[96], of_kib[96];
    size_t n, n_taken, n_dear;
};

static void note_price(struct dearest *all, const char *what, size_t route, const struct price *price,
                       const char *schema)
{
    char name[96];
    snprintf(name, sizeof name, "%s, %s", what, routes[route].name);
    all->n++;
    all->n_taken += price->taken;
    if (price->seconds > all->seconds.seconds) {
        all->seconds = *price;
        memcpy(all->of_seconds, name, sizeof name);
    }
    if (price->kib > all->kib.kib) {
        all->kib = *price;
        memcpy(all->of_kib, name, sizeof name);
    }
    if (is_cheap(price) && is_answered(route, price)) return;
    all->n_dear++;
    describe(what, route, price, schema);
}

static void put_random(struct buf *out, struct schema_rng *rng, int depth);

static void put_random_name(struct buf *out, struct schema_rng *rng)
{
    static const char *const names[] = {"a", "b", "name", "item_id", "a-b", "a_b", "value of", "x.y"};
    if (rng_below(rng, 3) == 0)
        buf_printf(out, "\"%s\"", names[rng_below(rng, 8)]);
    else
        buf_printf(out, "\"p%u\"", rng_below(rng, 5000));
}

static void put_random_list(struct buf *out, struct schema_rng *rng, int depth)
{
    uint32_t n = 1 + rng_below(rng, rng_below(rng, 20) == 0 ? 60 : 4);
    buf_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        put_random(out, rng, depth + 1);
    }
    buf_puts(out, "]");
}

static void put_random_properties(struct buf *out, struct schema_rng *rng, int depth)
{
    uint32_t n = 1 + rng_below(rng, rng_below(rng, 20) == 0 ? 200 : 6);
    buf_puts(out, "{");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        put_random_name(out, rng);
        buf_puts(out, ":");
        put_random(out, rng, depth + 1);
    }
    buf_puts(out, "}");
}

static void put_random_names(struct buf *out, struct schema_rng *rng)
{
    uint32_t n = 1 + rng_below(rng, 4);
    buf_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        put_random_name(out, rng);
    }
    buf_puts(out, "]");
}

static const char *const random_texts[] = {"\"type\":\"object\"",
                                           "\"type\":\"string\"",
                                           "\"type\":[\"array\",\"object\"]",
                                           "\"type\":[\"string\",\"integer\",\"null\"]",
                                           "\"pattern\":\"^[a-z]+(x|y){2,30}$\"",
                                           "\"pattern\":\"\\\\d{3}\"",
                                           "\"format\":\"date-time\"",
                                           "\"format\":\"uuid\"",
                                           "\"minLength\":2",
                                           "\"maxLength\":1900",
                                           "\"maxItems\":1000",
                                           "\"minItems\":3",
                                           "\"minimum\":-17",
                                           "\"maximum\":123456",
                                           "\"type\":\"integer\"",
                                           "\"type\":\"array\"",
                                           "\"const\":{\"a\":[1,2,\"x\"]}",
                                           "\"enum\":[\"a\",\"b\",1,null]",
                                           "\"additionalProperties\":false",
                                           "\"not\":{}"};

static void put_random_keyword(struct buf *out, struct schema_rng *rng, int depth)
{
    static const char *const lists[] = {"anyOf", "allOf", "oneOf", "prefixItems"};
    uint32_t way = rng_below(rng, 14);
    if (depth > 30 || out->len > MAX_SCHEMA * 3 / 4) way = 13;
    if (way < 3) {
        buf_puts(out, "\"properties\":");
        put_random_properties(out, rng, depth);
    } else if (way < 5) {
        buf_printf(out, "\"%s\":", lists[rng_below(rng, 4)]);
        put_random_list(out, rng, depth);
    } else if (way < 7) {
        buf_puts(out, rng_below(rng, 2) == 0 ? "\"items\":" : "\"additionalProperties\":");
        put_random(out, rng, depth + 1);
    } else if (way == 7) {
        buf_puts(out, "\"required\":");
        put_random_names(out, rng);
    } else if (way == 8) {
        buf_printf(out, "\"$ref\":\"#/$defs/d%u\"", rng_below(rng, 12));
    } else {
        buf_puts(out, random_texts[rng_below(rng, sizeof random_texts / sizeof *random_texts)]);
    }
}

/* A keyword may be there twice: the last one counts. */
static void put_random(struct buf *out, struct schema_rng *rng, int depth)
{
    uint32_t n = 1 + rng_below(rng, 4);
    buf_puts(out, "{");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        put_random_keyword(out, rng, depth);
    }
    if (depth == 0) {
        buf_puts(out, ",\"$defs\":{");
        for (int i = 0; i < 12; i++) {
            buf_printf(out, "%s\"d%d\":", i > 0 ? "," : "", i);
            put_random(out, rng, 1);
        }
        buf_puts(out, "}");
    }
    buf_puts(out, "}");
}

/* ---- Tests ---- */

static int open_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROUTES; i++)
        if (routes[i].template_ != NULL) templates[i] = opened_file(routes[i].template_, "<s>", false);
    return 0;
}

static int close_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROUTES; i++) chat_template_close(templates[i]);
    return 0;
}

static void print_dearest(const char *what, const struct dearest *all)
{
    print_message("%s: %zu prepared, %zu of them taken; %zu beyond bounds\n", what, all->n, all->n_taken, all->n_dear);
    print_message("  longest %.3f s: %s: %s\n", all->seconds.seconds, all->of_seconds, all->seconds.error.message);
    print_message("  largest %.1f MiB: %s: %s\n", (double)all->kib.kib / 1024, all->of_kib, all->kib.error.message);
}

/* The largest of each kind that 64 KiB hold, by each route. */
static void the_largest_schema_of_each_kind_is_refused_or_ready_in_half_a_second(void **state)
{
    (void)state;
    struct dearest all = {0};
    const char *only = getenv("HEARTH_SCHEMA_KIND");
    for (size_t i = 0; i < sizeof schema_kinds / sizeof *schema_kinds; i++) {
        if (only != NULL && strstr(schema_kinds[i].name, only) == NULL) continue;
        for (int m = 0; m < 2; m++) {
            struct buf schema = {0};
            schema_kinds[i].put(&schema, schema_kinds[i].most, m);
            size_t route = (i + (size_t)m * 3) % N_ROUTES;
            for (size_t k = 0; k < N_ROUTES; k++) {
                if (k != route && only == NULL) continue;
                struct price price = price_of(k, buf_text(&schema));
                if (only != NULL) describe(schema_kinds[i].name, k, &price, buf_text(&schema));
                note_price(&all, schema_kinds[i].name, k, &price, buf_text(&schema));
            }
            buf_release(&schema);
        }
    }
    print_dearest("schemas of each kind", &all);
    assert_int_equal(all.n_dear, 0);
}

/* Each took seconds, or memory without end. */
static void schemas_of_exponential_and_quadratic_cost_are_refused_or_ready_in_half_a_second(void **state)
{
    (void)state;
    static const struct {
        void (*put)(struct buf *out, int n, int m);
        int n, m;
        const char *refused; /* NULL: it is taken */
    } rows[] = {
        {kind_types_empty, 24, 0, "# unrecognized type"},
        {kind_types_null, 24, 0, "type must be a string or a list of strings"},
        {kind_types_lists, 24, 0, "type must be a string or a list of strings"},
        {kind_types_both, 24, 0, NULL},
        {kind_types_all, 24, 1, NULL},
        {kind_defs_twice, 30, 0, NULL},
        {kind_defs_two_ways, 30, 4, NULL},
        {kind_defs_later, 400, 0, NULL},
        {kind_allof_references, 20000, 0, "becomes too large"},
        {kind_long_names, 4000, 20, NULL},
        {kind_patterns, 8000, 0, "has more than 2000 alternatives"},
        {kind_formats, 1900, 4, "becomes too large"},
        {kind_repeated_repetition, 30000, 1, "repeated too often"},
        {kind_class, 15000, 0, NULL},
        {kind_required_alone, 9000, 0, "becomes too large"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf schema = {0};
        rows[i].put(&schema, rows[i].n, rows[i].m);
        for (size_t route = 0; route < N_ROUTES; route += 1 + (i + route) % 2) {
            struct price price = price_of(route, buf_text(&schema));
            bool refused = rows[i].refused != NULL && !routes[route].is_tool;
            if (!is_cheap(&price) || price.taken == refused) describe("row", route, &price, buf_text(&schema));
            assert_true(is_cheap(&price));
            assert_int_equal(price.taken, !refused);
            if (!refused) continue;
            assert_string_equal(price.error.param, "json_schema");
            assert_int_equal(price.error.code, HEARTH_INVALID);
            if (strstr(price.error.message, rows[i].refused) == NULL) fail_msg("%zu: %s", i, price.error.message);
        }
        buf_release(&schema);
    }
}

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);
    return text == NULL ? usual : atoi(text);
}

/* One of 64 KiB at most, and its name. */
static void draw(struct schema_rng *rng, struct buf *schema, char name[64])
{
    const struct schema_kind *kind = &schema_kinds[rng_below(rng, sizeof schema_kinds / sizeof *schema_kinds)];
    int n = 1 + (int)rng_below(rng, (uint32_t)kind->most), m = (int)rng_below(rng, 40);
    bool is_random = rng_below(rng, 4) == 0;
    do {
        buf_clear(schema);
        if (is_random)
            put_random(schema, rng, 0);
        else
            kind->put(schema, n, m);
        snprintf(name, 64, is_random ? "random" : "%s (%d, %d)", kind->name, n, m);
        n = n * 3 / 4;
        m = m * 3 / 4;
    } while (schema->len > MAX_SCHEMA && n > 0);
}

static void schemas_drawn_at_random_are_refused_or_ready_in_half_a_second(void **state)
{
    (void)state;
    struct schema_rng rng = {(uint64_t)number_of("HEARTH_SCHEMA_SEED", 1)};
    struct dearest all = {0};
    struct buf schema = {0};
    char name[64];
    time_t until = time(NULL) + number_of("HEARTH_SCHEMA_SECONDS", 6);
    while (time(NULL) < until) {
        draw(&rng, &schema, name);
        size_t route = rng_below(&rng, N_ROUTES);
        struct price price = price_of(route, buf_text(&schema));
        note_price(&all, name, route, &price, buf_text(&schema));
    }
    buf_release(&schema);
    print_dearest("schemas drawn", &all);
    assert_int_equal(all.n_dear, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_of_exponential_and_quadratic_cost_are_refused_or_ready_in_half_a_second),
        cmocka_unit_test(the_largest_schema_of_each_kind_is_refused_or_ready_in_half_a_second),
        cmocka_unit_test(schemas_drawn_at_random_are_refused_or_ready_in_half_a_second),
    };
    return cmocka_run_group_tests(tests, open_templates, close_templates);
}
