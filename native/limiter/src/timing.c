/* Launches are timed by two events in their own stream, in the launching thread alone.

   The thread's capture mode is relaxed for our calls only, so that they never disturb a capture of
   another thread; an error switches timing off for the context and is never shown. */
#include "pace.h"

enum { PAIR_FREE, PAIR_CLAIMED, PAIR_RECORDED };
static const int64_t LATENCY_NS = 4000, SHORTEST_NS = 1000;

static int relax(void)
{
    int mode = CAPTURE_RELAXED;

    return helper.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : -1;
}

static void restore(int mode)
{
    if (mode >= 0)
        helper.cuThreadExchangeStreamCaptureMode(&mode);
}

static CUcontext current(void)
{
    CUcontext context = NULL;

    return helper.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

static struct ring *find_ring(CUcontext context, bool make)
{
    struct ring *found = NULL;

    for (int at = 0; at < MAX_RINGS; at++)
        if (__atomic_load_n(&own->ring[at].context, __ATOMIC_ACQUIRE) == context)
            return &own->ring[at];
    if (!make)
        return NULL;
    mutex_lock(&own->ring_lock);
    for (int at = 0; at < MAX_RINGS && !found; at++) {
        CUcontext holder = own->ring[at].context;
        if (holder == NULL || holder == context) {
            found = &own->ring[at];
            __atomic_store_n(&found->context, context, __ATOMIC_RELEASE);
        }
    }
    mutex_unlock(&own->ring_lock);
    return found;
}

static void give_up(struct ring *ring, int device)
{
    if (__atomic_exchange_n(&ring->is_off, 1, __ATOMIC_RELAXED) == 0)
        ADD(own->usage->device[device].gave_up, 1);
}

bool timing_is_off(void)
{
    CUcontext context = current();
    struct ring *ring = context ? find_ring(context, false) : NULL;

    return (LOAD(own->flags) & NO_TIMING) || (ring && LOAD(ring->is_off));
}

static struct pair *claim_pair(struct ring *ring)
{
    for (int at = 0; at < RING_PAIRS; at++) {
        uint32_t state = PAIR_FREE;
        if (__atomic_compare_exchange_n(&ring->pair[at].state, &state, PAIR_CLAIMED, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &ring->pair[at];
    }
    return NULL;
}

static void free_pair(struct pair *pair)
{
    __atomic_store_n(&pair->state, PAIR_FREE, __ATOMIC_RELEASE);
}

static CUresult record(CUevent event, const struct launch *launch)
{
    return launch->per_thread ? helper.cuEventRecord_ptsz(event, launch->stream)
                              : helper.cuEventRecord(event, launch->stream);
}

static bool start_pair(struct pair *pair, const struct launch *launch)
{
    CUresult query;

    if ((pair->start == NULL && helper.cuEventCreate(&pair->start, 0) != CUDA_SUCCESS) ||
        (pair->end == NULL && helper.cuEventCreate(&pair->end, 0) != CUDA_SUCCESS) ||
        record(pair->start, launch) != CUDA_SUCCESS)
        return false;
    query = helper.cuEventQuery(pair->start);
    /* Not ready: the stream was busy, and the stamp comes when the launch can start. */
    pair->was_idle = query == CUDA_SUCCESS;
    return query == CUDA_SUCCESS || query == CUDA_ERROR_NOT_READY;
}

struct pair *timing_begin(const struct launch *launch)
{
    bool wanted = !launch->programmatic && !(LOAD(own->flags) & NO_TIMING);
    CUcontext context = wanted ? current() : NULL;
    struct ring *ring = context ? find_ring(context, true) : NULL;
    struct pair *pair = ring && !LOAD(ring->is_off) ? claim_pair(ring) : NULL;
    int mode;
    bool started;

    if (pair == NULL)
        return NULL;
    mode = relax();
    started = start_pair(pair, launch);
    restore(mode);
    if (!started) {
        give_up(ring, launch->device);
        free_pair(pair);
        return NULL;
    }
    pair->estimate = launch->estimate;
    pair->key = launch->key;
    pair->charged = launch->charge;
    pair->device = launch->device;
    return pair;
}

void timing_end(struct pair *pair, const struct launch *launch, CUresult result)
{
    int mode;

    if (result != CUDA_SUCCESS) {
        /* Nothing ran, so nothing is owed. */
        ADD(own->device[launch->device].lease_ns, launch->charge);
        free_pair(pair);
        return;
    }
    mode = relax();
    if (record(pair->end, launch) == CUDA_SUCCESS) {
        __atomic_store_n(&pair->state, PAIR_RECORDED, __ATOMIC_RELEASE);
    } else {
        CUcontext context = current();
        struct ring *ring = context ? find_ring(context, false) : NULL;
        if (ring)
            give_up(ring, launch->device);
        free_pair(pair);
    }
    restore(mode);
}

static void take_in(struct pair *pair)
{
    struct usage_device *account = &own->usage->device[pair->device];
    uint32_t scale = LOAD(own->device[pair->device].scale);
    float milliseconds = 0;
    int64_t ns;

    if (helper.cuEventElapsedTime(&milliseconds, pair->start, pair->end) != CUDA_SUCCESS ||
        !(milliseconds >= 0 && milliseconds < 1e7f))
        return;
    ns = (int64_t)(milliseconds * 1e6f) - (pair->was_idle ? LATENCY_NS : 0);
    ns = ns < SHORTEST_NS ? SHORTEST_NS : ns;
    estimate_update(pair->estimate, pair->key, (uint64_t)ns);
    pace_correct(pair->device, ns * scale / SCALE_ONE - pair->charged);
    ADD(account->timed, 1);
    ADD(account->timed_ns, (uint64_t)ns);
}

void timing_harvest(void)
{
    CUcontext context = current();
    struct ring *ring = context ? find_ring(context, false) : NULL;
    int mode;

    if (ring == NULL || LOAD(ring->is_off))
        return;
    mode = relax();
    for (int at = 0; at < RING_PAIRS; at++) {
        struct pair *pair = &ring->pair[at];
        uint32_t state = PAIR_RECORDED;
        CUresult query;
        if (!__atomic_compare_exchange_n(&pair->state, &state, PAIR_CLAIMED, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        query = helper.cuEventQuery(pair->end);
        if (query == CUDA_ERROR_NOT_READY) {
            __atomic_store_n(&pair->state, PAIR_RECORDED, __ATOMIC_RELEASE);
            continue;
        }
        if (query == CUDA_SUCCESS)
            take_in(pair);
        else
            give_up(ring, pair->device);
        free_pair(pair);
    }
    restore(mode);
}

/* The context's events are gone with it; nothing of them may be touched again. */
void timing_forget(CUcontext context)
{
    struct ring *ring = find_ring(context, false);

    if (ring == NULL)
        return;
    mutex_lock(&own->ring_lock);
    for (int at = 0; at < RING_PAIRS; at++) {
        ring->pair[at].start = ring->pair[at].end = NULL;
        free_pair(&ring->pair[at]);
    }
    ring->is_off = 0;
    __atomic_store_n(&ring->context, NULL, __ATOMIC_RELEASE);
    mutex_unlock(&own->ring_lock);
}
