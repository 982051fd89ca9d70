/* Virtual memory: a handle's bytes go back when it has neither references nor mappings. */
#include "claim.h"

static const uint64_t LEAST_STEP = 64u << 10;

static void refer(uint64_t handle, int change)
{
    struct entry after;

    if (table_refer(KIND_HANDLE, handle, change, &after) && after.references == 0)
        account_change(after.device, -(int64_t)after.bytes);
}

EXPORT CUresult cuMemCreate(uint64_t *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags)
{
    struct claim claim = {.device = DEVICE_NONE};
    CUresult result = CUDA_SUCCESS;

    /* By what the program names, never by its current context: it needs none. */
    if (process_ready() && own->mode != MODE_PASS && properties &&
        properties->location.type == LOCATION_DEVICE)
        result = claim_open(&claim,
                            own->slot_taken ? device_of_ordinal(properties->location.id)
                                            : DEVICE_FORBIDDEN,
                            bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS)
        claim_keep(&claim, KIND_HANDLE, *handle, bytes);
    else
        claim_withdraw(&claim);
    return result;
}

EXPORT CUresult cuMemRelease(uint64_t handle)
{
    CUresult result;

    process_ready();
    result = REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        refer(handle, -1);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    CUresult result;

    process_ready();
    result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        refer(*handle, 1);
    return result;
}

EXPORT CUresult cuMemImportFromShareableHandle(uint64_t *handle, void *shared, int type)
{
    CUresult result;

    process_ready();
    result = REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    /* Charged to its creator alone; a handle we know already has one reference more. */
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        refer(*handle, 1);
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, uint64_t handle,
                         unsigned long long flags)
{
    struct entry mapping = {.key = address, .bytes = bytes, .kind = KIND_MAPPING, .pool = 0,
                            .references = 1, .handle = handle};
    CUresult result;

    process_ready();
    result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT && table_put(&mapping))
        refer(handle, 1);
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUresult result;
    struct entry mapping;
    uint64_t at = address;

    process_ready();
    result = REAL(cuMemUnmap)(address, bytes);
    if (result != CUDA_SUCCESS || own->mode != MODE_LIMIT)
        return result;
    /* One call may undo several mappings that lie side by side. */
    while (at < address + bytes)
        if (table_take(KIND_MAPPING, at, &mapping)) {
            refer(mapping.handle, -1);
            at += mapping.bytes ? mapping.bytes : LEAST_STEP;
        } else {
            at += LEAST_STEP;
        }
    return result;
}
