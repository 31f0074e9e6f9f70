/* intake.h: puts a producer's records from Python into the open batches of a topic.
 *
 * As direct.h not part of the data plane.  All runs with the GIL, which is its lock: releasing and
 * taking it costs more than a record.
 *
 * References: a topic's capsule owns its kl_intake, which holds the open batch of each slot and the
 * class of tickets.  A batch object keeps its memory (growing.h), so `growing` is valid while
 * `batch` is held. */
#ifndef KL_INTAKE_H
#define KL_INTAKE_H

#include <time.h>

#include "python/growing.h"
#include "python/ticket.h"

#define KL_INTAKE_NAME "kafkalog.intake"

/* ---- open batches ------------------------------------------------------------------------ */

typedef struct {
    PyObject *batch; /* the Python object, which owns the memory; NULL: none is open */
    kl_growing *growing;
    PyObject *touched; /* `batch` at the first record of kl_intake_many; NULL: none */
    int first, last;   /* numbers of its records from there */
} kl_slot;

typedef struct {
    int partitions;
    PyTypeObject *ticket; /* class of the results */
    int sticky;           /* partition of records without a key */
    int64_t sticky_bytes; /* bytes sent there in this turn */
    int64_t sticky_bytes_max;
    int random_empty; /* an empty key counts as none */
    int hashed_null;  /* a missing key counts as empty */
    uint64_t random;
    int64_t *weights; /* cumulative per partition; all 0: equal weights */
    kl_slot slots[];
} kl_intake;

static void kl_intake_drop(PyObject *capsule) {
    kl_intake *intake = PyCapsule_GetPointer(capsule, KL_INTAKE_NAME);
    for (int i = 0; i < intake->partitions; i++) {
        Py_XDECREF(intake->slots[i].batch);
        Py_XDECREF(intake->slots[i].touched);
    }
    Py_XDECREF((PyObject *)intake->ticket);
    kl_release(intake);
}

static int kl_next_sticky(kl_intake *intake) {
    uint64_t x = intake->random; /* xorshift64; never 0 */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    intake->random = x;
    KL_ASSERT(intake->partitions > 0 && x != 0);
    if (intake->partitions == 1) return 0;
    const int64_t total = intake->weights[intake->partitions - 1];
    if (total > 0) {
        const int64_t at = (int64_t)(x % (uint64_t)total);
        int low = 0, high = intake->partitions - 1; /* the first above `at` */
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (intake->weights[middle] > at) high = middle;
            else low = middle + 1;
        }
        KL_ASSERT(intake->weights[low] > at);
        return low;
    }
    /* Any other than the current one. */
    int step = (int)(x % (uint64_t)(intake->partitions - 1)) + 1;
    return (intake->sticky + step) % intake->partitions;
}

/* (partitions, class of tickets, seed, bytes of a sticky turn, empty key counts as none, missing
 * key counts as empty): a topic's capsule. */
static PyObject *kl_intake_new(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 6)) return NULL;
    long partitions = PyLong_AsLong(args[0]);
    long long seed = PyLong_AsLongLong(args[2]), turn = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) return NULL;
    if (partitions < 1 || partitions > 1000000 || turn < 0) {
        PyErr_Format(PyExc_ValueError, "%ld partitions and turns of %lld bytes are invalid",
                     partitions, turn);
        return NULL;
    }
    const size_t each = sizeof(kl_slot) + sizeof(int64_t);
    kl_intake *intake = kl_alloc(sizeof *intake + (size_t)partitions * each);
    if (intake == NULL) return PyErr_NoMemory();
    intake->weights = (int64_t *)(intake->slots + partitions);
    intake->partitions = (int)partitions;
    intake->random = (uint64_t)seed | 1;
    intake->sticky_bytes_max = turn;
    intake->random_empty = PyObject_IsTrue(args[4]);
    intake->hashed_null = PyObject_IsTrue(args[5]);
    intake->sticky = kl_next_sticky(intake);
    PyObject *capsule = PyCapsule_New(intake, KL_INTAKE_NAME, kl_intake_drop);
    if (capsule == NULL) {
        kl_release(intake);
        return NULL;
    }
    Py_INCREF(args[1]);
    intake->ticket = (PyTypeObject *)args[1];
    return capsule;
}

