/* growing.h: the memory of a growing batch, as a capsule.
 *
 * As direct.h not part of the data plane; all runs with the GIL.
 *
 * References: the capsule owns its kl_growing, and its context holds the bytearray with the
 * records, until growing_let_go returns that. */
#ifndef KL_PYTHON_GROWING_H
#define KL_PYTHON_GROWING_H

#include "batch/grow.h"
#include "python/direct.h"

#define KL_GROWING_NAME "kafkalog.growing"
enum { DELTA_BYTES = 10 }; /* maximum of a timestamp delta */

/* The capsule holds the bytearray with the batch's records. */
static void kl_growing_drop(PyObject *capsule) {
    kl_release(PyCapsule_GetPointer(capsule, KL_GROWING_NAME));
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static PyObject *kl_growing_in(PyObject *room, size_t bytes_max) {
    KL_ASSERT((size_t)PyByteArray_Size(room) >= bytes_max);
    kl_growing *batch = kl_alloc(sizeof *batch);
    if (batch == NULL) return PyErr_NoMemory();
    kl_growing_begin(batch, (uint8_t *)PyByteArray_AsString(room), bytes_max);
    PyObject *capsule = PyCapsule_New(batch, KL_GROWING_NAME, kl_growing_drop);
    if (capsule == NULL) {
        kl_release(batch);
        return NULL;
    }
    Py_INCREF(room);
    PyCapsule_SetContext(capsule, room);
    return capsule;
}

/* (maximum bytes, released bytearray of that size or None): the memory of a batch, as a capsule. */
static PyObject *kl_growing_make(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 2)) return NULL;
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[0]);
    if (PyErr_Occurred()) return NULL;
    PyObject *room = args[1];
    if (room == Py_None) room = PyByteArray_FromStringAndSize(NULL, bytes_max);
    else if (!PyByteArray_Check(room) || PyByteArray_Size(room) < bytes_max)
        return PyErr_Format(PyExc_ValueError, "wanted a bytearray of %zd bytes", bytes_max);
    else Py_INCREF(room);
    if (room == NULL) return NULL;
    PyObject *capsule = kl_growing_in(room, (size_t)bytes_max);
    Py_DECREF(room);
    return capsule;
}

/* (memory): its bytearray, for another batch; None: still in use elsewhere. */
static PyObject *kl_growing_let_go(PyObject *self, PyObject *const *args,
                                   Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 1)) return NULL;
    kl_growing *batch = PyCapsule_GetPointer(args[0], KL_GROWING_NAME);
    if (batch == NULL) return NULL;
    PyObject *room = PyCapsule_GetContext(args[0]);
    if (room == NULL || Py_REFCNT(room) != 1) Py_RETURN_NONE;
    PyCapsule_SetContext(args[0], NULL);
    kl_growing_begin(batch, NULL, 0); /* accepts no more records */
    return room;
}

/* (memory, first, count): the memory of a batch of these records. */
static PyObject *kl_growing_part(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 3)) return NULL;
    kl_growing *from = PyCapsule_GetPointer(args[0], KL_GROWING_NAME);
    if (from == NULL) return NULL;
    long first = PyLong_AsLong(args[1]), records = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    /* With another first record, each timestamp delta may become longer. */
    size_t most = from->bytes + DELTA_BYTES * (size_t)KL_MAX(records, 0L);
    PyObject *room = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most);
    PyObject *capsule = room ? kl_growing_in(room, most) : NULL;
    Py_XDECREF(room);
    if (capsule == NULL) return NULL;
    kl_growing *part = PyCapsule_GetPointer(capsule, KL_GROWING_NAME);
    if (kl_growing_copy(part, from, (int32_t)first, (int32_t)records)) {
        PyErr_SetString(PyExc_ValueError, kl_error_message());
        Py_DECREF(capsule);
        return NULL;
    }
    return capsule;
}

