/* statepage.c: see statepage.h. */
#include "statepage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/io.h"

enum { PAGE_BYTES = 4096, BOOT_ID_BYTES = 40, VALUE_COUNT = 11, ENTRIES_AT = 8 };
enum { PLACE_BYTES = 80, NAME_BYTES = 160 };
enum { PUBLISH_TRIES = 100000 }; /* some 10 s */
enum { TAKE_TRIES = 1000 };      /* some 1 s */
/* The most pages that a process looks at in its sweep, as its first log waits for that. */
enum { SWEEP_MAX = 1000 };
/* After the page: row i has entry i of each index. */
enum {
    ROW_BYTES = OFFSET_ENTRY_BYTES + TIME_ENTRY_BYTES,
    ROWS_MIN = PAGE_BYTES / ROW_BYTES / 2,
    ROWS_MAX = (8 << 20) / ROW_BYTES /* for 1.6 GiB at the default interval */
};
static const uint64_t PAGE_MAGIC = 0x3267706b6c61666bULL;

/* Shared memory.  `sequence` is odd while the values are being written. */
typedef struct {
    uint64_t magic;
    uint64_t device; /* identity of the partition's folder */
    uint64_t inode;
    int64_t owner_pid;
    uint64_t owner_pids; /* inode of the pid namespace */
    int64_t owner_start; /* in clock ticks since boot: pids are reused */
    char boot_id[BOOT_ID_BYTES];
    _Atomic uint32_t open; /* 1 while a writer maintains it */
    _Atomic uint32_t sequence;
    _Atomic int64_t values[VALUE_COUNT];
    _Atomic int64_t changes; /* odd while files change, except by an append */
} page_layout;
KL_STATIC_ASSERT(sizeof(page_layout) <= PAGE_BYTES, "a page holds it");
KL_STATIC_ASSERT(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
                 "other processes read them: a lock of this one would not do");
KL_STATIC_ASSERT(NAME_BYTES > PLACE_BYTES + 2 * (1 + 16), "a name fits");
KL_STATIC_ASSERT(ROWS_MIN > 0, "a page of entries has some");
KL_STATIC_ASSERT(sizeof(kl_page_values) == VALUE_COUNT * sizeof(int64_t),
                 "the values are copied as a row of numbers");
KL_STATIC_ASSERT(offsetof(kl_page_values, offset_entries) == ENTRIES_AT * sizeof(int64_t),
                 "the counts of entries come last");

struct kl_statepage {
    page_layout *layout;
    size_t mapped_bytes;
    uint64_t file; /* the inode of `name` when opened */
    char name[NAME_BYTES];
    int64_t first_generation;
    int64_t entries[VALUE_COUNT - ENTRIES_AT]; /* the writer's counts, */
    bool entries_changed;                      /* not published yet */
    size_t retry_rows;                         /* without space: retry at this many rows */
};

/* This process's identity, as stored in its pages: read once per thread, and again after a fork. */
typedef struct {
    int generation; /* kl_process_generation, + 1 */
    int64_t pid, start;
    uint64_t pids; /* inode of the pid namespace; 0: unknown */
    char boot_id[BOOT_ID_BYTES];
} process_identity;

static const process_identity *own_identity(void) {
    static _Thread_local process_identity known;
    int generation = atomic_load(&kl_process_generation) + 1;
    if (known.generation != generation) {
        known = (process_identity){.generation = generation, .pid = getpid()};
        known.start = kl_system_process_start(known.pid);
        known.pids = kl_system_pid_namespace();
        kl_system_boot_id(known.boot_id, sizeof known.boot_id);
    }
    return &known;
}

/* A process of another container counts as alive until the next boot. */
static bool owner_lives(const page_layout *layout) {
    if (memcmp(own_identity()->boot_id, layout->boot_id, BOOT_ID_BYTES) != 0) return false;
    if (own_identity()->pids != layout->owner_pids) return true;
    return kl_system_process_start(layout->owner_pid) == layout->owner_start;
}

