/* hearth serve: the server on a command line. The addresses come on the main thread and readiness on the one that
 * loads, so what is told between them stands under a lock. */
#include "serve/serve.h"

#include "base/buf.h"
#include "cli/args.h"
#include "cli/command.h"
#include "cli/setup.h"
#include "cli/terminal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct announcement {
    const hearth_config *config;
    pthread_mutex_t lock;
    struct buf curl; /* how curl reaches the first address */
};

static void note_address(void *ud, const char *address)
{
    struct announcement *a = ud;
    const bool is_socket = strncmp(address, "unix:", 5) == 0;
    const char *scheme = is_socket ? "" : "http://";
    pthread_mutex_lock(&a->lock);
    printf("hearth %s listens on %s%s\n", hearth_version(), scheme, address);
    fflush(stdout);
    if (a->curl.len == 0 && is_socket)
        buf_printf(&a->curl, "--unix-socket %s http://localhost", address + 5);
    else if (a->curl.len == 0)
        buf_printf(&a->curl, "%s%s", scheme, address);
    pthread_mutex_unlock(&a->lock);
}

/* Where saves go. What went wrong with the folder stands in the log. */
static const char *cache_place(const hearth_config *config)
{
    static const char *const folders[][3] = {
        {"disk", "cache.tiers.disk.quota_mb", "cache.tiers.disk.path"},
        {"ram_file", "cache.tiers.ram_file.quota_mb", "cache.tiers.ram_file.path"},
    };
    const char *tier = hearth_config_get(config, "cache.save_tier");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strcmp(tier, folders[i][0]) == 0 && strcmp(hearth_config_get(config, folders[i][1]), "0") != 0)
            return hearth_config_get(config, folders[i][2]);
    return "in memory, until hearth ends";
}

static void announce(void *ud)
{
    struct announcement *a = ud;
    const char *log = hearth_config_get(a->config, "server.log_file");
    pthread_mutex_lock(&a->lock);
    printf("ready\n"
           "  try    curl %s/v1/chat/completions -H 'Content-Type: application/json' "
           "-d '{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", \"content\": \"Who are you?\"}]}'\n"
           "  log    %s\n"
           "  cache  %s\n"
           "  stop   Ctrl-C\n",
           a->curl.v, hearth_config_model(a->config, 0), log ? log : "standard error", cache_place(a->config));
    fflush(stdout);
    pthread_mutex_unlock(&a->lock);
}

static int serve(const char *command, const hearth_config *config)
{
    struct announcement a = {.config = config, .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct serve_options options = {
        .on_listening = note_address,
        .on_progress = terminal_progress,
        .on_ready = announce,
        .ud = &a,
    };
    hearth_error error = {0};
    int status =
        hearth_log_open(hearth_config_get(config, "server.log_file"), hearth_config_get(config, "server.log_level"),
                        hearth_config_get(config, "server.log_format"), &error);
    if (status == 0) status = serve_run(config, &options, &error);
    buf_release(&a.curl);
    return status == 0 ? EXIT_FINE : args_fail(command, &error, EXIT_FAILED);
}

int command_serve(int argc, char **argv)
{
    struct setup setup = {0};
    const struct args_option options[] = {
        setup_option_config(&setup),
        {"model", "PATH|NAME", "a model file, or a model of the configuration; only these load", .list = &setup.models},
        {"host", "H", "address to listen on (127.0.0.1)", .text = &setup.host},
        {"port", "P", "port to listen on (8080); 0: any free one", .text = &setup.port},
        setup_option_set(&setup),
        {"log-format", "F", "text or json", .text = &setup.log_format},
        setup_option_log_level(&setup),
    };
    const struct args_spec spec = {
        .command = "hearth serve",
        .about = "Serves models over HTTP until SIGTERM or SIGINT. Without --config and --model: the demo model.",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .examples = "  hearth serve\n"
                    "  hearth serve --model Qwen3-8B-Q8_0.gguf --set n_seq_max=4\n"
                    "  hearth serve --config hearth.yaml --model Qwen3-8B-Q8_0 --port 9000\n",
    };
    int status;
    if (args_read(&spec, argc, argv, &status)) {
        hearth_config *config = setup_open(spec.command, &setup, &status);
        if (config) status = serve(spec.command, config);
        hearth_config_free(config);
    }
    setup_release(&setup);
    return status;
}
