/* The two files a container shares with the agent: what it may use, and what it uses.

   Little-endian, fixed places; the agent reads and writes the same numbers in Python. */
#ifndef SLICEWISE_FILES_H
#define SLICEWISE_FILES_H

#include <stddef.h>
#include <stdint.h>

enum {
    FILE_DEVICES = 16,
    FILE_SLOTS = 256,
    FILE_VERSION = 1,
    /* Record locks lie beyond the end of the usage file: one a slot, then three more. */
    LOCK_SLOT = 1048576,
    LOCK_GATE = LOCK_SLOT + 256,
    LOCK_CREATE = LOCK_SLOT + 257,
    LOCK_FEED = LOCK_SLOT + 258,
    WHOLE_CORES = 10000,
    UNPACED = 9700,
    SCALE_ONE = 65536,
    PENDING_SHIFT = 48,
};

enum grant_flag {
    GATE_MEMORY = 1,
    GATE_COMPUTE = 2,
    FAIL_CLOSED = 4,
    SHOW_IN_NVML = 8,
    COUNT_MANAGED = 16,
    VERBOSE = 32,
    NO_TIMING = 64,
};

#define GRANT_MAGIC 0x31544e4152475753ull /* SWGRANT1 */
#define USAGE_MAGIC 0x3145474153555753ull /* SWUSAGE1 */

struct grant_device {
    char uuid_text[48];
    uint8_t uuid[16];
    uint64_t memory_bytes;
    uint32_t cores, ceiling, limit, scale;
    uint64_t overhead_bytes, context_bytes, gpu_bytes, burst_ns;
    int32_t priority;
    uint32_t weight, measured;
    uint8_t zero[108];
};

struct grant {
    uint64_t magic;
    uint32_t version, size;
    uint64_t sequence, written_ns;
    uint32_t crc, devices, flags;
    uint8_t zero[20];
    struct grant_device device[FILE_DEVICES];
    char pod_uid[48], container[64];
    uint8_t rest[80];
};

struct usage_device {
    int64_t spent, credited;
    uint64_t stamp, throttled_ns, launches, timed, timed_ns, refused, refused_bytes;
    uint64_t last_launch_ns, gave_up;
    uint8_t zero[168];
};

struct usage_slot {
    uint32_t state, pid;
    uint64_t start_ticks, born_ns, touched_ns, launches, throttled_ns, refused, contexts;
    int64_t used[FILE_DEVICES], asking[FILE_DEVICES];
    uint64_t peak[FILE_DEVICES];
};

/* What the container's own processes feed where no agent of ours does; zero otherwise. */
struct usage_feed {
    uint64_t fed_ns;
    uint32_t ceiling, scale;
};

struct usage {
    uint64_t magic;
    uint32_t version, size, slots, devices;
    uint64_t created_ns;
    uint64_t active[4];
    struct usage_feed feed[FILE_DEVICES];
    /* GPU time that a slot's process waits for: nanoseconds, and above them its device plus one. */
    uint64_t pending[FILE_SLOTS];
    uint8_t zero[1728];
    struct usage_device device[FILE_DEVICES];
    struct usage_slot slot[FILE_SLOTS];
};

#define PLACE(type, field, at) \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field)

PLACE(grant, version, 8);
PLACE(grant, size, 12);
PLACE(grant, sequence, 16);
PLACE(grant, written_ns, 24);
PLACE(grant, crc, 32);
PLACE(grant, devices, 36);
PLACE(grant, flags, 40);
PLACE(grant, device, 64);
PLACE(grant, pod_uid, 3904);
PLACE(grant, container, 3952);
PLACE(grant, rest, 4016);
_Static_assert(sizeof(struct grant) == 4096, "grant");
PLACE(grant_device, uuid, 48);
PLACE(grant_device, memory_bytes, 64);
PLACE(grant_device, cores, 72);
PLACE(grant_device, ceiling, 76);
PLACE(grant_device, limit, 80);
PLACE(grant_device, scale, 84);
PLACE(grant_device, overhead_bytes, 88);
PLACE(grant_device, context_bytes, 96);
PLACE(grant_device, gpu_bytes, 104);
PLACE(grant_device, burst_ns, 112);
PLACE(grant_device, priority, 120);
PLACE(grant_device, weight, 124);
PLACE(grant_device, measured, 128);
_Static_assert(sizeof(struct grant_device) == 240, "grant_device");
PLACE(usage, created_ns, 24);
PLACE(usage, active, 32);
PLACE(usage, feed, 64);
PLACE(usage, pending, 320);
PLACE(usage, device, 4096);
PLACE(usage, slot, 8192);
_Static_assert(sizeof(struct usage) == 122880, "usage");
PLACE(usage_device, credited, 8);
PLACE(usage_device, stamp, 16);
PLACE(usage_device, throttled_ns, 24);
PLACE(usage_device, launches, 32);
PLACE(usage_device, timed, 40);
PLACE(usage_device, timed_ns, 48);
PLACE(usage_device, refused, 56);
PLACE(usage_device, refused_bytes, 64);
PLACE(usage_device, last_launch_ns, 72);
PLACE(usage_device, gave_up, 80);
_Static_assert(sizeof(struct usage_device) == 256, "usage_device");
PLACE(usage_slot, start_ticks, 8);
PLACE(usage_slot, born_ns, 16);
PLACE(usage_slot, touched_ns, 24);
PLACE(usage_slot, launches, 32);
PLACE(usage_slot, throttled_ns, 40);
PLACE(usage_slot, refused, 48);
PLACE(usage_slot, contexts, 56);
PLACE(usage_slot, used, 64);
PLACE(usage_slot, asking, 192);
PLACE(usage_slot, peak, 320);
_Static_assert(sizeof(struct usage_slot) == 448, "usage_slot");

#endif