/* Leave space for other pages: without a page, readers see too much. */
static bool has_room(int fd) {
    struct statvfs found;
    return fstatvfs(fd, &found) == 0 && found.f_bavail >= found.f_blocks / 4;
}

/* File size with twice the space for `rows` rows. */
static size_t bytes_for(size_t rows) {
    return PAGE_BYTES + KL_MIN(2 * KL_MAX(rows, ROWS_MIN), ROWS_MAX) * ROW_BYTES;
}

static page_layout *map_file(int fd, int protection, size_t bytes) {
    void *map = kl_io->mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Mark a dead writer's page closed; false: the writer lives, or its page cannot be mapped.  Readers
 * of the page look for the next writer's, which is another file. */
static bool end_page(int fd) {
    page_layout *layout = map_file(fd, PROT_READ | PROT_WRITE, PAGE_BYTES);
    if (layout == NULL) return false;
    bool dead = !owner_lives(layout);
    if (dead) atomic_store(&layout->open, 0);
    kl_io->munmap(layout, PAGE_BYTES);
    return dead;
}

static size_t count_pages(DIR *dir) {
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    rewinddir(dir);
    return count;
}

/* The number of the first page to look at: drawn, so that each is looked at by some process. */
static size_t first_to_sweep(size_t count) {
    size_t drawn = 0;
    if (count <= SWEEP_MAX || !kl_system_random(&drawn, sizeof drawn)) return 0;
    return drawn % count;
}

static void sweep_page(DIR *dir, const char *name) {
    int fd = kl_open_at(dirfd(dir), name, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0) return;
    page_layout head;
    bool ours = flock(fd, LOCK_EX | LOCK_NB) == 0;
    ssize_t got = ours ? kl_io->pread(fd, &head, sizeof head, 0) : 0;
    if (ours && (got != (ssize_t)sizeof head ||
                 (head.magic == PAGE_MAGIC && !owner_lives(&head) && end_page(fd))))
        kl_io->unlinkat(dirfd(dir), name, 0);
    kl_io->close(fd);
}

/* Remove pages of dead writers: once per process, so that killed writers do not accumulate.  A page
 * being taken over is locked. */
static void sweep(const char *folder) {
    static atomic_flag swept = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&swept)) return;
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    size_t count = count_pages(dir), first = first_to_sweep(count), number = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && number < count;) {
        if (entry->d_name[0] == '.') continue;
        /* The first page follows the last one. */
        if ((number++ + count - first) % count < SWEEP_MAX) sweep_page(dir, entry->d_name);
    }
    closedir(dir);
}

/* The folder of a user's pages: owned by the user, writable by no other. */
static bool place_of(uid_t user, char place[PLACE_BYTES]) {
    struct stat found;
    snprintf(place, PLACE_BYTES, "%s/kafkalog-%u", kl_system_memory_folder(),
             (unsigned)user);
    if (kl_io->fstatat(AT_FDCWD, place, &found, AT_SYMLINK_NOFOLLOW) != 0) return false;
    return S_ISDIR(found.st_mode) && found.st_uid == user && !(found.st_mode & 022);
}

static void name_page(char name[NAME_BYTES], const char place[PLACE_BYTES],
                      const struct stat *folder) {
    snprintf(name, NAME_BYTES, "%.*s/%llx-%llx", PLACE_BYTES, place,
             (unsigned long long)folder->st_dev, (unsigned long long)folder->st_ino);
}

/* The owner of a writer's page: the folder's owner, to whom root can give it. */
static uid_t page_owner(const struct stat *folder) {
    return geteuid() == 0 ? folder->st_uid : geteuid();
}

/* Create the folder of a user's pages, or check that the user owns it. */
static bool make_place(uid_t owner, const char place[PLACE_BYTES]) {
    char found[PLACE_BYTES];
    bool made = kl_io->mkdirat(AT_FDCWD, place, 0700) == 0;
    if (!made && errno != EEXIST) return false;
    if (made && owner != geteuid() && lchown(place, owner, (gid_t)-1) != 0) return false;
    if (!place_of(owner, found)) return false;
    sweep(place);
    return true;
}

