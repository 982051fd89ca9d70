/* What the library knows in one process. It lies in memory that reads zero in a forked child, so
   a child registers again at its first use; locks lie there too, so none is ever inherited. */
#ifndef SLICEWISE_PROCESS_H
#define SLICEWISE_PROCESS_H

#include <stdbool.h>

#include "cuda_api.h"
#include "files.h"
#include "system.h"

#define EXPORT __attribute__((visibility("default")))

enum { STAGE_NONE, STAGE_WORKING, STAGE_READY };
enum { MODE_PASS, MODE_CLOSED, MODE_LIMIT };
enum {
    MAX_ORDINALS = 64,
    MAX_POOLS = 64,
    MAX_RINGS = 16,
    /* Behind neighbours a short kernel can look wild; with fewer, most of its launches that queue
       meanwhile would be charged for the neighbours and never corrected. */
    RING_PAIRS = 64,
    ESTIMATES = 1024,
    STRIPES = 16,
    FEED_SAMPLES = 20,
};
/* Answers of device_current besides the number of a device in the grant. */
enum { DEVICE_NONE = -1, DEVICE_FORBIDDEN = -2 };

/* What the grant says of one device now; written in parts, each part whole. */
struct device {
    char uuid_text[48];
    uint8_t uuid[16];
    /* The limit; and what requests are held to, the highest number where they are not. */
    int64_t memory, gate;
    uint32_t cores, ceiling, limit, scale;
    int64_t overhead, context, burst_ns;
    /* GPU time this process has taken and not yet used. */
    int64_t lease_ns;
    uint64_t launches;
    uint32_t sms;
    int32_t ordinal;
    uint64_t graph_settled_ns;
    int64_t graph_charged;
} __attribute__((aligned(256)));

struct pool_account {
    CUmemoryPool pool;
    int32_t device;
    uint32_t state;
    int64_t charged, in_use;
};

/* A power of two in size, so that its place is a shift away. */
struct stripe {
    uint32_t lock, count, room;
    struct entry *entries;
} __attribute__((aligned(32)));

struct estimate {
    uint64_t key;
    uint32_t ns, timings, highest_ns, is_wild;
};

struct pair {
    uint32_t state, was_idle;
    CUevent start, end;
    struct estimate *estimate;
    uint64_t key;
    int64_t charged;
    int32_t device;
};

struct ring {
    CUcontext context;
    uint32_t is_off;
    struct pair pair[RING_PAIRS];
};

/* What this process saw when it fed: percent in use, percent charged, processes in use. */
struct feed_window {
    uint64_t at_ns;
    int64_t spent;
    uint32_t count, processes[FEED_SAMPLES];
    double seen[FEED_SAMPLES], charged[FEED_SAMPLES];
};

struct own {
    /* The launch stubs read these two: not zero where launches, and those of graphs, jump on. */
    uint32_t open, graphs_open;
    uint32_t stage, policy_stage, mode;
    /* One device in the grant and one visible: its number plus one. */
    uint32_t single;
    uint32_t flags, devices, mapped, ordinals, fed, slot_taken, verbose, not_wiped, told;
    uint32_t pid;
    /* The limits are gpu-manager's, and the container's processes feed themselves. */
    uint32_t vcuda, feed_lock, sweep_lock;
    uint32_t slot_number, slow_lock, grant_lock, pool_lock, ring_lock, throttles;
    uint64_t grant_sequence, grant_written_ns, pools_settled_ns;
    const char *refusal;
    struct usage *usage;
    struct usage_slot *slot;
    int8_t record[MAX_ORDINALS];
    struct device device[FILE_DEVICES];
    uint64_t free_since_ns[FILE_SLOTS];
    struct stripe stripe[STRIPES];
    struct pool_account pool[MAX_POOLS];
    struct estimate estimate[ESTIMATES];
    struct ring ring[MAX_RINGS];
    struct feed_window window[FILE_DEVICES];
};

_Static_assert(offsetof(struct own, graphs_open) == 4, "the stubs know this place");
extern struct own *own __attribute__((visibility("hidden")));

/* process.c: the first call finds driver, grant and slot; then hooks go by the mode. */
bool process_prepare(void);
static inline bool process_ready(void)
{
    return __atomic_load_n(&own->stage, __ATOMIC_ACQUIRE) == STAGE_READY || process_prepare();
}
/* The grant and the usage without a slot, for those who only want to look. */
void process_policy(void);
/* Matches visible devices to the grant, once the driver is initialised. */
void process_map_devices(void);
/* After every change of a limit: which requests are gated, and whether launches jump on. */
void process_decide(void);
/* The number in the grant of the current context's device, and that its context is noted. */
int device_find(void);
static inline int device_current(void)
{
    const struct own *mine = own;
    uint32_t single = mine->single;

    if (single && (LOAD(mine->slot->contexts) >> (single - 1) & 1))
        return (int)single - 1;
    return device_find();
}
int device_of_ordinal(CUdevice ordinal);

/* grant.c */
enum grant_state { GRANT_ABSENT, GRANT_BAD, GRANT_GOOD };
enum grant_state grant_open(const char *folder);
void grant_refresh(void);
/* The ceiling in force: the guarantee where the agent is silent. */
uint32_t grant_ceiling(const struct device *device);
uint32_t crc32_of(const void *bytes, size_t count);
/* Checks a copy of a grant; NULL if it is good, otherwise the reason. */
const char *grant_check(const struct grant *grant);
void grant_take(const struct grant *grant);

/* standalone.c: limits without a grant, and a lower limit beside one. */
bool standalone_names(void);
void standalone_lower(void);

/* vcuda.c: the layout of gpu-manager's own agent. */
bool vcuda_open(void);
/* Tells gpu-manager's agent of this process, once it has a slot. */
void vcuda_register(void);
/* The host's PIDs of the container's processes, as that agent wrote them. */
size_t vcuda_pids(int32_t *pids, size_t room);

/* feed.c: takes over what was fed last, and feeds when that is due. */
void feed_refresh(void);

/* usage.c */
bool usage_open(const char *path);
bool usage_create(const char *path);
void usage_alone(void);
bool slot_take(void);
void slots_clear_dead(void);
bool gate_lock(uint64_t deadline_ns);
void gate_unlock(void);
bool feed_lock(void);
void feed_unlock(void);

#endif
