/* A process adds to its own slot, sums all slots, and takes back what was too much.

   Two that announce at the same time cannot both pass, whatever the order of their steps. */
#include "account.h"

static const uint64_t PATIENCE_NS = 200000000u;
static const uint64_t PAUSE_NS = 1000000u;

uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return bytes > MOST_BYTES ? bytes : (bytes + step - 1) / step * step;
}

uint64_t multiply(uint64_t one, uint64_t other)
{
    uint64_t product;

    return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

static inline int64_t add_word(const struct usage *usage, int word, int device,
                               int64_t *contexts)
{
    int64_t total = 0;

    for (uint64_t bits = __atomic_load_n(&usage->active[word], __ATOMIC_SEQ_CST); bits;
         bits &= bits - 1) {
        const struct usage_slot *slot = &usage->slot[word * 64] + __builtin_ctzll(bits);
        /* The order matters: what moves from `asking` to `used` is in both for a moment. */
        total += __atomic_load_n(&slot->asking[device], __ATOMIC_SEQ_CST);
        total += __atomic_load_n(&slot->used[device], __ATOMIC_SEQ_CST);
        *contexts += (int64_t)(LOAD(slot->contexts) >> device & 1);
    }
    return total;
}

/* Few containers have more processes than one word has bits; they pay for it apart. */
static __attribute__((noinline)) int64_t add_other_words(int device, int64_t *contexts)
{
    int64_t total = 0;

    for (int word = 1; word < FILE_SLOTS / 64; word++)
        total += add_word(own->usage, word, device, contexts);
    return total;
}

static int64_t finish_total(int device, int64_t total, int64_t contexts)
{
    int64_t overhead = LOAD(own->device[device].overhead);

    contexts *= LOAD(own->device[device].context);
    return total + (overhead > contexts ? overhead : contexts);
}

static __attribute__((noinline)) int64_t sum_all(int device)
{
    int64_t contexts = 0, total = add_word(own->usage, 0, device, &contexts);

    total += add_other_words(device, &contexts);
    return finish_total(device, total, contexts);
}

int64_t account_total(int device)
{
    const struct usage *usage = own->usage;
    int64_t contexts = 0, total;

    if (__atomic_load_n(&usage->active[1], __ATOMIC_SEQ_CST) |
        __atomic_load_n(&usage->active[2], __ATOMIC_SEQ_CST) |
        __atomic_load_n(&usage->active[3], __ATOMIC_SEQ_CST))
        return sum_all(device);
    total = add_word(usage, 0, device, &contexts);
    return finish_total(device, total, contexts);
}

void account_refuse(int device, uint64_t bytes)
{
    char wanted[24], had[24];
    const char *const words[] = {
        "slicewise: refused ", text_number(wanted + sizeof wanted, bytes),
        " bytes of GPU memory, the limit is ",
        text_number(had + sizeof had, (uint64_t)LOAD(own->device[device].memory)), NULL};

    ADD(own->usage->device[device].refused, 1);
    STORE(own->usage->device[device].refused_bytes, bytes);
    ADD(own->slot->refused, 1);
    STORE(own->slot->touched_ns, now_ns());
    if (own->verbose)
        write_line(words);
}

static int64_t asked_by_all(int device)
{
    int64_t asking = 0;

    for (int at = 0; at < FILE_SLOTS; at++)
        if (LOAD(own->usage->active[at / 64]) >> at % 64 & 1)
            asking += LOAD(own->usage->slot[at].asking[device]);
    return asking;
}

/* With the lock, one after the other: whoever still does not fit is refused. */
static bool try_slowly(int device, int64_t bytes, uint64_t deadline)
{
    int64_t limit = LOAD(own->device[device].gate);

    for (;;) {
        account_announce(device, bytes);
        if (account_total(device) <= limit)
            return true;
        account_announce(device, -bytes);
        if (account_total(device) - asked_by_all(device) + bytes > limit || now_ns() >= deadline)
            return false;
        sleep_ns(PAUSE_NS);
    }
}

static bool ask_slowly(int device, int64_t bytes)
{
    uint64_t deadline = now_ns() + PATIENCE_NS;
    bool passed, alone = mutex_lock_until(&own->slow_lock, deadline);
    bool locked = alone && gate_lock(deadline);

    grant_refresh();
    if (alone)
        slots_clear_dead();
    pools_settle(true);
    passed = try_slowly(device, bytes, deadline);
    if (locked)
        gate_unlock();
    if (alone)
        mutex_unlock(&own->slow_lock);
    return passed;
}

CUresult account_ask_slowly(int device, uint64_t bytes)
{
    if (bytes <= MOST_BYTES) {
        account_announce(device, -(int64_t)bytes);
        if (ask_slowly(device, (int64_t)bytes))
            return CUDA_SUCCESS;
    } else if (LOAD(own->device[device].gate) == INT64_MAX) {
        return CUDA_SUCCESS;
    }
    account_refuse(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool account_fits(int device, uint64_t bytes)
{
    int64_t gate = LOAD(own->device[device].gate);

    return gate == INT64_MAX ||
           (bytes <= MOST_BYTES && account_total(device) + (int64_t)bytes <= gate);
}
