/* direct.h: the call of Log that is made per record, taken without cffi's conversions.
 *
 * As capsule.h no part of the data plane: only the code that cffi generates includes it, behind
 * Python.h. */
#ifndef KL_DIRECT_H
#define KL_DIRECT_H

#include <stdbool.h>

#include "kafkalog.h"

#ifndef METH_FASTCALL /* in the limited API since 3.10, which is the oldest that we take */
#define METH_FASTCALL 0x0080
#endif

#define KL_DIRECT_NAME "kafkalog.log"

static void kl_direct_drop(PyObject *capsule) {
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

/* (address of a kl_log, its owner): a capsule, which keeps the owner. */
static PyObject *kl_direct_handle(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "found %zd arguments, wanted 2", count);
        return NULL;
    }
    void *log = PyLong_AsVoidPtr(args[0]);
    PyObject *capsule = log ? PyCapsule_New(log, KL_DIRECT_NAME, kl_direct_drop) : NULL;
    if (capsule == NULL) return NULL;
    Py_INCREF(args[1]);
    PyCapsule_SetContext(capsule, args[1]);
    return capsule;
}

/* The bytes of a key or value; None is -1 of them.  False: it is something else. */
static bool kl_direct_bytes(PyObject *given, const char **data, Py_ssize_t *bytes) {
    char *found = NULL;
    *bytes = -1;
    if (given != Py_None &&
        (Py_TYPE(given) != &PyBytes_Type || PyBytes_AsStringAndSize(given, &found, bytes)))
        return false;
    *data = found;
    return true;
}

/* (capsule, value, key, timestamp): what kl_log_append returns.  None: not all of it is plain,
 * and nothing was done. */
static PyObject *kl_direct_append(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 4) {
        PyErr_Format(PyExc_TypeError, "found %zd arguments, wanted 4", count);
        return NULL;
    }
    kl_log *log = PyCapsule_GetPointer(args[0], KL_DIRECT_NAME);
    if (log == NULL) return NULL;
    const char *value, *key;
    Py_ssize_t value_bytes, key_bytes;
    int64_t timestamp_ms = -1;
    bool plain = args[1] != Py_None && kl_direct_bytes(args[1], &value, &value_bytes) &&
                 kl_direct_bytes(args[2], &key, &key_bytes);
    if (plain && args[3] != Py_None) {
        plain = Py_TYPE(args[3]) == &PyLong_Type;
        if (plain) timestamp_ms = PyLong_AsLongLong(args[3]);
        if (timestamp_ms < 0) plain = false; /* unknown, wrong, or too large */
        PyErr_Clear();
    }
    if (!plain) Py_RETURN_NONE;
    int64_t offset;
    /* The caller holds the arguments, and with the capsule the log, until we return. */
    Py_BEGIN_ALLOW_THREADS;
    offset = kl_log_append(log, key, key_bytes, value, value_bytes, timestamp_ms);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(offset);
}

#define KL_DIRECT_METHOD(function) (PyCFunction)(void (*)(void))(function)
static PyMethodDef kl_direct_methods[] = {
    {"handle_direct", KL_DIRECT_METHOD(kl_direct_handle), METH_FASTCALL, NULL},
    {"append_direct", KL_DIRECT_METHOD(kl_direct_append), METH_FASTCALL, NULL},
};

/* Give functions to a module that is imported already, under their names; 0, or -1. */
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
