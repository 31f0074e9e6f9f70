/* statepage.c: see statepage.h. */
#include "statepage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/io.h"

#define MEMORY_FOLDER "/dev/shm"

enum { PAGE_BYTES = 4096, BOOT_ID_BYTES = 40, NAME_BYTES = 160, VALUE_COUNT = 8 };
enum { PUBLISH_TRIES = 100000 }; /* some 10 s */
static const uint64_t PAGE_MAGIC = 0x3167706b6c61666bULL;

/* Shared memory.  `sequence` is odd while the values are being written. */
typedef struct {
    uint64_t magic;
    uint64_t device; /* identity: of the partition's folder */
    uint64_t inode;
    int64_t owner_pid;
    int64_t owner_start; /* in clock ticks since boot: a pid can be used again */
    char boot_id[BOOT_ID_BYTES];
    _Atomic uint32_t open; /* 1 while a writer keeps it */
    _Atomic uint32_t sequence;
    _Atomic int64_t values[VALUE_COUNT];
} page_layout;
KL_STATIC_ASSERT(sizeof(page_layout) <= PAGE_BYTES, "a page holds it");
KL_STATIC_ASSERT(sizeof(kl_page_values) == VALUE_COUNT * sizeof(int64_t),
                 "the values are copied as a row of numbers");

struct kl_statepage {
    page_layout *layout;
    char name[NAME_BYTES];
    int64_t first_generation;
};

static void read_boot_id(char out[BOOT_ID_BYTES]) {
    memset(out, 0, BOOT_ID_BYTES);
    int fd =
        kl_open_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    ssize_t got = kl_io->pread(fd, out, BOOT_ID_BYTES - 1, 0);
    if (got < 0) memset(out, 0, BOOT_ID_BYTES);
    kl_io->close(fd);
}

/* When a process started, in ticks since boot; -1 when none lives. Field 22 of
 * /proc/PID/stat, counted behind the command's closing bracket. */
