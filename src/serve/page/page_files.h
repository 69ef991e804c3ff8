/* The files of the web page, page/ and what scripts/page.sh fetched, as the build puts them into the program
 * (tools/embed). */
#ifndef SERVE_PAGE_PAGE_FILES_H
#define SERVE_PAGE_PAGE_FILES_H

#include <stddef.h>

struct page_file {
    const char *name; /* "style.css", "vendor/marked.js" */
    const unsigned char *bytes;
    size_t len;
};

extern const struct page_file page_files[];
extern const size_t page_n_files;

#endif
