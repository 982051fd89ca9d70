/* Copies and fills: real ones, at once, for what is small enough to be kept. */
#include <string.h>

#include "driver.h"

static void copy(void *to, const void *from, size_t bytes)
{
    if (to && from)
        memmove(to, from, bytes);
}

static CUresult finish(CUresult result, struct context *context)
{
    if (result == CUDA_SUCCESS && !driver.facts.engine_off)
        queue_wait(context->gpu, queue_added(context->gpu));
    return result;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    struct context *context;

    ENTER_CONTEXT(cuMemcpyHtoD_v2, context);
    copy(memory_host(to, bytes), from, bytes);
    return finish(capture_forbid("cuMemcpyHtoD_v2"), context);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    struct context *context;
    CUresult result;

    ENTER_CONTEXT(cuMemcpyDtoH_v2, context);
    result = finish(capture_forbid("cuMemcpyDtoH_v2"), context);
    copy(to, memory_host(from, bytes), bytes);
    return result;
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    struct context *context;

    ENTER_CONTEXT(cuMemcpyDtoD_v2, context);
    copy(memory_host(to, bytes), memory_host(from, bytes), bytes);
    return CUDA_SUCCESS;
}

/* Either side may be the host's memory. */
static void *either(CUdeviceptr address, size_t bytes)
{
    void *host = memory_host(address, bytes);

    return host || address >= 1ULL << 44 ? host : (void *)(uintptr_t)address;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    struct context *context;

    ENTER_CONTEXT(cuMemcpyHtoDAsync_v2, context);
    stream_check("cuMemcpyHtoDAsync_v2", s);
    copy(memory_host(to, bytes), from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    struct context *context;

    ENTER_CONTEXT(cuMemcpyDtoHAsync_v2, context);
    stream_check("cuMemcpyDtoHAsync_v2", s);
    copy(to, memory_host(from, bytes), bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    stream_check("cuMemcpyDtoDAsync_v2", s);
    return cuMemcpyDtoD_v2(to, from, bytes);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    struct context *context;

    ENTER_CONTEXT(cuMemcpyAsync, context);
    stream_check("cuMemcpyAsync", s);
    copy(either(to, bytes), either(from, bytes), bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyAsync(to, from, bytes, NULL);
}

static CUresult fill(const char *function, CUdeviceptr to, const void *unit, size_t size,
                     size_t count)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);
    char *host;

    if (result != CUDA_SUCCESS)
        return result;
    host = memory_host(to, size * count);
    for (size_t at = 0; host && at < count; at++)
        memcpy(host + at * size, unit, size);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char unit, size_t count)
{
    return fill("cuMemsetD8_v2", to, &unit, sizeof unit, count);
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short unit, size_t count)
{
    return fill("cuMemsetD16_v2", to, &unit, sizeof unit, count);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int unit, size_t count)
{
    return fill("cuMemsetD32_v2", to, &unit, sizeof unit, count);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char unit, size_t count, CUstream s)
{
    stream_check("cuMemsetD8Async", s);
    return fill("cuMemsetD8Async", to, &unit, sizeof unit, count);
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short unit, size_t count, CUstream s)
{
    stream_check("cuMemsetD16Async", s);
    return fill("cuMemsetD16Async", to, &unit, sizeof unit, count);
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int unit, size_t count, CUstream s)
{
    stream_check("cuMemsetD32Async", s);
    return fill("cuMemsetD32Async", to, &unit, sizeof unit, count);
}
