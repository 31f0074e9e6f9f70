/* direct.h: operations per record and per batch of a Log or a journal, or per item of a list,
 * without cffi's conversions.
 *
 * As capsule.h not part of the data plane: only the code that cffi generates includes it, after
 * Python.h. */
#ifndef KL_DIRECT_H
#define KL_DIRECT_H

#include <stdbool.h>

#include "batch/batch.h"
#include "kafkalog.h"

#ifndef METH_FASTCALL /* in the limited API since 3.10, our minimum */
#define METH_FASTCALL 0x0080
#endif

#define KL_DIRECT_NAME "kafkalog.log"

/* Python does not check the argument count of a METH_FASTCALL function.  False: TypeError is
 * set. */
static bool kl_direct_wants(Py_ssize_t found, Py_ssize_t wanted) {
    if (KL_LIKELY(found == wanted)) return true;
    PyErr_Format(PyExc_TypeError, "found %zd arguments, wanted %zd", found, wanted);
    return false;
}

static void kl_direct_drop(PyObject *capsule) {
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

/* (address of a kl_log, its owner): a capsule that keeps the owner alive. */
static PyObject *kl_direct_handle(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 2)) return NULL;
    void *log = PyLong_AsVoidPtr(args[0]);
    PyObject *capsule = log ? PyCapsule_New(log, KL_DIRECT_NAME, kl_direct_drop) : NULL;
    if (capsule == NULL) return NULL;
    Py_INCREF(args[1]);
    PyCapsule_SetContext(capsule, args[1]);
    return capsule;
}

/* The bytes of a key or value; None: -1 bytes.  False: another type. */
static bool kl_direct_bytes(PyObject *given, const char **data, Py_ssize_t *bytes) {
    char *found = NULL;
    *bytes = -1;
    if (given != Py_None &&
        (Py_TYPE(given) != &PyBytes_Type || PyBytes_AsStringAndSize(given, &found, bytes)))
        return false;
    *data = found;
    return true;
}

/* ---- Log.append ----------------------------------------------------------------------------- */

/* A method in C: calling one in Python with its defaults takes longer than all else before the
 * record's write. */
static struct {
    PyObject *general; /* the Python method, for other arguments */
    PyObject *check;   /* raises a status's exception */
    PyObject *direct, *flush, *key, *timestamp_ms; /* names */
} kl_direct_log;

/* The arguments of kl_log_append. */
typedef struct {
    const char *key;
    const char *value;
    Py_ssize_t key_bytes;
    Py_ssize_t value_bytes;
    int64_t timestamp_ms;
} kl_direct_record;

/* False: not an int, or out of range. */
static bool kl_direct_time(PyObject *given, int64_t *out) {
    *out = -1;
    if (given == Py_None) return true;
    if (Py_TYPE(given) != &PyLong_Type) return false;
    *out = PyLong_AsLongLong(given);
    PyErr_Clear();
    return *out >= 0;
}

/* False: not plain bytes with a valid timestamp. */
static bool kl_direct_plain(PyObject *const *args, Py_ssize_t count, PyObject *names,
                            kl_direct_record *out) {
    *out = (kl_direct_record){.key_bytes = -1, .timestamp_ms = -1};
    if (count != 1 || args[0] == Py_None ||
        !kl_direct_bytes(args[0], &out->value, &out->value_bytes))
        return false;
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i), *given = args[count + i];
        bool plain = name == kl_direct_log.key
                         ? kl_direct_bytes(given, &out->key, &out->key_bytes)
                         : name == kl_direct_log.timestamp_ms &&
                               kl_direct_time(given, &out->timestamp_ms);
        if (!plain) return false;
    }
    return true;
}

static PyObject *kl_direct_general(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names) {
    PyObject *given = PyTuple_New(count + 1), *named = names ? PyDict_New() : NULL;
    PyObject *result = NULL;
    if (given == NULL || (names && named == NULL)) goto out;
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *one = i == 0 ? self : args[i - 1];
        Py_INCREF(one);
        PyTuple_SetItem(given, i, one);
    }
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i])) goto out;
    result = PyObject_Call(kl_direct_log.general, given, named);
out:
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

/* The offset of an appended record, after the flush for flush.messages: by the Python method, as
 * its wait must handle signals. */
