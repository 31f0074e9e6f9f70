/* frames.c: a producer that costs next to nothing: one request, built once, sent again and again.
 *
 *   frames HOST PORT TOPIC MESSAGES SIZE IN_FLIGHT
 *
 * Produce v7, acks=1, to partition 0; a batch holds as many records of SIZE bytes as fit in a
 * megabyte, at most 10,000.  The broker assigns offsets outside of what the checksum covers, so
 * that the same bytes are right each time.  At most IN_FLIGHT requests wait for their answers.
 * Prints one JSON object: seconds from the first byte sent to the last answer, messages. */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "kafkalog.h"

enum { BATCH_MOST = 1000000, RECORDS_MOST = 10000, RECORD_EXTRA = 24, ANSWER_MOST = 4096 };
enum { HEADER = 61, POS_LENGTH = 8, POS_MAGIC = 16, POS_CRC = 17, POS_BODY = 21 };
enum { PRODUCE = 0, VERSION = 7, TIMEOUT_MS = 30000 };

typedef struct {
    uint8_t *start, *at;
    long records;
} frame;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void put(frame *f, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--) *f->at++ = (uint8_t)(value >> (8 * i));
}

static void put_at(uint8_t *at, uint32_t value) {
    uint32_t wire = htobe32(value);
    memcpy(at, &wire, sizeof wire);
}

static void put_varint(frame *f, int64_t value) {
    uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; left >= 0x80; left >>= 7) *f->at++ = (uint8_t)(left | 0x80);
    *f->at++ = (uint8_t)left;
}

static int varint_bytes(int64_t value) {
    int bytes = 1;
    for (uint64_t left = (uint64_t)value << 1; left >= 0x80; left >>= 7) bytes++;
    return bytes;
}

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Bytes without a pattern, like those of load.c. */
static void put_record(frame *f, long number, long size, uint32_t *state) {
    int64_t body = 1 + 1 + varint_bytes(number) + 1 + varint_bytes(size) + size + 1;
    put_varint(f, body);
    *f->at++ = 0;          /* attributes */
    put_varint(f, 0);      /* its time is the batch's */
    put_varint(f, number); /* offset delta */
    put_varint(f, -1);     /* no key */
    put_varint(f, size);
    for (long i = 0; i < size; i++) {
        *state = *state * 1664525u + 1013904223u;
        *f->at++ = (uint8_t)(*state >> 24);
    }
    put_varint(f, 0); /* no headers */
}

static void put_batch(frame *f, long size) {
    uint8_t *batch = f->at;
    int64_t time_ms = wall_ms();
    uint32_t state = 1;
    put(f, 0, 8);                        /* base offset: the broker's */
    put(f, 0, 4);                        /* length, below */
    put(f, 0xffffffff, 4);               /* leader epoch */
    put(f, 2, 1);                        /* magic */
    put(f, 0, 4);                        /* crc, below */
    put(f, 0, 2);                        /* attributes */
    put(f, (uint64_t)f->records - 1, 4); /* last offset delta */
    put(f, (uint64_t)time_ms, 8);
    put(f, (uint64_t)time_ms, 8);
    put(f, UINT64_MAX, 8); /* no producer, */
    put(f, 0xffff, 2);     /* no epoch, */
    put(f, 0xffffffff, 4); /* no sequence */
    put(f, (uint64_t)f->records, 4);
    for (long i = 0; i < f->records; i++) put_record(f, i, size, &state);
    put_at(batch + POS_LENGTH, (uint32_t)(f->at - batch - POS_LENGTH - 4));
    put_at(batch + POS_CRC,
           kl_crc32c(batch + POS_BODY, (size_t)(f->at - batch - POS_BODY)));
}

static frame built(const char *topic, long size) {
    frame f = {.records = BATCH_MOST / (size + RECORD_EXTRA)};
    if (f.records > RECORDS_MOST) f.records = RECORDS_MOST;
    if (f.records < 1) f.records = 1;
    f.start = f.at =
        malloc(strlen(topic) + 4096 + (size_t)(f.records * (size + RECORD_EXTRA)));
    if (!f.start) fail("memory");
    put(&f, 0, 4); /* the frame's size, below */
    put(&f, PRODUCE, 2);
    put(&f, VERSION, 2);
    put(&f, 0, 4);      /* correlation: answers come in order */
    put(&f, 0xffff, 2); /* no client id */
    put(&f, 0xffff, 2); /* no transaction */
    put(&f, 1, 2);      /* acks */
    put(&f, TIMEOUT_MS, 4);
    put(&f, 1, 4);
    put(&f, strlen(topic), 2);
    memcpy(f.at, topic, strlen(topic));
    f.at += strlen(topic);
    put(&f, 1, 4);
    put(&f, 0, 4); /* the partition */
    uint8_t *bytes = f.at;
    put(&f, 0, 4);
    put_batch(&f, size);
    put_at(bytes, (uint32_t)(f.at - bytes - 4));
    put_at(f.start, (uint32_t)(f.at - f.start - 4));
    return f;
}

static int connected(const char *host, const char *port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void receive(int fd, uint8_t *into, size_t bytes) {
    for (size_t have = 0; have < bytes;) {
        ssize_t n = recv(fd, into + have, bytes - have, 0);
        if (n <= 0) fail("recv");
        have += (size_t)n;
    }
}

/* One answer: its error code must be 0. */
static void take_answer(int fd, size_t topic_bytes) {
    uint8_t answer[ANSWER_MOST];
    uint32_t wire;
    receive(fd, (uint8_t *)&wire, sizeof wire);
    size_t bytes = be32toh(wire), error_pos = 4 + 4 + 2 + topic_bytes + 4 + 4;
    if (bytes > sizeof answer || bytes < error_pos + 2) fail("answer");
    receive(fd, answer, bytes);
    if (answer[error_pos] || answer[error_pos + 1]) {
        fprintf(stderr, "frames: error %d\n",
                answer[error_pos] << 8 | answer[error_pos + 1]);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    const char *topic = argv[3];
    long messages = atol(argv[4]), size = atol(argv[5]), most = atol(argv[6]);
    frame f = built(topic, size);
    int fd = connected(argv[1], argv[2]);
    long requests = (messages + f.records - 1) / f.records, in_flight = 0;
    double begun_s = now_s();
    for (long i = 0; i < requests; i++) {
        for (const uint8_t *at = f.start; at < f.at;) {
            ssize_t n = send(fd, at, (size_t)(f.at - at), MSG_NOSIGNAL);
            if (n < 0) fail("send");
            at += n;
        }
        if (++in_flight < most) continue;
        take_answer(fd, strlen(topic));
        in_flight--;
    }
    for (; in_flight; in_flight--) take_answer(fd, strlen(topic));
    printf("{\"seconds\": %.9f, \"messages\": %ld}\n", now_s() - begun_s,
           requests * f.records);
    return 0;
}
