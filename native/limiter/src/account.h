/* Memory: announce, then check; and what of it belongs to whom. */
#ifndef SLICEWISE_ACCOUNT_H
#define SLICEWISE_ACCOUNT_H

#include "process.h"

/* More than any GPU has; such a request is never added to anything. */
#define MOST_BYTES (1ull << 60)

/* Everything in use: all slots, and what the driver needs besides. */
int64_t account_total(int device);
CUresult account_ask_slowly(int device, uint64_t bytes);

static inline void account_announce(int device, int64_t bytes)
{
    __atomic_fetch_add(&own->slot->asking[device], bytes, __ATOMIC_SEQ_CST);
}

/* Announces the bytes; 0, or the error that the program gets. */
static inline CUresult account_ask(int device, uint64_t bytes)
{
    if (bytes <= MOST_BYTES) {
        account_announce(device, (int64_t)bytes);
        if (account_total(device) <= LOAD(own->device[device].gate))
            return CUDA_SUCCESS;
    }
    return account_ask_slowly(device, bytes);
}

static inline void account_withdraw(int device, uint64_t asked)
{
    if (asked <= MOST_BYTES)
        account_announce(device, -(int64_t)asked);
}

static inline void account_change(int device, int64_t bytes)
{
    struct usage_slot *slot = own->slot;
    int64_t used = __atomic_add_fetch(&slot->used[device], bytes, __ATOMIC_SEQ_CST);

    if (used > (int64_t)LOAD(slot->peak[device]))
        STORE(slot->peak[device], (uint64_t)used);
}

/* What was announced became this much; false if that is over the limit. */
static inline bool account_keep(int device, uint64_t asked, int64_t kept)
{
    /* Counted twice for a moment, never not at all. */
    account_change(device, kept);
    account_withdraw(device, asked);
    return kept <= (int64_t)asked || account_total(device) <= LOAD(own->device[device].gate);
}

/* Whether so many more bytes would be over the limit; nothing is announced. */
bool account_fits(int device, uint64_t bytes);
void account_refuse(int device, uint64_t bytes);
uint64_t round_up(uint64_t bytes, uint64_t step);
uint64_t multiply(uint64_t one, uint64_t other);

/* pools.c: asks every known pool what it has reserved; with `trim`, unused memory goes back. */
void pools_settle(bool trim);
void pool_return(int pool, int64_t bytes);

/* table.c: what was given out, by kind and address or handle. */
enum kind { KIND_POINTER = 1, KIND_HANDLE, KIND_MAPPING, KIND_ARRAY, KIND_MIPMAP, KIND_EXTERNAL };
enum { NO_POOL = 0xffff };

struct entry {
    uint64_t key, bytes;
    /* Of a mapping: the handle that is mapped. */
    union {
        CUcontext context;
        uint64_t handle;
    };
    uint8_t kind, device;
    uint16_t pool;
    uint32_t references;
};
_Static_assert(sizeof(struct entry) == 32, "two to a cache line");

bool table_put(const struct entry *entry);
bool table_take(enum kind kind, uint64_t key, struct entry *entry);
/* Adds to an entry's references; false if there is none. */
bool table_refer(enum kind kind, uint64_t key, int change, struct entry *after);
/* Takes out every entry of the context. */
void table_drop(CUcontext context);

#endif
