/* Linear memory: plain, pitched and managed allocations, and their release. */
#include "claim.h"

enum { GRAIN = 512 };

static CUresult finish(struct claim *claim, CUresult result, uint64_t address, uint64_t bytes)
{
    if (result == CUDA_SUCCESS)
        claim_keep(claim, KIND_POINTER, address, bytes);
    else
        claim_withdraw(claim);
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct claim claim;
    CUresult result = claim_current(&claim, round_up(bytes, GRAIN));

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAlloc_v2)(address, bytes);
    return finish(&claim, result, result == CUDA_SUCCESS ? *address : 0, claim.asked);
}

EXPORT CUresult cuMemAlloc(unsigned int *address, unsigned int bytes)
{
    struct claim claim;
    CUresult result = claim_current(&claim, round_up(bytes, GRAIN));

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAlloc)(address, bytes);
    return finish(&claim, result, result == CUDA_SUCCESS ? *address : 0, claim.asked);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width,
                                   size_t height, unsigned int element)
{
    struct claim claim;
    CUresult result = claim_current(&claim, multiply(round_up(width, GRAIN), height));

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    return finish(&claim, result, result == CUDA_SUCCESS ? *address : 0,
                  result == CUDA_SUCCESS ? multiply(*pitch, height) : 0);
}

EXPORT CUresult cuMemAllocPitch(unsigned int *address, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element)
{
    struct claim claim;
    CUresult result = claim_current(&claim, multiply(round_up(width, GRAIN), height));

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocPitch)(address, pitch, width, height, element);
    return finish(&claim, result, result == CUDA_SUCCESS ? *address : 0,
                  result == CUDA_SUCCESS ? multiply(*pitch, height) : 0);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct claim claim;
    CUresult result;

    if (process_ready() && own->mode == MODE_LIMIT && !(LOAD(own->flags) & COUNT_MANAGED))
        return REAL(cuMemAllocManaged)(address, bytes, flags);
    result = claim_current(&claim, round_up(bytes, GRAIN));
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocManaged)(address, bytes, flags);
    return finish(&claim, result, result == CUDA_SUCCESS ? *address : 0, claim.asked);
}

/* Taken out before the driver may give the address to somebody else. */
static bool take(uint64_t address, struct entry *entry)
{
    return process_ready() && own->mode == MODE_LIMIT &&
           table_take(KIND_POINTER, address, entry);
}

static CUresult settle(CUresult result, bool known, const struct entry *entry)
{
    if (!known)
        return result;
    if (result != CUDA_SUCCESS)
        table_put(entry);
    else if (entry->pool != NO_POOL)
        pool_return(entry->pool, (int64_t)entry->bytes);
    else
        account_change(entry->device, -(int64_t)entry->bytes);
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct entry entry;
    bool known = take(address, &entry);

    return settle(REAL(cuMemFree_v2)(address), known, &entry);
}

EXPORT CUresult cuMemFree(unsigned int address)
{
    struct entry entry;
    bool known = take(address, &entry);

    return settle(REAL(cuMemFree)(address), known, &entry);
}

static bool is_capturing(CUstream stream, bool per_thread)
{
    int status = CAPTURE_NONE;

    return (per_thread ? helper.cuStreamIsCapturing_ptsz
                       : helper.cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
           status != CAPTURE_NONE;
}

/* A free that is captured becomes a node of the graph and frees nothing now. */
static bool take_in_order(uint64_t address, CUstream stream, bool per_thread, struct entry *entry)
{
    return process_ready() && own->mode == MODE_LIMIT && !is_capturing(stream, per_thread) &&
           table_take(KIND_POINTER, address, entry);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    struct entry entry;
    bool known = take_in_order(address, stream, false, &entry);

    return settle(REAL(cuMemFreeAsync)(address, stream), known, &entry);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    struct entry entry;
    bool known = take_in_order(address, stream, true, &entry);

    return settle(REAL(cuMemFreeAsync_ptsz)(address, stream), known, &entry);
}
