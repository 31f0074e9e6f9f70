/* block_arrow.c: a sealed block's buffers, and its export by the Arrow C data interface
 * (https://arrow.apache.org/docs/format/CDataInterface.html).
 *
 * Each node of an exported tree holds its own reference to the block, since a consumer may move a
 * child out and release it later, from any thread. */
#include "block.h"

enum { ARROW_NULLABLE = 2, CHILDREN_MAX = 9, BUFFERS_MAX = 4 };

/* The data of a column without bytes: Arrow forbids NULL there. */
static const uint8_t no_bytes[64];

int64_t kl_block_rows(const kl_block *block) { return block->rows; }

static const void *some(const void *data) { return data == NULL ? no_bytes : data; }

static const uint8_t *validity_of(const uint8_t *bitmap, int64_t null_count) {
    return null_count == 0 ? NULL : bitmap;
}

static void get_strings(const kl_strings *strings, kl_block_column *out) {
    out->data = some(strings->data);
    out->offsets = some(strings->offsets);
    out->validity = validity_of(strings->validity, strings->null_count);
    out->data_bytes = (int64_t)strings->data_bytes;
    out->null_count = strings->null_count;
}

static void get_fixed(const void *data, int64_t rows, size_t bytes_each,
                      kl_block_column *out) {
    out->data = some(data);
    out->data_bytes = rows * (int64_t)bytes_each;
}

/* True if `column` consists of views. */
static bool is_view(int32_t columns, int32_t column) {
    return columns & KL_COL_VIEWS && column & (KL_COL_KEY | KL_COL_VALUE);
}

kl_status kl_block_get(const kl_block *block, int32_t column, kl_block_column *out) {
    memset(out, 0, sizeof *out);
    if (is_view(block->columns, column))
        return kl_fail(KL_E_ARGUMENT, "column %d has views, for Arrow only", column);
    if (!(block->columns & column))
        return kl_fail(KL_E_ARGUMENT, "column %d is not among the scanned ones (%d)",
                       column, block->columns);
    int64_t rows = block->rows;
    const kl_constants *constants = block->constants;
    switch (column) {
    case KL_COL_KEY: get_strings(&block->key, out); break;
    case KL_COL_VALUE: get_strings(&block->value, out); break;
    case KL_COL_TOPIC:
        out->data = constants->topic_data;
        out->offsets = constants->topic_offsets;
        out->data_bytes = constants->topic_offsets[rows];
        break;
    case KL_COL_PARTITION:
        get_fixed(constants->partition, rows, sizeof(int32_t), out);
        break;
    case KL_COL_OFFSET: get_fixed(block->offset, rows, sizeof(int64_t), out); break;
    case KL_COL_TIMESTAMP:
    case KL_COL_TIMESTAMP_MS:
        get_fixed(block->timestamp, rows, sizeof(int64_t), out);
        break;
    case KL_COL_TIMESTAMP_TYPE:
        get_fixed(block->timestamp_type, rows, sizeof(int32_t), out);
        break;
    case KL_COL_LEADER_EPOCH:
        get_fixed(block->leader_epoch, rows, sizeof(int32_t), out);
        break;
    default: return kl_fail(KL_E_ARGUMENT, "column %d has no single buffer", column);
    }
    return KL_OK;
}

kl_status kl_block_get_headers(const kl_block *block, kl_block_headers *out) {
    memset(out, 0, sizeof *out);
    if (!(block->columns & KL_COL_HEADERS))
        return kl_fail(KL_E_ARGUMENT, "headers are not among the scanned columns (%d)",
                       block->columns);
    out->list_offsets = block->list_offsets;
    get_strings(&block->name, &out->name);
    get_strings(&block->header_value, &out->value);
    out->header_count = block->headers;
    return KL_OK;
}

/* ---- schema -------------------------------------------------------------------------- */

static void schema_release(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child->release != NULL) child->release(child);
    }
    kl_release(schema->private_data);
    schema->release = NULL;
}

