/* tls_key.h: a key and its certificate, of the target tls.c alone. */
#ifndef FUZZ_TLS_KEY_H
#define FUZZ_TLS_KEY_H

static const char TLS_KEY[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHNnwsZIqzSOmVROJ\n"
    "5nFfSP/v292VFQTcG5IunjQJ5xOhRANCAAS+NpEElSrfjwqYQGn1gfPqXcnhqJSs\n"
    "gB+ErSkaZKzDbmORpgB4T0docfUUo7FLq4mC6QYjKNyujYCU0JtaFuaE\n"
    "-----END PRIVATE KEY-----\n"
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBdTCCARugAwIBAgIUVKDzpZhUnuWxejaqqq9AeO161OswCgYIKoZIzj0EAwIw\n"
    "DzENMAsGA1UEAwwEZnV6ejAgFw0yNjExMjgyMjQ3MzRaGA8yMTI2MTEwNDIyNDcz\n"
    "NFowDzENMAsGA1UEAwwEZnV6ejBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABL42\n"
    "kQSVKt+PCphAafWB8+pdyeGolKyAH4StKRpkrMNuY5GmAHhPR2hx9RSjsUuriYLp\n"
    "BiMo3K6NgJTQm1oW5oSjUzBRMB0GA1UdDgQWBBRu02RSsIE9K6kmlZL5HWDkOYn5\n"
    "yTAfBgNVHSMEGDAWgBRu02RSsIE9K6kmlZL5HWDkOYn5yTAPBgNVHRMBAf8EBTAD\n"
    "AQH/MAoGCCqGSM49BAMCA0gAMEUCIHbtS0Pugew5TB7kG4wfLE0G8+XFYv+Xvue9\n"
    "um2zeZ6eAiEAtj+KxZasVqyvdHgFXvh3JOI3evgoVzodAbLs+3KotXw=\n"
    "-----END CERTIFICATE-----\n";

#endif
