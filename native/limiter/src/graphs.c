/* Memory of graphs: checked when a node is added, counted by what the device's pool reserved. */
#include "account.h"
#include "driver.h"
#include "pace.h"

static const uint64_t SETTLE_NS = 100000000u;

static void settle(int number)
{
    struct device *device = &own->device[number];
    uint64_t reserved;

    if (helper.cuDeviceGetGraphMemAttribute(device->ordinal, GRAPH_RESERVED_CURRENT, &reserved) ==
        CUDA_SUCCESS)
        account_change(number, (int64_t)reserved -
                                   __atomic_exchange_n(&device->graph_charged, (int64_t)reserved,
                                                       __ATOMIC_RELAXED));
    STORE(device->graph_settled_ns, now_ns());
}

void graph_settle(int number)
{
    uint64_t settled = LOAD(own->device[number].graph_settled_ns);

    if (settled == 0 || now_ns() - settled > SETTLE_NS)
        settle(number);
}

static CUresult check(const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    int device;

    if (params->poolProps.location.type != LOCATION_DEVICE)
        return CUDA_SUCCESS;
    device = device_of_ordinal(params->poolProps.location.id);
    if (device == DEVICE_FORBIDDEN)
        return CUDA_ERROR_NOT_PERMITTED;
    if (device < 0 || !own->slot_taken || account_fits(device, params->bytesize))
        return CUDA_SUCCESS;
    slots_clear_dead();
    pools_settle(true);
    if (account_fits(device, params->bytesize))
        return CUDA_SUCCESS;
    account_refuse(device, params->bytesize);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                       size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUresult result = CUDA_SUCCESS;

    if (process_ready() && own->mode == MODE_LIMIT && params)
        result = check(params);
    return result ? result : REAL(cuGraphAddMemAllocNode)(node, graph, after, count, params);
}

static CUresult check_node(const CUgraphNodeParams *params)
{
    if (!process_ready() || own->mode != MODE_LIMIT || !params || params->type != NODE_MEM_ALLOC)
        return CUDA_SUCCESS;
    return check(&params->alloc);
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                               size_t count, CUgraphNodeParams *params)
{
    CUresult result = check_node(params);

    return result ? result : REAL(cuGraphAddNode)(node, graph, after, count, params);
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    CUresult result = check_node(params);

    return result ? result : REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, params);
}

EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    CUresult result = check_node(params);

    return result ? result : REAL(cuGraphAddNode_v3)(node, graph, after, edges, count, params);
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    CUresult result;
    int device;

    process_ready();
    result = REAL(cuDeviceGraphMemTrim)(ordinal);
    device = result == CUDA_SUCCESS && own->mode == MODE_LIMIT ? device_of_ordinal(ordinal)
                                                                : DEVICE_NONE;
    if (device >= 0 && own->slot_taken)
        settle(device);
    return result;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    CUresult result;

    process_ready();
    result = REAL(cuGraphExecDestroy)(graph);
    if (result == CUDA_SUCCESS)
        estimate_forget(estimate_key(graph, 0));
    return result;
}
