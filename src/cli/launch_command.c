/* hearth launch: runs a coding agent with the settings for a server, and starts the server first where none answers.
 * Main thread only.
 *
 * A server that was started here is stopped when the agent ends. It stores its KV state, so that the next one computes
 * next to none of the same prompts anew. */
#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "cli/agents.h"
#include "cli/args.h"
#include "cli/remote.h"
#include "cli/setup.h"
#include "pull/models_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND "hearth launch"

struct launch {
    const char *agent, *config, *model_word;
    struct remote remote;
    struct args_list sets;
    bool prints;
    char **rest; /* the agent's own arguments, after -- */
    int n_rest;
    char *home;   /* folder for the agents' configuration files and the server's log */
    pid_t server; /* 0: none was started */
};

/* ---- The server ---- */

static void put_word(struct args_list *words, const char *name, const char *value)
{
    if (value == NULL) return;
    args_append(words, name);
    args_append(words, value);
}

/* Called in the child: executes `hearth serve`, which writes the line "ready" to `out`. */
static void become_server(const struct launch *launch, int out, int log)
{
    struct args_list words = {0};
    const char *port = strrchr(launch->remote.url, ':') + 1;
    args_append(&words, "hearth");
    args_append(&words, "serve");
    put_word(&words, "--config", launch->config);
    put_word(&words, "--model", launch->model_word);
    put_word(&words, "--port", port);
    for (size_t i = 0; i < launch->sets.len; i++) put_word(&words, "--set", launch->sets.v[i]);
    args_append(&words, NULL);
    os_end_with_parent(SIGTERM); /* which comes when this process ends, however it ends */
    dup2(out, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    setpgid(0, 0); /* Ctrl-C goes to the agent alone */
    execv(setup_starter(), (char *const *)(uintptr_t)words.v);
    _exit(EXIT_FAILED);
}

/* Waits for the line "ready". False: the server has ended. */
static bool await_ready(int fd)
{
    char *line = NULL;
    size_t size = 0;
    bool ready = false;
    FILE *out = fdopen(fd, "r");
    while (!ready && getline(&line, &size, out) > 0) ready = strcmp(line, "ready\n") == 0;
    free(line);
    fclose(out); /* its further output is lost; it ignores SIGPIPE */
    return ready;
}

static int start_server(struct launch *launch, hearth_error *error)
{
    int ends[2];
    char *path = mem_format("%s/serve.log", launch->home);
    pull_make_folders(launch->home, 0700);
    int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = HEARTH_OK;
    if (log < 0 || os_pipe(ends) != 0) {
        rc = error_set(error, HEARTH_IO, "cannot write %s: %s", path, strerror(errno));
    } else {
        fprintf(stderr, COMMAND ": starting a server on %s, which ends with %s; its log is %s\n", launch->remote.url,
                launch->agent, path);
        launch->server = fork();
        if (launch->server == 0) become_server(launch, ends[1], log);
        close(ends[1]);
        if (launch->server < 0 || !await_ready(ends[0]))
            rc = error_set(error, HEARTH_UNAVAILABLE, "the server could not be started; %s says why", path);
    }
    if (log >= 0) close(log);
    free(path);
    return rc;
}

static int reach_server(struct launch *launch, hearth_error *error)
{
    static const char *const own[] = {"http://127.0.0.1:", "http://localhost:"}; /* this machine, and without TLS */
    struct buf body = {0};
    const bool answers = remote_ask(&launch->remote, "/health", NULL, &body) != 0;
    bool can_start = false;
    buf_release(&body);
    if (answers) return HEARTH_OK;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        can_start = can_start || strncmp(launch->remote.url, own[i], strlen(own[i])) == 0;
    if (can_start && !launch->prints) return start_server(launch, error);
    return error_at(error, HEARTH_UNAVAILABLE, "url", "no server answers at %s: start one with hearth serve",
                    launch->remote.url);
}

/* ---- The model ---- */

static bool is_wanted(const json_t *model, const char *word)
{
    const char *id = json_string_value(json_object_get(model, "id"));
    const char *type = json_string_value(json_object_get(model, "type"));
    if (id == NULL || (type != NULL && strcmp(type, "chat") != 0)) return false;
    if (word == NULL || strcmp(word, id) == 0) return true;
    /* The path of a model file for which `hearth serve --model` chooses this name. */
    const char *slash = strrchr(word, '/'), *base = slash != NULL ? slash + 1 : word;
    const size_t len = strlen(id);
    return strncmp(base, id, len) == 0 && strcmp(base + len, ".gguf") == 0;
}

/* The first chat model of the list, or the one asked for. server->model is borrowed from `list`. */
static int choose_served_model(const struct launch *launch, const json_t *list, struct agents_server *server,
                               hearth_error *error)
{
    const char *word = launch->model_word;
    size_t i;
    json_t *model;
    json_array_foreach(json_object_get(list, "data"), i, model)
    {
        if (!is_wanted(model, word)) continue;
        server->model = json_string_value(json_object_get(model, "id"));
        /* The context window in tokens, from hearth's field or llama-server's; 0: neither is there. */
        const json_t *window = json_object_get(model, "context_window");
        const json_t *meta = json_object_get(model, "meta");
        if (window == NULL) window = json_object_get(meta, "n_ctx");
        if (window == NULL) window = json_object_get(meta, "n_ctx_train");
        server->window = (int32_t)json_integer_value(window);
        return HEARTH_OK;
    }
    return error_at(error, HEARTH_NOT_FOUND, "model", "the server at %s has no chat model%s%s: %s/v1/models lists them",
                    launch->remote.url, word == NULL ? "" : " ", word == NULL ? "" : word, launch->remote.url);
}

/* ---- The agent ---- */

static void print_quoted(const char *word)
{
    putchar('\'');
    for (; *word != '\0'; word++) printf(*word == '\'' ? "'\\''" : "%c", *word);
    putchar('\'');
}

/* Prints the settings as shell commands. */
static void print_settings(const struct launch *launch, const struct agents_settings *settings)
{
    if (settings->file != NULL) {
        printf("(umask 077; mkdir -p \"$(dirname "); /* some of these files hold the key */
        print_quoted(settings->file);
        printf(")\"; printf %%s ");
        print_quoted(settings->content);
        printf(" > ");
        print_quoted(settings->file);
        printf(")\n");
    }
    for (size_t i = 0; i < settings->n_variables; i++) {
        printf("export %s=", settings->variables[i].name);
        print_quoted(settings->variables[i].value);
        printf("\n");
    }
    for (size_t i = 0; i < settings->n_words; i++) {
        if (i > 0) putchar(' ');
        print_quoted(settings->words[i]);
    }
    for (int i = 0; i < launch->n_rest; i++) {
        putchar(' ');
        print_quoted(launch->rest[i]);
    }
    printf("\n");
}

static int write_agents_file(const struct agents_settings *settings, hearth_error *error)
{
    if (settings->file == NULL) return HEARTH_OK;
    char *folder = mem_strndup(settings->file, (size_t)(strrchr(settings->file, '/') - settings->file));
    pull_make_folders(folder, 0700);
    free(folder);
    int fd = open(settings->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && fchmod(fd, 0600) != 0) { /* one that was there already */
        close(fd);
        fd = -1;
    }
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    bool written = file != NULL && fputs(settings->content, file) >= 0;
    if (file != NULL && fclose(file) != 0) written = false;
    if (written) return HEARTH_OK;
    return error_at(error, HEARTH_IO, settings->file, "cannot write %s: %s", settings->file, strerror(errno));
}

/* Returns the agent's exit status; 128 plus the signal that ended it. */
static int run_agent(const struct launch *launch, const struct agents_settings *settings)
{
    int status;
    pid_t agent = fork();
    if (agent == 0) {
        struct args_list words = {0};
        for (size_t i = 0; i < settings->n_words; i++) args_append(&words, settings->words[i]);
        for (int i = 0; i < launch->n_rest; i++) args_append(&words, launch->rest[i]);
        args_append(&words, NULL);
        os_end_with_parent(SIGTERM); /* as above */
        for (size_t i = 0; i < settings->n_variables; i++)
            setenv(settings->variables[i].name, settings->variables[i].value, 1);
        execvp(words.v[0], (char *const *)(uintptr_t)words.v);
        fprintf(stderr, COMMAND ": cannot run %s: %s\n", words.v[0], strerror(errno));
        _exit(127);
    }
    if (agent < 0) {
        fprintf(stderr, COMMAND ": cannot run %s: %s\n", settings->words[0], strerror(errno));
        return 126;
    }
    signal(SIGINT, SIG_IGN); /* the terminal sends both to the agent as well, which decides */
    signal(SIGQUIT, SIG_IGN);
    while (waitpid(agent, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- The command ---- */

static int launch_agent(struct launch *launch, hearth_error *error, int *status)
{
    struct buf body = {0};
    int rc = reach_server(launch, error);
    if (rc == HEARTH_OK && remote_ask(&launch->remote, "/v1/models", NULL, &body) != 200)
        rc = error_at(error, HEARTH_UNAVAILABLE, "url", "%s/v1/models does not answer as a server of models does%s",
                      launch->remote.url,
                      getenv("HEARTH_API_KEY") == NULL ? ": if it wants a key, set HEARTH_API_KEY" : "");
    json_t *list = rc == HEARTH_OK ? json_loadb(body.v, body.len, 0, NULL) : NULL;
    struct agents_server server = {.url = launch->remote.url, .key = launch->remote.key, .home = launch->home};
    if (rc == HEARTH_OK) rc = choose_served_model(launch, list, &server, error);
    if (rc == HEARTH_OK) {
        int32_t first = agents_first_prompt(launch->agent);
        if (server.window != 0 && first >= server.window)
            fprintf(stderr,
                    COMMAND ": %s begins with some %d tokens, and the window of %s has %d: serve it with --set "
                            "context_window=%d or more\n",
                    launch->agent, first, server.model, server.window, 2 * first);
        struct agents_settings settings;
        agents_configure(launch->agent, &server, &settings);
        if (launch->prints)
            print_settings(launch, &settings);
        else if ((rc = write_agents_file(&settings, error)) == HEARTH_OK)
            *status = run_agent(launch, &settings);
        agents_release(&settings);
    }
    json_decref(list);
    buf_release(&body);
    return rc;
}

static int run_launch(struct launch *launch)
{
    hearth_error error;
    int status = EXIT_FINE, rc = HEARTH_OK;
    launch->home = pull_user_path("XDG_DATA_HOME", ".local/share", "");
    if (launch->home == NULL) launch->home = mem_strdup("/.local/share/hearth");
    if (agents_first_prompt(launch->agent) < 0) {
        struct buf names = {0};
        agents_put_names(&names);
        rc = error_at(&error, HEARTH_INVALID, "agent", "unknown agent %s: there are %s", launch->agent, names.v);
        buf_release(&names);
    } else {
        rc = launch_agent(launch, &error, &status);
    }
    if (launch->server > 0) {
        kill(launch->server, SIGTERM);
        waitpid(launch->server, NULL, 0);
    }
    remote_close(&launch->remote);
    free(launch->home);
    return rc == HEARTH_OK ? status : args_fail(COMMAND, &error, rc == HEARTH_INVALID ? EXIT_USAGE : EXIT_FAILED);
}

int command_launch(int argc, char **argv)
{
    struct launch launch = {0};
    struct buf names = {0};
    const char *url = REMOTE_DEFAULT;
    const struct args_option options[] = {
        {"url", "URL", "where the server is or will be (" REMOTE_DEFAULT ")", .text = &url},
        {"model", "NAME|PATH", "the server's model; of one that is started, also a file", .text = &launch.model_word},
        {"config", "FILE", "configuration of a server that is started", .text = &launch.config},
        {"set", "KEY=VALUE", "a key of a server that is started", .list = &launch.sets},
        {"print", NULL, "print the settings as lines for a shell, and run nothing", .flag = &launch.prints},
    };
    agents_put_names(&names);
    const struct args_spec spec = {
        .command = COMMAND,
        .about = "Runs a coding agent on this server: claude, codex, opencode, qwen, pi, copilot, cline, droid, kimi, "
                 "vibe, hermes,\n"
                 "openclaw or aider. What follows -- is the agent's.\n"
                 "Where no server answers, one is started, and ends with the agent. A server that wants a key: set\n"
                 "HEARTH_API_KEY.",
        ARGS_OPTIONS(options),
        .operand = "AGENT",
        .operand_value = &launch.agent,
        .operand_choices = buf_text(&names),
        .examples =
            "  hearth launch claude\n"
            "  hearth launch qwen --model Qwen3-8B-Q8_0.gguf --set context_window=32768 -- -p \"List the files.\"\n"
            "  hearth launch codex --print\n",
    };
    int n = 0, status;
    while (n < argc && strcmp(argv[n], "--") != 0) n++;
    launch.rest = argv + n + 1;
    launch.n_rest = n < argc ? argc - n - 1 : 0;
    if (args_read(&spec, n, argv, &status)) {
        launch.remote = remote_open(url);
        status = run_launch(&launch);
    }
    buf_release(&names);
    args_release(&launch.sets);
    return status;
}
