/* The part of the driver's interface that the stand-in offers and the limiter hooks.

   Written by hand; checks/layout.c compares sizes and places with NVIDIA's own headers. */
#ifndef SLICEWISE_CUDA_API_H
#define SLICEWISE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct graph *CUgraph;
typedef struct graph_node *CUgraphNode;
typedef struct graph_exec *CUgraphExec;
typedef struct pool *CUmemoryPool;
typedef struct array *CUarray;
typedef struct mipmap *CUmipmappedArray;
typedef struct external *CUexternalMemory;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_UNKNOWN = 999,
};

enum {
    LOCATION_DEVICE = 1,
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED_CURRENT = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED_CURRENT = 7,
    POOL_USED_HIGH = 8,
    GRAPH_USED_CURRENT = 0,
    GRAPH_USED_HIGH = 1,
    GRAPH_RESERVED_CURRENT = 2,
    GRAPH_RESERVED_HIGH = 3,
    CAPTURE_NONE = 0,
    CAPTURE_ACTIVE = 1,
    CAPTURE_INVALIDATED = 2,
    CAPTURE_GLOBAL = 0,
    CAPTURE_THREAD_LOCAL = 1,
    CAPTURE_RELAXED = 2,
    NODE_KERNEL = 0,
    NODE_MEM_ALLOC = 10,
    NODE_MEM_FREE = 11,
    ATTRIBUTE_PROGRAMMATIC = 6,
};

typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    uint32_t id;
    char pad[4];
    char value[64];
} CUlaunchAttribute;

typedef struct {
    uint32_t gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    uint32_t numAttrs;
} CUlaunchConfig;

typedef struct {
    int32_t type, id;
} CUmemLocation;

typedef struct {
    uint32_t type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    uint32_t allocType, handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    size_t Width, Height;
    uint32_t Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    uint32_t Width, Height, Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    size_t Width, Height, Depth;
    uint32_t Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    uint32_t Width, Height, Depth, Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    size_t size, alignment;
    uint32_t reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct {
    CUmemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    uint32_t type;
    int32_t reserved0[3];
    union {
        int64_t reserved1[29];
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    };
    int64_t reserved2;
} CUgraphNodeParams;

typedef struct {
    uint32_t type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
    } handle;
    unsigned long long size;
    uint32_t flags;
    uint32_t reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
    CUfunction function;
    uint32_t gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

#endif
