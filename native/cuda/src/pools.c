/* Stream-ordered memory: a pool reserves whole steps, and gives them back when it is trimmed. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static const uint64_t STEP = 2u << 20;
enum { MAX_POOLS = 256 };

struct pool {
    int gpu;
    bool dead, on_host;
    uint64_t reserved, reserved_high, used, used_high, threshold;
};

static struct pool *pools[MAX_POOLS], *normal[STATE_GPUS], *current[STATE_GPUS];
static int made;

static struct pool *make(int gpu, bool on_host)
{
    struct pool *pool = calloc(1, sizeof *pool);

    pool->gpu = gpu;
    pool->on_host = on_host;
    if (made < MAX_POOLS)
        pools[made++] = pool;
    return pool;
}

static struct pool *current_of(int gpu)
{
    driver_lock();
    if (normal[gpu] == NULL)
        normal[gpu] = make(gpu, false);
    if (current[gpu] == NULL)
        current[gpu] = normal[gpu];
    driver_unlock();
    return current[gpu];
}

static bool resize(struct pool *pool, uint64_t bytes)
{
    if (!pool->on_host && !memory_take(pool->gpu, (int64_t)bytes - (int64_t)pool->reserved))
        return false;
    pool->reserved = bytes;
    if (bytes > pool->reserved_high)
        pool->reserved_high = bytes;
    return true;
}

static void trim(struct pool *pool, uint64_t keep)
{
    uint64_t least = memory_round(pool->used > keep ? pool->used : keep, STEP);

    if (least < pool->reserved)
        resize(pool, least);
}

void pool_give(struct pool *pool, uint64_t bytes)
{
    driver_lock();
    pool->used -= bytes;
    /* A real pool gives memory back at synchronisation; the next one is now. */
    trim(pool, pool->threshold);
    driver_unlock();
}

void pools_release(int gpu)
{
    driver_lock();
    for (int at = 0; at < made; at++)
        if (pools[at]->gpu == gpu && !pools[at]->on_host) {
            pools[at]->used = 0;
            trim(pools[at], 0);
        }
    driver_unlock();
}

static CUresult allocate(const char *function, CUdeviceptr *address, size_t bytes,
                         struct pool *pool, CUstream stream)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);
    uint64_t needed;

    if (result != CUDA_SUCCESS)
        return result;
    stream_check(function, stream);
    if (bytes == 0 || address == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream_captures(stream)) {
        graph_add_memory(stream_graph(stream), bytes, address);
        return CUDA_SUCCESS;
    }
    pool = pool ? pool : current_of(context->gpu);
    if (pool->dead)
        driver_abort(function, "the pool was destroyed");
    driver_lock();
    needed = memory_round(pool->used + bytes, STEP);
    if (needed > pool->reserved && !resize(pool, needed)) {
        driver_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    driver_unlock();
    *address = memory_add(pool->gpu, bytes, context, pool);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate("cuMemAllocAsync", address, bytes, NULL, stream);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate("cuMemAllocAsync_ptsz", address, bytes, NULL, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    return allocate("cuMemAllocFromPoolAsync", address, bytes, pool, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes,
                                             CUmemoryPool pool, CUstream stream)
{
    return allocate("cuMemAllocFromPoolAsync_ptsz", address, bytes, pool, stream);
}

static CUresult release(const char *function, CUdeviceptr address, CUstream stream)
{
    struct context *context;
    struct pool *pool = NULL;
    uint64_t bytes = 0;
    CUresult result = driver_enter_context(function, &context);

    if (result != CUDA_SUCCESS || stream_captures(stream))
        return result;
    stream_check(function, stream);
    if (!memory_remove(address, &pool, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL)
        pool_give(pool, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return release("cuMemFreeAsync", address, stream);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return release("cuMemFreeAsync_ptsz", address, stream);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    ENTER(cuMemPoolCreate);
    if (properties->location.type == LOCATION_DEVICE &&
        (properties->location.id < 0 || properties->location.id >= (int)driver.facts.gpus))
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    *pool = make(properties->location.type == LOCATION_DEVICE ? properties->location.id : 0,
                 properties->location.type != LOCATION_DEVICE);
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER(cuMemPoolDestroy);
    if (pool->dead)
        driver_abort("cuMemPoolDestroy", "the pool was destroyed before");
    driver_lock();
    trim(pool, 0);
    pool->dead = true;
    pool->threshold = 0;
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    ENTER(cuMemPoolTrimTo);
    driver_lock();
    trim(pool, keep);
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    uint64_t number = 0;

    ENTER(cuMemPoolGetAttribute);
    driver_lock();
    switch (attribute) {
    case POOL_RELEASE_THRESHOLD: number = pool->threshold; break;
    case POOL_RESERVED_CURRENT: number = pool->reserved; break;
    case POOL_RESERVED_HIGH: number = pool->reserved_high; break;
    case POOL_USED_CURRENT: number = pool->used; break;
    case POOL_USED_HIGH: number = pool->used_high; break;
    default:
        /* The attributes below the threshold are switches. */
        driver_unlock();
        *(int *)value = 1;
        return CUDA_SUCCESS;
    }
    driver_unlock();
    memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    ENTER(cuMemPoolSetAttribute);
    if (attribute == POOL_RELEASE_THRESHOLD)
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void *access, size_t count)
{
    ENTER(cuMemPoolSetAccess);
    (void)pool, (void)access, (void)count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    ENTER(cuDeviceGetMemPool);
    if (device < 0 || device >= (int)driver.facts.gpus)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = current_of(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    ENTER(cuDeviceGetDefaultMemPool);
    if (device < 0 || device >= (int)driver.facts.gpus)
        return CUDA_ERROR_INVALID_DEVICE;
    current_of(device);
    *pool = normal[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    ENTER(cuDeviceSetMemPool);
    if (device < 0 || device >= (int)driver.facts.gpus)
        return CUDA_ERROR_INVALID_DEVICE;
    current_of(device);
    current[device] = pool;
    return CUDA_SUCCESS;
}
