/* Calls that glibc has only had since 2020 or later, made so that the program also starts beside an older one. Any
 * thread. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The system's text for an error number (errno). It lives until the thread's next call. */
const char *os_error_text(int number);

/* Closes all files from this number on. It may be called between fork() and exec. */
void os_close_from(int first);

/* A file that can be read from once the child has ended; -1 with errno. The caller closes it. */
int os_open_process(pid_t pid);

#ifdef __cplusplus
}
#endif

#endif
