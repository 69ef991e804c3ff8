/* Which sanitizer a program is built with: gcc defines these, clang has its own way of saying it. */
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