/* Open or create a folder's page; -1: impossible. */
static int open_new_page(uid_t owner, const struct stat *folder, char name[NAME_BYTES]) {
    /* The owner whose folder was checked last.  Later pages in it are safe by their owner. */
    static _Atomic int64_t known_owner = -1;
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, "%s/kafkalog-%u", kl_system_memory_folder(),
             (unsigned)owner);
    name_page(name, place, folder);
    if (atomic_load(&known_owner) == (int64_t)owner) {
        int fd = kl_open_at(AT_FDCWD, name, flags, 0600);
        if (fd >= 0 || errno != ENOENT) return fd;
    }
    if (!make_place(owner, place)) return -1;
    atomic_store(&known_owner, (int64_t)owner);
    return kl_open_at(AT_FDCWD, name, flags, 0600);
}

static kl_statepage *page_new(page_layout *layout, size_t bytes, const char *name,
                              const struct stat *file) {
    kl_statepage *page = layout ? kl_alloc(sizeof *page) : NULL;
    if (page == NULL) {
        if (layout) kl_io->munmap(layout, bytes);
        return NULL;
    }
    page->layout = layout;
    page->mapped_bytes = bytes;
    page->file = file->st_ino;
    snprintf(page->name, sizeof page->name, "%s", name);
    return page;
}

static void take_over(kl_statepage *page, const struct stat *folder) {
    page_layout *layout = page->layout;
    if (layout->magic == PAGE_MAGIC && layout->device == (uint64_t)folder->st_dev &&
        layout->inode == (uint64_t)folder->st_ino)
        page->first_generation = atomic_load(&layout->values[0]);
    atomic_store(&layout->open, 0);
    layout->device = (uint64_t)folder->st_dev;
    layout->inode = (uint64_t)folder->st_ino;
    const process_identity *here = own_identity();
    layout->owner_pid = here->pid;
    layout->owner_pids = here->pids;
    layout->owner_start = here->start;
    memcpy(layout->boot_id, here->boot_id, BOOT_ID_BYTES);
    /* A writer that died in publish or a change left it odd. */
    if (atomic_load(&layout->sequence) & 1) atomic_fetch_add(&layout->sequence, 1);
    if (atomic_load(&layout->changes) & 1) atomic_fetch_add(&layout->changes, 1);
    layout->magic = PAGE_MAGIC;
}

/* The pid of the living writer of a page, or 0.  `locked`: the caller has the lock; otherwise
 * another process has the page mapped and lives, whatever its pid is in this namespace. */
static long long kept_by(int fd, bool locked) {
    page_layout head;
    if (kl_io->pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head) return 0;
    if (head.magic != PAGE_MAGIC || !atomic_load(&head.open) || !owner_lives(&head))
        return 0;
    bool known = head.owner_pids == own_identity()->pids;
    return known || !locked ? (long long)head.owner_pid : 0;
}

static kl_status refuse(const char *path, long long pid) {
    return kl_fail(KL_E_LOCKED,
                   "%s: process %lld has this log open for writing already: its folder is "
                   "reached by two paths",
                   path, pid);
}

kl_status kl_statepage_check(const char *path, const struct stat *folder) {
    char place[PLACE_BYTES], name[NAME_BYTES];
    if (!place_of(page_owner(folder), place)) return KL_OK;
    name_page(name, place, folder);
    int fd = kl_open_at(AT_FDCWD, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0) return KL_OK;
    long long pid = kept_by(fd, flock(fd, LOCK_EX | LOCK_NB) == 0);
    kl_io->close(fd);
    return pid ? refuse(path, pid) : KL_OK;
}

/* True if a page has its owner, or was just created and not given away yet. */
static bool is_ours(const struct stat *file, uid_t owner) {
    return file->st_uid == owner || file->st_uid == geteuid();
}

/* Open and lock a page that still has its name, so that no sweep removes it; locked until closed
 * and unmapped.  *out -1: impossible.  A sweep may lock it for a moment. */
