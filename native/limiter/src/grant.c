/* The grant: read whole, checked, and read again when its sequence moved.

   It is read by system calls and not mapped: a file that is damaged or cut while in use leaves the
   last good copy in force, and never ends the program. */
#include "process.h"

static const uint64_t SILENCE_NS = 2000000000u;
static const int64_t DEFAULT_BURST_NS = 20000000;
enum { HEADER_BYTES = 64, TRIES = 3, LOWEST_SCALE = 655, HIGHEST_SCALE = 6553600 };

/* Outside the memory that a child finds wiped, so that it can close what it inherited. */
static struct {
    int file;
    uint64_t device, inode;
} kept = {.file = -1};

uint32_t crc32_of(const void *bytes, size_t count)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *byte = bytes;
    uint32_t crc = 0xffffffffu;

    while (count--) {
        crc ^= *byte++;
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

const char *grant_check(const struct grant *grant)
{
    if (grant->magic != GRANT_MAGIC)
        return "grant: wrong magic";
    if (grant->version != FILE_VERSION || grant->size != sizeof *grant)
        return "grant: unknown version";
    if (grant->sequence & 1)
        return "grant: being written";
    if (crc32_of(grant->device, sizeof *grant - HEADER_BYTES) != grant->crc)
        return "grant: wrong checksum";
    if (grant->devices > FILE_DEVICES)
        return "grant: more than 16 devices";
    return NULL;
}

/* A whole copy whose sequence did not move while it was read; NULL if it is good. */
static const char *read_copy(struct grant *copy)
{
    const char *reason = "grant: shorter than a grant";

    for (int try = 0; try < TRIES; try++) {
        uint64_t sequence;
        if (file_read(kept.file, copy, sizeof *copy, 0) != sizeof *copy ||
            file_read(kept.file, &sequence, sizeof sequence, 16) != sizeof sequence)
            continue;
        reason = sequence == copy->sequence ? grant_check(copy) : "grant: being written";
        if (reason == NULL)
            return NULL;
    }
    return reason;
}

static int64_t signed_bytes(uint64_t bytes)
{
    return bytes > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)bytes;
}

static void take_device(struct device *device, const struct grant_device *from)
{
    uint32_t cores = from->cores > WHOLE_CORES ? WHOLE_CORES : from->cores;
    bool sane = from->scale >= LOWEST_SCALE && from->scale <= HIGHEST_SCALE;

    STORE(device->memory, signed_bytes(from->memory_bytes));
    STORE(device->cores, cores);
    STORE(device->limit, from->limit < cores ? cores : from->limit);
    STORE(device->ceiling, from->ceiling < cores || from->ceiling > WHOLE_CORES ? cores
                                                                                : from->ceiling);
    if (sane || device->scale == 0)
        STORE(device->scale, sane ? from->scale : (uint32_t)SCALE_ONE);
    STORE(device->overhead, signed_bytes(from->overhead_bytes));
    STORE(device->context, signed_bytes(from->context_bytes));
    STORE(device->burst_ns,
          from->burst_ns && from->burst_ns < 1000000000u ? (int64_t)from->burst_ns
                                                         : DEFAULT_BURST_NS);
}

void grant_take(const struct grant *grant)
{
    for (uint32_t at = 0; at < grant->devices; at++) {
        struct device *device = &own->device[at];
        const struct grant_device *from = &grant->device[at];
        if (!own->mapped) {
            copy_bytes(device->uuid_text, from->uuid_text, sizeof device->uuid_text);
            device->uuid_text[sizeof device->uuid_text - 1] = '\0';
            copy_bytes(device->uuid, from->uuid, sizeof device->uuid);
            device->ordinal = -1;
        }
        take_device(device, from);
    }
    /* Devices are never added to a container that runs. */
    if (!own->mapped)
        own->devices = grant->devices;
    STORE(own->flags, grant->flags);
    STORE(own->grant_sequence, grant->sequence);
    STORE(own->grant_written_ns, grant->written_ns);
}

static void close_inherited(void)
{
    uint64_t device, inode, bytes;

    if (kept.file >= 0 && file_status(kept.file, &device, &inode, &bytes) &&
        device == kept.device && inode == kept.inode)
        file_close(kept.file);
    kept.file = -1;
}

enum grant_state grant_open(const char *folder)
{
    static const char name[] = "/grant";
    char path[4096];
    struct grant copy;
    uint64_t bytes;

    close_inherited();
    copy_bytes(path, folder, text_length(folder));
    copy_bytes(path + text_length(folder), name, sizeof name);
    kept.file = file_raise(file_open(path, READ_ONLY, 0));
    own->refusal = "grant: cannot be opened";
    if (kept.file < 0 || !file_status(kept.file, &kept.device, &kept.inode, &bytes))
        return GRANT_ABSENT;
    own->refusal = read_copy(&copy);
    if (own->refusal != NULL)
        return GRANT_BAD;
    grant_take(&copy);
    own->fed = 1;
    return GRANT_GOOD;
}

/* On every slow path; one small read where nothing changed. */
void grant_refresh(void)
{
    uint64_t moved[2];
    struct grant copy;
    uint32_t idle = 0;

    if (!own->fed)
        feed_refresh();
    if (!own->fed || file_read(kept.file, moved, sizeof moved, 16) != sizeof moved)
        return;
    if (moved[0] == LOAD(own->grant_sequence)) {
        STORE(own->grant_written_ns, moved[1]);
        return;
    }
    /* One thread reads; the others go on with what they have. */
    if (!__atomic_compare_exchange_n(&own->grant_lock, &idle, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    if (read_copy(&copy) == NULL) {
        grant_take(&copy);
        standalone_lower();
        process_decide();
    }
    __atomic_store_n(&own->grant_lock, 0, __ATOMIC_RELEASE);
}

uint32_t grant_ceiling(const struct device *device)
{
    uint32_t cores = LOAD(device->cores);
    uint64_t written = LOAD(own->grant_written_ns), now;

    if (!own->fed)
        return LOAD(device->ceiling);
    now = now_ns();
    if (now > written && now - written > SILENCE_NS)
        return cores;
    return LOAD(device->ceiling);
}
