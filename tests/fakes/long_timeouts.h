/* Time limits of a store for tests of something else: longer than any machine takes. */
#ifndef FAKES_LONG_TIMEOUTS_H
#define FAKES_LONG_TIMEOUTS_H

#define A_MINUTE_NS   60000000000
#define LONG_TIMEOUTS .save_timeout_ns = A_MINUTE_NS, .fetch_timeout_ns = A_MINUTE_NS, .scan_grace_ns = A_MINUTE_NS

#endif
