/* load.c: a client that costs as little as librdkafka lets it, through its C API.
 *
 *   load produce  BOOTSTRAP TOPIC MESSAGES SIZE PARTITIONS CLIENTS [name=value ...]
 *   load latency  BOOTSTRAP TOPIC MESSAGES SIZE PARTITIONS CLIENTS [name=value ...]
 *   load transact BOOTSTRAP TOPIC TRANSACTIONS SIZE PARTITIONS CLIENTS [name=value ...]
 *   load consume  BOOTSTRAP TOPIC MESSAGES PARTITIONS CLIENTS [name=value ...]
 *   load through  BOOTSTRAP TOPIC MESSAGES SIZE [name=value ...]
 *   load sync     FILE MESSAGES SIZE
 *
 * Prints one JSON object: seconds from the first message to the last answer, and for what
 * is done one at a time the percentiles of a message, in seconds.  Each of CLIENTS instances,
 * with its own thread and connections, consumes MESSAGES or produces its share of them.
 * produce: 10,000 of them to one partition, then as many to the next; `piece=N`: N.
 * latency: a client's next message waits for the answer to its last one.
 * transact: a client's next transaction waits for the commit of its last one; `piece=N`: messages
 * in each; `plain=1`: without transactions, an idempotent producer that flushes instead.
 * through: from a producer to a consumer that waits.  sync: pwrite and fdatasync, which is what
 * a durable acknowledgement costs without any broker.
 * BOOTSTRAP "mock": librdkafka's own broker in memory. */
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 10000, WARM_UP = 200, CLIENTS_MAX = 64, POLL_MS = 100, GIVE_UP_S = 120 };

typedef struct {
    const char *bootstrap, *topic;
    char **settings;
    int settings_count;
    long messages, size;
    int partitions, clients, piece;
    bool transactional;
    double *taken_s; /* of each message, where that is asked for */
} work;

typedef struct {
    const work *work;
    long messages, done;
    double first_s, last_s; /* of the clock */
    int number;
} client;

static char *payload;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) fail(name, why);
}

/* ---- instances -------------------------------------------------------------------------- */

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    client *c = opaque;
    if (message->err) fail("delivery", rd_kafka_err2str(message->err));
    c->done++;
}

static rd_kafka_t *instance(const work *w, rd_kafka_type_t type, client *c) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (!strcmp(w->bootstrap, "mock")) set(conf, "test.mock.num.brokers", "1");
    else set(conf, "bootstrap.servers", w->bootstrap);
    if (type == RD_KAFKA_PRODUCER) {
        set(conf, "linger.ms", "5");
        set(conf, "batch.num.messages", "10000");
        set(conf, "queue.buffering.max.messages", "1000000");
        set(conf, "queue.buffering.max.kbytes", "524288");
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    } else {
        set(conf, "group.id", "load");
        set(conf, "enable.auto.commit", "false");
        set(conf, "queued.max.messages.kbytes", "262144");
    }
    for (int i = 0; i < w->settings_count; i++) {
        char *name = strdup(w->settings[i]), *value = strchr(name, '=');
        if (!value) fail(name, "name=value");
        *value++ = 0;
        if (strcmp(name, "piece") && strcmp(name, "plain")) set(conf, name, value);
        free(name);
    }
    if (w->transactional) {
        char id[300];
        snprintf(id, sizeof id, "%s-%d", w->topic, c->number);
        set(conf, "transactional.id", id);
    }
    rd_kafka_conf_set_opaque(conf, c);
    char why[512];
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk) fail("rd_kafka_new", why);
    return rk;
}

/* ---- many at a time --------------------------------------------------------------------- */

