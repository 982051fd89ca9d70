/* Compute: GPU time is the currency, paid for each launch, credited by the clock. */
#ifndef SLICEWISE_PACE_H
#define SLICEWISE_PACE_H

#include "driver.h"
#include "process.h"

enum {
    LEASE_NS = 1000000,
    UNKNOWN_NS = 50000,
    /* A kernel whose time differs so much, or is so long, is measured every time. */
    WILD_NS = LEASE_NS / 2,
    FEW_TIMINGS = 3,
};

/* One launch on its way. */
struct launch {
    uint64_t key, blocks;
    CUstream stream;
    uint64_t *saved;
    struct estimate *estimate;
    int64_t charge;
    int device, hook;
    bool per_thread, programmatic;
};

/* pace.c: takes GPU time for the charge, and waits until it is the container's turn. */
void pace_pay(int device, int64_t charge);
void pace_correct(int device, int64_t ns);

/* timing.c: starts and ends what is measured; no pair where it cannot be. */
struct pair *timing_begin(const struct launch *launch);
void timing_end(struct pair *pair, const struct launch *launch, CUresult result);
/* Takes in what was measured meanwhile in the current context. */
void timing_harvest(void);
void timing_forget(CUcontext context);
/* Whether timing was given up in the current context. */
bool timing_is_off(void);

/* estimate.c */
struct estimate *estimate_find(uint64_t key);
void estimate_update(struct estimate *estimate, uint64_t key, uint64_t ns);
void estimate_forget(uint64_t key);
/* A kernel is its function and the size of its grid, by the highest bit. */
static inline uint64_t estimate_key(const void *handle, uint64_t blocks)
{
    uint64_t size = 63 - (uint64_t)__builtin_clzll(blocks | 1);

    return ((uint64_t)handle + size) * 0x9e3779b97f4a7c15ull | 1;
}

/* graphs.c: what a graph reserved, after its launch. */
void graph_settle(int device);

#endif
