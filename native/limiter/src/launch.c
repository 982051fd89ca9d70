/* The gates of launches: most pay from the lease of their process and jump on. */
#include "pace.h"

enum { GO_ON = -1 };
static const uint64_t OFF_BASE_NS = 20000, OFF_BLOCK_NS = 1000;

/* The arguments as the stub saved them: registers first, then the caller's stack. */
static uint64_t argument(const uint64_t *saved, int number)
{
#if defined(__x86_64__)
    /* Between the six registers and the stack lies the return address. */
    return saved[number < 6 ? number : number + 1];
#else
    return saved[number];
#endif
}

/* More arguments than a function has do no harm; all are passed as words. */
static CUresult call(const struct launch *launch)
{
    typedef CUresult (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    const uint64_t *saved = launch->saved;

    return ((function)real[launch->hook])(
        argument(saved, 0), argument(saved, 1), argument(saved, 2), argument(saved, 3),
        argument(saved, 4), argument(saved, 5), argument(saved, 6), argument(saved, 7),
        argument(saved, 8), argument(saved, 9), argument(saved, 10));
}

static bool may_capture(const struct launch *launch)
{
    int status = CAPTURE_NONE;
    CUresult result = launch->per_thread ? helper.cuStreamIsCapturing_ptsz(launch->stream, &status)
                                         : helper.cuStreamIsCapturing(launch->stream, &status);

    return (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) ||
           status != CAPTURE_NONE;
}

static int64_t scaled(int64_t ns, uint32_t scale)
{
    return ns * scale / SCALE_ONE;
}

static bool is_paced(const struct device *device)
{
    uint32_t cores = LOAD(device->cores);

    return (LOAD(own->flags) & GATE_COMPUTE) && cores > 0 &&
           (LOAD(device->limit) > cores || cores < UNPACED);
}

/* Without events a kernel's time is guessed from its blocks. */
static void guess(struct launch *launch)
{
    uint32_t sms = own->device[launch->device].sms;

    if (LOAD(launch->estimate->timings) == 0 && timing_is_off())
        STORE(launch->estimate->ns,
              (uint32_t)(OFF_BASE_NS + OFF_BLOCK_NS * (launch->blocks & 0xfffff) /
                                           (sms ? sms : 100)));
}

static int64_t run(struct launch *launch, bool timed)
{
    struct pair *pair = timed ? timing_begin(launch) : NULL;
    CUresult result;

    if (pair == NULL)
        return GO_ON;
    result = call(launch);
    timing_end(pair, launch, result);
    return result;
}

/* Pays, and waits where the account is empty; then the launch is timed. */
static int64_t pay(struct launch *launch)
{
    struct device *device = &own->device[launch->device];
    struct estimate *estimate = launch->estimate = estimate_find(launch->key);
    bool timed;

    guess(launch);
    timed = LOAD(estimate->timings) < FEW_TIMINGS || LOAD(estimate->is_wild);
    if (timed)
        timing_harvest();
    launch->charge = scaled(LOAD(estimate->ns), LOAD(device->scale));
    if (__atomic_sub_fetch(&device->lease_ns, launch->charge, __ATOMIC_RELAXED) >= 0) {
        ADD(device->launches, 1);
        return run(launch, timed && !may_capture(launch));
    }
    ADD(device->lease_ns, launch->charge);
    /* A launch that is only captured takes no time now, and must not wait or be measured. */
    if (may_capture(launch))
        return GO_ON;
    timing_harvest();
    launch->charge = scaled(LOAD(estimate->ns), LOAD(device->scale));
    pace_pay(launch->device, launch->charge);
    ADD(device->launches, 1);
    return run(launch, true);
}

static int64_t go_slowly(struct launch *launch)
{
    if (!process_ready() || own->mode == MODE_PASS)
        return GO_ON;
    launch->device = device_current();
    if (launch->device == DEVICE_FORBIDDEN)
        return CUDA_ERROR_NOT_PERMITTED;
    if (launch->device == DEVICE_NONE || !is_paced(&own->device[launch->device]))
        return GO_ON;
    return pay(launch);
}

/* The common case in few instructions: one device, a kernel whose time is known, enough lease. */
static inline bool pay_quickly(uint64_t key)
{
    struct own *mine = own;
    struct estimate *estimate = &mine->estimate[key >> 54];
    struct device *device;
    int64_t charge;

    if (mine->single == 0 || LOAD(estimate->key) != key ||
        LOAD(estimate->timings) < FEW_TIMINGS || LOAD(estimate->is_wild))
        return false;
    device = &mine->device[mine->single - 1];
    charge = (int64_t)((uint64_t)LOAD(estimate->ns) * LOAD(device->scale) / SCALE_ONE);
    if (__atomic_sub_fetch(&device->lease_ns, charge, __ATOMIC_RELAXED) < 0) {
        ADD(device->lease_ns, charge);
        return false;
    }
    ADD(device->launches, 1);
    return true;
}

#define GATE __attribute__((visibility("hidden")))

GATE int64_t gate_kernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z,
                         uint64_t *saved, int hook);