/* Queue a piece; retry what the queue has no room for. */
static void hand_over(rd_kafka_t *rk, rd_kafka_topic_t *topic, int32_t partition, long size,
                      int count) {
    static _Thread_local rd_kafka_message_t piece[PIECE];
    for (int i = 0; i < count; i++) {
        piece[i].payload = payload;
        piece[i].len = (size_t)size;
        piece[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    for (int left = count; left > 0;) {
        int taken = rd_kafka_produce_batch(topic, partition, 0, piece, left);
        left -= taken;
        rd_kafka_poll(rk, left > 0 ? 1 : 0);
    }
}

static void *producing(void *argument) {
    client *c = argument;
    const work *w = c->work;
    rd_kafka_t *rk = instance(w, RD_KAFKA_PRODUCER, c);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, w->topic, NULL);
    /* One message to each partition first: connections and metadata are not timed. */
    for (int p = 0; p < w->partitions; p++) hand_over(rk, topic, p, w->size, 1);
    rd_kafka_flush(rk, GIVE_UP_S * 1000);
    c->done = 0;
    c->first_s = now_s();
    long sent = 0;
    for (int p = c->number % w->partitions; sent < c->messages;
         p = (p + 1) % w->partitions) {
        long left = c->messages - sent;
        int count = (int)(left < w->piece ? left : w->piece);
        hand_over(rk, topic, p, w->size, count);
        sent += count;
    }
    while (c->done < c->messages) {
        if (now_s() - c->first_s > GIVE_UP_S) fail("produce", "not acknowledged in time");
        rd_kafka_poll(rk, POLL_MS);
    }
    c->last_s = now_s();
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return NULL;
}

static void check(const char *what, rd_kafka_error_t *error) {
    if (error) fail(what, rd_kafka_error_string(error));
}

static void one_transaction(const work *w, rd_kafka_t *rk, rd_kafka_topic_t *topic, int p) {
    if (w->transactional) check("begin", rd_kafka_begin_transaction(rk));
    hand_over(rk, topic, p, w->size, w->piece);
    if (w->transactional)
        check("commit", rd_kafka_commit_transaction(rk, GIVE_UP_S * 1000));
    else if (rd_kafka_flush(rk, GIVE_UP_S * 1000))
        fail("flush", "not acknowledged in time");
}

static void *transacting(void *argument) {
    client *c = argument;
    const work *w = c->work;
    rd_kafka_t *rk = instance(w, RD_KAFKA_PRODUCER, c);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, w->topic, NULL);
    if (w->transactional) check("init", rd_kafka_init_transactions(rk, GIVE_UP_S * 1000));
    int p = c->number % w->partitions;
    for (int i = 0; i < 3; i++) one_transaction(w, rk, topic, p);
    c->first_s = now_s();
    for (long i = 0; i < c->messages; i++) {
        one_transaction(w, rk, topic, p);
        p = (p + 1) % w->partitions;
    }
    c->last_s = now_s();
    c->done = c->messages;
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return NULL;
}

static void *consuming(void *argument) {
    client *c = argument;
    const work *w = c->work;
    rd_kafka_t *rk = instance(w, RD_KAFKA_CONSUMER, c);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, w->topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    for (int p = 0; p < w->partitions; p++)
        rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue);
    rd_kafka_message_t **piece = calloc(PIECE, sizeof *piece);
    if (!piece) fail("consume", "memory");
    double begun_s = now_s();
    while (c->done < c->messages) {
        if (now_s() - begun_s > GIVE_UP_S) fail("consume", "not there in time");
        /* It waits for as many as it may return: ask for no more than are still to come. */
        long left = c->messages - c->done;
        size_t most = left < PIECE ? (size_t)left : PIECE;
        ssize_t count = rd_kafka_consume_batch_queue(queue, POLL_MS, piece, most);
        for (ssize_t i = 0; i < count; i++) {
            if (!piece[i]->err && !c->done++) c->first_s = now_s();
            rd_kafka_message_destroy(piece[i]);
        }
    }
    c->last_s = now_s();
    free(piece);
    for (int p = 0; p < w->partitions; p++) rd_kafka_consume_stop(topic, p);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return NULL;
}

/* All clients at once; seconds from the first one's first message to the last one's last
 * answer. */
static double in_parallel(const work *w, void *(*run)(void *), bool share) {
    client clients[CLIENTS_MAX] = {0};
    pthread_t threads[CLIENTS_MAX];
    for (int i = 0; i < w->clients; i++) {
        long part = share ? w->messages / w->clients : w->messages;
        clients[i] = (client){.work = w, .messages = part, .number = i};
        if (pthread_create(&threads[i], NULL, run, &clients[i]))
            fail("thread", "not started");
    }
    double first_s = 0, last_s = 0;
    long done = 0;
    for (int i = 0; i < w->clients; i++) {
        pthread_join(threads[i], NULL);
        if (i == 0 || clients[i].first_s < first_s) first_s = clients[i].first_s;
        if (clients[i].last_s > last_s) last_s = clients[i].last_s;
        done += clients[i].done;
    }
    if (!w->taken_s)
        printf("{\"seconds\": %.9f, \"messages\": %ld}\n", last_s - first_s, done);
    return last_s - first_s;
}