static kl_status open_locked_page(const char *path, uid_t owner, const struct stat *folder,
                                  char name[NAME_BYTES], struct stat *file, int *out) {
    *out = -1;
    for (int tries = 0; tries < TAKE_TRIES; tries++) {
        struct stat named;
        int fd = open_new_page(owner, folder, name);
        if (fd < 0) return KL_OK;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        bool known = kl_io->fstat(fd, file) == 0;
        if (known && !is_ours(file, owner)) { /* nor is its content */
            kl_io->close(fd);
            return KL_OK;
        }
        long long pid = known && file->st_size > 0 ? kept_by(fd, locked) : 0;
        if (locked && known && !pid &&
            kl_io->fstatat(AT_FDCWD, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            named.st_ino == file->st_ino) {
            *out = fd;
            return KL_OK;
        }
        kl_io->close(fd);
        if (pid) return refuse(path, pid);
        struct timespec nap = {0, 1000000};
        if (!locked) nanosleep(&nap, NULL);
    }
    return KL_OK;
}

kl_status kl_statepage_create(const char *path, const struct stat *folder, size_t rows,
                              kl_statepage **out) {
    *out = NULL;
    char name[NAME_BYTES];
    struct stat file = {0};
    uid_t owner = page_owner(folder);
    int fd = -1;
    kl_status status = open_locked_page(path, owner, folder, name, &file, &fd);
    if (fd < 0) return status;
    page_layout *layout = NULL;
    /* Allocate blocks first: on a full memory file system, a store to a hole raises SIGBUS. */
    bool mine = file.st_uid == owner || fchown(fd, owner, (gid_t)-1) == 0;
    size_t bytes = rows > 0 && has_room(fd) ? bytes_for(rows) : PAGE_BYTES;
    if (mine && kl_io->fallocate(fd, 0, 0, (off_t)bytes) == 0)
        layout = map_file(fd, PROT_READ | PROT_WRITE, bytes);
    kl_statepage *page = page_new(layout, bytes, name, &file);
    if (page) take_over(page, folder);
    kl_io->close(fd);
    *out = page;
    return KL_OK;
}

int64_t kl_statepage_generation(const kl_statepage *page) { return page->first_generation; }

/* ---- entries -------------------------------------------------------------------------- */

static uint8_t *row_at(const kl_statepage *page, size_t i) {
    return (uint8_t *)page->layout + PAGE_BYTES + i * ROW_BYTES;
}

/* Map `rows` rows; a writer extends the file. */
static bool map_rows(kl_statepage *page, size_t rows, bool writer) {
    size_t bytes = PAGE_BYTES + rows * ROW_BYTES;
    if (rows > ROWS_MAX) return false;
    if (bytes <= page->mapped_bytes) return true;
    struct stat file;
    int flags = (writer ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW;
    int fd = kl_open_at(AT_FDCWD, page->name, flags, 0);
    if (fd < 0) return false;
    bool had = kl_io->fstat(fd, &file) == 0 && file.st_ino == page->file;
    if (writer) {
        bytes = bytes_for(rows);
        had = had && has_room(fd) && kl_io->fallocate(fd, 0, 0, (off_t)bytes) == 0;
    } else if (had) {
        had = file.st_size >= (off_t)bytes;
        bytes = KL_MIN((size_t)file.st_size, (size_t)PAGE_BYTES + ROWS_MAX * ROW_BYTES);
    }
    /* The mapping holds a writer's lock: a new mapping would lose it for a moment, and for good if
     * another process locks the page just then. */
    int protection = writer ? PROT_READ | PROT_WRITE : PROT_READ;
    void *layout =
        had ? kl_system_remap(page->layout, page->mapped_bytes, bytes, protection, fd)
            : NULL;
    kl_io->close(fd);
    if (layout == NULL) return false;
    page->layout = layout;
    page->mapped_bytes = bytes;
    return true;
}

/* Copy unpublished index entries to their rows, at `place` in each. */
static void show(kl_statepage *page, kl_index *index, size_t entry_bytes, size_t place) {
    const uint8_t *entries = kl_index_bytes(index).data;
    KL_ASSERT(index->shown <= index->count);
    KL_ASSERT(PAGE_BYTES + index->count * ROW_BYTES <= page->mapped_bytes);
    for (; index->shown < index->count; index->shown++)
        memcpy(row_at(page, index->shown) + place, entries + index->shown * entry_bytes,
               entry_bytes);
}

void kl_statepage_share(kl_statepage *page, kl_index *offsets, kl_index *times) {
    /* Less than an interval is read whole: most small logs need no rows. */
    size_t rows = offsets->count ? KL_MAX(offsets->count, times->count) : 0;
    if (rows == 0) page->retry_rows = 0;
    bool whole = rows >= page->retry_rows && map_rows(page, rows, true);
    if (!whole) page->retry_rows = KL_MAX(page->retry_rows, 2 * rows);
    /* A reader that sees new rows also sees the smaller count. */
    atomic_thread_fence(memory_order_release);
    if (whole && rows) show(page, offsets, OFFSET_ENTRY_BYTES, 0);
    if (whole && rows) show(page, times, TIME_ENTRY_BYTES, OFFSET_ENTRY_BYTES);
    page->entries[0] = (int64_t)offsets->shown;
    page->entries[1] = (int64_t)times->shown;
    page->entries[2] = whole;
    page->entries_changed = true;
}

static void tell_entries(kl_statepage *page) {
    for (int i = ENTRIES_AT; i < VALUE_COUNT; i++)
        atomic_store_explicit(&page->layout->values[i], page->entries[i - ENTRIES_AT],
                              memory_order_relaxed);
    page->entries_changed = false;
}

void kl_statepage_publish(kl_statepage *page, const kl_page_values *values) {
    page_layout *layout = page->layout;
    int64_t row[ENTRIES_AT];
    memcpy(row, values, sizeof row);
    uint32_t sequence = atomic_load_explicit(&layout->sequence, memory_order_relaxed);
    KL_TEST_ASSERT((sequence & 1) == 0); /* no other thread publishes */
    atomic_store_explicit(&layout->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < ENTRIES_AT; i++)
        atomic_store_explicit(&layout->values[i], row[i], memory_order_relaxed);
    if (KL_UNLIKELY(page->entries_changed)) tell_entries(page);
    atomic_store_explicit(&layout->sequence, sequence + 2, memory_order_release);
    if (KL_UNLIKELY(!atomic_load_explicit(&layout->open, memory_order_relaxed)))
        atomic_store_explicit(&layout->open, 1, memory_order_release);
}

void kl_statepage_change(kl_statepage *page, bool under_way) {
    KL_ASSERT((atomic_load(&page->layout->changes) & 1) == !under_way);
    atomic_fetch_add(&page->layout->changes, 1);
    /* On ARM later writes could overtake it: a reader must see the odd number first. */
    if (under_way) atomic_thread_fence(memory_order_release);
}

int64_t kl_statepage_changes(const kl_statepage *page) {
    /* On ARM earlier reads could fall behind it, and show a change that the number does not. */
    atomic_thread_fence(memory_order_acquire);
    int64_t changes = atomic_load(&page->layout->changes);
    return atomic_load(&page->layout->open) && owner_lives(page->layout) ? changes : -1;
}

/* Add entries as an append would; it ignores invalid ones, and then the counts differ. */
static kl_status take_rows(const kl_statepage *page, size_t count, kl_index *index) {
    bool offset = index->kind == KL_OFFSET_INDEX;
    kl_status status = KL_OK;
    for (size_t i = index->count; i < count && !status && index->count == i; i++) {
        const uint8_t *row = row_at(page, i), *entry = row + OFFSET_ENTRY_BYTES;
        status =
            offset ? kl_index_add_offset(index, index->base_offset + (int32_t)kl_get32(row),
                                         (int32_t)kl_get32(row + 4))
                   : kl_index_add_time(index, (int64_t)kl_get64(entry),
                                       index->base_offset + (int32_t)kl_get32(entry + 8));
    }
    return status;
}

kl_status kl_statepage_take(kl_statepage *page, const kl_page_values *values,
                            kl_index *offsets, kl_index *times) {
    size_t offset_count = (size_t)values->offset_entries;
    size_t time_count = (size_t)values->time_entries;
    size_t rows = KL_MAX(offset_count, time_count);
    kl_page_values after;
    if (offset_count <= offsets->count && time_count <= times->count) return KL_OK;
    if (!map_rows(page, rows, false)) return KL_OK;
    kl_status status = take_rows(page, offset_count, offsets);
    if (!status) status = take_rows(page, time_count, times);
    if (status) return status;
    atomic_thread_fence(memory_order_acquire);
    bool same = kl_statepage_read(page, &after) && after.generation == values->generation &&
                after.active_base_offset == values->active_base_offset &&
                offsets->count >= offset_count && times->count >= time_count;
    return same ? KL_OK
                : kl_fail(KL_E_STALE, "%s: the indexes changed while they were taken",
                          page->name);
}

/* The page of `user`, or NULL: no trusted page. */
static kl_statepage *open_page_of(uid_t user, const struct stat *folder) {
    char place[PLACE_BYTES], name[NAME_BYTES];
    struct stat file = {0};
    if (!place_of(user, place)) return NULL;
    name_page(name, place, folder);
    int fd = kl_open_at(AT_FDCWD, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0) return NULL;
    page_layout *layout = NULL;
    if (kl_io->fstat(fd, &file) == 0 && file.st_uid == user && file.st_size >= PAGE_BYTES)
        layout = map_file(fd, PROT_READ, PAGE_BYTES);
    kl_io->close(fd);
    kl_statepage *page = page_new(layout, PAGE_BYTES, name, &file);
    if (page == NULL) return NULL;
    if (layout->magic == PAGE_MAGIC && layout->device == (uint64_t)folder->st_dev &&
        layout->inode == (uint64_t)folder->st_ino && atomic_load(&layout->open) &&
        owner_lives(layout))
        return page;
    kl_statepage_close(page, false);
    return NULL;
}

/* Any user may write to /dev/shm: only pages of the log's owner and of this user are trusted. */
kl_status kl_statepage_open(const char *dir_path, kl_statepage **out) {
    struct stat folder;
    *out = NULL;
    if (kl_io->fstatat(AT_FDCWD, dir_path, &folder, 0) != 0) return KL_OK;
    *out = open_page_of(folder.st_uid, &folder);
    if (*out == NULL && geteuid() != folder.st_uid) *out = open_page_of(geteuid(), &folder);
    return KL_OK;
}

bool kl_statepage_lives(const kl_statepage *page) { return owner_lives(page->layout); }

bool kl_statepage_read(const kl_statepage *page, kl_page_values *values) {
    page_layout *layout = page->layout;
    int64_t row[VALUE_COUNT];
    /* A writer killed inside publish leaves the sequence odd forever; a descheduled one may take
     * long: without its page a reader would see half a change. */
    for (int tries = 0; tries < PUBLISH_TRIES; tries++) {
        uint32_t before = atomic_load_explicit(&layout->sequence, memory_order_acquire);
        if (!atomic_load_explicit(&layout->open, memory_order_acquire)) return false;
        for (int i = 0; i < VALUE_COUNT; i++)
            row[i] = atomic_load_explicit(&layout->values[i], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        uint32_t after = atomic_load_explicit(&layout->sequence, memory_order_relaxed);
        if (before == after && !(before & 1)) {
            memcpy(values, row, sizeof row);
            return true;
        }
        if (tries % 100 == 99 && !owner_lives(layout)) return false;
        struct timespec nap = {0, 50000};
        if (tries > 10) nanosleep(&nap, NULL);
    }
    return false;
}

void kl_statepage_close(kl_statepage *page, bool writer) {
    if (page == NULL) return;
    if (writer) {
        atomic_store(&page->layout->open, 0);
        kl_io->unlinkat(AT_FDCWD, page->name, 0);
    }
    kl_io->munmap(page->layout, page->mapped_bytes);
    kl_release(page);
}
