/* plane.c: see plane.h. */
#include "plane.h"

#include "fetch.h"
#include "net/frame.h"
#include "net/repeat.h"
#include "produce.h"

static bool warm(void *context, kl_warming *warming) {
    return kl_cold_warm(&((kl_data *)context)->cold, warming);
}

static void drop(void *context, kl_slice *slice) { kl_data_drop_slice(context, slice); }

static const kl_kind produces = {kl_produce_run, kl_produce_cancel, true};
static const kl_kind fetches = {kl_fetch_run, kl_fetch_cancel, false};
const kl_ops kl_plane_ops = {
    .kinds = {[KL_API_PRODUCE] = &produces,
              [KL_API_FETCH] = &fetches,
              [KL_API_CONSUMER_GROUP_HEARTBEAT] = &kl_repeats},
    .warm = warm,
    .drop = drop,
};

void kl_plane_stop_cold(kl_data *data) { kl_cold_stop(&data->cold); }

void kl_plane_stop(kl_data *data) {
    kl_notices_close(&data->caught_ups);
    kl_notices_close(kl_admission_denials(data->admission));
    kl_topics_clear(data->topics);
}

void kl_plane_free(kl_data *data) {
    if (data == NULL) return;
    for (int32_t i = 0; i < data->lane_count; i++) {
        kl_produces_free(data->lanes[i].produces);
        kl_fetches_free(data->lanes[i].fetches);
    }
    kl_data_free(data);
}
