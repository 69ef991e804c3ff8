/* Media that requests name by URL: files of the web, by libcurl, and files below a folder. Both are off unless the
 * configuration allows them, since a request then decides what this machine reads.
 *
 * Of the web nothing is fetched from an address that is not public: requests must not reach what only this machine, or
 * its network, can reach. The address is looked at when the connection is made, so that neither a name with several
 * addresses nor a redirect changes it afterwards. Blocks; any thread. */
#ifndef MEDIA_MEDIA_FETCH_H
#define MEDIA_MEDIA_FETCH_H

#include "base/buf.h"
#include "hearth.h"
#include "media/media.h"

#include <stdbool.h>

struct media_sources {
    bool urls;                /* http and https ones may be fetched */
    const char *const *hosts; /* "name", "name:port": their addresses need not be public */
    size_t n_hosts;
    const char *folder;            /* that file URLs are below; NULL: there is none */
    size_t most_bytes;             /* that are left for this one */
    int64_t deadline;              /* of clock_monotonic() */
    const struct media_stop *stop; /* where it has to, fetching ends with HEARTH_CANCELLED */
};

/* Appends what the URL names. HEARTH_UNSUPPORTED: the configuration, which the message names, does not allow it;
 * HEARTH_TOO_LONG: too large, or too slow; HEARTH_INVALID: it cannot be had. Messages go on behind the field's name. */
int media_fetch(const char *url, const struct media_sources *sources, struct buf *bytes, hearth_error *error);

#endif