/* (intake, int64s: cumulative weights of the partitions, or none: equal): set how often each gets a
 * turn of records without a key. */
static PyObject *kl_intake_load(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    char *data;
    Py_ssize_t bytes;
    kl_intake *intake = count == 2 ? PyCapsule_GetPointer(args[0], KL_INTAKE_NAME) : NULL;
    if (intake == NULL || PyBytes_AsStringAndSize(args[1], &data, &bytes)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "found %zd arguments, wanted 2", count);
        return NULL;
    }
    const size_t size = (size_t)intake->partitions * sizeof(int64_t);
    if (bytes == 0) {
        memset(intake->weights, 0, size);
        Py_RETURN_NONE;
    }
    int64_t before = 0, at = 0;
    bool sound = (size_t)bytes == size;
    for (size_t i = 0; sound && i < size; i += sizeof at, before = at) {
        memcpy(&at, data + i, sizeof at);
        sound = at >= before;
    }
    if (!sound || at == 0) {
        PyErr_Format(PyExc_ValueError,
                     "found %zd bytes, wanted the weights of %d partitions", bytes,
                     intake->partitions);
        return NULL;
    }
    memcpy(intake->weights, data, size);
    Py_RETURN_NONE;
}

static kl_slot *kl_slot_of(PyObject *capsule, PyObject *number) {
    kl_intake *intake = PyCapsule_GetPointer(capsule, KL_INTAKE_NAME);
    if (intake == NULL) return NULL;
    long partition = PyLong_AsLong(number);
    if (!PyErr_Occurred() && partition >= 0 && partition < intake->partitions)
        return &intake->slots[partition];
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_IndexError, "partition %ld of %d", partition,
                     intake->partitions);
    return NULL;
}

/* (intake, partition, batch or None, its memory or None): set the partition's open batch; None: no
 * batch is open. */
static PyObject *kl_intake_open(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 4)) return NULL;
    kl_slot *slot = kl_slot_of(args[0], args[1]);
    if (slot == NULL) return NULL;
    kl_growing *growing = NULL;
    if (args[2] != Py_None) {
        growing = PyCapsule_GetPointer(args[3], KL_GROWING_NAME);
        if (growing == NULL) return NULL;
        Py_INCREF(args[2]);
    }
    PyObject *before = slot->batch;
    KL_ASSERT((before == NULL) == (slot->growing == NULL));
    slot->batch = growing ? args[2] : NULL;
    slot->growing = growing;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---- partitioning -------------------------------------------------------------------------- */

/* Austin Appleby's MurmurHash2 with the seed of Kafka's Java client. */
static uint32_t kl_murmur2(const uint8_t *data, size_t bytes) {
    const uint32_t multiplier = 0x5bd1e995;
    uint32_t value = 0x9747b28cu ^ (uint32_t)bytes;
    for (; bytes >= 4; data += 4, bytes -= 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 |
                        (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        value = value * multiplier ^ word * multiplier;
    }
    switch (bytes) {
    case 3: value ^= (uint32_t)data[2] << 16; /* fall through */
    case 2: value ^= (uint32_t)data[1] << 8;  /* fall through */
    case 1: value = (value ^ data[0]) * multiplier; break;
    default: break;
    }
    value = (value ^ value >> 13) * multiplier;
    return value ^ value >> 15;
}

/* The partition of a key; *sticky: it has no key. */
static int kl_place(kl_intake *intake, const void *key, int64_t key_bytes, bool *sticky) {
    *sticky = key_bytes < 0 ? !intake->hashed_null : key_bytes == 0 && intake->random_empty;
    if (*sticky) return intake->sticky;
    uint32_t hash = kl_murmur2(key, (size_t)KL_MAX(key_bytes, (int64_t)0));
    return (int)((hash & 0x7fffffff) % (uint32_t)intake->partitions);
}

/* (intake, key or None): its current partition. */
static PyObject *kl_intake_place(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 2)) return NULL;
    kl_intake *intake = PyCapsule_GetPointer(args[0], KL_INTAKE_NAME);
    const char *key;
    Py_ssize_t key_bytes;
    bool sticky;
    if (intake == NULL) return NULL;
    if (!kl_direct_bytes(args[1], &key, &key_bytes)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a key is bytes or None");
        return NULL;
    }
    return PyLong_FromLong(kl_place(intake, key, key_bytes, &sticky));
}

