/* A CUDA program that does what its standard input says, one command a line, one answer a line. */
#include "driver_calls.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THINGS = 8192 };

static struct {
    char kind;
    uint64_t value, other;
} things[MAX_THINGS];
static int made;
static CUcontext contexts[64];
static CUstream streams[64];
static CUmodule module;
static CUgraph graph;
static CUgraphExec exec;

static void answer(CUresult result, long long number)
{
    printf("%d %lld\n", result, number);
    fflush(stdout);
}

static void keep(char kind, CUresult result, uint64_t value, uint64_t other)
{
    if (result == CUDA_SUCCESS) {
        things[made].kind = kind;
        things[made].value = value;
        things[made].other = other;
    }
    answer(result, result == CUDA_SUCCESS ? made++ : -1);
}

static void take(const char *what, long long bytes, int pool)
{
    uint64_t out = 0, other = 0;
    size_t pitch;
    CUresult result;
    CUmemAllocationProp prop = {.type = 1, .location = {LOCATION_DEVICE, pool > 0 ? pool : 0}};
    CUmemPoolProps props = {.allocType = 1, .location = {LOCATION_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR flat = {(size_t)bytes, 0, 1, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {(size_t)bytes, 1, 1, 1, 1, 0};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = 1, .size = (unsigned long long)bytes};

    if (strcmp(what, "alloc") == 0)
        result = cuMemAlloc_v2(&out, (size_t)bytes);
    else if (strcmp(what, "pitch") == 0)
        result = cuMemAllocPitch_v2(&out, &pitch, 1000, (size_t)bytes / 1024, 4);
    else if (strcmp(what, "managed") == 0)
        result = cuMemAllocManaged(&out, (size_t)bytes, 1);
    else if (strcmp(what, "async") == 0)
        result = cuMemAllocAsync(&out, (size_t)bytes, NULL);
    else if (strcmp(what, "frompool") == 0)
        result = cuMemAllocFromPoolAsync(&out, (size_t)bytes, (CUmemoryPool)things[pool].value,
                                         NULL);
    else if (strcmp(what, "pool") == 0)
        result = cuMemPoolCreate((CUmemoryPool *)&out, &props);
    else if (strcmp(what, "create") == 0)
        result = cuMemCreate(&out, (size_t)bytes, &prop, 0);
    else if (strcmp(what, "hostcreate") == 0) {
        prop.location.type = 2;
        result = cuMemCreate(&out, (size_t)bytes, &prop, 0);
    } else if (strcmp(what, "array") == 0)
        result = cuArrayCreate_v2((CUarray *)&out, &flat);
    else if (strcmp(what, "array3d") == 0)
        result = cuArray3DCreate_v2((CUarray *)&out, &deep);
    else if (strcmp(what, "mipmap") == 0)
        result = cuMipmappedArrayCreate((CUmipmappedArray *)&out, &deep, 4);
    else
        result = cuImportExternalMemory((CUexternalMemory *)&out, &handle);
    keep(what[0] == 'a' && what[1] == 'r' ? 'r' : strcmp(what, "pool") == 0 ? 'P' : what[0], result,
         out, other);
}

static void give(int at, bool in_order)
{
    uint64_t value = things[at].value;
    CUresult result;

    switch (things[at].kind) {
    case 'c': case 'h': result = cuMemRelease(value); break;
    case 'r': result = cuArrayDestroy((CUarray)value); break;
    case 'm': result = cuMemFree_v2(value); break;
    case 'e': result = cuDestroyExternalMemory((CUexternalMemory)value); break;
    case 'P': result = cuMemPoolDestroy((CUmemoryPool)value); break;
    default: result = in_order ? cuMemFreeAsync(value, NULL) : cuMemFree_v2(value); break;
    }
    answer(result, at);
}

static void map(int at, long long bytes)
{
    CUdeviceptr address;
    CUresult result = cuMemAddressReserve(&address, (size_t)bytes, 0, 0, 0);

    if (result == CUDA_SUCCESS)
        result = cuMemMap(address, (size_t)bytes, 0, things[at].value, 0);
    keep('M', result, address, (uint64_t)bytes);
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUresult start(CUfunction function, CUstream stream)
{
    return cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
}

/* Launches one kernel again and again for so many milliseconds, waiting after every so many. */
static void work(const char *name, long long milliseconds, int batch)
{
    uint64_t end = now() + (uint64_t)milliseconds * 1000000u;
    long long count = 0;
    CUfunction function;
    CUresult result = cuModuleGetFunction(&function, module, name);

    while (result == CUDA_SUCCESS && now() < end) {
        for (int at = 0; at < batch && result == CUDA_SUCCESS && now() < end; at++, count++)
            result = start(function, NULL);
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(NULL);
    }
    answer(result, count);
}

/* Two hundred tiny kernels and a big one, again and again. */
static void mix(long long milliseconds)
{
    uint64_t end = now() + (uint64_t)milliseconds * 1000000u;
    long long count = 0;
    CUfunction tiny, big;
    CUresult result = cuModuleGetFunction(&tiny, module, "t");

    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&big, module, "b");
    for (; result == CUDA_SUCCESS && now() < end; count++) {
        for (int at = 0; at < 200 && result == CUDA_SUCCESS; at++)
            result = start(tiny, NULL);
        if (result == CUDA_SUCCESS)
            result = start(big, NULL);
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(NULL);
    }
    answer(result, count);
}

/* Launches the instantiated graph for so long, and waits after each batch. */
static void repeat_graph(long long milliseconds, int batch)
{
    uint64_t end = now() + (uint64_t)milliseconds * 1000000u;
    CUresult result = CUDA_SUCCESS;
    long long count = 0;

    while (result == CUDA_SUCCESS && now() < end) {
        for (int at = 0; at < batch && result == CUDA_SUCCESS; at++, count++)
            result = cuGraphLaunch(exec, NULL);
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(NULL);
    }
    answer(result, count);
}

static void launch(const char *name, int count, CUstream stream)
{
    CUfunction function;
    CUresult result = cuModuleGetFunction(&function, module, name);

    for (int at = 0; at < count && result == CUDA_SUCCESS; at++)
        result = start(function, stream);
    answer(result, count);
}

static void set_up(int device)
{
    CUresult result = cuDevicePrimaryCtxRetain(&contexts[device], device);

    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(contexts[device]);
    if (result == CUDA_SUCCESS && module == NULL)
        result = cuModuleLoadData(&module, "");
    answer(result, device);
}

static void add_memory_node(long long bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = (size_t)bytes};
    CUgraphNode node;

    params.poolProps.location = (CUmemLocation){LOCATION_DEVICE, 0};
    if (graph == NULL)
        cuGraphCreate(&graph, 0);
    answer(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), bytes);
}

