/* The real driver: pointers to what is hooked, and to the helpers that are only called. */
#ifndef SLICEWISE_REAL_DRIVER_H
#define SLICEWISE_REAL_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api.h"

enum hook {
#define HOOK(name) ID_##name,
#include "hooks.def"
#undef HOOK
    HOOKS
};

/* Never NULL: what the driver lacks answers with an error. */
extern void *real[HOOKS] __attribute__((visibility("hidden")));
#define REAL(name) ((__typeof__(&name))real[ID_##name])

#define HELPERS(HELPER)                                                                   \
    HELPER(cuDeviceGetCount, (int *))                                                     \
    HELPER(cuDeviceGet, (CUdevice *, int))                                                \
    HELPER(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                      \
    HELPER(cuDeviceGetUuid, (CUuuid *, CUdevice))                                         \
    HELPER(cuDeviceGetAttribute, (int *, int, CUdevice))                                  \
    HELPER(cuCtxGetDevice, (CUdevice *))                                                  \
    HELPER(cuCtxGetCurrent, (CUcontext *))                                                \
    HELPER(cuCtxPushCurrent_v2, (CUcontext))                                              \
    HELPER(cuCtxPopCurrent_v2, (CUcontext *))                                             \
    HELPER(cuDevicePrimaryCtxGetState, (CUdevice, unsigned int *, int *))                 \
    HELPER(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                             \
    HELPER(cuEventCreate, (CUevent *, unsigned int))                                      \
    HELPER(cuEventRecord, (CUevent, CUstream))                                            \
    HELPER(cuEventRecord_ptsz, (CUevent, CUstream))                                       \
    HELPER(cuEventQuery, (CUevent))                                                       \
    HELPER(cuEventElapsedTime, (float *, CUevent, CUevent))                               \
    HELPER(cuStreamIsCapturing, (CUstream, int *))                                        \
    HELPER(cuStreamIsCapturing_ptsz, (CUstream, int *))                                   \
    HELPER(cuStreamGetCtx, (CUstream, CUcontext *))                                       \
    HELPER(cuThreadExchangeStreamCaptureMode, (int *))                                    \
    HELPER(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))                                \
    HELPER(cuMemPoolGetAttribute, (CUmemoryPool, int, void *))                            \
    HELPER(cuArrayGetMemoryRequirements,                                                  \
           (CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUarray, CUdevice))                         \
    HELPER(cuMipmappedArrayGetMemoryRequirements,                                         \
           (CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUmipmappedArray, CUdevice))                \
    HELPER(cuDeviceGetGraphMemAttribute, (CUdevice, int, void *))

struct helpers {
#define HELPER(name, arguments) CUresult(*name) arguments;
    HELPERS(HELPER)
#undef HELPER
};

/* A helper that the driver lacks answers 801. */
extern struct helpers helper __attribute__((visibility("hidden")));

bool driver_find(void);
bool driver_found(void);
bool driver_has(int hook);
/* The number of the hook of this name, or -1. */
int hook_find(const char *name);
void *hook_address(int hook);
/* The hook that stands for an address the driver gave, or that address. */
void *hook_swap(void *address);
/* NVML's functions are found apart, when first called. */
bool nvml_find(void);
/* Layout of one sample of nvmlDeviceGetProcessUtilization. */
typedef struct {
    uint32_t pid;
    uint64_t time_us;
    uint32_t percent, others[3];
} nvml_sample;
/* The samples of a GPU's processes since then; no processes is an answer, a silent NVML is none. */
bool nvml_sampled(const char *uuid, nvml_sample *samples, uint32_t *count, uint64_t since_us);
extern int (*nvml_uuid)(void *, char *, unsigned int) __attribute__((visibility("hidden")));

#endif