GATE int64_t gate_kernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z,
                         uint64_t *saved, int hook)
{
    uint64_t blocks = (uint64_t)x * y * z, key = estimate_key(function, blocks);

    if (pay_quickly(key))
        return GO_ON;
    return go_slowly(&(struct launch){
        .key = key,
        .blocks = blocks,
        .stream = (CUstream)argument(saved, 8),
        .saved = saved,
        .hook = hook,
        .per_thread = hook == ID_cuLaunchKernel_ptsz || hook == ID_cuLaunchCooperativeKernel_ptsz,
    });
}

static bool is_programmatic(const CUlaunchConfig *config)
{
    for (unsigned int at = 0; config->attrs && at < config->numAttrs; at++)
        if (config->attrs[at].id == ATTRIBUTE_PROGRAMMATIC)
            return true;
    return false;
}

GATE int64_t gate_config(const CUlaunchConfig *config, CUfunction function, void **params,
                         void **extra, uint64_t *saved, int hook);
GATE int64_t gate_config(const CUlaunchConfig *config, CUfunction function, void **params,
                         void **extra, uint64_t *saved, int hook)
{
    uint64_t blocks, key;

    (void)params, (void)extra;
    if (config == NULL)
        return GO_ON;
    blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
    key = estimate_key(function, blocks);
    if (pay_quickly(key))
        return GO_ON;
    return go_slowly(&(struct launch){
        .key = key,
        .blocks = blocks,
        .stream = config->hStream,
        .saved = saved,
        .hook = hook,
        .per_thread = hook == ID_cuLaunchKernelEx_ptsz,
        .programmatic = is_programmatic(config),
    });
}

GATE int64_t gate_graph(CUgraphExec graph, CUstream stream, uint64_t third, uint64_t fourth,
                        uint64_t *saved, int hook);
GATE int64_t gate_graph(CUgraphExec graph, CUstream stream, uint64_t third, uint64_t fourth,
                        uint64_t *saved, int hook)
{
    struct launch launch = {
        .key = estimate_key(graph, 0),
        .stream = stream,
        .saved = saved,
        .hook = hook,
        .per_thread = hook == ID_cuGraphLaunch_ptsz,
        .device = DEVICE_NONE,
    };
    int64_t answer = go_slowly(&launch);

    (void)third, (void)fourth;
    if (own->mode != MODE_LIMIT || answer > 0)
        return answer;
    if (answer == GO_ON)
        answer = call(&launch);
    if (answer == CUDA_SUCCESS && launch.device >= 0)
        graph_settle(launch.device);
    return answer;
}

GATE int64_t gate_old(CUfunction function, int width, int height, CUstream stream, uint64_t *saved,
                      int hook);
GATE int64_t gate_old(CUfunction function, int width, int height, CUstream stream, uint64_t *saved,
                      int hook)
{
    uint64_t blocks =
        hook == ID_cuLaunch ? 1 : (uint64_t)(unsigned int)width * (unsigned int)height;

    return go_slowly(&(struct launch){
        .key = estimate_key(function, blocks),
        .blocks = blocks,
        .stream = hook == ID_cuLaunchGridAsync ? stream : NULL,
        .saved = saved,
        .hook = hook,
    });
}

/* The device of a stream's context, whichever is current. */
static int stream_device(CUstream stream)
{
    CUcontext context = NULL, old;
    int device;

    if (helper.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        helper.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return device_current();
    device = device_current();
    helper.cuCtxPopCurrent_v2(&old);
    return device;
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                                     unsigned int flags)
{
    process_ready();
    for (unsigned int at = 0; own->mode != MODE_PASS && list && at < count; at++) {
        uint64_t blocks = (uint64_t)list[at].gridDimX * list[at].gridDimY * list[at].gridDimZ;
        int device = stream_device(list[at].hStream);
        struct estimate *estimate = estimate_find(estimate_key(list[at].function, blocks));
        if (device == DEVICE_FORBIDDEN)
            return CUDA_ERROR_NOT_PERMITTED;
        if (device >= 0 && is_paced(&own->device[device]))
            pace_pay(device, scaled(LOAD(estimate->ns), LOAD(own->device[device].scale)));
    }
    return REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
}
