/* Certificates for tests: self-signed, for localhost, with a key of its own, as two PEM files. */
#ifndef FAKES_CERTIFICATE_H
#define FAKES_CERTIFICATE_H

/* Writes `folder`/`name`.crt and .key; the name is also the certificate's, so that a client can tell it. */
void certificate_make(const char *folder, const char *name);

#endif