/* ---- records ----------------------------------------------------------------------------- */

static int64_t kl_wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Count bytes of the sticky partition; after a batch's worth, another one has its turn
 * (KIP-794). */
static void kl_sticky_took(kl_intake *intake, int64_t bytes) {
    KL_ASSERT(bytes >= 0 && intake->sticky_bytes <= intake->sticky_bytes_max);
    intake->sticky_bytes += bytes;
    if (intake->sticky_bytes < intake->sticky_bytes_max) return;
    intake->sticky = kl_next_sticky(intake);
    KL_ASSERT(intake->sticky >= 0 && intake->sticky < intake->partitions);
    intake->sticky_bytes = 0;
}

/* (intake, value, key, timestamp or None: now, partition or -1: by the key, encoded headers or
 * None): a ticket.  None: the batch is full, none is open, or the arguments are not plain; nothing
 * was done. */
static PyObject *kl_intake_send(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 6)) return NULL;
    kl_intake *intake = PyCapsule_GetPointer(args[0], KL_INTAKE_NAME);
    if (intake == NULL) return NULL;
    const char *value, *key, *headers;
    Py_ssize_t value_bytes, key_bytes, headers_bytes;
    if (!kl_direct_bytes(args[1], &value, &value_bytes) ||
        !kl_direct_bytes(args[2], &key, &key_bytes) ||
        !kl_direct_bytes(args[5], &headers, &headers_bytes))
        Py_RETURN_NONE;
    int64_t timestamp_ms = -1;
    if (args[3] == Py_None) timestamp_ms = kl_wall_ms();
    else {
        timestamp_ms = PyLong_AsLongLong(args[3]);
        if (timestamp_ms < 0) { /* invalid, unknown or too large: Python reports it */
            PyErr_Clear();
            Py_RETURN_NONE;
        }
    }
    long partition = PyLong_AsLong(args[4]);
    bool sticky = false;
    if (partition < 0) {
        PyErr_Clear();
        partition = kl_place(intake, key, key_bytes, &sticky);
    }
    if (partition >= intake->partitions) Py_RETURN_NONE;
    kl_slot *slot = &intake->slots[partition];
    if (slot->batch == NULL) Py_RETURN_NONE;
    const kl_addition record = {(const uint8_t *)key,
                                key_bytes,
                                (const uint8_t *)value,
                                value_bytes,
                                timestamp_ms,
                                (const uint8_t *)headers,
                                (size_t)KL_MAX(headers_bytes, (Py_ssize_t)0)};
    /* First: it may run Python's garbage collector, and so any code. */
    kl_ticket *ticket = (kl_ticket *)PyType_GenericAlloc(intake->ticket, 0);
    if (ticket == NULL) return NULL;
    if (slot->batch == NULL || kl_growing_add(slot->growing, &record) != KL_OK) {
        Py_DECREF((PyObject *)ticket);
        Py_RETURN_NONE;
    }
    if (sticky) kl_sticky_took(intake, KL_MAX(value_bytes, (Py_ssize_t)0) + 8);
    KL_ASSERT(slot->growing->encoded.record_count > 0);
    Py_INCREF(slot->batch);
    ticket->batch = slot->batch;
    ticket->timestamp_ms = timestamp_ms;
    ticket->index = slot->growing->encoded.record_count - 1;
    return (PyObject *)ticket;
}

enum { MANY_ROWS = 4096 }; /* at once; then other threads have a turn */

/* A slot's batch took rows, beginning with number `first`. */
static void kl_slot_touch(kl_slot *slot, int first) {
    KL_ASSERT(slot->batch != NULL && first >= 0);
    slot->last = slot->growing->encoded.record_count - 1;
    KL_ASSERT(slot->last >= first);
    if (slot->touched) return;
    slot->first = first;
    Py_INCREF(slot->batch);
    slot->touched = slot->batch;
}

