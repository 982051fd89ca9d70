/* The usage file: one slot a process, alive as long as its record lock is held. */
#include "process.h"

static const uint64_t UNJUDGED_NS = 500000000u;
static const uint64_t RETRY_NS = 1000000u;

/* Outside the memory that a child finds wiped, so that it can close what it inherited. */
static struct {
    int file;
    uint64_t device, inode;
} kept = {.file = -1};

static void close_inherited(void)
{
    uint64_t device, inode, bytes;

    if (kept.file >= 0 && file_status(kept.file, &device, &inode, &bytes) &&
        device == kept.device && inode == kept.inode)
        file_close(kept.file);
    kept.file = -1;
}

static bool is_usage(const struct usage *usage)
{
    return usage->magic == USAGE_MAGIC && usage->version == FILE_VERSION &&
           usage->size == sizeof *usage && usage->slots == FILE_SLOTS &&
           usage->devices == FILE_DEVICES;
}

static bool adopt(int file, uint64_t bytes)
{
    struct usage *usage = bytes >= sizeof *usage ? file_map(file, sizeof *usage) : NULL;

    if (usage != NULL && is_usage(usage)) {
        own->usage = usage;
        kept.file = file;
        return true;
    }
    if (usage != NULL)
        memory_unmap(usage, sizeof *usage);
    file_close(file);
    return false;
}

bool usage_open(const char *path)
{
    int file;
    uint64_t bytes;

    close_inherited();
    /* The number is raised before any lock: closing a descriptor drops the file's locks. */
    file = file_raise(file_open(path, READ_WRITE, 0));
    if (file < 0)
        return false;
    if (!file_status(file, &kept.device, &kept.inode, &bytes)) {
        file_close(file);
        return false;
    }
    return adopt(file, bytes);
}

static void fill_header(struct usage *usage)
{
    usage->version = FILE_VERSION;
    usage->size = sizeof *usage;
    usage->slots = FILE_SLOTS;
    usage->devices = FILE_DEVICES;
    usage->created_ns = now_ns();
    __atomic_store_n(&usage->magic, USAGE_MAGIC, __ATOMIC_RELEASE);
}

/* A file that nobody made before us; whoever comes first makes it. */
bool usage_create(const char *path)
{
    uint64_t device, inode, bytes;
    uint64_t deadline = now_ns() + 200 * RETRY_NS;
    int file;

    close_inherited();
    file = file_raise(file_open(path, READ_WRITE | CREATE, 0666));
    if (file < 0)
        return false;
    while (!file_lock(file, LOCK_CREATE) && now_ns() < deadline)
        sleep_ns(RETRY_NS);
    if (!file_status(file, &device, &inode, &bytes)) {
        file_close(file);
        return false;
    }
    if (bytes == 0 && file_resize(file, sizeof(struct usage))) {
        struct usage *usage = file_map(file, sizeof *usage);
        if (usage != NULL) {
            fill_header(usage);
            memory_unmap(usage, sizeof *usage);
        }
        bytes = sizeof *usage;
    }
    file_unlock(file, LOCK_CREATE);
    kept.device = device;
    kept.inode = inode;
    return adopt(file, bytes);
}

/* Without a file the limit holds for each process alone. */
void usage_alone(void)
{
    bool wiped;
    struct usage *usage;

    close_inherited();
    usage = memory_map(sizeof *usage, true, &wiped);
    if (usage != NULL)
        fill_header(usage);
    own->usage = usage;
}

/* Called with the slot's lock held, so nobody takes or clears it meanwhile. */
static bool is_dead(uint32_t at)
{
    const struct usage_slot *slot = &own->usage->slot[at];
    uint64_t ticks, now = now_ns();
    char state = process_state(slot->pid, &ticks);

    if (state != 0)
        return state == 'Z' || state == 'X' || ticks != slot->start_ticks;
    if (process_state(process_id(), &ticks) != 0)
        return true;
    /* Where processes cannot be seen, a lock that has been free for long is enough. */
    if (own->free_since_ns[at] == 0)
        own->free_since_ns[at] = now;
    return now - own->free_since_ns[at] > UNJUDGED_NS;
}

