/* sink.c: the least that a broker can do for a producer, as a floor under ours.
 *
 * One thread, epoll, frames read by their exact size; a Produce request's CRC-32C is checked,
 * its offset stamped, its batches written with one pwrite, then it is answered.  ApiVersions
 * and Metadata are answered just well enough for librdkafka.  No index, no topic, no purgatory,
 * no second thread, nothing that a real broker owes its users.
 *
 *   sink FOLDER PORT PARTITIONS SYNC      prints "ready"; SYNC 1: fdatasync before each answer */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kafkalog.h"

enum { PARTITIONS_MAX = 64, EVENTS = 64, FRAME_MAX = 128 << 20 };
enum { PRODUCE = 0, METADATA = 3, API_VERSIONS = 18 };
enum {
    BASE_OFFSET_BYTES = 8,
    CRC_POS = 17,
    BODY_POS = 21,
    COUNT_POS = 57,
    BATCH_LEAST = 61
};

typedef struct {
    int fd;
    uint8_t *data; /* the frame; `wanted` bytes of it, `have` read */
    size_t room, wanted, have;
    uint8_t size[4];
    size_t size_have;
} conn;

static struct {
    int fd[PARTITIONS_MAX];
    int64_t offset[PARTITIONS_MAX], pos[PARTITIONS_MAX];
    int32_t partitions, port;
    bool sync;
} sink;

/* ---- bytes ------------------------------------------------------------------------------ */

typedef struct {
    uint8_t *at, *end;
} cursor;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint8_t *take(cursor *c, size_t bytes) {
    if ((size_t)(c->end - c->at) < bytes) {
        errno = EPROTO;
        fail("sink: short request");
    }
    uint8_t *found = c->at;
    c->at += bytes;
    return found;
}

static int16_t take16(cursor *c) {
    uint16_t v;
    memcpy(&v, take(c, 2), 2);
    return (int16_t)be16toh(v);
}

static int32_t take32(cursor *c) {
    uint32_t v;
    memcpy(&v, take(c, 4), 4);
    return (int32_t)be32toh(v);
}

static uint8_t *put16(uint8_t *at, int v) {
    uint16_t wire = htobe16((uint16_t)v);
    memcpy(at, &wire, 2);
    return at + 2;
}

static uint8_t *put32(uint8_t *at, int32_t v) {
    uint32_t wire = htobe32((uint32_t)v);
    memcpy(at, &wire, 4);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, int64_t v) {
    uint64_t wire = htobe64((uint64_t)v);
    memcpy(at, &wire, 8);
    return at + 8;
}

static uint8_t *put_string(uint8_t *at, const void *text, size_t bytes) {
    at = put16(at, (int)bytes);
    memcpy(at, text, bytes);
    return at + bytes;
}

/* ---- requests --------------------------------------------------------------------------- */

/* Check, stamp and write the batches at `data`; the offset of their first record. */
static int64_t append(int32_t partition, uint8_t *data, size_t bytes) {
    if (partition < 0 || partition >= sink.partitions) fail("sink: no such partition");
    int64_t base = sink.offset[partition];
    for (size_t pos = 0; pos + BATCH_LEAST <= bytes;) {
        uint8_t *batch = data + pos;
        uint32_t length, crc, count;
        memcpy(&length, batch + BASE_OFFSET_BYTES, 4);
        memcpy(&crc, batch + CRC_POS, 4);
        memcpy(&count, batch + COUNT_POS, 4);
        size_t size = be32toh(length) + (size_t)12;
        if (size > bytes - pos ||
            kl_crc32c(batch + BODY_POS, size - BODY_POS) != be32toh(crc))
            fail("sink: bad batch");
        put64(batch, sink.offset[partition]);
        sink.offset[partition] += be32toh(count);
        pos += size;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(sink.fd[partition], data + done, bytes - done,
                           (off_t)(sink.pos[partition] + (int64_t)done));
        if (n < 0) fail("sink: pwrite");
        done += (size_t)n;
    }
    sink.pos[partition] += (int64_t)bytes;
    if (sink.sync && fdatasync(sink.fd[partition])) fail("sink: fdatasync");
    return base;
}

/* Produce v3 to v7: the answer's body, or NULL where none is wanted. */
static uint8_t *produce(cursor *c, int version, uint8_t *at) {
    int16_t transactional = take16(c);
    if (transactional > 0) take(c, (size_t)transactional);
    int16_t acks = take16(c);
    take32(c); /* its timeout */
    int32_t topics = take32(c);
    at = put32(at, topics);
    for (int32_t t = 0; t < topics; t++) {
        int16_t name_bytes = take16(c);
        at = put_string(at, take(c, (size_t)name_bytes), (size_t)name_bytes);
        int32_t partitions = take32(c);
        at = put32(at, partitions);
        for (int32_t p = 0; p < partitions; p++) {
            int32_t partition = take32(c), bytes = take32(c);
            int64_t base = append(partition, take(c, (size_t)bytes), (size_t)bytes);
            at = put16(put32(at, partition), 0);
            at = put64(put64(at, base), -1);
            if (version >= 5) at = put64(at, 0);
        }
    }
    return acks ? put32(at, 0) : NULL;
}

