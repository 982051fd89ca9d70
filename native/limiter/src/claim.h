/* One allocation on its way: announced before the driver is called, kept or withdrawn after. */
#ifndef SLICEWISE_CLAIM_H
#define SLICEWISE_CLAIM_H

#include "account.h"
#include "driver.h"

/* Hooks whose real functions are called before or outside their own hook. */
CUresult cuArrayDestroy(CUarray array);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);

struct claim {
    uint64_t asked;
    CUcontext context;
    int device;
};

/* 0 to go on; anything else is the program's answer. A claim without a device goes uncounted. */
static inline CUresult claim_open(struct claim *claim, int device, uint64_t bytes)
{
    CUresult result;

    *claim = (struct claim){.asked = bytes, .device = DEVICE_NONE};
    if (device == DEVICE_NONE)
        return CUDA_SUCCESS;
    if (device == DEVICE_FORBIDDEN)
        return CUDA_ERROR_NOT_PERMITTED;
    result = account_ask(device, bytes);
    if (result == CUDA_SUCCESS)
        claim->device = device;
    return result;
}

/* For memory of the current context. */
static inline CUresult claim_current(struct claim *claim, uint64_t bytes)
{
    CUresult result;

    if (!process_ready() || own->mode == MODE_PASS) {
        *claim = (struct claim){.device = DEVICE_NONE};
        return CUDA_SUCCESS;
    }
    result = claim_open(claim, device_current(), bytes);
    if (result == CUDA_SUCCESS && claim->device >= 0)
        helper.cuCtxGetCurrent(&claim->context);
    return result;
}

/* The driver gave so many bytes under this key; false if that turned out to be too much. */
static inline bool claim_keep(struct claim *claim, enum kind kind, uint64_t key, uint64_t bytes)
{
    struct entry entry = {.key = key, .bytes = bytes, .context = claim->context, .kind = kind,
                          .device = (uint8_t)claim->device, .pool = NO_POOL, .references = 1};

    if (claim->device < 0)
        return true;
    if (!table_put(&entry)) {
        /* No memory to remember it with: it is not counted, for it could never be given back. */
        account_withdraw(claim->device, claim->asked);
        return true;
    }
    return account_keep(claim->device, claim->asked, (int64_t)bytes);
}

static inline void claim_withdraw(const struct claim *claim)
{
    if (claim->device >= 0)
        account_withdraw(claim->device, claim->asked);
}

#endif
