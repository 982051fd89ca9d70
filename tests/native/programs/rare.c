/* Calls the old, the per-thread and the rare forms of hooked functions once, and what undoes them.

   Prints a line for each call that did not answer 0; `over` asks for more than the limit. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_api.h"

static void *driver;
static int failures;

#define FUNCTION(name, ...) ((CUresult (*)(__VA_ARGS__))dlsym(driver, #name))
#define EXPECT(wanted, name, ...)                                                                  \
    do {                                                                                           \
        CUresult answer_ = __VA_ARGS__;                                                            \
        if (answer_ != (wanted)) {                                                                 \
            printf("%s gave %d, not %d\n", name, answer_, (wanted));                               \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

typedef unsigned int u32;
typedef CUresult (*launcher)(CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, void **,
                             void **);

static void launch_everything(CUfunction f, CUgraphExec exec)
{
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1};
    CUlaunchAttribute attribute = {.id = ATTRIBUTE_PROGRAMMATIC};
    CUDA_LAUNCH_PARAMS list[2] = {{f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL},
                                  {f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL}};
    static const char *const plain[] = {"cuLaunchKernel", "cuLaunchKernel_ptsz",
                                        "cuLaunchCooperativeKernel",
                                        "cuLaunchCooperativeKernel_ptsz"};

    for (int at = 0; at < 4; at++)
        EXPECT(0, plain[at],
               ((launcher)dlsym(driver, plain[at]))(f, 2, 3, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    /* The stack arguments arrive as they were given: a grid or block of nothing is refused. */
    EXPECT(1, plain[0],
           ((launcher)dlsym(driver, plain[0]))(f, 2, 3, 1, 32, 1, 0, 0, NULL, NULL, NULL));
    EXPECT(0, "cuLaunchKernelEx",
           FUNCTION(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **,
                    void **)(&config, f, NULL, NULL));
    config.attrs = &attribute;
    config.numAttrs = 1;
    EXPECT(0, "cuLaunchKernelEx_ptsz",
           FUNCTION(cuLaunchKernelEx_ptsz, const CUlaunchConfig *, CUfunction, void **,
                    void **)(&config, f, NULL, NULL));
    EXPECT(0, "cuLaunch", FUNCTION(cuLaunch, CUfunction)(f));
    EXPECT(0, "cuLaunchGrid", FUNCTION(cuLaunchGrid, CUfunction, int, int)(f, 2, 2));
    EXPECT(0, "cuLaunchGridAsync",
           FUNCTION(cuLaunchGridAsync, CUfunction, int, int, CUstream)(f, 2, 2, NULL));
    EXPECT(
        0, "cuLaunchCooperativeKernelMultiDevice",
        FUNCTION(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS *, u32, u32)(list, 2, 0));
    EXPECT(0, "cuGraphLaunch", FUNCTION(cuGraphLaunch, CUgraphExec, CUstream)(exec, NULL));
    EXPECT(0, "cuGraphLaunch_ptsz",
           FUNCTION(cuGraphLaunch_ptsz, CUgraphExec, CUstream)(exec, NULL));
}

static void use_old_memory(void)
{
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {1000, 10, 0x20, 4};
    CUDA_ARRAY3D_DESCRIPTOR_v1 deep = {100, 10, 3, 0x01, 1, 0};
    u32 address, pitch, unused, total;
    CUarray array;

    EXPECT(0, "cuMemAlloc", FUNCTION(cuMemAlloc, u32 *, u32)(&address, 1 << 20));
    EXPECT(0, "cuMemGetInfo", FUNCTION(cuMemGetInfo, u32 *, u32 *)(&unused, &total));
    EXPECT(0, "cuMemFree", FUNCTION(cuMemFree, u32)(address));
    EXPECT(0, "cuMemAllocPitch",
           FUNCTION(cuMemAllocPitch, u32 *, u32 *, u32, u32, u32)(&address, &pitch, 700, 100, 4));
    EXPECT(0, "cuMemFree", FUNCTION(cuMemFree, u32)(address));
    EXPECT(0, "cuDeviceTotalMem", FUNCTION(cuDeviceTotalMem, u32 *, CUdevice)(&total, 0));
    EXPECT(0, "cuArrayCreate",
           FUNCTION(cuArrayCreate, CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *)(&array, &flat));
    EXPECT(0, "cuArrayDestroy", FUNCTION(cuArrayDestroy, CUarray)(array));
    EXPECT(0, "cuArray3DCreate",
           FUNCTION(cuArray3DCreate, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *)(&array, &deep));
    EXPECT(0, "cuArrayDestroy", FUNCTION(cuArrayDestroy, CUarray)(array));
}

