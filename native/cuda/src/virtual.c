/* Virtual memory: handles that are created, mapped, unmapped and released apart. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static const uint64_t STEP = 2u << 20;

struct handle {
    uint64_t bytes;
    int references, gpu;
    bool on_device;
    CUmemAllocationProp properties;
};

struct mapping {
    CUdeviceptr address;
    uint64_t bytes;
    struct handle *handle;
};

static struct mapping *mappings;
static size_t count, room;

/* A handle's memory goes with its last reference; a mapping is one. */
static void drop(struct handle *handle)
{
    if (--handle->references > 0)
        return;
    if (handle->on_device)
        memory_take(handle->gpu, -(int64_t)handle->bytes);
    /* The handle stays, so that its use afterwards is seen. */
}

static struct handle *check(const char *function, uint64_t value)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;

    if (handle->references <= 0)
        driver_abort(function, "the handle was released before");
    return handle;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                              int option)
{
    ENTER(cuMemGetAllocationGranularity);
    (void)properties, (void)option;
    *bytes = STEP;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(uint64_t *handle, size_t bytes, const CUmemAllocationProp *properties,
                            unsigned long long flags)
{
    struct handle *made;
    bool on_device = properties->location.type == LOCATION_DEVICE;

    ENTER(cuMemCreate);
    if (bytes == 0 || bytes % STEP != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (on_device && (properties->location.id < 0 ||
                      properties->location.id >= (int)driver.facts.gpus))
        return CUDA_ERROR_INVALID_DEVICE;
    if (on_device && !memory_take(properties->location.id, (int64_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    made = calloc(1, sizeof *made);
    made->bytes = bytes;
    made->references = 1;
    made->gpu = properties->location.id;
    made->on_device = on_device;
    made->properties = *properties;
    *handle = (uint64_t)(uintptr_t)made;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(uint64_t handle)
{
    ENTER(cuMemRelease);
    driver_lock();
    drop(check("cuMemRelease", handle));
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                    CUdeviceptr wish, unsigned long long flags)
{
    ENTER(cuMemAddressReserve);
    (void)alignment, (void)wish, (void)flags;
    driver_lock();
    driver.next_address = memory_round(driver.next_address, STEP);
    *address = driver.next_address;
    driver.next_address += memory_round(bytes, STEP);
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    ENTER(cuMemAddressFree);
    (void)address, (void)bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, uint64_t handle,
                         unsigned long long flags)
{
    ENTER(cuMemMap);
    (void)offset, (void)flags;
    driver_lock();
    if (count == room) {
        room = room ? 2 * room : 64;
        mappings = realloc(mappings, room * sizeof *mappings);
    }
    mappings[count++] = (struct mapping){address, bytes, check("cuMemMap", handle)};
    check("cuMemMap", handle)->references++;
    driver_unlock();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    size_t found = 0;

    ENTER(cuMemUnmap);
    driver_lock();
    for (size_t at = 0; at < count;)
        if (mappings[at].address >= address &&
            mappings[at].address + mappings[at].bytes <= address + bytes) {
            drop(mappings[at].handle);
            mappings[at] = mappings[--count];
            found++;
        } else {
            at++;
        }
    driver_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const void *access, size_t many)
{
    ENTER(cuMemSetAccess);
    (void)address, (void)bytes, (void)access, (void)many;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    CUdeviceptr at_address = (CUdeviceptr)(uintptr_t)address;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    ENTER(cuMemRetainAllocationHandle);
    driver_lock();
    for (size_t at = 0; at < count && result != CUDA_SUCCESS; at++)
        if (at_address >= mappings[at].address &&
            at_address < mappings[at].address + mappings[at].bytes) {
            mappings[at].handle->references++;
            *handle = (uint64_t)(uintptr_t)mappings[at].handle;
            result = CUDA_SUCCESS;
        }
    driver_unlock();
    return result;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                       uint64_t handle)
{
    ENTER(cuMemGetAllocationPropertiesFromHandle);
    *properties = check("cuMemGetAllocationPropertiesFromHandle", handle)->properties;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shared, uint64_t handle, int type,
                                             unsigned long long flags)
{
    ENTER(cuMemExportToShareableHandle);
    (void)type, (void)flags;
    memcpy(shared, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

/* What is imported is the creator's memory under another handle. */
EXPORT CUresult cuMemImportFromShareableHandle(uint64_t *handle, void *shared, int type)
{
    struct handle *made;

    ENTER(cuMemImportFromShareableHandle);
    (void)shared, (void)type;
    made = calloc(1, sizeof *made);
    made->references = 1;
    *handle = (uint64_t)(uintptr_t)made;
    return CUDA_SUCCESS;
}
