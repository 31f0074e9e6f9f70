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

enum { PAGE_BYTES = 4096, BOOT_ID_BYTES = 40, VALUE_COUNT = 8 };
enum { PLACE_BYTES = 80, NAME_BYTES = 160 };
enum { PUBLISH_TRIES = 100000 }; /* some 10 s */
static const uint64_t PAGE_MAGIC = 0x3267706b6c61666bULL;

/* Shared memory.  `sequence` is odd while the values are being written. */
typedef struct {
    uint64_t magic;
    uint64_t device; /* identity: of the partition's folder */
    uint64_t inode;
    int64_t owner_pid;
    uint64_t owner_pids; /* the inode of the namespace that the pid is of */
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
    uint64_t pids; /* the inode of the namespace in which pids mean this; 0: unknown */
    char boot_id[BOOT_ID_BYTES];
} process_identity;

static const process_identity *own_identity(void) {
    static _Thread_local process_identity known;
    int generation = atomic_load(&kl_process_generation) + 1;
    if (known.generation != generation) {
        known = (process_identity){.generation = generation, .pid = getpid()};
        known.start = process_start(known.pid);
        struct stat pids;
        if (kl_io->fstatat(AT_FDCWD, "/proc/self/ns/pid", &pids, 0) == 0)
            known.pids = pids.st_ino;
        read_boot_id(known.boot_id);
    }
    return &known;
}

/* Of another container's process nothing can be said before the next boot. */
static bool owner_lives(const page_layout *layout) {
    if (memcmp(own_identity()->boot_id, layout->boot_id, BOOT_ID_BYTES) != 0) return false;
    if (own_identity()->pids != layout->owner_pids) return true;
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
        if (got != (ssize_t)sizeof head ||
            (head.magic == PAGE_MAGIC && !owner_lives(&head)))
            kl_io->unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

/* The place of a user's pages: its own, and nobody else writes there. */
static bool place_of(uid_t user, char place[PLACE_BYTES]) {
    struct stat found;
    snprintf(place, PLACE_BYTES, MEMORY_FOLDER "/kafkalog-%u", (unsigned)user);
    if (kl_io->fstatat(AT_FDCWD, place, &found, AT_SYMLINK_NOFOLLOW) != 0) return false;
    return S_ISDIR(found.st_mode) && found.st_uid == user && !(found.st_mode & 022);
}

static void name_page(char name[NAME_BYTES], const char place[PLACE_BYTES],
                      const struct stat *folder) {
    snprintf(name, NAME_BYTES, "%.*s/%llx-%llx", PLACE_BYTES, place,
             (unsigned long long)folder->st_dev, (unsigned long long)folder->st_ino);
}

/* Whose page a writer makes: the folder's owner's, which root can give away. */
static uid_t page_owner(const struct stat *folder) {
    return geteuid() == 0 ? folder->st_uid : geteuid();
}

/* Make the place of a user's pages, or see that it is the user's. */
static bool make_place(uid_t owner, const char place[PLACE_BYTES]) {
    char found[PLACE_BYTES];
    bool made = kl_io->mkdirat(AT_FDCWD, place, 0700) == 0;
    if (!made && errno != EEXIST) return false;
    if (made && owner != geteuid() && lchown(place, owner, (gid_t)-1) != 0) return false;
    if (!place_of(owner, found)) return false;
    sweep(place);
    return true;
}

/* The descriptor of a folder's page, made when it is missing; -1: it cannot be had. */
static int open_new_page(uid_t owner, const struct stat *folder, char name[NAME_BYTES]) {
    /* Whose place was looked at last.  What is made below it later is ours by its owner. */
    static _Atomic int64_t known_owner = -1;
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, MEMORY_FOLDER "/kafkalog-%u", (unsigned)owner);
    name_page(name, place, folder);
    if (atomic_load(&known_owner) == (int64_t)owner) {
        int fd = kl_open_at(AT_FDCWD, name, flags, 0600);
        if (fd >= 0 || errno != ENOENT) return fd;
    }
    if (!make_place(owner, place)) return -1;
    atomic_store(&known_owner, (int64_t)owner);
    return kl_open_at(AT_FDCWD, name, flags, 0600);
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
    layout->owner_pids = here->pids;
    layout->owner_start = here->start;
    memcpy(layout->boot_id, here->boot_id, BOOT_ID_BYTES);
    /* A writer that died inside publish left it odd. */
    if (atomic_load(&layout->sequence) & 1) atomic_fetch_add(&layout->sequence, 1);
    layout->magic = PAGE_MAGIC;
}

kl_status kl_statepage_create(const struct stat *folder, kl_statepage **out) {
    *out = NULL;
    char name[NAME_BYTES];
    struct stat file;
    uid_t owner = page_owner(folder);
    int fd = open_new_page(owner, folder, name);
    if (fd < 0) return KL_OK;
    page_layout *layout = NULL;
    /* Blocks first: a store to a page that a full memory file system cannot give kills. */
    bool mine = kl_io->fstat(fd, &file) == 0 &&
                (file.st_uid == owner ||
                 (file.st_uid == geteuid() && fchown(fd, owner, (gid_t)-1) == 0));
    if (mine && kl_io->fallocate(fd, 0, 0, PAGE_BYTES) == 0)
        layout = map_page(fd, PROT_READ | PROT_WRITE);
    kl_io->close(fd);
    kl_statepage *page = page_new(layout, name);
    if (page == NULL) return KL_OK;
    take_over(page, folder);
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

/* The page of `user`; NULL: there is none to be believed. */
static kl_statepage *open_page_of(uid_t user, const struct stat *folder) {
    char place[PLACE_BYTES], name[NAME_BYTES];
    struct stat file;
    if (!place_of(user, place)) return NULL;
    name_page(name, place, folder);
    int fd = kl_open_at(AT_FDCWD, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0) return NULL;
    page_layout *layout = NULL;
    if (kl_io->fstat(fd, &file) == 0 && file.st_uid == user && file.st_size >= PAGE_BYTES)
        layout = map_page(fd, PROT_READ);
    kl_io->close(fd);
    kl_statepage *page = page_new(layout, name);
    if (page == NULL) return NULL;
    if (layout->magic == PAGE_MAGIC && layout->device == (uint64_t)folder->st_dev &&
        layout->inode == (uint64_t)folder->st_ino && atomic_load(&layout->open) &&
        owner_lives(layout))
        return page;
    kl_statepage_close(page, false);
    return NULL;
}

/* /dev/shm is everyone's: only the log's own owner is believed, and who looks itself. */
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
