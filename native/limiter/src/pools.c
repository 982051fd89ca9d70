/* Stream-ordered memory: what counts is what a pool has reserved, not what is in use of it. */
#include "claim.h"

enum { FREE_PLACE, LIVE_POOL, DEAD_POOL };
static const uint64_t STEP = 2u << 20;

static int find_pool(CUmemoryPool pool)
{
    for (int at = 0; at < MAX_POOLS; at++)
        if (__atomic_load_n(&own->pool[at].state, __ATOMIC_ACQUIRE) == LIVE_POOL &&
            own->pool[at].pool == pool)
            return at;
    return NO_POOL;
}

/* A place of its own for the pool; beyond so many, allocations are counted one by one. */
static int add_pool(CUmemoryPool pool, int device)
{
    int at;

    mutex_lock(&own->pool_lock);
    at = find_pool(pool);
    for (int each = 0; each < MAX_POOLS && at == NO_POOL; each++)
        if (own->pool[each].state == FREE_PLACE) {
            own->pool[each] = (struct pool_account){.pool = pool, .device = device};
            __atomic_store_n(&own->pool[each].state, LIVE_POOL, __ATOMIC_RELEASE);
            at = each;
        }
    mutex_unlock(&own->pool_lock);
    return at;
}

/* How much more the pool has reserved than was charged for it. */
static int64_t growth(struct pool_account *account)
{
    uint64_t reserved;

    if (account->device < 0 ||
        helper.cuMemPoolGetAttribute(account->pool, POOL_RESERVED_CURRENT, &reserved) !=
            CUDA_SUCCESS)
        return 0;
    return (int64_t)reserved -
           __atomic_exchange_n(&account->charged, (int64_t)reserved, __ATOMIC_RELAXED);
}

void pools_settle(bool trim)
{
    for (int at = 0; at < MAX_POOLS; at++) {
        struct pool_account *account = &own->pool[at];
        if (__atomic_load_n(&account->state, __ATOMIC_ACQUIRE) != LIVE_POOL || account->device < 0)
            continue;
        if (trim && LOAD(account->charged) > LOAD(account->in_use))
            REAL(cuMemPoolTrimTo)(account->pool, 0);
        account_change(account->device, growth(account));
    }
    STORE(own->pools_settled_ns, now_ns());
}

void pool_return(int pool, int64_t bytes)
{
    struct pool_account *account = &own->pool[pool];

    if (__atomic_sub_fetch(&account->in_use, bytes, __ATOMIC_RELAXED) <= 0 &&
        account->state == DEAD_POOL && account->device >= 0) {
        /* The last allocation of a pool that was destroyed: now its memory is gone. */
        account_change(account->device,
                       -__atomic_exchange_n(&account->charged, 0, __ATOMIC_RELAXED));
        __atomic_store_n(&account->state, FREE_PLACE, __ATOMIC_RELEASE);
    }
}

struct request {
    CUdeviceptr *address;
    size_t bytes;
    CUmemoryPool pool;
    CUstream stream;
    int hook;
};

static CUresult call(const struct request *request)
{
    switch (request->hook) {
    case ID_cuMemAllocAsync:
        return REAL(cuMemAllocAsync)(request->address, request->bytes, request->stream);
    case ID_cuMemAllocAsync_ptsz:
        return REAL(cuMemAllocAsync_ptsz)(request->address, request->bytes, request->stream);
    case ID_cuMemAllocFromPoolAsync:
        return REAL(cuMemAllocFromPoolAsync)(request->address, request->bytes, request->pool,
                                             request->stream);
    default:
        return REAL(cuMemAllocFromPoolAsync_ptsz)(request->address, request->bytes, request->pool,
                                                  request->stream);
    }
}

static bool is_per_thread(const struct request *request)
{
    return request->hook == ID_cuMemAllocAsync_ptsz ||
           request->hook == ID_cuMemAllocFromPoolAsync_ptsz;
}

static bool is_capturing(const struct request *request)
{
    int status = CAPTURE_NONE;
    CUresult result = is_per_thread(request)
                          ? helper.cuStreamIsCapturing_ptsz(request->stream, &status)
                          : helper.cuStreamIsCapturing(request->stream, &status);

    return (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) ||
           status != CAPTURE_NONE;
}

static void remember(const struct request *request, int device, int pool)
{
    struct entry entry = {.key = *request->address, .bytes = request->bytes, .kind = KIND_POINTER,
                          .device = (uint8_t)device, .pool = (uint16_t)pool, .references = 1};

    ADD(own->pool[pool].in_use, (int64_t)request->bytes);
    if (!table_put(&entry))
        ADD(own->pool[pool].in_use, -(int64_t)request->bytes);
}