/* (memory): (records, bytes of the batch, bytes of keys and values). */
static PyObject *kl_growing_told(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 1)) return NULL;
    kl_growing *batch = PyCapsule_GetPointer(args[0], KL_GROWING_NAME);
    if (batch == NULL) return NULL;
    return Py_BuildValue("inL", batch->encoded.record_count, (Py_ssize_t)batch->bytes,
                         (long long)batch->record_bytes);
}

/* (memory): its records, for compression. */
static PyObject *kl_growing_records(PyObject *self, PyObject *const *args,
                                    Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 1)) return NULL;
    kl_growing *batch = PyCapsule_GetPointer(args[0], KL_GROWING_NAME);
    if (batch == NULL) return NULL;
    return PyBytes_FromStringAndSize((const char *)batch->data + POS_RECORDS,
                                     (Py_ssize_t)(batch->bytes - POS_RECORDS));
}

/* A memoryview of the first bytes of a batch's bytearray. */
static PyObject *kl_growing_view(PyObject *room, Py_ssize_t bytes) {
    PyObject *whole = room ? PyMemoryView_FromObject(room) : NULL;
    PyObject *view = whole ? PySequence_GetSlice(whole, 0, bytes) : NULL;
    Py_XDECREF(whole);
    return view;
}

/* (memory, compressed records or None, producer id, epoch, sequence, attributes): the batch, as
 * bytes or a view. */
static PyObject *kl_growing_seal(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!kl_direct_wants(count, 6)) return NULL;
    kl_growing *batch = PyCapsule_GetPointer(args[0], KL_GROWING_NAME);
    if (batch == NULL) return NULL;
    char *records = NULL;
    KL_ASSERT(batch->bytes >= POS_RECORDS);
    Py_ssize_t bytes = (Py_ssize_t)(batch->bytes - POS_RECORDS);
    if (args[1] != Py_None && PyBytes_AsStringAndSize(args[1], &records, &bytes))
        return NULL;
    kl_stamp stamp = {.producer_id = PyLong_AsLongLong(args[2]),
                      .producer_epoch = (int16_t)PyLong_AsLong(args[3]),
                      .base_sequence = (int32_t)PyLong_AsLong(args[4]),
                      .attributes = (int16_t)PyLong_AsLong(args[5])};
    if (PyErr_Occurred()) return NULL;
    PyObject *out =
        records ? PyBytes_FromStringAndSize(NULL, bytes + POS_RECORDS)
                : kl_growing_view(PyCapsule_GetContext(args[0]), bytes + POS_RECORDS);
    if (out == NULL) return NULL;
    uint8_t *data = records ? (uint8_t *)PyBytes_AsString(out) : NULL;
    kl_status status;
    if (records) {
        kl_encoded encoded = batch->encoded;
        encoded.records_bytes = (size_t)bytes;
        memcpy(data + POS_RECORDS, records, (size_t)bytes);
        status = kl_batch_seal(data, (size_t)bytes + POS_RECORDS, &encoded, &stamp);
    } else {
        status = kl_growing_finish(batch, &stamp);
    }
    if (status) {
        PyErr_SetString(PyExc_ValueError, kl_error_message());
        Py_DECREF(out);
        return NULL;
    }
    return out;
}

static PyMethodDef kl_growing_methods[] = {
    {"growing_new", KL_DIRECT_METHOD(kl_growing_make), METH_FASTCALL, NULL},
    {"growing_let_go", KL_DIRECT_METHOD(kl_growing_let_go), METH_FASTCALL, NULL},
    {"growing_part", KL_DIRECT_METHOD(kl_growing_part), METH_FASTCALL, NULL},
    {"growing_told", KL_DIRECT_METHOD(kl_growing_told), METH_FASTCALL, NULL},
    {"growing_records", KL_DIRECT_METHOD(kl_growing_records), METH_FASTCALL, NULL},
    {"growing_seal", KL_DIRECT_METHOD(kl_growing_seal), METH_FASTCALL, NULL},
};

#endif