/* KL_E_STALE: the slot's batch changed since the previous rows. */
static kl_status kl_slot_usable(const kl_slot *slot) {
    if (slot->touched && slot->batch != slot->touched) return KL_E_STALE;
    return slot->batch ? KL_OK : KL_E_BUFFER_TOO_SMALL;
}

/* A record's size without lengths and deltas. */
static int64_t kl_addition_bytes(const kl_addition *record) {
    return KL_MAX(record->key_bytes, (int64_t)0) + KL_MAX(record->value_bytes, (int64_t)0) +
           (int64_t)record->headers_bytes;
}

/* The space that a row needs in a batch. */
static int64_t kl_row_bytes(const kl_columns *columns, const kl_cursor *cursor) {
    kl_cursor at = *cursor;
    kl_addition record;
    if (kl_columns_take(columns, &at, &record)) return 0; /* the fill has reported it */
    return kl_addition_bytes(&record);
}

/* Bytes left in the sticky partition's turn; a single partition has no turns. */
static size_t kl_turn_left(const kl_intake *intake, bool sticky) {
    if (!sticky || intake->partitions == 1) return SIZE_MAX;
    return (size_t)(intake->sticky_bytes_max - intake->sticky_bytes);
}

/* Add the rows that fit the batch and the rest of the turn.  Needs no GIL. */
static kl_status kl_fill(kl_growing *batch, const kl_columns *columns, kl_cursor *cursor,
                         size_t left) {
    kl_status status = kl_growing_fill(batch, columns, cursor, left);
    if (status == KL_E_BUFFER_TOO_SMALL && batch->bytes < batch->bytes_max &&
        left < batch->bytes_max - batch->bytes) {
        kl_addition record; /* the turn is nearly over: its last record exceeds it */
        kl_cursor next = *cursor;
        status = kl_columns_take(columns, &next, &record);
        if (!status) status = kl_growing_add(batch, &record);
        if (!status) *cursor = next;
    }
    return status;
}

/* Rows without keys, or with a given partition: as many as fit in one batch. */
static kl_status kl_intake_fill(kl_intake *intake, const kl_columns *columns,
                                kl_cursor *cursor, bool sticky, long partition) {
    KL_ASSERT(partition >= 0 && partition < intake->partitions);
    kl_slot *slot = &intake->slots[partition];
    kl_status status = kl_slot_usable(slot);
    if (status) return status;
    kl_growing *batch = slot->growing;
    size_t before = batch->bytes;
    int first = batch->encoded.record_count;
    status = kl_fill(batch, columns, cursor, kl_turn_left(intake, sticky));
    if (batch->encoded.record_count > first) kl_slot_touch(slot, first);
    if (sticky && batch->bytes > before)
        kl_sticky_took(intake, (int64_t)(batch->bytes - before));
    return status;
}

/* Put a record in its partition, `wanted` or by its key. */
static kl_status kl_intake_put(kl_intake *intake, const kl_addition *record, long wanted,
                               long *partition) {
    bool sticky = false;
    *partition =
        wanted >= 0 ? wanted : kl_place(intake, record->key, record->key_bytes, &sticky);
    KL_ASSERT(*partition >= 0 && *partition < intake->partitions);
    kl_slot *slot = &intake->slots[*partition];
    kl_status status = kl_slot_usable(slot);
    if (!status) status = kl_growing_add(slot->growing, record);
    if (status) return status;
    kl_slot_touch(slot, slot->growing->encoded.record_count - 1);
    if (sticky) kl_sticky_took(intake, KL_MAX(record->value_bytes, (int64_t)0) + 8);
    return KL_OK;
}

/* A row with a key. */
static kl_status kl_intake_row(kl_intake *intake, const kl_columns *columns,
                               kl_cursor *cursor, long *partition) {
    kl_cursor next = *cursor;
    kl_addition record;
    kl_status status = kl_columns_take(columns, &next, &record);
    if (!status) status = kl_intake_put(intake, &record, -1, partition);
    if (!status) *cursor = next;
    return status;
}

