/* A thousand calls of one kind, between two marks that callgrind counts between. */
#include "driver_calls.h"

enum { CALLS_MADE = 1000, LIVE = 4000 };

static CUdeviceptr live[LIVE], pointers[CALLS_MADE];
static CUfunction function;

__attribute__((noinline)) void loop_launch(void)
{
    for (int at = 0; at < CALLS_MADE; at++)
        cuLaunchKernel(function, 8, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

__attribute__((noinline)) void loop_alloc(void)
{
    for (int at = 0; at < CALLS_MADE; at++)
        cuMemAlloc_v2(&pointers[at], 1 << 20);
}

__attribute__((noinline)) void loop_free(void)
{
    for (int at = 0; at < CALLS_MADE; at++)
        cuMemFree_v2(pointers[at]);
}

__attribute__((noinline)) void loop_info(void)
{
    size_t unused, total;

    for (int at = 0; at < CALLS_MADE; at++)
        cuMemGetInfo_v2(&unused, &total);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    CUcontext context;
    CUmodule module;

    find_calls("ask");
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, "") || cuModuleGetFunction(&function, module, "k"))
        return 1;
    for (int at = 0; at < 2000; at++)
        if (cuLaunchKernel(function, 8, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
            return 2;
    for (int at = 0; strcmp(what, "live") == 0 && at < LIVE; at++)
        if (cuMemAlloc_v2(&live[at], 1 << 10))
            return 3;
    if (cuMemAlloc_v2(&pointers[0], 1 << 20) || cuMemFree_v2(pointers[0]))
        return 4;
    loop_launch();
    loop_alloc();
    loop_info();
    loop_free();
    return 0;
}