/* A node with its children in one allocation. */
static kl_status schema_node(struct ArrowSchema *node, const char *format, const char *name,
                             int64_t flags, int64_t n_children) {
    KL_ASSERT(n_children <= CHILDREN_MAX);
    memset(node, 0, sizeof *node);
    node->format = format;
    node->name = name;
    node->flags = flags;
    node->release = schema_release;
    if (n_children == 0) return KL_OK;
    struct {
        struct ArrowSchema *pointers[CHILDREN_MAX];
        struct ArrowSchema nodes[CHILDREN_MAX];
    } *made = kl_alloc(sizeof *made);
    if (made == NULL) {
        node->release = NULL;
        return kl_fail(KL_E_NO_MEMORY, "an Arrow schema");
    }
    for (int64_t i = 0; i < n_children; i++) made->pointers[i] = &made->nodes[i];
    node->private_data = made;
    node->children = made->pointers;
    node->n_children = n_children;
    return KL_OK;
}

static kl_status schema_headers(struct ArrowSchema *list) {
    kl_status status = schema_node(list, "+l", "headers", ARROW_NULLABLE, 1);
    if (status) return status;
    struct ArrowSchema *element = list->children[0];
    status = schema_node(element, "+s", "element", ARROW_NULLABLE, 2);
    if (!status) status = schema_node(element->children[0], "u", "key", ARROW_NULLABLE, 0);
    if (!status)
        status = schema_node(element->children[1], "z", "value", ARROW_NULLABLE, 0);
    if (status) list->release(list);
    return status;
}

/* In the order of Spark's Kafka source; ours after them. */
static const struct {
    int32_t column;
    const char *format;
    const char *name;
} table[] = {
    {KL_COL_KEY, "z", "key"},
    {KL_COL_VALUE, "z", "value"},
    {KL_COL_TOPIC, "u", "topic"},
    {KL_COL_PARTITION, "i", "partition"},
    {KL_COL_OFFSET, "l", "offset"},
    {KL_COL_TIMESTAMP, "tsu:UTC", "timestamp"},
    {KL_COL_TIMESTAMP_TYPE, "i", "timestampType"},
    {KL_COL_HEADERS, "+l", "headers"},
    {KL_COL_LEADER_EPOCH, "i", "leaderEpoch"},
};
enum { TABLE_ROWS = sizeof table / sizeof table[0] };
KL_STATIC_ASSERT((int)TABLE_ROWS == (int)CHILDREN_MAX, "room for all columns");

static int64_t columns_count(int32_t columns) {
    return __builtin_popcount((unsigned)(columns & ~KL_COL_VIEWS));
}

static kl_status check_columns(int32_t columns) {
    if ((columns & ~(KL_COL_ALL | KL_COL_LEADER_EPOCH | KL_COL_VIEWS)) == 0) return KL_OK;
    return kl_fail(KL_E_ARGUMENT, "columns %d: not all of them are columns of a table",
                   columns);
}

kl_status kl_columns_schema(int32_t columns, struct ArrowSchema *out) {
    kl_status status = check_columns(columns);
    if (status) return status;
    status = schema_node(out, "+s", "", 0, columns_count(columns));
    if (status) return status;
    int64_t child = 0;
    for (int i = 0; i < TABLE_ROWS; i++) {
        if (!(columns & table[i].column)) continue;
        struct ArrowSchema *node = out->children[child++];
        if (table[i].column == KL_COL_HEADERS) status = schema_headers(node);
        else
            status = schema_node(node,
                                 is_view(columns, table[i].column) ? "vz" : table[i].format,
                                 table[i].name, ARROW_NULLABLE, 0);
        if (status) {
            out->release(out);
            return status;
        }
    }
    return KL_OK;
}

/* ---- array --------------------------------------------------------------------------- */

typedef struct {
    kl_block *block; /* retained */
    const void *buffers[BUFFERS_MAX];
    int64_t view_bytes; /* of the buffer that views refer to: itself a buffer */
    struct ArrowArray *children[CHILDREN_MAX];
    struct ArrowArray nodes[];
} array_owner;

