/* The end of a context takes its memory with it. */
#include "pace.h"
#include "claim.h"

static void forget(CUcontext context)
{
    if (context == NULL)
        return;
    table_drop(context);
    timing_forget(context);
    /* The next hook that finds a context sets its bit again. */
    if (own->slot)
        STORE(own->slot->contexts, 0);
    pools_settle(false);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult result;

    process_ready();
    result = REAL(cuCtxDestroy_v2)(context);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        forget(context);
    return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    CUresult result;

    process_ready();
    result = REAL(cuCtxDestroy)(context);
    if (result == CUDA_SUCCESS && own->mode == MODE_LIMIT)
        forget(context);
    return result;
}

/* The primary context of a device if it is active; asking leaves its users' number as it was. */
static CUcontext primary(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    CUcontext context = NULL;

    if (!process_ready() || own->mode != MODE_LIMIT ||
        helper.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        helper.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return NULL;
    if (driver_has(ID_cuDevicePrimaryCtxRelease_v2))
        REAL(cuDevicePrimaryCtxRelease_v2)(device);
    else
        REAL(cuDevicePrimaryCtxRelease)(device);
    return context;
}

static CUresult released(CUresult result, CUdevice device, CUcontext context)
{
    unsigned int flags;
    int active = 0;

    if (result == CUDA_SUCCESS && context &&
        helper.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active)
        forget(context);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUcontext context = primary(device);

    return released(REAL(cuDevicePrimaryCtxRelease_v2)(device), device, context);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUcontext context = primary(device);

    return released(REAL(cuDevicePrimaryCtxRelease)(device), device, context);
}

static CUresult has_reset(CUresult result, CUcontext context)
{
    if (result == CUDA_SUCCESS)
        forget(context);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUcontext context = primary(device);

    return has_reset(REAL(cuDevicePrimaryCtxReset_v2)(device), context);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    CUcontext context = primary(device);

    return has_reset(REAL(cuDevicePrimaryCtxReset)(device), context);
}