static void use_rare_memory(int over)
{
    CUmemAllocationProp prop = {.type = 1, .location = {LOCATION_DEVICE, 0}};
    CUmemPoolProps props = {.allocType = 1, .location = {LOCATION_DEVICE, 0}};
    CUdeviceptr address;
    CUmemoryPool pool;
    uint64_t handle, again, shared;

    EXPECT(
        0, "cuMemAllocAsync_ptsz",
        FUNCTION(cuMemAllocAsync_ptsz, CUdeviceptr *, size_t, CUstream)(&address, 1 << 20, NULL));
    EXPECT(0, "cuMemFreeAsync_ptsz",
           FUNCTION(cuMemFreeAsync_ptsz, CUdeviceptr, CUstream)(address, NULL));
    EXPECT(0, "cuMemPoolCreate",
           FUNCTION(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &props));
    EXPECT(0, "cuMemAllocFromPoolAsync_ptsz",
           FUNCTION(cuMemAllocFromPoolAsync_ptsz, CUdeviceptr *, size_t, CUmemoryPool,
                    CUstream)(&address, 1 << 20, pool, NULL));
    EXPECT(0, "cuMemPoolDestroy", FUNCTION(cuMemPoolDestroy, CUmemoryPool)(pool));
    EXPECT(0, "cuMemFree_v2", FUNCTION(cuMemFree_v2, CUdeviceptr)(address));
    EXPECT(0, "cuMemCreate",
           FUNCTION(cuMemCreate, uint64_t *, size_t, const CUmemAllocationProp *,
                    unsigned long long)(&handle, 4 << 20, &prop, 0));
    EXPECT(0, "cuMemAddressReserve",
           FUNCTION(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
                    unsigned long long)(&address, 4 << 20, 0, 0, 0));
    EXPECT(0, "cuMemMap",
           FUNCTION(cuMemMap, CUdeviceptr, size_t, size_t, uint64_t,
                    unsigned long long)(address, 2 << 20, 0, handle, 0));
    EXPECT(0, "cuMemMap",
           FUNCTION(cuMemMap, CUdeviceptr, size_t, size_t, uint64_t,
                    unsigned long long)(address + (2 << 20), 2 << 20, 2 << 20, handle, 0));
    EXPECT(0, "cuMemRetainAllocationHandle",
           FUNCTION(cuMemRetainAllocationHandle, uint64_t *, void *)(&again, (void *)address));
    EXPECT(0, "cuMemRelease", FUNCTION(cuMemRelease, uint64_t)(handle));
    EXPECT(0, "cuMemRelease", FUNCTION(cuMemRelease, uint64_t)(again));
    EXPECT(0, "cuMemUnmap", FUNCTION(cuMemUnmap, CUdeviceptr, size_t)(address, 4 << 20));
    EXPECT(0, "cuMemImportFromShareableHandle",
           FUNCTION(cuMemImportFromShareableHandle, uint64_t *, void *, int)(&shared, NULL, 1));
    EXPECT(0, "cuMemRelease", FUNCTION(cuMemRelease, uint64_t)(shared));
    if (over) {
        EXPECT(2, "cuMemAllocAsync_ptsz",
               FUNCTION(cuMemAllocAsync_ptsz, CUdeviceptr *, size_t, CUstream)(&address, 500 << 20,
                                                                               NULL));
        EXPECT(2, "cuMemAlloc_v2",
               FUNCTION(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, (size_t)-1));
        EXPECT(2, "cuMemCreate",
               FUNCTION(cuMemCreate, uint64_t *, size_t, const CUmemAllocationProp *,
                        unsigned long long)(&handle, 500 << 20, &prop, 0));
    }
}

