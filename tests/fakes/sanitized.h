/* Which sanitizer a program is built with, for gcc, which defines macros, and clang, which has __has_feature. */
#ifndef FAKES_SANITIZED_H
#define FAKES_SANITIZED_H

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#endif
