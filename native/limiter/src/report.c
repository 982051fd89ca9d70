/* What programs are told of memory: their limit as the GPU's size. */
#include "account.h"
#include "driver.h"

enum { NVML_LIBRARY_NOT_FOUND = 12, NVML_FUNCTION_NOT_FOUND = 13, NVML_MEMORY_V2 = 0x02000028 };
static const uint64_t SETTLE_NS = 100000000u;

typedef struct {
    uint64_t total, unused, used;
} nvml_memory;

typedef struct {
    uint32_t version;
    uint64_t total, reserved, unused, used;
} nvml_memory_v2;

static int64_t limit_of(int device)
{
    return device >= 0 ? LOAD(own->device[device].memory) : 0;
}

static size_t least(size_t one, int64_t other)
{
    return other < 0 ? 0 : one < (size_t)other ? one : (size_t)other;
}

/* Pools give memory back when nobody looks; the clock is read only where there are any. */
static void settle_pools(void)
{
    if (now_ns() - LOAD(own->pools_settled_ns) > SETTLE_NS)
        pools_settle(false);
}

/* The device whose limit is shown to the program, or none. */
static inline int shown_device(int64_t *limit)
{
    int device = own->mode == MODE_LIMIT ? device_current() : DEVICE_NONE;

    if (device < 0)
        return DEVICE_NONE;
    *limit = LOAD(own->device[device].memory);
    if (own->pool[0].state)
        settle_pools();
    return *limit ? device : DEVICE_NONE;
}

static inline uint64_t unused_of(int device, int64_t limit)
{
    int64_t left = limit - account_total(device);

    return left < 0 ? 0 : (uint64_t)left;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    CUresult result;
    int64_t limit = 0;
    int device;

    process_ready();
    result = REAL(cuMemGetInfo_v2)(unused, total);
    device = result == CUDA_SUCCESS ? shown_device(&limit) : DEVICE_NONE;
    if (device < 0)
        return result;
    if (total && *total > (size_t)limit)
        *total = (size_t)limit;
    if (unused) {
        uint64_t most = unused_of(device, limit);
        *unused = *unused < most ? *unused : most;
    }
    return result;
}

EXPORT CUresult cuMemGetInfo(unsigned int *unused, unsigned int *total)
{
    CUresult result;
    int64_t limit = 0;
    int device;

    process_ready();
    result = REAL(cuMemGetInfo)(unused, total);
    device = result == CUDA_SUCCESS ? shown_device(&limit) : DEVICE_NONE;
    if (device < 0)
        return result;
    if (total && *total > (uint64_t)limit)
        *total = (unsigned int)limit;
    if (unused) {
        uint64_t most = unused_of(device, limit);
        *unused = *unused < most ? *unused : (unsigned int)most;
    }
    return result;
}

static int64_t device_limit(CUdevice ordinal)
{
    if (!process_ready() || own->mode != MODE_LIMIT)
        return 0;
    return limit_of(device_of_ordinal(ordinal));
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result;
    int64_t limit;

    process_ready();
    result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    limit = result == CUDA_SUCCESS ? device_limit(device) : 0;
    if (limit > 0)
        *bytes = least(*bytes, limit);
    return result;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    CUresult result;
    int64_t limit;

    process_ready();
    result = REAL(cuDeviceTotalMem)(bytes, device);
    limit = result == CUDA_SUCCESS ? device_limit(device) : 0;
    if (limit > 0)
        *bytes = (unsigned int)least(*bytes, limit);
    return result;
}

/* The device of the grant that NVML's handle stands for; a process without CUDA needs no slot. */
static int nvml_device(void *handle)
{
    char uuid[96];

    process_policy();
    if (own->mode != MODE_LIMIT || !(LOAD(own->flags) & SHOW_IN_NVML) || own->usage == NULL ||
        nvml_uuid == NULL || nvml_uuid(handle, uuid, sizeof uuid) != 0)
        return DEVICE_NONE;
    grant_refresh();
    /* Limits that name no device hold for every one, also where CUDA has listed none yet. */
    if (own->devices == 0)
        return limit_of(0) > 0 ? 0 : DEVICE_NONE;
    for (uint32_t at = 0; at < own->devices; at++)
        if (text_compare(uuid, own->device[at].uuid_text) == 0 && limit_of((int)at) > 0)
            return (int)at;
    return DEVICE_NONE;
}

static uint64_t nvml_used(int device)
{
    return least((size_t)limit_of(device), account_total(device));
}

EXPORT int nvmlDeviceGetMemoryInfo(void *handle, nvml_memory *memory)
{
    int result, device;

    if (!nvml_find())
        return NVML_LIBRARY_NOT_FOUND;
    result = REAL(nvmlDeviceGetMemoryInfo)(handle, memory);
    device = result == 0 && memory ? nvml_device(handle) : DEVICE_NONE;
    if (device >= 0) {
        memory->total = (uint64_t)limit_of(device);
        memory->used = nvml_used(device);
        memory->unused = memory->total - memory->used;
    }
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, nvml_memory_v2 *memory)
{
    int result, device;

    if (!nvml_find())
        return NVML_LIBRARY_NOT_FOUND;
    if (real[ID_nvmlDeviceGetMemoryInfo_v2] == NULL)
        return NVML_FUNCTION_NOT_FOUND;
    result = REAL(nvmlDeviceGetMemoryInfo_v2)(handle, memory);
    device = result == 0 && memory && memory->version == NVML_MEMORY_V2 ? nvml_device(handle)
                                                                        : DEVICE_NONE;
    if (device >= 0) {
        memory->total = (uint64_t)limit_of(device);
        memory->reserved = 0;
        memory->used = nvml_used(device);
        memory->unused = memory->total - memory->used;
    }
    return result;
}
