/* made.h: converts the rows of a block to Records.
 *
 * As direct.h not part of the data plane: only the code that cffi generates includes it, after
 * Python.h.  All runs with the GIL. */
#ifndef KL_MADE_H
#define KL_MADE_H

#include <stdbool.h>

#include "base/base.h"
#include "kafkalog.h"

#ifndef METH_FASTCALL /* in the limited API since 3.10, our minimum */
#define METH_FASTCALL 0x0080
#endif

enum { KL_MADE_FIELDS = 9 }; /* fields of kafkalog.types.Record, in its order */

/* A block's columns for Records. */
typedef struct {
    int64_t rows;
    const int64_t *offset, *timestamp;
    const int32_t *timestamp_type, *leader_epoch;
    kl_block_column key, value;
    kl_block_headers headers;
} kl_made_from;

static kl_status kl_made_columns(const kl_block *block, kl_made_from *out) {
    kl_block_column fixed[4];
    const int32_t wanted[4] = {KL_COL_OFFSET, KL_COL_TIMESTAMP_MS, KL_COL_TIMESTAMP_TYPE,
                               KL_COL_LEADER_EPOCH};
    kl_status status = KL_OK;
    for (int i = 0; i < 4 && !status; i++)
        status = kl_block_get(block, wanted[i], &fixed[i]);
    if (!status) status = kl_block_get(block, KL_COL_KEY, &out->key);
    if (!status) status = kl_block_get(block, KL_COL_VALUE, &out->value);
    if (!status) status = kl_block_get_headers(block, &out->headers);
    if (status) return status;
    out->rows = kl_block_rows(block);
    out->offset = fixed[0].data;
    out->timestamp = fixed[1].data;
    out->timestamp_type = fixed[2].data;
    out->leader_epoch = fixed[3].data;
    return KL_OK;
}

/* A column's byte string: its position and size; -1: null. */
static Py_ssize_t kl_made_string(const kl_block_column *column, int64_t row,
                                 const char **data) {
    const uint8_t *validity = column->validity;
    if (validity != NULL && !(validity[row >> 3] >> (row & 7) & 1)) return -1;
    int32_t start = column->offsets[row];
    *data = (const char *)column->data + start;
    KL_TEST_ASSERT(start >= 0 && column->offsets[row + 1] >= start);
    return column->offsets[row + 1] - start;
}

static PyObject *kl_made_bytes(const kl_block_column *column, int64_t row) {
    const char *data = NULL;
    Py_ssize_t bytes = kl_made_string(column, row, &data);
    if (bytes >= 0) return PyBytes_FromStringAndSize(data, bytes);
    Py_INCREF(Py_None);
    return Py_None;
}

/* (name, value); the block's names are well-formed UTF-8. */
static PyObject *kl_made_header(const kl_block_headers *headers, int64_t at) {
    const char *data = "";
    PyObject *pair = PyTuple_New(2);
    if (pair == NULL) return NULL;
    Py_ssize_t bytes = kl_made_string(&headers->name, at, &data);
    PyObject *name = PyUnicode_DecodeUTF8(data, bytes < 0 ? 0 : bytes, NULL);
    PyObject *value = kl_made_bytes(&headers->value, at);
    /* Takes the references, even NULL: the pair is complete or dropped. */
    PyTuple_SetItem(pair, 0, name);
    PyTuple_SetItem(pair, 1, value);
    if (name != NULL && value != NULL) return pair;
    Py_DECREF(pair);
    return NULL;
}

static PyObject *kl_made_headers(const kl_block_headers *headers, int64_t row) {
    if (headers->header_count == 0) return PyTuple_New(0);
    int32_t first = headers->list_offsets[row], end = headers->list_offsets[row + 1];
    KL_ASSERT(first <= end && end <= headers->header_count);
    PyObject *made = PyTuple_New(end - first);
    for (int32_t at = first; made != NULL && at < end; at++) {
        PyObject *pair = kl_made_header(headers, at);
        if (pair == NULL) Py_CLEAR(made);
        else PyTuple_SetItem(made, at - first, pair);
    }
    return made;
}

/* A Record, a new reference; NULL: no memory. */
static PyObject *kl_made_record(const kl_made_from *from, int64_t row, PyTypeObject *type,
                                PyObject *topic, PyObject *partition) {
    KL_TEST_ASSERT(row >= 0 && row < from->rows);
    PyObject *record = PyType_GenericAlloc(type, KL_MADE_FIELDS);
    if (record == NULL) return NULL;
    Py_INCREF(topic);
    Py_INCREF(partition);
    PyObject *fields[KL_MADE_FIELDS] = {
        PyLong_FromLongLong(from->offset[row]),
        PyLong_FromLongLong(from->timestamp[row]),
        kl_made_bytes(&from->key, row),
        kl_made_bytes(&from->value, row),
        kl_made_headers(&from->headers, row),
        topic,
        partition,
        PyLong_FromLong(from->timestamp_type[row]),
        PyLong_FromLong(from->leader_epoch[row]),
    };
    bool whole = true;
    for (int i = 0; i < KL_MADE_FIELDS; i++) {
        whole &= fields[i] != NULL;
        PyTuple_SetItem(record, i, fields[i]);
    }
    if (whole) return record;
    Py_DECREF(record);
    return NULL;
}

/* (address of a kl_block, Record, topic, partition, first row, rows): a list of Records, fewer at
 * the end of the block. */
static PyObject *kl_made_records(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 6 || !PyType_Check(args[1]) ||
        !PyType_IsSubtype((PyTypeObject *)args[1], &PyTuple_Type)) {
        PyErr_Format(PyExc_TypeError, "found %zd arguments, wanted 6 of the right kind",
                     count);
        return NULL;
    }
    const kl_block *block = PyLong_AsVoidPtr(args[0]);
    long long first = PyLong_AsLongLong(args[4]), rows = PyLong_AsLongLong(args[5]);
    kl_made_from from;
    if (PyErr_Occurred()) return NULL;
    if (block == NULL || kl_made_columns(block, &from) || first < 0 || first > from.rows ||
        rows < 0) {
        PyErr_Format(PyExc_ValueError, "%lld rows from %lld on: not in the block", rows,
                     first);
        return NULL;
    }
    rows = KL_MIN(rows, from.rows - first);
    PyObject *made = PyList_New((Py_ssize_t)rows);
    for (long long i = 0; made != NULL && i < rows; i++) {
        PyObject *record =
            kl_made_record(&from, first + i, (PyTypeObject *)args[1], args[2], args[3]);
        if (record == NULL) Py_CLEAR(made);
        else PyList_SetItem(made, (Py_ssize_t)i, record);
    }
    return made;
}

static PyMethodDef kl_made_method = {
    "made_records", (PyCFunction)(void (*)(void))kl_made_records, METH_FASTCALL, NULL};

/* Add `made_records` to a module being imported; 0, or -1. */
static int kl_made_install(const char *module_name) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_AddModule(module_name); /* borrowed */
    PyObject *function = PyCFunction_NewEx(&kl_made_method, NULL, NULL);
    int result = -1;
    if (module != NULL && function != NULL)
        result = PyObject_SetAttrString(module, kl_made_method.ml_name, function);
    Py_XDECREF(function);
    PyErr_Clear(); /* the exception reaches the caller */
    PyGILState_Release(gil);
    return result;
}

#endif
