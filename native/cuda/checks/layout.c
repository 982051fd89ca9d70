/* Prints sizes and places of the driver's structures, as ours or as NVIDIA's header has them.

   Compiled as it is, it takes our header; with -DNVIDIA it takes NVIDIA's cuda.h. */
#include <stddef.h>
#include <stdio.h>

#ifdef NVIDIA
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#else
#include "cuda_api.h"
#endif

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

int main(void)
{
    SIZE(CUlaunchConfig);
    FIELD(CUlaunchConfig, gridDimX);
    FIELD(CUlaunchConfig, blockDimX);
    FIELD(CUlaunchConfig, sharedMemBytes);
    FIELD(CUlaunchConfig, hStream);
    FIELD(CUlaunchConfig, attrs);
    FIELD(CUlaunchConfig, numAttrs);
    SIZE(CUlaunchAttribute);
    FIELD(CUlaunchAttribute, id);
    SIZE(CUmemAllocationProp);
    FIELD(CUmemAllocationProp, type);
    FIELD(CUmemAllocationProp, requestedHandleTypes);
    FIELD(CUmemAllocationProp, location.type);
    FIELD(CUmemAllocationProp, location.id);
    FIELD(CUmemAllocationProp, win32HandleMetaData);
    FIELD(CUmemAllocationProp, allocFlags);
    SIZE(CUmemPoolProps);
    FIELD(CUmemPoolProps, location.type);
    FIELD(CUmemPoolProps, location.id);
    FIELD(CUmemPoolProps, maxSize);
    FIELD(CUmemPoolProps, usage);
    SIZE(CUDA_ARRAY_DESCRIPTOR);
    FIELD(CUDA_ARRAY_DESCRIPTOR, Height);
    FIELD(CUDA_ARRAY_DESCRIPTOR, Format);
    FIELD(CUDA_ARRAY_DESCRIPTOR, NumChannels);
    SIZE(CUDA_ARRAY_DESCRIPTOR_v1);
    SIZE(CUDA_ARRAY3D_DESCRIPTOR);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, Depth);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, Format);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
    FIELD(CUDA_ARRAY3D_DESCRIPTOR, Flags);
    SIZE(CUDA_ARRAY3D_DESCRIPTOR_v1);
    SIZE(CUDA_ARRAY_MEMORY_REQUIREMENTS);
    FIELD(CUDA_ARRAY_MEMORY_REQUIREMENTS, size);
    FIELD(CUDA_ARRAY_MEMORY_REQUIREMENTS, alignment);
    SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps.location.id);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
    FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
    SIZE(CUgraphNodeParams);
    FIELD(CUgraphNodeParams, type);
    FIELD(CUgraphNodeParams, alloc.bytesize);
    SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle);
    FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
    FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags);
    SIZE(CUDA_LAUNCH_PARAMS);
    FIELD(CUDA_LAUNCH_PARAMS, function);
    FIELD(CUDA_LAUNCH_PARAMS, gridDimX);
    FIELD(CUDA_LAUNCH_PARAMS, blockDimX);
    FIELD(CUDA_LAUNCH_PARAMS, sharedMemBytes);
    FIELD(CUDA_LAUNCH_PARAMS, hStream);
    FIELD(CUDA_LAUNCH_PARAMS, kernelParams);
    SIZE(CUuuid);
    return 0;
}