static PyObject *kl_direct_appended(PyObject *self, int64_t offset, bool sync_due) {
    KL_ASSERT(offset >= 0);
    if (KL_UNLIKELY(sync_due)) {
        PyObject *done = PyObject_CallMethodObjArgs(self, kl_direct_log.flush, NULL);
        if (done == NULL) return NULL;
        Py_DECREF(done);
    }
    return PyLong_FromLongLong(offset);
}

static PyObject *kl_direct_append(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names) {
    kl_direct_record record;
    if (!kl_direct_plain(args, count, names, &record))
        return kl_direct_general(self, args, count, names);
    PyObject *capsule = PyObject_GetAttr(self, kl_direct_log.direct);
    if (capsule == Py_None) { /* its own clock, known only to Python */
        Py_DECREF(capsule);
        return kl_direct_general(self, args, count, names);
    }
    kl_log *log = capsule ? PyCapsule_GetPointer(capsule, KL_DIRECT_NAME) : NULL;
    if (log == NULL) {
        Py_XDECREF(capsule);
        return NULL;
    }
    int64_t offset;
    int32_t sync_due;
    /* The caller holds the arguments, and the capsule the log, until the return. */
    Py_BEGIN_ALLOW_THREADS;
    offset = kl_log_append(log, record.key, record.key_bytes, record.value,
                           record.value_bytes, record.timestamp_ms, &sync_due);
    Py_END_ALLOW_THREADS;
    PyObject *result;
    if (KL_LIKELY(offset >= 0)) result = kl_direct_appended(self, offset, sync_due);
    else if (offset == -KL_E_UNSUPPORTED_COMPRESSION_TYPE)
        result = kl_direct_general(self, args, count, names);
    else result = PyObject_CallFunction(kl_direct_log.check, "L", (long long)-offset);
    Py_DECREF(capsule);
    return result;
}

static PyMethodDef kl_direct_append_method = {"append",
                                              (PyCFunction)(void (*)(void))kl_direct_append,
                                              METH_FASTCALL | METH_KEYWORDS, NULL};

/* (class Log, its Python method append, function that raises a status, signature and docstring):
 * the C method that replaces it. */
static PyObject *kl_direct_method(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 4 || !PyType_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "wanted a class, two functions and a text");
        return NULL;
    }
    PyObject *text = PyUnicode_AsUTF8String(args[3]);
    if (text == NULL) return NULL;
    Py_INCREF(args[1]); /* these, and the text, live as long as the process */
    Py_INCREF(args[2]);
    kl_direct_append_method.ml_doc = PyBytes_AsString(text);
    kl_direct_log.general = args[1];
    kl_direct_log.check = args[2];
    kl_direct_log.direct = PyUnicode_InternFromString("_direct");
    kl_direct_log.flush = PyUnicode_InternFromString("flush");
    kl_direct_log.key = PyUnicode_InternFromString("key");
    kl_direct_log.timestamp_ms = PyUnicode_InternFromString("timestamp_ms");
    return PyDescr_NewMethod((PyTypeObject *)args[0], &kl_direct_append_method);
}

/* ---- batches, and lists --------------------------------------------------------------------- */

/* True if any batch is compressed.  Stops at invalid bytes, which are reported elsewhere. */
static bool kl_direct_compressed(const uint8_t *data, size_t bytes) {
    kl_batch batch;
    for (size_t pos = 0; !kl_batch_parse(data + pos, bytes - pos, &batch);
         pos += (size_t)batch.batch_bytes)
        if (kl_batch_codec(&batch) != 0) return true;
    return false;
}

/* (capsule, bytes, now in ms): append a client's batches by kl_log_append_batches: (first offset,
 * last offset, whether a flush is due), or a status.  None: some are compressed; nothing was
 * done. */
static PyObject *kl_direct_append_batches(PyObject *self, PyObject *const *args,
                                          Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 3)) return NULL;
    kl_log *log = PyCapsule_GetPointer(args[0], KL_DIRECT_NAME);
    char *batches;
    Py_ssize_t bytes;
    if (log == NULL || PyBytes_AsStringAndSize(args[1], &batches, &bytes)) return NULL;
    kl_append_options how = {.origin = KL_ORIGIN_CLIENT, .leader_epoch = -1};
    how.now_ms = PyLong_AsLongLong(args[2]);
    if (how.now_ms == -1 && PyErr_Occurred()) return NULL;
    if (kl_direct_compressed((const uint8_t *)batches, (size_t)bytes)) Py_RETURN_NONE;
    kl_appended done;
    kl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status =
        kl_log_append_batches(log, (const uint8_t *)batches, (size_t)bytes, &how, &done);
    Py_END_ALLOW_THREADS;
    if (status) return PyLong_FromLong(status);
    return Py_BuildValue("LLi", (long long)done.base_offset, (long long)done.last_offset,
                         (int)done.sync_due);
}

