/* frame.c: parses request headers, which are untrusted. */
#include "frame.h"

#include "codec.h"

enum {
    API_CONTROLLED_SHUTDOWN = 7, /* version 0 has a header without client id */
    NEVER = INT8_MAX
};

/* The first flexible version of each API.  Source: flexibleVersions in the schemas of Kafka 4.4,
 * and of 3.9 for the four APIs that 4.0 dropped; KIP-482. */
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
    0, 0,     0, 0, 0, 0, 0,        /* StreamsGroupHeartbeat to UnregisterController */
};
KL_STATIC_ASSERT(sizeof first_flexible == 95, "one for each API key of Kafka 4.4");

bool kl_header_flexible(int16_t api_key, int16_t api_version) {
    return api_key >= 0 && (size_t)api_key < sizeof first_flexible &&
           api_version >= first_flexible[api_key];
}

bool kl_header_parse(kl_span frame, kl_header *out) {
    kl_in in = {.at = frame.data, .end = frame.data + frame.bytes};
    *out = (kl_header){0};
    out->api_key = kl_in_i16(&in);
    out->api_version = kl_in_i16(&in);
    out->correlation_id = kl_in_i32(&in);
    if (in.bad || out->api_key != API_CONTROLLED_SHUTDOWN || out->api_version != 0) {
        out->client_id = kl_in_string(&in); /* never compact */
        in.flexible = kl_header_flexible(out->api_key, out->api_version);
        kl_in_skip_tags(&in);
    }
    out->body_pos = (size_t)(in.at - frame.data);
    return !in.bad;
}
