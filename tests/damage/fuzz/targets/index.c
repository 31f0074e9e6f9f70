/* Target: an offset index or a time index from any bytes: an accepted one is in order, its
 * lookups agree with a plain search, and it can be added to, cut, saved and read back. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/index.h"

static const int64_t BASE = 1000;

/* Offset or timestamp, and the position or offset it maps to. */
typedef struct {
    int64_t key;
    int64_t place;
} entry;

static entry at(const kl_index *index, size_t i) {
    if (index->kind == KL_OFFSET_INDEX) {
        kl_offset_entry found = kl_index_offset_at(index, i);
        return (entry){found.offset, found.pos};
    }
    kl_time_entry found = kl_index_time_at(index, i);
    return (entry){found.timestamp, found.offset};
}

static entry find(const kl_index *index, int64_t key) {
    if (index->kind == KL_OFFSET_INDEX) {
        kl_offset_entry found = kl_index_find_offset(index, key);
        return (entry){found.offset, found.pos};
    }
    kl_time_entry found = kl_index_find_time(index, key);
    return (entry){found.timestamp, found.offset};
}

static void check_order(const kl_index *index, int64_t offset_limit, int64_t pos_limit) {
    bool is_offset = index->kind == KL_OFFSET_INDEX;
    for (size_t i = 0; i < index->count; i++) {
        entry e = at(index, i);
        WANT(e.key >= (is_offset ? BASE : 0) && e.place >= (is_offset ? 0 : BASE));
        WANT((is_offset ? e.key : e.place) < offset_limit);
        WANT(!is_offset || e.place < pos_limit);
        if (i == 0) continue;
        entry before = at(index, i - 1);
        WANT(e.key > before.key);
        WANT(is_offset ? e.place > before.place : e.place >= before.place);
    }
}

static void check_find(const kl_index *index, int64_t key) {
    entry expected = index->kind == KL_OFFSET_INDEX ? (entry){BASE, 0} : (entry){-1, BASE};
    for (size_t i = 0; i < index->count && at(index, i).key <= key; i++)
        expected = at(index, i);
    entry found = find(index, key);
    WANT(found.key == expected.key && found.place == expected.place);
}

static void add(kl_index *index, int64_t key, int64_t place) {
    if (index->kind == KL_OFFSET_INDEX)
        WANT(kl_index_add_offset(index, key, place) == KL_OK);
    else WANT(kl_index_add_time(index, key, place) == KL_OK);
}

static void change(kl_index *index, kl_span *input) {
    kl_dir *dir = fuzz_dir();
    while (input->bytes > 0 && index->count < 200) {
        uint8_t what = fuzz_u8(input);
        if (what & 1) {
            entry last = index->count ? at(index, index->count - 1) : (entry){BASE, BASE};
            if (last.key > INT64_MAX - 16 || last.place > INT64_MAX - 8) continue;
            add(index, last.key + (what >> 4), last.place + (what >> 1 & 7));
        } else if (what & 2) {
            WANT(kl_index_truncate(index, BASE + fuzz_u8(input)) == KL_OK);
        } else if (what & 4) {
            WANT(kl_index_save(index, dir, what & 8) == KL_OK);
        } else if (what & 8) {
            add(index, fuzz_i64(input), fuzz_i64(input));
        } else {
            WANT(kl_index_rewrite(index, dir, false) == KL_OK);
        }
    }
}

/* Saved and loaded again, both ways, the same entries are there. */
static void check_again(kl_index *index) {
    kl_dir *dir = fuzz_dir();
    WANT(kl_index_save(index, dir, false) == KL_OK);
    check_order(index, INT64_MAX, INT64_MAX);
    for (int memory = 0; memory < 2; memory++) {
        kl_index again;
        bool sane;
        kl_index_init(&again, index->kind, BASE);
        WANT(kl_index_load(&again, dir, INT64_MAX, INT64_MAX, memory, &sane) == KL_OK);
        /* A time index of two first entries at zero is taken for a tail of zeros. */
        if (sane) {
            WANT(again.count == index->count);
            for (size_t i = 0; i < index->count; i++) {
                entry a = at(index, i), b = at(&again, i);
                WANT(a.key == b.key && a.place == b.place);
            }
        }
        WANT(sane || (index->kind == KL_TIME_INDEX && at(index, 0).key == 0));
        kl_index_free(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    uint8_t flags = fuzz_u8(&input);
    kl_index_kind kind = flags & 1 ? KL_TIME_INDEX : KL_OFFSET_INDEX;
    int64_t offset_limit = flags & 2 ? fuzz_i64(&input) : INT64_MAX;
    int64_t pos_limit = flags & 4 ? fuzz_i64(&input) : INT64_MAX;
    size_t file_bytes = flags & 8 ? fuzz_u8(&input) * (size_t)4 : input.bytes;
    kl_span file = fuzz_take(&input, file_bytes);
    fuzz_write(kind == KL_TIME_INDEX ? "00000000000000001000.timeindex"
                                     : "00000000000000001000.index",
               file);
    kl_index mapped, copied;
    bool mapped_sane, copied_sane;
    kl_index_init(&mapped, kind, BASE);
    kl_index_init(&copied, kind, BASE);
    kl_dir *dir = fuzz_dir();
    WANT(kl_index_load(&mapped, dir, offset_limit, pos_limit, false, &mapped_sane) ==
         KL_OK);
    WANT(kl_index_load(&copied, dir, offset_limit, pos_limit, true, &copied_sane) == KL_OK);
    WANT(mapped_sane == copied_sane && mapped.count == copied.count);
    check_order(&copied, offset_limit, pos_limit);
    for (size_t i = 0; i < copied.count; i += 1 + copied.count / 8) {
        check_find(&copied, at(&copied, i).key);
        check_find(&mapped, at(&copied, i).key - 1);
    }
    check_find(&copied, INT64_MIN);
    check_find(&copied, INT64_MAX);
    change(&copied, &input);
    check_again(&copied);
    kl_index_free(&mapped);
    kl_index_free(&copied);
    return 0;
}