static void array_release(struct ArrowArray *array) {
    array_owner *owner = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child->release != NULL) child->release(child);
    }
    kl_block_free(owner->block);
    kl_release(owner);
    array->release = NULL;
}

static kl_status array_node(struct ArrowArray *node, kl_block *block, int64_t length,
                            int64_t n_buffers, int64_t n_children) {
    KL_ASSERT(n_buffers <= BUFFERS_MAX && n_children <= CHILDREN_MAX);
    memset(node, 0, sizeof *node);
    array_owner *owner =
        kl_alloc(sizeof *owner + (size_t)n_children * sizeof owner->nodes[0]);
    if (owner == NULL) return kl_fail(KL_E_NO_MEMORY, "an Arrow array");
    owner->block = kl_block_retain(block);
    for (int64_t i = 0; i < n_children; i++) owner->children[i] = &owner->nodes[i];
    node->length = length;
    node->n_buffers = n_buffers;
    node->n_children = n_children;
    node->buffers = owner->buffers;
    node->children = n_children ? owner->children : NULL;
    node->private_data = owner;
    node->release = array_release;
    return KL_OK;
}

static kl_status array_strings(struct ArrowArray *node, kl_block *block, int64_t length,
                               const kl_block_column *column) {
    kl_status status = array_node(node, block, length, 3, 0);
    if (status) return status;
    node->null_count = column->null_count;
    node->buffers[0] = column->validity;
    node->buffers[1] = column->offsets;
    node->buffers[2] = column->data;
    return KL_OK;
}

static kl_status array_views(struct ArrowArray *node, kl_block *block,
                             const kl_strings *strings) {
    kl_status status = array_node(node, block, block->rows, 4, 0);
    if (status) return status;
    array_owner *owner = node->private_data;
    owner->view_bytes = (int64_t)block->bytes.data_bytes;
    node->null_count = strings->null_count;
    node->buffers[0] = validity_of(strings->validity, strings->null_count);
    node->buffers[1] = strings->views;
    node->buffers[2] = some(block->bytes.data);
    node->buffers[3] = &owner->view_bytes;
    return KL_OK;
}

static kl_status array_column(struct ArrowArray *node, kl_block *block, int32_t which) {
    if (is_view(block->columns, which))
        return array_views(node, block, which == KL_COL_KEY ? &block->key : &block->value);
    kl_block_column column;
    kl_status status = kl_block_get(block, which, &column);
    if (status) return status;
    if (column.offsets != NULL) return array_strings(node, block, block->rows, &column);
    status = array_node(node, block, block->rows, 2, 0);
    if (!status) node->buffers[1] = column.data;
    return status;
}

static kl_status array_headers(struct ArrowArray *list, kl_block *block) {
    kl_block_headers headers;
    kl_status status = kl_block_get_headers(block, &headers);
    if (!status) status = array_node(list, block, block->rows, 2, 1);
    if (status) return status;
    list->null_count = block->list_nulls;
    list->buffers[0] = validity_of(block->list_validity, block->list_nulls);
    list->buffers[1] = headers.list_offsets;
    struct ArrowArray *element = list->children[0];
    int64_t count = headers.header_count;
    status = array_node(element, block, count, 1, 2);
    if (!status) status = array_strings(element->children[0], block, count, &headers.name);
    if (!status) status = array_strings(element->children[1], block, count, &headers.value);
    if (status) list->release(list);
    return status;
}

kl_status kl_block_export(kl_block *block, struct ArrowArray *out) {
    kl_status status = check_columns(block->columns);
    if (!status)
        status = array_node(out, block, block->rows, 1, columns_count(block->columns));
    if (status) return status;
    int64_t child = 0;
    for (int i = 0; i < TABLE_ROWS; i++) {
        if (!(block->columns & table[i].column)) continue;
        struct ArrowArray *node = out->children[child++];
        if (table[i].column == KL_COL_HEADERS) status = array_headers(node, block);
        else status = array_column(node, block, table[i].column);
        if (status) {
            out->release(out);
            return status;
        }
    }
    return KL_OK;
}