static void use_graph_nodes(int over)
{
    static const char *const names[] = {"cuGraphAddNode_v2", "cuGraphAddNode_v3"};
    CUgraphNodeParams params = {.type = NODE_MEM_ALLOC};
    CUgraphNode node;
    CUgraph graph;

    params.alloc.poolProps.location = (CUmemLocation){LOCATION_DEVICE, 0};
    params.alloc.bytesize = over ? 500 << 20 : 1 << 20;
    EXPECT(0, "cuGraphCreate", FUNCTION(cuGraphCreate, CUgraph *, u32)(&graph, 0));
    EXPECT(over ? 2 : 0, "cuGraphAddNode",
           FUNCTION(cuGraphAddNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
                    CUgraphNodeParams *)(&node, graph, NULL, 0, &params));
    for (int at = 0; at < 2; at++)
        EXPECT(over ? 2 : 0, names[at],
               ((CUresult (*)(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t,
                              CUgraphNodeParams *))dlsym(driver, names[at]))(&node, graph, NULL,
                                                                             NULL, 0, &params));
    EXPECT(0, "cuDeviceGraphMemTrim", FUNCTION(cuDeviceGraphMemTrim, CUdevice)(0));
}

int main(int count, char **arguments)
{
    int over = count > 1 && strcmp(arguments[1], "over") == 0;
    CUcontext context, made;
    CUmodule module;
    CUfunction f;
    CUgraph graph;
    CUgraphExec exec;
    void *found = NULL;
    CUdeviceptr address;

    driver = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(0, "cuGetProcAddress",
           FUNCTION(cuGetProcAddress, const char *, void **, int, uint64_t)("cuInit", &found, 12000,
                                                                            0));
    EXPECT(0, "cuInit", ((CUresult (*)(u32))found)(0));
    EXPECT(0, "retain", FUNCTION(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0));
    EXPECT(0, "current", FUNCTION(cuCtxSetCurrent, CUcontext)(context));
    EXPECT(0, "module", FUNCTION(cuModuleLoadData, CUmodule *, const void *)(&module, ""));
    EXPECT(0, "function",
           FUNCTION(cuModuleGetFunction, CUfunction *, CUmodule, const char *)(&f, module, "k"));
    EXPECT(0, "graph", FUNCTION(cuGraphCreate, CUgraph *, u32)(&graph, 0));
    EXPECT(0, "exec",
           FUNCTION(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph,
                    unsigned long long)(&exec, graph, 0));
    for (int at = 0; at < 10; at++)
        launch_everything(f, exec);
    EXPECT(0, "cuGraphExecDestroy", FUNCTION(cuGraphExecDestroy, CUgraphExec)(exec));
    use_old_memory();
    use_rare_memory(over);
    use_graph_nodes(over);
    EXPECT(0, "create", FUNCTION(cuCtxCreate_v2, CUcontext *, u32, CUdevice)(&made, 0, 0));
    EXPECT(0, "alloc", FUNCTION(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 1 << 20));
    EXPECT(0, "cuCtxDestroy", FUNCTION(cuCtxDestroy, CUcontext)(made));
    EXPECT(0, "current", FUNCTION(cuCtxSetCurrent, CUcontext)(context));
    EXPECT(0, "alloc", FUNCTION(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 1 << 20));
    EXPECT(0, "cuDevicePrimaryCtxRelease", FUNCTION(cuDevicePrimaryCtxRelease, CUdevice)(0));
    EXPECT(0, "retain", FUNCTION(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&context, 0));
    EXPECT(0, "current", FUNCTION(cuCtxSetCurrent, CUcontext)(context));
    EXPECT(0, "alloc", FUNCTION(cuMemAlloc_v2, CUdeviceptr *, size_t)(&address, 1 << 20));
    EXPECT(0, "cuDevicePrimaryCtxReset", FUNCTION(cuDevicePrimaryCtxReset, CUdevice)(0));
    return failures != 0;
}
