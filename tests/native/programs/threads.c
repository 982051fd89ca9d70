/* Sixteen threads that launch, allocate, free and ask at once: threads COUNT [HOW]. */
#include "driver_calls.h"

#include <pthread.h>

enum { THREADS = 16 };

static CUcontext context;
static CUfunction functions[THREADS];
static long rounds;

static void *run(void *argument)
{
    long number = (long)argument;
    size_t unused, total;

    if (cuCtxSetCurrent(context))
        return "no context";
    for (long at = 0; at < rounds; at++) {
        CUdeviceptr one = 0, other = 0;
        CUresult result = cuMemAlloc_v2(&one, 1 << 16);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            return "alloc";
        result = cuMemAllocAsync(&other, 1 << 12, NULL);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            return "async";
        if (cuLaunchKernel(functions[(number + at) % THREADS], 1 + (unsigned int)(at % 7), 1, 1, 32,
                           1, 1, 0, NULL, NULL, NULL))
            return "launch";
        if (cuMemGetInfo_v2(&unused, &total) || unused > total)
            return "info";
        if ((one && cuMemFree_v2(one)) || (other && cuMemFreeAsync(other, NULL)))
            return "free";
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    CUmodule module;
    int failed = 0;

    rounds = count > 1 ? atol(arguments[1]) : 10;
    find_calls(count > 2 ? arguments[2] : "ask");
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, ""))
        return 1;
    for (int at = 0; at < THREADS; at++)
        if (cuModuleGetFunction(&functions[at], module, at % 2 ? "t" : "r"))
            return 1;
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, run, (void *)at);
    for (int at = 0; at < THREADS; at++) {
        void *what = NULL;
        pthread_join(threads[at], &what);
        if (what) {
            puts(what);
            failed = 2;
        }
    }
    return failed;
}