static bool obey_more(const char *word, long long number, int more, const char *name)
{
    size_t one = 0, other = 0;
    CUresult result;

    if (strcmp(word, "info") == 0) {
        result = cuMemGetInfo_v2(&one, &other);
        printf("%d %zu %zu\n", result, one, other);
        fflush(stdout);
    } else if (strcmp(word, "total") == 0) {
        result = cuDeviceTotalMem_v2(&one, (CUdevice)number);
        answer(result, (long long)one);
    } else if (strcmp(word, "stream") == 0) {
        answer(cuStreamCreate(&streams[number], (unsigned int)more), number);
    } else if (strcmp(word, "capture") == 0) {
        answer(cuStreamBeginCapture_v2(streams[number], more), number);
    } else if (strcmp(word, "captured") == 0) {
        result = cuStreamEndCapture(streams[number], &graph);
        one = 0;
        if (result == CUDA_SUCCESS)
            cuGraphGetNodes(graph, NULL, &one);
        answer(result, (long long)one);
    } else if (strcmp(word, "instantiate") == 0) {
        answer(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    } else if (strcmp(word, "graph") == 0) {
        result = CUDA_SUCCESS;
        for (int at = 0; at < number && result == CUDA_SUCCESS; at++)
            result = cuGraphLaunch(exec, NULL);
        answer(result, number);
    } else if (strcmp(word, "graphs") == 0) {
        repeat_graph(number, more);
    } else if (strcmp(word, "node") == 0) {
        add_memory_node(number);
    } else if (strcmp(word, "launch") == 0) {
        launch(name, (int)number, more >= 0 ? streams[more] : NULL);
    } else if (strcmp(word, "mix") == 0) {
        mix(number);
    } else if (strcmp(word, "work") == 0) {
        work(name, number, more);
    } else {
        return false;
    }
    return true;
}

static void fork_child(void)
{
    pid_t child = fork();

    if (child == 0) {
        fclose(stdin);
        pause();
        _exit(0);
    }
    answer(0, child);
}

static void obey(const char *word, long long number, int more, const char *name)
{
    if (strcmp(word, "init") == 0)
        answer(cuInit(0), getpid());
    else if (strcmp(word, "device") == 0)
        set_up((int)number);
    else if (strcmp(word, "free") == 0)
        give((int)number, false);
    else if (strcmp(word, "freeasync") == 0)
        give((int)number, true);
    else if (strcmp(word, "freeat") == 0)
        answer(cuMemFree_v2((CUdeviceptr)number), number);
    else if (strcmp(word, "map") == 0)
        map((int)number, more);
    else if (strcmp(word, "unmap") == 0)
        answer(cuMemUnmap(things[number].value, things[number].other), number);
    else if (strcmp(word, "threshold") == 0)
        answer(cuMemPoolSetAttribute((CUmemoryPool)things[number].value, 4,
                                     &(uint64_t){1ull << 40}),
               0);
    else if (strcmp(word, "release") == 0)
        answer(cuDevicePrimaryCtxRelease_v2((CUdevice)number), number);
    else if (strcmp(word, "reset") == 0)
        answer(cuDevicePrimaryCtxReset_v2((CUdevice)number), number);
    else if (strcmp(word, "sync") == 0)
        answer(cuCtxSynchronize(), 0);
    else if (strcmp(word, "fork") == 0)
        fork_child();
    else if (!obey_more(word, number, more, name))
        take(word, number, more);
}

int main(int count, char **arguments)
{
    char line[256], word[64], name[64];

    find_calls(count > 1 ? arguments[1] : "dlsym");
    while (fgets(line, sizeof line, stdin)) {
        long long number = 0;
        int more = -1;
        name[0] = '\0';
        if (sscanf(line, "%63s %lld %d %63s", word, &number, &more, name) >= 1)
            obey(word, number, more, name);
    }
    return 0;
}
