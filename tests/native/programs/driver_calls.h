/* The driver's functions as a program finds them: linked, by dlsym, or by cuGetProcAddress. */
#ifndef DRIVER_CALLS_H
#define DRIVER_CALLS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"

/* CALL(export, base name, version of the form, arguments) */
#define CALLS(CALL)                                                                             \
    CALL(cuInit, cuInit, 2000, (unsigned int))                                                  \
    CALL(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                     \
    CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))     \
    CALL(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (CUdevice))            \
    CALL(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (CUdevice))                \
    CALL(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext *, unsigned int, CUdevice))              \
    CALL(cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext))                                      \
    CALL(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext))                                   \
    CALL(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                      \
    CALL(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *))                             \
    CALL(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *, CUdevice))                     \
    CALL(cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr *, size_t))                              \
    CALL(cuMemAllocPitch_v2, cuMemAllocPitch, 3020,                                             \
         (CUdeviceptr *, size_t *, size_t, size_t, unsigned int))                               \
    CALL(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned int))     \
    CALL(cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr))                                          \
    CALL(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))            \
    CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                               \
         (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                       \
    CALL(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                        \
    CALL(cuMemPoolCreate, cuMemPoolCreate, 11020, (CUmemoryPool *, const CUmemPoolProps *))     \
    CALL(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (CUmemoryPool))                             \
    CALL(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (CUmemoryPool, size_t))                       \
    CALL(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (CUmemoryPool, int, void *))      \
    CALL(cuMemCreate, cuMemCreate, 10020,                                                       \
         (uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long))                 \
    CALL(cuMemRelease, cuMemRelease, 10020, (uint64_t))                                         \
    CALL(cuMemAddressReserve, cuMemAddressReserve, 10020,                                       \
         (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                      \
    CALL(cuMemMap, cuMemMap, 10020,                                                             \
         (CUdeviceptr, size_t, size_t, uint64_t, unsigned long long))                           \
    CALL(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr, size_t))                                  \
    CALL(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (uint64_t *, void *)) \
    CALL(cuArrayCreate_v2, cuArrayCreate, 3020, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))     \
    CALL(cuArray3DCreate_v2, cuArray3DCreate, 3020,                                             \
         (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                                          \
    CALL(cuArrayDestroy, cuArrayDestroy, 2000, (CUarray))                                       \
    CALL(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,                                  \
         (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned int))                   \
    CALL(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (CUmipmappedArray))            \
    CALL(cuImportExternalMemory, cuImportExternalMemory, 10000,                                 \
         (CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *))                        \
    CALL(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (CUexternalMemory))           \
    CALL(cuGraphCreate, cuGraphCreate, 10000, (CUgraph *, unsigned int))                        \
    CALL(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                 \
         (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))   \
    CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,                       \
         (CUgraphExec *, CUgraph, unsigned long long))                                          \
    CALL(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec, CUstream))                          \
    CALL(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec))                          \
    CALL(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))                         \
    CALL(cuGraphGetNodes, cuGraphGetNodes, 10000, (CUgraph, CUgraphNode *, size_t *))           \
    CALL(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *, const void *))                  \
    CALL(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *)) \
    CALL(cuLaunchKernel, cuLaunchKernel, 4000,                                                  \
         (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,     \
          unsigned int, unsigned int, CUstream, void **, void **))                              \
    CALL(cuLaunchKernelEx, cuLaunchKernelEx, 11060,                                             \
         (const CUlaunchConfig *, CUfunction, void **, void **))                                \
    CALL(cuStreamCreate, cuStreamCreate, 2000, (CUstream *, unsigned int))                      \
    CALL(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream))                            \
    CALL(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream, int))                 \
    CALL(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream, CUgraph *))                  \
    CALL(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream, int *))

#define CALL(name, base, version, arguments) static CUresult(*name) arguments;
CALLS(CALL)
#undef CALL

typedef CUresult (*asker)(const char *, void **, int, uint64_t, int *);

static void *find_by_asking(void *handle, const char *base, int version)
{
    asker ask = (asker)dlsym(handle, "cuGetProcAddress_v2");
    void *found = NULL;
    int status;

    if (ask == NULL || ask(base, &found, version, 0, &status) != CUDA_SUCCESS || status != 0)
        return NULL;
    return found;
}

/* How: "dlsym", "next", "default", "ask". */
static void find_calls(const char *how)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    const char *missing = NULL;

    if (handle == NULL) {
        puts("no driver");
        exit(3);
    }
#define CALL(name, base, version, arguments)                                         \
    *(void **)&name = strcmp(how, "ask") == 0    ? find_by_asking(handle, #base, version) \
                      : strcmp(how, "next") == 0 ? dlsym(RTLD_NEXT, #name)                \
                      : strcmp(how, "default") == 0 ? dlsym(RTLD_DEFAULT, #name)          \
                                                 : dlsym(handle, #name);                  \
    missing = name == NULL ? #name : missing;
    CALLS(CALL)
#undef CALL
    if (missing != NULL) {
        printf("no %s\n", missing);
        exit(4);
    }
}

#endif
