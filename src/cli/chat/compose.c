/* Writes a text in the user's editor: see compose.h. */
#include "cli/chat/compose.h"

#include "base/error.h"
#include "base/memory.h"
#include "cli/attachment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *find_program(void)
{
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
    if (visual != NULL && visual[0] != '\0') return visual;
    return editor != NULL && editor[0] != '\0' ? editor : "vi";
}

/* Called in the child. The program may have arguments, so a shell reads it. */
static void become_editor(const char *program, const char *path)
{
    sigset_t none;
    char *command = mem_format("%s \"$1\"", program);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command, program, path, (char *)NULL);
    _exit(127);
}

static int edit_file(const char *path, hearth_error *error)
{
    int status = -1;
    const char *program = find_program();
    const pid_t child = fork();
    if (child == 0) become_editor(program, path);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && status == 0) return HEARTH_OK;
    return error_set(error, HEARTH_IO, "the editor (%s) has failed: nothing is changed. VISUAL and EDITOR name another",
                     program);
}

static int write_text(int fd, const struct buf *text, const char *path, hearth_error *error)
{
    const ssize_t n = write(fd, buf_text(text), text->len);
    const bool whole = close(fd) == 0 && n == (ssize_t)text->len;
    return whole ? HEARTH_OK : error_set(error, HEARTH_IO, "%s cannot be written: %s", path, strerror(errno));
}

int compose(struct buf *text, hearth_error *error)
{
    const char *folder = getenv("TMPDIR");
    char *path = mem_format("%s/hearth-chat-XXXXXX.md", folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int fd = mkostemps(path, 3, O_CLOEXEC);
    int status = fd < 0 ? error_set(error, HEARTH_IO, "%s cannot be made: %s", path, strerror(errno))
                        : write_text(fd, text, path, error);
    if (status == HEARTH_OK) status = edit_file(path, error);
    buf_clear(text);
    if (status == HEARTH_OK) status = attachment_read(path, text, error);
    if (fd >= 0) unlink(path);
    free(path);
    return status;
}
