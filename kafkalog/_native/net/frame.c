/* frame.c: headers of requests, all of whose bytes are somebody else's. */
#include "frame.h"

enum {
    POS_API_VERSION = 2,
    POS_CORRELATION_ID = 4,
    POS_CLIENT_ID = 8,
    API_CONTROLLED_SHUTDOWN = 7, /* its version 0 has a header without client id */
    NEVER = INT8_MAX
};

/* The first flexible version of each API.  Source: flexibleVersions of the schemas of Kafka
 * 4.1, and of 3.9 for the four that 4.0 dropped; KIP-482. */
static const int8_t first_flexible[] = {
    9, 12,    6, 9, 4, 2, 6, 3,     /* Produce to ControlledShutdown */
    8, 6,     3, 6, 4, 4, 4, 5,     /* OffsetCommit to DescribeGroups */
    3, NEVER, 3, 5, 4, 2, 2, 4,     /* ListGroups, SaslHandshake to OffsetForLeaderEpoch */
    3, 3,     3, 1, 3, 2, 2, 2,     /* AddPartitionsToTxn to DeleteAcls */
    4, 2,     2, 2, 2, 2, 2, 2,     /* DescribeConfigs to RenewDelegationToken */
    2, 2,     2, 2, 1, 0, 0, NEVER, /* ExpireDelegationToken to OffsetDelete */
    1, 1,     0, 0, 0, 1, 1, 0,     /* DescribeClientQuotas to DescribeQuorum */
    0, 0,     0, 0, 0, 0, 0, 0,     /* AlterPartition on: all are */
    0, 0,     0, 0, 0, 0, 0, 0,     /* UnregisterBroker */
    0, 0,     0, 0, 0, 0, 0, 0,     /* PushTelemetry */
    0, 0,     0, 0, 0, 0, 0, 0,     /* AddRaftVoter */
    0, 0,     0, 0, 0,              /* StreamsGroupHeartbeat to DeleteShareGroupOffsets */
};
KL_STATIC_ASSERT(sizeof first_flexible == 93, "one for each API key of Kafka 4.1");

bool kl_header_flexible(int16_t api_key, int16_t api_version) {
    return api_key >= 0 && (size_t)api_key < sizeof first_flexible &&
           api_version >= first_flexible[api_key];
}

const uint8_t *kl_get_uvarint(const uint8_t *p, const uint8_t *end, uint32_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * KL_VARINT_BYTES_MAX && p < end; shift += 7) {
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = (uint32_t)value;
            return value <= UINT32_MAX ? p : NULL;
        }
    }
    return NULL;
}

const uint8_t *kl_skip_tagged_fields(const uint8_t *p, const uint8_t *end) {
    uint32_t count, tag, bytes;
    p = kl_get_uvarint(p, end, &count);
    /* A false count ends with the bytes: each field has two at least. */
    for (; p != NULL && count > 0; count--) {
        p = kl_get_uvarint(p, end, &tag);
        if (p != NULL) p = kl_get_uvarint(p, end, &bytes);
        if (p == NULL || bytes > (size_t)(end - p)) return NULL;
        p += bytes;
    }
    return p;
}

bool kl_header_parse(kl_span frame, kl_header *out) {
    *out = (kl_header){0};
    if (!kl_span_has(frame, 0, POS_CLIENT_ID)) return false;
    out->api_key = (int16_t)kl_get16(frame.data);
    out->api_version = (int16_t)kl_get16(frame.data + POS_API_VERSION);
    out->correlation_id = (int32_t)kl_get32(frame.data + POS_CORRELATION_ID);
    out->body_pos = POS_CLIENT_ID;
    if (out->api_key == API_CONTROLLED_SHUTDOWN && out->api_version == 0) return true;
    if (!kl_span_has(frame, POS_CLIENT_ID, 2)) return false;
    int16_t client_id_bytes = (int16_t)kl_get16(frame.data + POS_CLIENT_ID);
    out->body_pos += 2;
    if (client_id_bytes < -1) return false;
    if (client_id_bytes >= 0) {
        if (!kl_span_has(frame, out->body_pos, (size_t)client_id_bytes)) return false;
        out->client_id = (kl_span){frame.data + out->body_pos, (size_t)client_id_bytes};
        out->body_pos += (size_t)client_id_bytes;
    }
    if (!kl_header_flexible(out->api_key, out->api_version)) return true;
    const uint8_t *body =
        kl_skip_tagged_fields(frame.data + out->body_pos, frame.data + frame.bytes);
    if (body == NULL) return false;
    out->body_pos = (size_t)(body - frame.data);
    return true;
}
