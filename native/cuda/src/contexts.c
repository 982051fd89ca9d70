/* Contexts: the primary one of each GPU, and those that programs create. */
#include <stdlib.h>

#include "driver.h"

static _Thread_local struct context *nested[MAX_NESTED];
static _Thread_local int depth;
static _Thread_local struct context *current;

struct context *context_current(void)
{
    return current;
}

static void pop(void)
{
    depth--;
    current = depth > 0 ? nested[depth - 1] : NULL;
}

static struct context *make(int gpu, unsigned int flags, bool primary)
{
    struct context *context = calloc(1, sizeof *context);
    static uint64_t made;

    context->gpu = gpu;
    context->flags = flags;
    context->is_primary = primary;
    context->id = ++made;
    state_lock(driver.state);
    driver.state->tenant[driver.tenant].contexts[gpu] += (int64_t)driver.facts.gpu[gpu].context;
    state_unlock(driver.state);
    return context;
}

static void destroy(struct context *context)
{
    context->dead = true;
    memory_drop_context(context);
    arrays_drop_context(context);
    state_lock(driver.state);
    driver.state->tenant[driver.tenant].contexts[context->gpu] -=
        (int64_t)driver.facts.gpu[context->gpu].context;
    state_unlock(driver.state);
    if (depth > 0 && current == context)
        pop();
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < (int)driver.facts.gpus;
}

static bool push(struct context *context)
{
    if (depth == MAX_NESTED)
        return false;
    nested[depth++] = current = context;
    return true;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    ENTER(cuCtxCreate_v2);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *context = make(device, flags, false);
    return push(*context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned int flags,
                               CUdevice device)
{
    (void)affinity;
    (void)count;
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags,
                               CUdevice device)
{
    (void)parameters;
    return cuCtxCreate_v2(context, flags, device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    ENTER(cuCtxDestroy_v2);
    if (context == NULL || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->dead)
        driver_abort("cuCtxDestroy_v2", "the context was destroyed before");
    destroy(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(cuCtxPushCurrent_v2);
    return push(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER(cuCtxPopCurrent_v2);
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context != NULL)
        *context = current;
    pop();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(cuCtxSetCurrent);
    if (depth > 0)
        pop();
    if (context != NULL)
        push(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    if (!driver.initialised || driver.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    struct context *context;

    ENTER_CONTEXT(cuCtxGetDevice, context);
    *device = context->gpu;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    ENTER(cuCtxGetDevice_v2);
    *device = context->gpu;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    ENTER(cuCtxGetApiVersion);
    (void)context;
    *version = 3020;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    struct context *found;

    ENTER_CONTEXT(cuCtxGetId, found);
    *id = context ? context->id : found->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct context *context;

    ENTER_CONTEXT(cuCtxGetFlags, context);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct context *context;

    ENTER_CONTEXT(cuCtxGetStreamPriorityRange, context);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit)
{
    struct context *context;

    ENTER_CONTEXT(cuCtxGetLimit, context);
    *value = limit == 0 ? 1024 : 8u << 20;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    struct context *context;

    ENTER_CONTEXT(cuCtxSetLimit, context);
    (void)limit;
    (void)value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    struct context *context;
    CUresult result;

    ENTER_CONTEXT(cuCtxSynchronize, context);
    result = capture_forbid("cuCtxSynchronize");
    if (result == CUDA_SUCCESS)
        queue_wait(context->gpu, queue_added(context->gpu));
    return result;
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    ENTER(cuCtxSynchronize_v2);
    queue_wait(context->gpu, queue_added(context->gpu));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    driver_lock();
    if (driver.primary[device] == NULL)
        driver.primary[device] = make(device, driver.primary_flags[device], true);
    driver.primary_users[device]++;
    *context = driver.primary[device];
    driver_unlock();
    return CUDA_SUCCESS;
}

static void end_primary(CUdevice device)
{
    struct context *context = driver.primary[device];

    driver.primary[device] = NULL;
    if (context == NULL)
        return;
    destroy(context);
    pools_release(device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease_v2);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (driver.primary_users[device] == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--driver.primary_users[device] == 0)
        end_primary(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxReset_v2);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    end_primary(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    ENTER(cuDevicePrimaryCtxSetFlags_v2);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    driver.primary_flags[device] = flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    ENTER(cuDevicePrimaryCtxGetState);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = driver.primary_flags[device];
    *active = driver.primary[device] != NULL;
    return CUDA_SUCCESS;
}