/* Put some records from `*p` on; *bytes: size of the one that did not fit. */
static kl_status kl_intake_copy(kl_intake *intake, const uint8_t **p, const uint8_t *end,
                                int64_t base_ms, int64_t fixed_ms, long wanted,
                                long *partition, int64_t *bytes) {
    kl_addition record;
    for (int i = 0; i < MANY_ROWS && *p < end; i++) {
        const uint8_t *next = kl_addition_next(*p, end, base_ms, true, &record);
        if (next == NULL)
            return kl_fail(KL_E_CORRUPT_MESSAGE, "the records of a batch are none");
        if (fixed_ms >= 0) record.timestamp_ms = fixed_ms;
        kl_status status = kl_intake_put(intake, &record, wanted, partition);
        *bytes = kl_addition_bytes(&record);
        if (status) return status;
        *p = next;
    }
    return KL_OK;
}

/* (intake, records of a batch, position, base timestamp, timestamp of all or -1, partition or -1:
 * by keys): (status, partition, bytes of the record, position): as `many`, at the position. */
static PyObject *kl_intake_batch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 6)) return NULL;
    kl_intake *intake = PyCapsule_GetPointer(args[0], KL_INTAKE_NAME);
    if (intake == NULL) return NULL;
    char *records;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(args[1], &records, &size)) return NULL;
    Py_ssize_t pos = PyLong_AsSsize_t(args[2]);
    int64_t base_ms = PyLong_AsLongLong(args[3]), fixed_ms = PyLong_AsLongLong(args[4]);
    long wanted = PyLong_AsLong(args[5]), partition = wanted;
    if (PyErr_Occurred()) return NULL;
    if (wanted >= intake->partitions || pos < 0 || pos > size) {
        PyErr_Format(PyExc_IndexError, "partition %ld of %d, position %zd of %zd", wanted,
                     intake->partitions, pos, size);
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)records, *p = start + pos;
    int64_t bytes = 0;
    kl_status status = kl_intake_copy(intake, &p, start + size, base_ms, fixed_ms, wanted,
                                      &partition, &bytes);
    return Py_BuildValue("ilLn", (int)status, partition, (long long)bytes,
                         (Py_ssize_t)(p - start));
}

/* True if rows are partitioned by key. */
static bool kl_by_keys(const kl_intake *intake, const kl_columns *columns, long wanted) {
    return wanted < 0 && (columns->key.kind != KL_BYTES_NONE || intake->hashed_null);
}

/* (intake, address of a kl_columns, of a kl_cursor, partition or -1: by keys): (status, partition,
 * bytes of the row's key and value).  KL_OK: continue at the cursor; otherwise the partition needs
 * a new batch, or its touched records must be handled.  One caller at a time. */
static PyObject *kl_intake_many(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 4)) return NULL;
    kl_intake *intake = PyCapsule_GetPointer(args[0], KL_INTAKE_NAME);
    if (intake == NULL) return NULL;
    const kl_columns *columns = PyLong_AsVoidPtr(args[1]);
    kl_cursor *cursor = PyLong_AsVoidPtr(args[2]);
    long wanted = PyLong_AsLong(args[3]), partition = -1;
    if (PyErr_Occurred()) return NULL;
    if (wanted >= intake->partitions) {
        PyErr_Format(PyExc_IndexError, "partition %ld of %d", wanted, intake->partitions);
        return NULL;
    }
    kl_status status = KL_OK;
    bool keyed = kl_by_keys(intake, columns, wanted);
    int64_t end = KL_MIN(columns->count, cursor->row + MANY_ROWS);
    while (!status && cursor->row < end) {
        if (keyed) status = kl_intake_row(intake, columns, cursor, &partition);
        else {
            partition = wanted >= 0 ? wanted : intake->sticky;
            status = kl_intake_fill(intake, columns, cursor, wanted < 0, partition);
        }
    }
    int64_t bytes = status ? kl_row_bytes(columns, cursor) : 0;
    return Py_BuildValue("ilL", (int)status, partition, (long long)bytes);
}

/* (intake, memory of a batch that is not open yet, address of a kl_columns, of a kl_cursor, its
 * partition, partition or -1 as in `many`): (status of adding rows, 1 if full).  Ignores rows
 * partitioned by key.  Releases the GIL unless there are few rows: no other thread has the
 * memory. */