/* Total bytes of a list's items; -1: it has items other than bytes and None. */
static Py_ssize_t kl_direct_list_bytes(PyObject *list) {
    Py_ssize_t rows = PyList_Size(list), total = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (item == Py_None) continue;
        if (Py_TYPE(item) != &PyBytes_Type) return -1;
        Py_ssize_t bytes = PyBytes_Size(item);
        if (bytes > INT32_MAX) return -1;
        total += bytes;
    }
    return total;
}

/* (list): total bytes; -1: it has items other than bytes and None. */
static PyObject *kl_direct_plain_bytes(PyObject *self, PyObject *const *args,
                                       Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 1)) return NULL;
    return PyLong_FromSsize_t(PyList_Check(args[0]) ? kl_direct_list_bytes(args[0]) : -1);
}

/* (list of bytes and None): (int32 lengths, -1: null; concatenated bytes), as KL_BYTES_LENGTHS32.
 * None: other items. */
static PyObject *kl_direct_join(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 1 || !PyList_Check(args[0])) Py_RETURN_NONE;
    PyObject *list = args[0]; /* no Python code runs below: it cannot change */
    Py_ssize_t rows = PyList_Size(list), total = kl_direct_list_bytes(list);
    if (total < 0) Py_RETURN_NONE;
    PyObject *lengths = PyBytes_FromStringAndSize(NULL, rows * (Py_ssize_t)sizeof(int32_t));
    PyObject *data = PyBytes_FromStringAndSize(NULL, total);
    if (lengths == NULL || data == NULL) {
        Py_XDECREF(lengths);
        Py_XDECREF(data);
        return NULL;
    }
    char *length_at = PyBytes_AsString(lengths), *data_at = PyBytes_AsString(data);
    for (Py_ssize_t i = 0; i < rows; i++, length_at += sizeof(int32_t)) {
        PyObject *item = PyList_GetItem(list, i);
        int32_t bytes = item == Py_None ? -1 : (int32_t)PyBytes_Size(item);
        memcpy(length_at, &bytes, sizeof bytes);
        if (bytes <= 0) continue;
        memcpy(data_at, PyBytes_AsString(item), (size_t)bytes);
        data_at += bytes;
    }
    KL_ASSERT(data_at == PyBytes_AsString(data) + total);
    return Py_BuildValue("NN", lengths, data); /* N: takes the references */
}

/* ---- a coordinator's rows ------------------------------------------------------------------- */

/* Destination of a column of lengths. */
typedef struct {
    int32_t *length;
    uint8_t *data;
    size_t bytes;
} kl_direct_column;

static void kl_direct_put(kl_direct_column *column, const char *data, Py_ssize_t bytes) {
    *column->length++ = (int32_t)bytes;
    if (bytes <= 0) return;
    memcpy(column->data + column->bytes, data, (size_t)bytes);
    column->bytes += (size_t)bytes;
}

/* Total bytes of keys and values in a list of pairs; -1: other items. */
static Py_ssize_t kl_direct_pairs_bytes(PyObject *rows, Py_ssize_t count) {
    Py_ssize_t total = 0, bytes;
    const char *data;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(rows, i);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) return -1;
        for (Py_ssize_t side = 0; side < 2; side++) {
            if (!kl_direct_bytes(PyTuple_GetItem(pair, side), &data, &bytes)) return -1;
            if (bytes > INT32_MAX - total) return -1;
            total += KL_MAX(bytes, 0);
        }
    }
    return total;
}

/* The rows, whose columns are in `memory`, as one batch; or a status. */
static PyObject *kl_direct_sealed(const kl_columns *columns, size_t bytes,
                                  const kl_stamp *stamp) {
    size_t room = KL_BATCH_HEADER_BYTES + bytes + 64 * (size_t)columns->count;
    uint8_t *out = PyMem_Malloc(room);
    if (out == NULL) return PyErr_NoMemory();
    kl_cursor cursor = {0};
    kl_encoded encoded;
    kl_status status = kl_encode_records(columns, &cursor, out + KL_BATCH_HEADER_BYTES,
                                         room - KL_BATCH_HEADER_BYTES, INT32_MAX, &encoded);
    if (!status) status = kl_batch_seal(out, room, &encoded, stamp);
    size_t made = KL_BATCH_HEADER_BYTES + (status ? 0 : encoded.records_bytes);
    KL_ASSERT(made <= room);
    PyObject *result = status ? PyLong_FromLong(status)
                              : PyBytes_FromStringAndSize((char *)out, (Py_ssize_t)made);
    PyMem_Free(out);
    return result;
}