static void set_active(uint32_t at, bool is_active)
{
    uint64_t bit = 1ull << at % 64;

    if (is_active)
        __atomic_fetch_or(&own->usage->active[at / 64], bit, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_and(&own->usage->active[at / 64], ~bit, __ATOMIC_SEQ_CST);
}

/* What a killed process waited for and never launched, so that nobody behind it waits for that. */
static void give_back_time(uint32_t at)
{
    uint64_t word = __atomic_exchange_n(&own->usage->pending[at], 0, __ATOMIC_RELAXED);
    uint64_t device = (word >> PENDING_SHIFT) - 1;

    if (word != 0 && device < FILE_DEVICES)
        ADD(own->usage->device[device].credited, (int64_t)(word & ((1ull << PENDING_SHIFT) - 1)));
}

static void clear(uint32_t at)
{
    struct usage_slot *slot = &own->usage->slot[at];

    set_active(at, false);
    give_back_time(at);
    for (int device = 0; device < FILE_DEVICES; device++) {
        STORE(slot->used[device], 0);
        STORE(slot->asking[device], 0);
        STORE(slot->peak[device], 0);
    }
    STORE(slot->contexts, 0);
    STORE(slot->launches, 0);
    STORE(slot->throttled_ns, 0);
    STORE(slot->refused, 0);
    __atomic_store_n(&slot->state, 0, __ATOMIC_SEQ_CST);
    own->free_since_ns[at] = 0;
}

static void fill(uint32_t at)
{
    struct usage_slot *slot = &own->usage->slot[at];
    uint64_t ticks = 0;

    clear(at);
    STORE(slot->pid, process_id());
    process_state(slot->pid, &ticks);
    STORE(slot->start_ticks, ticks);
    STORE(slot->born_ns, now_ns());
    STORE(slot->touched_ns, slot->born_ns);
    __atomic_store_n(&slot->state, 1, __ATOMIC_SEQ_CST);
    set_active(at, true);
    own->slot = slot;
    own->slot_number = at;
}

bool slot_take(void)
{
    if (own->usage == NULL)
        return false;
    if (kept.file < 0) {
        fill(0);
        return true;
    }
    for (uint32_t at = 0; at < FILE_SLOTS; at++) {
        if (!file_lock(kept.file, LOCK_SLOT + at))
            continue;
        if (__atomic_load_n(&own->usage->slot[at].state, __ATOMIC_SEQ_CST) == 0 || is_dead(at)) {
            fill(at);
            return true;
        }
        file_unlock(kept.file, LOCK_SLOT + at);
    }
    for (uint32_t at = 0; at < own->devices; at++)
        ADD(own->usage->device[at].gave_up, 1);
    return false;
}

void slots_clear_dead(void)
{
    if (kept.file < 0)
        return;
    /* Record locks are the process's: two of its threads would both have the same one. */
    mutex_lock(&own->sweep_lock);
    for (uint32_t word = 0; word < FILE_SLOTS / 64; word++)
        for (uint64_t bits = LOAD(own->usage->active[word]); bits; bits &= bits - 1) {
            uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(bits);
            if (at == own->slot_number || !file_lock(kept.file, LOCK_SLOT + at))
                continue;
            if (is_dead(at))
                clear(at);
            file_unlock(kept.file, LOCK_SLOT + at);
        }
    mutex_unlock(&own->sweep_lock);
}

/* Whoever feeds; tried, and never waited for. */
bool feed_lock(void)
{
    return kept.file < 0 || file_lock(kept.file, LOCK_FEED);
}

void feed_unlock(void)
{
    if (kept.file >= 0)
        file_unlock(kept.file, LOCK_FEED);
}

bool gate_lock(uint64_t deadline_ns)
{
    if (kept.file < 0)
        return true;
    while (!file_lock(kept.file, LOCK_GATE)) {
        if (now_ns() >= deadline_ns)
            return false;
        sleep_ns(RETRY_NS);
    }
    return true;
}

void gate_unlock(void)
{
    if (kept.file >= 0)
        file_unlock(kept.file, LOCK_GATE);
}
