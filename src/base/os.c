/* System calls that C's library has no names for everywhere: see os.h. */
#include "base/os.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range /* headers of an older kernel */
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define MOST_FILES (1 << 20) /* Linux allows a process no more, unless that was changed (fs.nr_open) */

const char *os_error_text(int number)
{
    static _Thread_local char unknown[64];
    return strerror_r(number, unknown, sizeof unknown); /* GNU's: known ones are not copied */
}

void os_close_from(int first)
{
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
    for (int fd = first; fd < MOST_FILES; fd++) close(fd); /* Linux before 5.9 */
}

int os_open_process(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}