static PyObject *kl_intake_ahead(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    enum { ALONE_ROWS = 256 }; /* from here on releasing the GIL pays */
    (void)self;
    if (!kl_direct_wants(count, 6)) return NULL;
    kl_intake *intake = PyCapsule_GetPointer(args[0], KL_INTAKE_NAME);
    kl_growing *batch = intake ? PyCapsule_GetPointer(args[1], KL_GROWING_NAME) : NULL;
    if (batch == NULL) return NULL;
    const kl_columns *columns = PyLong_AsVoidPtr(args[2]);
    kl_cursor *cursor = PyLong_AsVoidPtr(args[3]);
    long partition = PyLong_AsLong(args[4]), wanted = PyLong_AsLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    if (kl_by_keys(intake, columns, wanted)) return Py_BuildValue("ii", KL_OK, 0);
    const size_t left = kl_turn_left(intake, wanted < 0), before = batch->bytes;
    kl_status status;
    if (columns->count - cursor->row < ALONE_ROWS) {
        status = kl_fill(batch, columns, cursor, left);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = kl_fill(batch, columns, cursor, left);
        Py_END_ALLOW_THREADS;
    }
    KL_ASSERT(batch->bytes >= before);
    const size_t took = batch->bytes - before;
    if (wanted < 0 && partition == intake->sticky) kl_sticky_took(intake, (int64_t)took);
    bool full = cursor->row < columns->count && took < left &&
                batch->bytes_max - batch->bytes < left - took;
    return Py_BuildValue("ii", (int)status, (int)full);
}

/* (intake, partition): (batch, first, last) of the records that `many` added, or None; clears
 * it. */
static PyObject *kl_intake_touched(PyObject *self, PyObject *const *args,
                                   Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 2)) return NULL;
    kl_slot *slot = kl_slot_of(args[0], args[1]);
    if (slot == NULL) return NULL;
    PyObject *batch = slot->touched;
    slot->touched = NULL;
    if (batch == NULL) Py_RETURN_NONE;
    KL_ASSERT(slot->first <= slot->last);
    return Py_BuildValue("Nii", batch, slot->first, slot->last); /* N: takes it */
}

static PyMethodDef kl_intake_methods[] = {
    {"intake_new", KL_DIRECT_METHOD(kl_intake_new), METH_FASTCALL, NULL},
    {"intake_load", KL_DIRECT_METHOD(kl_intake_load), METH_FASTCALL, NULL},
    {"intake_open", KL_DIRECT_METHOD(kl_intake_open), METH_FASTCALL, NULL},
    {"intake_place", KL_DIRECT_METHOD(kl_intake_place), METH_FASTCALL, NULL},
    {"intake_send", KL_DIRECT_METHOD(kl_intake_send), METH_FASTCALL, NULL},
    {"intake_many", KL_DIRECT_METHOD(kl_intake_many), METH_FASTCALL, NULL},
    {"intake_batch", KL_DIRECT_METHOD(kl_intake_batch), METH_FASTCALL, NULL},
    {"intake_ahead", KL_DIRECT_METHOD(kl_intake_ahead), METH_FASTCALL, NULL},
    {"intake_touched", KL_DIRECT_METHOD(kl_intake_touched), METH_FASTCALL, NULL},
};

/* Add all functions of direct.h, growing.h and this header, and the class of ticket.h, to an
 * imported module; 0, or -1. */
static int kl_direct_install(const char *module_name) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_AddModule(module_name); /* borrowed */
    size_t direct = sizeof kl_direct_methods / sizeof kl_direct_methods[0];
    size_t growing = sizeof kl_growing_methods / sizeof kl_growing_methods[0];
    size_t intake = sizeof kl_intake_methods / sizeof kl_intake_methods[0];
    int result = kl_direct_give(module, kl_direct_methods, direct);
    if (result == 0) result = kl_direct_give(module, kl_growing_methods, growing);
    if (result == 0) result = kl_direct_give(module, kl_intake_methods, intake);
    PyObject *ticket = result == 0 ? PyType_FromSpec(&kl_ticket_spec) : NULL;
    if (result == 0)
        result = ticket ? PyObject_SetAttrString(module, "Ticket", ticket) : -1;
    Py_XDECREF(ticket);
    PyErr_Clear(); /* the exception reaches the caller */
    PyGILState_Release(gil);
    return result;
}

#endif