/* Metadata v1: one broker; whatever topics are asked for have all partitions. */
static uint8_t *metadata(cursor *c, uint8_t *at) {
    static const char host[] = "127.0.0.1";
    at = put32(put32(at, 1), 1);
    at = put32(put_string(at, host, sizeof host - 1), sink.port);
    at = put32(put16(at, -1), 1); /* no rack; the controller */
    int32_t topics = take32(c);
    if (topics < 0) topics = 0;
    at = put32(at, topics);
    for (int32_t t = 0; t < topics; t++) {
        int16_t bytes = take16(c);
        at = put_string(put16(at, 0), take(c, (size_t)bytes), (size_t)bytes);
        *at++ = 0;
        at = put32(at, sink.partitions);
        for (int32_t p = 0; p < sink.partitions; p++) {
            at = put32(put32(put16(at, 0), p), 1);
            at = put32(put32(put32(put32(at, 1), 1), 1), 1); /* replicas, in sync */
        }
    }
    return at;
}

/* ApiVersions v0 to v3. */
static uint8_t *api_versions(int version, uint8_t *at) {
    static const int ranges[][3] = {
        {PRODUCE, 3, 7}, {1, 4, 11}, {2, 1, 1}, {METADATA, 1, 1}, {API_VERSIONS, 0, 3}};
    int count = sizeof ranges / sizeof *ranges;
    at = put16(at, 0);
    if (version >= 3) *at++ = (uint8_t)(count + 1);
    else at = put32(at, count);
    for (int i = 0; i < count; i++) {
        at = put16(put16(put16(at, ranges[i][0]), ranges[i][1]), ranges[i][2]);
        if (version >= 3) *at++ = 0;
    }
    if (version >= 1) at = put32(at, 0);
    if (version >= 3) *at++ = 0;
    return at;
}

static void answer(conn *conn_) {
    cursor c = {conn_->data, conn_->data + conn_->wanted};
    int16_t key = take16(&c), version = take16(&c);
    int32_t correlation = take32(&c);
    int16_t client_bytes = take16(&c);
    if (client_bytes > 0) take(&c, (size_t)client_bytes);
    static uint8_t out[1 << 16];
    uint8_t *body = put32(out + 4, correlation), *end = body;
    if (key == PRODUCE) end = produce(&c, version, body);
    else if (key == METADATA) end = metadata(&c, body);
    else if (key == API_VERSIONS) end = api_versions(version, body);
    else fail("sink: unknown request");
    if (!end) return;
    put32(out, (int32_t)(end - out - 4));
    for (uint8_t *at = out; at < end;) {
        ssize_t n = send(conn_->fd, at, (size_t)(end - at), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return; /* its end of stream comes next */
        if (n > 0) at += n;
    }
}

/* ---- connections ------------------------------------------------------------------------ */

/* Read what there is of one frame; false when the connection is at its end. */
static bool readable(conn *c) {
    for (;;) {
        bool in_size = c->size_have < sizeof c->size;
        uint8_t *into = in_size ? c->size + c->size_have : c->data + c->have;
        size_t missing = in_size ? sizeof c->size - c->size_have : c->wanted - c->have;
        ssize_t n = recv(c->fd, into, missing, 0);
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return false;
        if (in_size) {
            c->size_have += (size_t)n;
            if (c->size_have < sizeof c->size) continue;
            uint32_t wire;
            memcpy(&wire, c->size, sizeof wire);
            c->wanted = be32toh(wire);
            c->have = 0;
            if (c->wanted > FRAME_MAX) return false;
            if (c->wanted > c->room) {
                c->room = c->wanted;
                c->data = realloc(c->data, c->room);
                if (!c->data) fail("sink: memory");
            }
            continue;
        }
        c->have += (size_t)n;
        if (c->have < c->wanted) continue;
        answer(c);
        c->size_have = 0;
    }
}

static int listening(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)sink.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64))
        fail("sink: listen");
    return fd;
}

static void serve(int listener) {
    int epoll = epoll_create1(0), one = 1;
    struct epoll_event event = {.events = EPOLLIN}, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            conn *c = events[i].data.ptr;
            if (!c) {
                conn *made = calloc(1, sizeof *made);
                if (!made) fail("sink: memory");
                made->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (made->fd < 0) fail("sink: accept");
                setsockopt(made->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.ptr = made;
                epoll_ctl(epoll, EPOLL_CTL_ADD, made->fd, &event);
            } else if (!readable(c)) {
                close(c->fd);
                free(c->data);
                free(c);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    sink.port = atoi(argv[2]);
    sink.partitions = atoi(argv[3]);
    sink.sync = atoi(argv[4]) != 0;
    if (sink.partitions < 1 || sink.partitions > PARTITIONS_MAX) return 2;
    for (int i = 0; i < sink.partitions; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.log", argv[1], i);
        sink.fd[i] = open(path, O_RDWR | O_CREAT, 0600);
        if (sink.fd[i] < 0) fail(path);
    }
    int listener = listening();
    puts("ready");
    fflush(stdout);
    serve(listener);
}
