/* The web page: GET / for browsers, and the files that it consists of. They hold no data, so that no API key is asked
 * for; the page sends one with its own requests. HTTP thread only. */
#ifndef SERVE_PAGE_PAGE_H
#define SERVE_PAGE_PAGE_H

#include "serve/core/call.h"

void page_root(struct call *call); /* GET /: for other clients a line that says what answers */
void page_file(struct call *call); /* GET /page/{name} */

#endif
