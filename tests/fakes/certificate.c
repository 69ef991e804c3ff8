/* X.509 by OpenSSL; whatever fails ends the test program. */
#include "fakes/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool done)
{
    if (!done) abort();
}

static FILE *create(const char *folder, const char *name, const char *ending)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, ending);
    FILE *file = fopen(path, "we");
    require(file != NULL);
    return file;
}

static X509 *sign(EVP_PKEY *key, const char *name)
{
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, subject);
    require(X509_sign(cert, key, EVP_sha256()) > 0);
    return cert;
}

void certificate_make(const char *folder, const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    require(key != NULL);
    X509 *cert = sign(key, name);
    FILE *file = create(folder, name, "crt");
    require(PEM_write_X509(file, cert) == 1);
    fclose(file);
    file = create(folder, name, "key");
    require(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}
