/* ticket.h: the result of sending a record: its position in its batch.
 *
 * As direct.h not part of the data plane. */
#ifndef KL_TICKET_H
#define KL_TICKET_H

#include <structmember.h>

#include "python/direct.h"

/* A record's position in its batch; Python adds methods. */
typedef struct {
    PyObject_HEAD;
    PyObject *batch;
    long long timestamp_ms;
    int index;
} kl_ticket;

static PyMemberDef kl_ticket_members[] = {
    {"_batch", T_OBJECT_EX, offsetof(kl_ticket, batch), READONLY, NULL},
    {"_timestamp_ms", T_LONGLONG, offsetof(kl_ticket, timestamp_ms), READONLY, NULL},
    {"_index", T_INT, offsetof(kl_ticket, index), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* `__class__`: a second class for isinstance, named by Python. */
static PyObject *kl_ticket_class(PyObject *self, void *closure) {
    (void)closure;
    return PyObject_GetAttrString((PyObject *)Py_TYPE(self), "_stands_for");
}

static PyGetSetDef kl_ticket_getset[] = {
    {"__class__", kl_ticket_class, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static void kl_ticket_free(PyObject *self) {
    PyObject *type = (PyObject *)Py_TYPE(self);
    Py_XDECREF(((kl_ticket *)self)->batch);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot kl_ticket_slots[] = {
    {Py_tp_dealloc, kl_ticket_free},
    {Py_tp_members, kl_ticket_members},
    {Py_tp_getset, kl_ticket_getset},
    {0, NULL},
};
static PyType_Spec kl_ticket_spec = {
    .name = "kafkalog.client.buffer.delivery.Future",
    .basicsize = sizeof(kl_ticket),
    .flags = Py_TPFLAGS_DEFAULT, /* no subclasses: the garbage collector would track them */
    .slots = kl_ticket_slots,
};

#endif