/* ---- one at a time ---------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print_percentiles(double *taken_s, long count, double total_s) {
    qsort(taken_s, (size_t)count, sizeof *taken_s, ascending);
    printf("{\"seconds\": %.9f, \"messages\": %ld, \"p50\": %.9f, \"p99\": %.9f, "
           "\"p999\": %.9f}\n",
           total_s, count, taken_s[count / 2], taken_s[count * 99 / 100],
           taken_s[count * 999 / 1000]);
}

static double *times(long count) {
    double *made = calloc((size_t)count, sizeof *made);
    if (!made) fail("times", "memory");
    return made;
}

static void *one_in_flight(void *argument) {
    client *c = argument;
    const work *w = c->work;
    rd_kafka_t *rk = instance(w, RD_KAFKA_PRODUCER, c);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, w->topic, NULL);
    double *taken_s = w->taken_s + c->number * c->messages;
    for (long i = -WARM_UP; i < c->messages; i++) {
        long before = c->done;
        double start_s = now_s();
        if (i == 0) c->first_s = start_s;
        if (rd_kafka_produce(topic, c->number % w->partitions, 0, payload, (size_t)w->size,
                             NULL, 0, NULL))
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        while (c->done == before) {
            rd_kafka_poll(rk, POLL_MS);
            if (now_s() - start_s > GIVE_UP_S) fail("latency", "not acknowledged in time");
        }
        if (i >= 0) taken_s[i] = now_s() - start_s;
    }
    c->last_s = now_s();
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return NULL;
}

/* A message goes out when the one before has come out at the other end. */
static void through(const work *w) {
    client c = {.work = w};
    rd_kafka_t *producer = instance(w, RD_KAFKA_PRODUCER, &c);
    work reading = *w;
    reading.settings_count = 0;
    rd_kafka_t *consumer = instance(&reading, RD_KAFKA_CONSUMER, &c);
    rd_kafka_topic_t *out = rd_kafka_topic_new(producer, w->topic, NULL);
    rd_kafka_topic_t *in = rd_kafka_topic_new(consumer, w->topic, NULL);
    rd_kafka_consume_start(in, 0, RD_KAFKA_OFFSET_BEGINNING);
    double *taken_s = times(w->messages), begun_s = 0;
    for (long i = -WARM_UP; i < w->messages; i++) {
        double start_s = now_s();
        if (i == 0) begun_s = start_s;
        if (rd_kafka_produce(out, 0, 0, payload, (size_t)w->size, NULL, 0, NULL))
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        for (bool came = false; !came;) {
            rd_kafka_message_t *message = rd_kafka_consume(in, 0, POLL_MS);
            came = message && !message->err;
            if (message) rd_kafka_message_destroy(message);
            if (now_s() - start_s > GIVE_UP_S) fail("through", "not there in time");
        }
        if (i >= 0) taken_s[i] = now_s() - start_s;
        rd_kafka_poll(producer, 0);
    }
    print_percentiles(taken_s, w->messages, now_s() - begun_s);
    free(taken_s);
    rd_kafka_consume_stop(in, 0);
    rd_kafka_topic_destroy(in);
    rd_kafka_topic_destroy(out);
    rd_kafka_destroy(consumer);
    rd_kafka_flush(producer, GIVE_UP_S * 1000);
    rd_kafka_destroy(producer);
}

static void bare_sync(const char *path, long messages, long size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) fail(path, "cannot be opened");
    double *taken_s = times(messages), begun_s = now_s();
    for (long i = 0; i < messages; i++) {
        double start_s = now_s();
        if (pwrite(fd, payload, (size_t)size, i * size) != size || fdatasync(fd))
            fail(path, "cannot be written");
        taken_s[i] = now_s() - start_s;
    }
    print_percentiles(taken_s, messages, now_s() - begun_s);
    free(taken_s);
    close(fd);
}

static void fill_payload(long size) {
    payload = malloc((size_t)size + 1);
    if (!payload) fail("payload", "memory");
    uint32_t state = 1; /* of no pattern that a codec could use much */
    for (long i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        payload[i] = (char)(state >> 24);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *what = argv[1];
    bool latency = !strcmp(what, "latency"), consume = !strcmp(what, "consume");
    bool transact = !strcmp(what, "transact");
    bool produce = !strcmp(what, "produce") || latency || transact;
    int fixed = produce ? 8 : consume ? 7 : !strcmp(what, "sync") ? 5 : 6;
    if (argc < fixed) return 2;
    if (!strcmp(what, "sync")) {
        fill_payload(atol(argv[4]));
        bare_sync(argv[2], atol(argv[3]), atol(argv[4]));
        return 0;
    }
    work w = {.bootstrap = argv[2], .topic = argv[3], .messages = atol(argv[4])};
    w.size = consume ? 1 : atol(argv[5]);
    w.partitions = produce || consume ? atoi(argv[fixed - 2]) : 1;
    w.clients = produce || consume ? atoi(argv[fixed - 1]) : 1;
    if (w.clients < 1 || w.clients > CLIENTS_MAX || w.partitions < 1) return 2;
    w.settings = argv + fixed;
    w.settings_count = argc - fixed;
    w.piece = transact ? 1 : PIECE;
    w.transactional = transact;
    for (int i = 0; i < w.settings_count; i++) {
        if (!strncmp(w.settings[i], "piece=", 6)) w.piece = atoi(w.settings[i] + 6);
        if (!strcmp(w.settings[i], "plain=1")) w.transactional = false;
    }
    if (w.piece < 1 || w.piece > PIECE) return 2;
    fill_payload(w.size);
    if (latency) {
        w.messages -= w.messages % w.clients;
        w.taken_s = times(w.messages);
        print_percentiles(w.taken_s, w.messages, in_parallel(&w, one_in_flight, true));
    } else if (transact) in_parallel(&w, transacting, true);
    else if (produce) in_parallel(&w, producing, true);
    else if (consume) in_parallel(&w, consuming, false);
    else if (!strcmp(what, "through")) through(&w);
    else return 2;
    return 0;
}