/* The driver reserved so much that the limit is passed: nothing of it is kept. */
static CUresult undo(const struct request *request, int device, struct pool_account *account)
{
    if (is_per_thread(request))
        REAL(cuMemFreeAsync_ptsz)(*request->address, request->stream);
    else
        REAL(cuMemFreeAsync)(*request->address, request->stream);
    REAL(cuMemPoolTrimTo)(account->pool, (size_t)LOAD(account->in_use));
    account_change(device, growth(account));
    account_refuse(device, request->bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult grow(const struct request *request, int device, int pool)
{
    struct pool_account *account = &own->pool[pool];
    uint64_t asked = round_up(request->bytes, STEP);
    CUresult result = account_ask(device, asked);

    if (result != CUDA_SUCCESS)
        return result;
    result = call(request);
    if (!account_keep(device, asked, growth(account)) && result == CUDA_SUCCESS)
        return undo(request, device, account);
    if (result == CUDA_SUCCESS)
        remember(request, device, pool);
    return result;
}

static CUresult count_alone(const struct request *request, int device)
{
    struct claim claim;
    CUresult result = claim_open(&claim, device, round_up(request->bytes, 512));

    if (result != CUDA_SUCCESS)
        return result;
    result = call(request);
    if (result == CUDA_SUCCESS)
        claim_keep(&claim, KIND_POINTER, *request->address, claim.asked);
    else
        claim_withdraw(&claim);
    return result;
}

static CUresult allocate(struct request request)
{
    int device, pool;

    if (!process_ready() || own->mode == MODE_PASS || is_capturing(&request))
        return call(&request);
    device = device_current();
    if (device == DEVICE_FORBIDDEN)
        return CUDA_ERROR_NOT_PERMITTED;
    if (device == DEVICE_NONE || request.address == NULL)
        return call(&request);
    if (request.pool == NULL &&
        helper.cuDeviceGetMemPool(&request.pool, own->device[device].ordinal) != CUDA_SUCCESS)
        return count_alone(&request, device);
    pool = add_pool(request.pool, device);
    if (pool == NO_POOL)
        return count_alone(&request, device);
    /* A pool in the host's memory is nobody's share of a GPU. */
    if (own->pool[pool].device < 0)
        return call(&request);
    device = own->pool[pool].device;
    if (LOAD(own->pool[pool].in_use) + (int64_t)request.bytes <= LOAD(own->pool[pool].charged)) {
        CUresult result = call(&request);
        if (result == CUDA_SUCCESS)
            remember(&request, device, pool);
        return result;
    }
    return grow(&request, device, pool);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate((struct request){address, bytes, NULL, stream, ID_cuMemAllocAsync});
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate((struct request){address, bytes, NULL, stream, ID_cuMemAllocAsync_ptsz});
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    return allocate((struct request){address, bytes, pool, stream, ID_cuMemAllocFromPoolAsync});
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes,
                                             CUmemoryPool pool, CUstream stream)
{
    return allocate(
        (struct request){address, bytes, pool, stream, ID_cuMemAllocFromPoolAsync_ptsz});
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result;
    int device = DEVICE_NONE;

    if (process_ready() && own->mode == MODE_LIMIT && properties &&
        properties->location.type == LOCATION_DEVICE)
        device = device_of_ordinal(properties->location.id);
    if (device == DEVICE_FORBIDDEN)
        return CUDA_ERROR_NOT_PERMITTED;
    result = REAL(cuMemPoolCreate)(pool, properties);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        add_pool(*pool, device);
    return result;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    int at = process_ready() && own->mode == MODE_LIMIT ? find_pool(pool) : NO_POOL;
    CUresult result = REAL(cuMemPoolDestroy)(pool);

    if (result == CUDA_SUCCESS && at != NO_POOL) {
        struct pool_account *account = &own->pool[at];
        /* What is still in use of it stays charged until it is freed, in whole steps. */
        int64_t left = (int64_t)round_up((uint64_t)LOAD(account->in_use), STEP);
        int64_t before = __atomic_exchange_n(&account->charged, left, __ATOMIC_RELAXED);
        if (account->device >= 0)
            account_change(account->device, left - before);
        __atomic_store_n(&account->state, left > 0 ? DEAD_POOL : FREE_PLACE, __ATOMIC_RELEASE);
    }
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    int at = process_ready() && own->mode == MODE_LIMIT ? find_pool(pool) : NO_POOL;
    CUresult result = REAL(cuMemPoolTrimTo)(pool, keep);

    if (at != NO_POOL && own->pool[at].device >= 0)
        account_change(own->pool[at].device, growth(&own->pool[at]));
    return result;
}
