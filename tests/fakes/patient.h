/* Time limits of a store for tests of something else: longer than any machine takes. */
#ifndef FAKES_PATIENT_H
#define FAKES_PATIENT_H

#define A_MINUTE_NS 60000000000
#define PATIENT     .save_timeout_ns = A_MINUTE_NS, .fetch_timeout_ns = A_MINUTE_NS, .scan_grace_ns = A_MINUTE_NS

#endif
