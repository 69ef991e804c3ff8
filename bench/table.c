/* hearth_bench_table: prints the JSON reports of workloads, run against hearth and against llama-server, as one table.
 * The first figure of a workload has its name; its other figures follow, indented. One thread. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_BAD_USAGE = 2 };

static const char columns[] = "%-10s %-58s %10s %14s %7s %5s\n";

/* NULL for "-"; ends the program with a message where the file is not a workload's. */
static json_t *load(const char *path)
{
    json_error_t where;
    if (!strcmp(path, "-")) return NULL;
    json_t *report = json_load_file(path, 0, &where);
    if (json_is_array(json_object_get(report, "figures"))) return report;
    fprintf(stderr, "hearth_bench_table: %s is not a workload's JSON\n", path);
    exit(EXIT_FAILURE);
}

static const json_t *find_figure(const json_t *report, const char *name)
{
    size_t i;
    json_t *figure;
    json_array_foreach(json_object_get(report, "figures"), i,
                       figure) if (!strcmp(json_string_value(json_object_get(figure, "name")), name)) return figure;
    return NULL;
}

static double median_of(const json_t *figure)
{
    const json_t *median = json_object_get(figure, "median");
    return json_is_number(median) ? json_number_value(median) : NAN;
}

/* The number with its unit; "-" where there is none. */
static const char *cell(char *text, size_t size, double value, const char *unit)
{
    snprintf(text, size, fabs(value) < 100 ? "%.2f %s" : "%.0f %s", value, unit);
    if (isnan(value)) return "-";
    return text;
}

static void print_figure(const char *workload, const json_t *mine, const json_t *peer)
{
    char name[80], runs[16], a[32], b[32], ratio[32];
    const char *unit = json_string_value(json_object_get(mine, "unit"));
    double x = median_of(mine), y = median_of(peer);
    snprintf(name, sizeof name, "%s%s", workload[0] ? "" : "  ", json_string_value(json_object_get(mine, "name")));
    snprintf(runs, sizeof runs, "%zu", json_array_size(json_object_get(mine, "rounds")));
    printf(columns, workload, name, cell(a, sizeof a, x, unit), cell(b, sizeof b, y, unit),
           cell(ratio, sizeof ratio, x / y, ""), runs);
}

static void print_workload(const json_t *mine, const json_t *peer)
{
    size_t i;
    json_t *figure;
    json_array_foreach(json_object_get(mine, "figures"), i, figure)
    {
        const char *name = json_string_value(json_object_get(figure, "name"));
        const char *workload = i == 0 ? json_string_value(json_object_get(mine, "workload")) : "";
        print_figure(workload, figure, find_figure(peer, name));
    }
}

static void print_checks(const json_t *mine)
{
    size_t i;
    json_t *check;
    json_array_foreach(json_object_get(mine, "checks"), i, check)
        printf("%s: %s: %s\n", json_string_value(json_object_get(mine, "workload")),
               json_string_value(json_object_get(check, "text")),
               json_is_true(json_object_get(check, "holds")) ? "holds" : "DOES NOT HOLD");
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc % 2 == 0) {
        fputs("usage: hearth_bench_table (HEARTH.json LLAMA_SERVER.json|-)…\n"
              "Each pair is what one workload printed with --json against either server.\n",
              stderr);
        return EXIT_BAD_USAGE;
    }
    printf(columns, "workload", "measured (medians)", "hearth", "llama-server", "ratio", "runs");
    for (int i = 1; i < argc; i += 2) {
        json_t *mine = load(argv[i]), *peer = load(argv[i + 1]);
        print_workload(mine, peer);
        json_decref(mine);
        json_decref(peer);
    }
    puts("");
    for (int i = 1; i < argc; i += 2) {
        json_t *mine = load(argv[i]);
        print_checks(mine);
        json_decref(mine);
    }
    return EXIT_SUCCESS;
}