/* (non-empty list of (key, value), bytes or None; timestamp; producer id, epoch, attributes): the
 * rows as one batch, a status, or None: other arguments. */
static PyObject *kl_direct_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 5 || !PyList_Check(args[0])) Py_RETURN_NONE;
    PyObject *list = args[0]; /* no Python code runs below: it cannot change */
    Py_ssize_t rows = PyList_Size(list), bytes = kl_direct_pairs_bytes(list, rows);
    if (bytes < 0 || rows == 0 || rows > INT32_MAX / 64) Py_RETURN_NONE;
    int64_t time_ms = PyLong_AsLongLong(args[1]);
    kl_stamp stamp = {.producer_id = PyLong_AsLongLong(args[2]),
                      .base_sequence = -1,
                      .producer_epoch = (int16_t)PyLong_AsLong(args[3]),
                      .attributes = (int16_t)PyLong_AsLong(args[4])};
    if (PyErr_Occurred()) return NULL;
    size_t lengths_bytes = (size_t)rows * sizeof(int32_t);
    uint8_t *memory = PyMem_Malloc(2 * lengths_bytes + 2 * (size_t)bytes + 1);
    if (memory == NULL) return PyErr_NoMemory();
    int32_t *lengths = (int32_t *)(void *)memory;
    kl_direct_column keys = {lengths, memory + 2 * lengths_bytes, 0};
    kl_direct_column values = {lengths + rows, keys.data + bytes, 0};
    const char *data = NULL;
    Py_ssize_t part;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *pair = PyList_GetItem(list, i);
        kl_direct_bytes(PyTuple_GetItem(pair, 0), &data, &part);
        kl_direct_put(&keys, data, part);
        kl_direct_bytes(PyTuple_GetItem(pair, 1), &data, &part);
        kl_direct_put(&values, data, part);
    }
    KL_ASSERT(keys.length == lengths + rows && values.length == lengths + 2 * rows);
    KL_ASSERT(keys.bytes + values.bytes == (size_t)bytes);
    kl_columns columns = {.count = rows, .default_timestamp_ms = time_ms};
    columns.key = (kl_bytes_column){.kind = KL_BYTES_LENGTHS32,
                                    .data = keys.data,
                                    .data_bytes = keys.bytes,
                                    .index = lengths,
                                    .index_count = (size_t)rows};
    columns.value = columns.key;
    columns.value.data = values.data;
    columns.value.data_bytes = values.bytes;
    columns.value.index = lengths + rows;
    PyObject *result = kl_direct_sealed(&columns, (size_t)bytes, &stamp);
    PyMem_Free(memory);
    return result;
}

#define KL_DIRECT_METHOD(function) (PyCFunction)(void (*)(void))(function)
static PyMethodDef kl_direct_methods[] = {
    {"handle_direct", KL_DIRECT_METHOD(kl_direct_handle), METH_FASTCALL, NULL},
    {"append_method", KL_DIRECT_METHOD(kl_direct_method), METH_FASTCALL, NULL},
    {"append_batches_direct", KL_DIRECT_METHOD(kl_direct_append_batches), METH_FASTCALL,
     NULL},
    {"plain_bytes_direct", KL_DIRECT_METHOD(kl_direct_plain_bytes), METH_FASTCALL, NULL},
    {"join_direct", KL_DIRECT_METHOD(kl_direct_join), METH_FASTCALL, NULL},
    {"rows_direct", KL_DIRECT_METHOD(kl_direct_rows), METH_FASTCALL, NULL},
};

/* Add functions to an imported module; 0, or -1. */
static int kl_direct_give(PyObject *module, PyMethodDef *methods, size_t count) {
    int result = module == NULL ? -1 : 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        PyObject *function = PyCFunction_NewEx(&methods[i], NULL, NULL);
        result =
            function ? PyObject_SetAttrString(module, methods[i].ml_name, function) : -1;
        Py_XDECREF(function);
    }
    return result;
}

#endif
