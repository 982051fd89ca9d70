/* Graphs: the sum of their kernels, and memory that is reserved at the first launch. */
#include <stdlib.h>

#include "driver.h"

struct graph {
    uint64_t ns, memory, reserved;
    unsigned int nodes;
};

struct graph_exec {
    uint64_t ns, memory;
    bool dead, launched;
};

static uint64_t reserved[STATE_GPUS], reserved_high[STATE_GPUS];

struct graph *graph_make(void)
{
    return calloc(1, sizeof(struct graph));
}

void graph_add_ns(struct graph *graph, uint64_t ns)
{
    graph->ns += ns;
    graph->nodes++;
}

void graph_add_memory(struct graph *graph, uint64_t bytes, CUdeviceptr *address)
{
    graph->memory += bytes;
    graph->nodes++;
    /* An address of the graph's own range: real only while the graph runs. */
    *address = (1ULL << 43) + graph->memory;
}

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    ENTER(cuGraphCreate);
    (void)flags;
    *graph = graph_make();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(cuGraphDestroy);
    free(graph);
    return CUDA_SUCCESS;
}

/* How many nodes it has; the nodes themselves have no use here. */
EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    ENTER(cuGraphGetNodes);
    (void)nodes;
    *count = graph->nodes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                       size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    ENTER(cuGraphAddMemAllocNode);
    (void)after, (void)count;
    graph_add_memory(graph, params->bytesize, &params->dptr);
    *node = (CUgraphNode)graph;
    return CUDA_SUCCESS;
}

static CUresult add(const char *function, CUgraphNode *node, CUgraph graph,
                    CUgraphNodeParams *params)
{
    CUresult result = driver_enter(function);

    if (result != CUDA_SUCCESS)
        return result;
    if (params->type == NODE_MEM_ALLOC)
        graph_add_memory(graph, params->alloc.bytesize, &params->alloc.dptr);
    else
        graph_add_ns(graph, 10000);
    *node = (CUgraphNode)graph;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                               size_t count, CUgraphNodeParams *params)
{
    (void)after, (void)count;
    return add("cuGraphAddNode", node, graph, params);
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    (void)after, (void)edges, (void)count;
    return add("cuGraphAddNode_v2", node, graph, params);
}

EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    (void)after, (void)edges, (void)count;
    return add("cuGraphAddNode_v3", node, graph, params);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    ENTER(cuGraphInstantiateWithFlags);
    (void)flags;
    *exec = calloc(1, sizeof **exec);
    (*exec)->ns = graph->ns;
    (*exec)->memory = graph->memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *params)
{
    (void)params;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER(cuGraphExecDestroy);
    if (exec->dead)
        driver_abort("cuGraphExecDestroy", "the graph was destroyed before");
    exec->dead = true;
    return CUDA_SUCCESS;
}

static CUresult launch(const char *function, CUgraphExec exec, CUstream stream)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);
    int gpu;

    if (result != CUDA_SUCCESS)
        return result;
    stream_check(function, stream);
    if (exec->dead)
        driver_abort(function, "the graph was destroyed");
    gpu = context->gpu;
    if (exec->memory > reserved[gpu]) {
        if (!memory_take(gpu, (int64_t)(exec->memory - reserved[gpu])))
            return CUDA_ERROR_OUT_OF_MEMORY;
        reserved[gpu] = exec->memory;
        if (reserved[gpu] > reserved_high[gpu])
            reserved_high[gpu] = reserved[gpu];
    }
    if (!driver.facts.engine_off)
        queue_add(gpu, (struct work){.left_ns = exec->ns});
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch("cuGraphLaunch", exec, stream);
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch("cuGraphLaunch_ptsz", exec, stream ? stream : (CUstream)2);
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphUpload);
    (void)exec, (void)stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    ENTER(cuDeviceGetGraphMemAttribute);
    *(uint64_t *)value = attribute == GRAPH_RESERVED_HIGH || attribute == GRAPH_USED_HIGH
                             ? reserved_high[device]
                             : reserved[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    ENTER(cuDeviceGraphMemTrim);
    memory_take(device, -(int64_t)reserved[device]);
    reserved[device] = 0;
    return CUDA_SUCCESS;
}
