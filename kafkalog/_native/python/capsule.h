/* capsule.h: destructors of the PyCapsules that pass Arrow structs to other packages.
 *
 * With direct.h the only C code that uses Python's API; not part of the data plane: only the code
 * that cffi generates includes it, after Python.h.  Python runs a destructor with the GIL held; a
 * consumer that took the struct has set its `release` to NULL. */
#ifndef KL_CAPSULE_H
#define KL_CAPSULE_H

#include <stdlib.h>

#include "kafkalog.h"

/* Memory freed by a destructor below; zeroed, NULL: no memory. */
static void *kl_capsule_memory(size_t bytes) { return calloc(1, bytes); }

/* A destructor may run during an exception, and must preserve it. */
#define KL_CAPSULE_DESTRUCTOR(function, type, name)                         \
    static void function(void *capsule) {                                   \
        PyObject *kind, *value, *trace;                                     \
        PyErr_Fetch(&kind, &value, &trace);                                 \
        struct type *owned = PyCapsule_GetPointer(capsule, name);           \
        if (owned != NULL && owned->release != NULL) owned->release(owned); \
        free(owned);                                                        \
        PyErr_Restore(kind, value, trace);                                  \
    }

KL_CAPSULE_DESTRUCTOR(kl_capsule_free_schema, ArrowSchema, "arrow_schema")
KL_CAPSULE_DESTRUCTOR(kl_capsule_free_array, ArrowArray, "arrow_array")
KL_CAPSULE_DESTRUCTOR(kl_capsule_free_stream, ArrowArrayStream, "arrow_array_stream")

static void kl_stream_release(struct ArrowArrayStream *stream); /* Python: see build.py */

/* The `release` of a stream.  A consumer may call it during an exception, as pyarrow does when a
 * loop over a failing stream ends; Python code must not run then. */
static void kl_stream_free(struct ArrowArrayStream *stream) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    kl_stream_release(stream);
    PyErr_Restore(kind, value, trace);
    PyGILState_Release(gil);
}

#endif