static int64_t process_start(int64_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = kl_open_at(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    ssize_t got = kl_io->pread(fd, text, sizeof text - 1, 0);
    kl_io->close(fd);
    if (got <= 0) return -1;
    text[got] = 0;
    char *p = strrchr(text, ')');
    /* Dead, though its parent has not asked for it yet. */
    if (p != NULL && p[1] != 0 && (p[2] == 'Z' || p[2] == 'X')) return -1;
    for (int field = 2; p != NULL && field < 22; field++) p = strchr(p + 1, ' ');
    return p == NULL ? -1 : strtoll(p + 1, NULL, 10);
}

/* Who this process is, as its pages say it: asked once a thread, and once more after a fork. */
typedef struct {
    int generation; /* kl_process_generation, + 1 */
    int64_t pid, start;
    char boot_id[BOOT_ID_BYTES];
} process_identity;

static const process_identity *own_identity(void) {
    static _Thread_local process_identity known;
    int generation = atomic_load(&kl_process_generation) + 1;
    if (known.generation != generation) {
        known = (process_identity){.generation = generation, .pid = getpid()};
        known.start = process_start(known.pid);
        read_boot_id(known.boot_id);
    }
    return &known;
}

static bool owner_lives(const page_layout *layout) {
    if (memcmp(own_identity()->boot_id, layout->boot_id, BOOT_ID_BYTES) != 0) return false;
    return process_start(layout->owner_pid) == layout->owner_start;
}

static page_layout *map_page(int fd, int protection) {
    void *map = kl_io->mmap(NULL, PAGE_BYTES, protection, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Remove pages whose writers are dead: once per process, so that killed ones do not pile
 * up.  A page that is being taken over right now may go too: its readers scan tails then. */
static void sweep(const char *folder) {
    static atomic_flag swept = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&swept)) return;
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        int fd =
            kl_open_at(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
        if (fd < 0) continue;
        page_layout head;
        ssize_t got = kl_io->pread(fd, &head, sizeof head, 0);
        kl_io->close(fd);
        if (got != (ssize_t)sizeof head || head.magic != PAGE_MAGIC || !owner_lives(&head))
            kl_io->unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

static bool name_page(const char *dir_path, char name[NAME_BYTES], struct stat *folder,
                      bool create) {
    if (kl_io->fstatat(AT_FDCWD, dir_path, folder, 0) != 0) return false;
    char parent[NAME_BYTES / 2];
    snprintf(parent, sizeof parent, MEMORY_FOLDER "/kafkalog-%u", (unsigned)folder->st_uid);
    if (create) {
        if (folder->st_uid != geteuid()) return false;
        if (kl_io->mkdirat(AT_FDCWD, parent, 0700) != 0 && errno != EEXIST) return false;
        sweep(parent);
    }
    struct stat place;
    if (kl_io->fstatat(AT_FDCWD, parent, &place, AT_SYMLINK_NOFOLLOW) != 0) return false;
    /* /dev/shm is everyone's: only a folder of the log's own owner is believed. */
    if (!S_ISDIR(place.st_mode) || place.st_uid != folder->st_uid || (place.st_mode & 022))
        return false;
    snprintf(name, NAME_BYTES, "%s/%llx-%llx", parent, (unsigned long long)folder->st_dev,
             (unsigned long long)folder->st_ino);
    return true;
}

static kl_statepage *page_new(page_layout *layout, const char *name) {
    kl_statepage *page = layout ? kl_alloc(sizeof *page) : NULL;
    if (page == NULL) {
        if (layout) kl_io->munmap(layout, PAGE_BYTES);
        return NULL;
    }
    page->layout = layout;
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
    layout->owner_start = here->start;
    memcpy(layout->boot_id, here->boot_id, BOOT_ID_BYTES);
    /* A writer that died inside publish left it odd. */
    if (atomic_load(&layout->sequence) & 1) atomic_fetch_add(&layout->sequence, 1);
    layout->magic = PAGE_MAGIC;
}

kl_status kl_statepage_create(const char *dir_path, kl_statepage **out) {
    *out = NULL;
    char name[NAME_BYTES];
    struct stat folder, file;
    if (!name_page(dir_path, name, &folder, true)) return KL_OK;
    int fd = kl_open_at(AT_FDCWD, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return KL_OK;
    page_layout *layout = NULL;
    /* Blocks first: a store to a page that a full memory file system cannot give kills. */
    if (kl_io->fstat(fd, &file) == 0 && file.st_uid == geteuid() &&
        kl_io->fallocate(fd, 0, 0, PAGE_BYTES) == 0)
        layout = map_page(fd, PROT_READ | PROT_WRITE);
    kl_io->close(fd);
    kl_statepage *page = page_new(layout, name);
    if (page == NULL) return KL_OK;
    take_over(page, &folder);
    *out = page;
    return KL_OK;
}

int64_t kl_statepage_generation(const kl_statepage *page) { return page->first_generation; }

void kl_statepage_publish(kl_statepage *page, const kl_page_values *values) {
    page_layout *layout = page->layout;
    int64_t row[VALUE_COUNT];
    memcpy(row, values, sizeof row);
    uint32_t sequence = atomic_load_explicit(&layout->sequence, memory_order_relaxed);
    atomic_store_explicit(&layout->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < VALUE_COUNT; i++)
        atomic_store_explicit(&layout->values[i], row[i], memory_order_relaxed);
    atomic_store_explicit(&layout->sequence, sequence + 2, memory_order_release);
    if (KL_UNLIKELY(!atomic_load_explicit(&layout->open, memory_order_relaxed)))
        atomic_store_explicit(&layout->open, 1, memory_order_release);
}

kl_status kl_statepage_open(const char *dir_path, kl_statepage **out) {
    *out = NULL;
    char name[NAME_BYTES];
    struct stat folder, file;
    if (!name_page(dir_path, name, &folder, false)) return KL_OK;
    int fd = kl_open_at(AT_FDCWD, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0) return KL_OK;
    page_layout *layout = NULL;
    if (kl_io->fstat(fd, &file) == 0 && file.st_uid == folder.st_uid &&
        file.st_size >= PAGE_BYTES)
        layout = map_page(fd, PROT_READ);
    kl_io->close(fd);
    kl_statepage *page = page_new(layout, name);
    if (page == NULL) return KL_OK;
    if (layout->magic != PAGE_MAGIC || layout->device != (uint64_t)folder.st_dev ||
        layout->inode != (uint64_t)folder.st_ino || !atomic_load(&layout->open) ||
        !owner_lives(layout)) {
        kl_statepage_close(page, false);
        return KL_OK;
    }
    *out = page;
    return KL_OK;
}

bool kl_statepage_lives(const kl_statepage *page) { return owner_lives(page->layout); }

bool kl_statepage_read(const kl_statepage *page, kl_page_values *values) {
    page_layout *layout = page->layout;
    int64_t row[VALUE_COUNT];
    /* A writer that was killed inside publish leaves the sequence odd for ever, one that only
     * waits for its turn may take long: without its page a reader would see half a change. */
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
    kl_io->munmap(page->layout, PAGE_BYTES);
    kl_release(page);
}
