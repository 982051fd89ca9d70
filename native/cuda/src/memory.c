/* Linear memory: addresses from a range that is never given out twice, and real copies. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

static const uint64_t MOST_COPIED = 64u << 20;
enum { ALIGNMENT = 512 };

struct allocation {
    CUdeviceptr address;
    uint64_t bytes;
    struct context *context;
    struct pool *pool;
    void *host;
    int gpu;
    bool live;
};

/* In the order of addresses, since these only grow. */
static struct allocation *allocations;
static size_t count, room, dead;

uint64_t memory_round(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

bool memory_take(int gpu, int64_t bytes)
{
    bool taken;

    state_lock(driver.state);
    taken = (bytes <= 0 || limits_allow(gpu, bytes)) &&
            state_take(driver.state, driver.descriptor, driver.tenant, gpu, bytes);
    state_unlock(driver.state);
    return taken;
}

static void compact(void)
{
    size_t kept = 0;

    for (size_t at = 0; at < count; at++)
        if (allocations[at].live)
            allocations[kept++] = allocations[at];
    count = kept;
    dead = 0;
}

/* The allocation that holds the address, or NULL. */
static struct allocation *find(CUdeviceptr address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || !allocations[low - 1].live ||
        address >= allocations[low - 1].address + (allocations[low - 1].bytes | 1))
        return NULL;
    return &allocations[low - 1];
}

CUdeviceptr memory_add(int gpu, uint64_t bytes, struct context *context, struct pool *pool)
{
    CUdeviceptr address;

    driver_lock();
    if (dead > 64 && dead > count / 2)
        compact();
    if (count == room) {
        room = room ? 2 * room : 256;
        allocations = realloc(allocations, room * sizeof *allocations);
    }
    address = driver.next_address;
    driver.next_address += memory_round(bytes + 1, ALIGNMENT);
    allocations[count++] = (struct allocation){address, bytes, context, pool, NULL, gpu, true};
    driver_unlock();
    return address;
}

bool memory_remove(CUdeviceptr address, struct pool **pool, uint64_t *bytes)
{
    struct allocation *found;
    bool plain;

    driver_lock();
    found = find(address);
    if (found == NULL || found->address != address) {
        bool ours = address >= 1ULL << 44 && address < driver.next_address;
        driver_unlock();
        if (ours)
            driver_abort("cuMemFree_v2", "the memory was freed before, or never given out");
        return false;
    }
    found->live = false;
    dead++;
    free(found->host);
    found->host = NULL;
    *pool = found->pool;
    *bytes = found->bytes;
    plain = found->pool == NULL;
    if (plain)
        memory_take(found->gpu, -(int64_t)memory_round(found->bytes, ALIGNMENT));
    driver_unlock();
    return true;
}

void memory_drop_context(struct context *context)
{
    driver_lock();
    for (size_t at = 0; at < count; at++)
        if (allocations[at].live && allocations[at].context == context && !allocations[at].pool) {
            allocations[at].live = false;
            dead++;
            memory_take(allocations[at].gpu,
                        -(int64_t)memory_round(allocations[at].bytes, ALIGNMENT));
        }
    driver_unlock();
}

void *memory_host(CUdeviceptr address, uint64_t bytes)
{
    struct allocation *found;
    void *host = NULL;

    driver_lock();
    found = find(address);
    if (found && found->bytes <= MOST_COPIED && address + bytes <= found->address + found->bytes) {
        if (found->host == NULL)
            found->host = calloc(1, found->bytes ? found->bytes : 1);
        host = (char *)found->host + (address - found->address);
    }
    driver_unlock();
    return host;
}

static CUresult allocate(const char *function, CUdeviceptr *address, uint64_t bytes)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);

    if (result == CUDA_SUCCESS)
        result = capture_forbid(function);
    if (result != CUDA_SUCCESS)
        return result;
    if (address == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_take(context->gpu, (int64_t)memory_round(bytes, ALIGNMENT)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = memory_add(context->gpu, bytes, context, NULL);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    return allocate("cuMemAlloc_v2", address, bytes);
}

/* The old forms have 32 bits for an address: these programs see its lower half. */
static CUdeviceptr narrow[4096];

EXPORT CUresult cuMemAlloc(unsigned int *address, unsigned int bytes)
{
    CUdeviceptr whole;
    CUresult result = allocate("cuMemAlloc", &whole, bytes);

    if (result == CUDA_SUCCESS) {
        *address = (unsigned int)whole;
        narrow[(whole / ALIGNMENT) % 4096] = whole;
    }
    return result;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width,
                                   size_t height, unsigned int element)
{
    (void)element;
    *pitch = memory_round(width, ALIGNMENT);
    return allocate("cuMemAllocPitch_v2", address, *pitch * height);
}

EXPORT CUresult cuMemAllocPitch(unsigned int *address, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element)
{
    (void)element;
    *pitch = (unsigned int)memory_round(width, ALIGNMENT);
    return cuMemAlloc(address, *pitch * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    if (flags != 1 && flags != 2)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate("cuMemAllocManaged", address, bytes);
}

static CUresult release(const char *function, CUdeviceptr address)
{
    struct context *context;
    struct pool *pool = NULL;
    uint64_t bytes = 0;
    CUresult result = driver_enter_context(function, &context);

    if (result == CUDA_SUCCESS)
        result = capture_forbid(function);
    if (result != CUDA_SUCCESS || address == 0)
        return result;
    if (!memory_remove(address, &pool, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL)
        pool_give(pool, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    return release("cuMemFree_v2", address);
}

EXPORT CUresult cuMemFree(unsigned int address)
{
    CUdeviceptr whole = narrow[(address / ALIGNMENT) % 4096];

    return release("cuMemFree", (unsigned int)whole == address ? whole : address);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    struct context *context;
    uint64_t memory;

    ENTER_CONTEXT(cuMemGetInfo_v2, context);
    memory = driver.facts.gpu[context->gpu].memory;
    if (total)
        *total = memory;
    if (unused) {
        state_lock(driver.state);
        *unused = memory - (uint64_t)state_sum(driver.state, context->gpu, true);
        state_unlock(driver.state);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo(unsigned int *unused, unsigned int *total)
{
    size_t wide_unused, wide_total;
    CUresult result = cuMemGetInfo_v2(&wide_unused, &wide_total);

    if (result == CUDA_SUCCESS && unused)
        *unused = wide_unused > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_unused;
    if (result == CUDA_SUCCESS && total)
        *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_total;
    return result;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct allocation *found;

    ENTER(cuMemGetAddressRange_v2);
    driver_lock();
    found = find(address);
    if (found && base)
        *base = found->address;
    if (found && bytes)
        *bytes = found->bytes;
    driver_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    ENTER(cuMemHostAlloc);
    (void)flags;
    *address = aligned_alloc(4096, memory_round(bytes, 4096));
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAllocHost_v2(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER(cuMemFreeHost);
    free(address);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned int flags)
{
    ENTER(cuMemHostGetDevicePointer_v2);
    (void)flags;
    *device = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *host)
{
    ENTER(cuMemHostGetFlags);
    (void)host;
    *flags = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned int flags)
{
    ENTER(cuMemHostRegister_v2);
    (void)host, (void)bytes, (void)flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *host)
{
    ENTER(cuMemHostUnregister);
    (void)host;
    return CUDA_SUCCESS;
}
