/* The limiter in a simulated process: its pacing, timing and estimates are compiled in as they are.

   Here is only what they stand on: a clock, a driver, and what the grant says. */
#include <stdlib.h>

#include "pacing.h"

#include "pace.h"

static const int64_t BURST_NS = 20000000;
enum { GO_ON = -1, WORDS = 12 };
_Static_assert(EVENTS == 2 * RING_PAIRS, "every pair has two events");

struct own *own;
struct helpers helper;
void *real[HOOKS];

int64_t gate_kernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z,
                    uint64_t *saved, int hook);
int64_t gate_graph(CUgraphExec graph, CUstream stream, uint64_t third, uint64_t fourth,
                   uint64_t *saved, int hook);

uint64_t now_ns(void)
{
    return sim->now_ns;
}

void sleep_ns(uint64_t ns)
{
    pass(ns);
}

void write_line(const char *const *words)
{
    (void)words;
}

bool mutex_lock_until(uint32_t *mutex, uint64_t deadline_ns)
{
    (void)mutex, (void)deadline_ns;
    abort();
}

void word_wake(uint32_t *word)
{
    (void)word;
}

bool process_prepare(void)
{
    return true;
}

int device_find(void)
{
    return 0;
}

/* Nobody is killed here. */
void slots_clear_dead(void)
{
}

void graph_settle(int device)
{
    (void)device;
}

/* A process takes over what the agent has said when it looks, and not before. */
void grant_refresh(void)
{
    const struct container *container = sim->current->container;

    STORE(own->device[0].ceiling, container->ceiling);
    STORE(own->device[0].scale, container->scale);
}

uint32_t grant_ceiling(const struct device *device)
{
    return LOAD(device->ceiling);
}

static CUresult current_context(CUcontext *context)
{
    *context = (CUcontext)sim->current;
    return CUDA_SUCCESS;
}

static CUresult create(CUevent *event, unsigned int flags)
{
    struct process *process = sim->current;

    (void)flags;
    if (process->events == EVENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    process->event[process->events].stamp = (uint32_t)process->events;
    *event = (CUevent)&process->event[process->events++];
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    (void)stream;
    gpu_record((struct event *)event);
    return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
    return gpu_is_done((struct event *)event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
    *milliseconds = (float)((double)(gpu_stamp((struct event *)end) -
                                     gpu_stamp((struct event *)start)) /
                            1e6);
    return CUDA_SUCCESS;
}

static CUresult capturing(CUstream stream, int *status)
{
    (void)stream;
    *status = CAPTURE_NONE;
    return CUDA_SUCCESS;
}

static CUresult exchange(int *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

/* What the gate calls for a launch that is timed; the kernel is its first argument. */
static CUresult launch(uint64_t kernel)
{
    gpu_launch((const struct kernel *)kernel);
    return CUDA_SUCCESS;
}

void library_join(struct process *process)
{
    struct container *container = process->container;
    struct own *mine = aligned_alloc(256, (sizeof *mine + 255) / 256 * 256);

    *mine = (struct own){.stage = STAGE_READY, .mode = MODE_LIMIT, .single = 1, .devices = 1};
    mine->flags = GATE_COMPUTE;
    mine->usage = container->usage;
    mine->slot = &container->usage->slot[process->number];
    mine->slot->contexts = 1;
    mine->device[0].cores = mine->device[0].ceiling = container->cores;
    mine->device[0].limit = container->limit;
    mine->device[0].scale = SCALE_ONE;
    mine->device[0].burst_ns = BURST_NS;
    process->own = mine;
    helper = (struct helpers){.cuCtxGetCurrent = current_context,
                              .cuEventCreate = create,
                              .cuEventRecord = record,
                              .cuEventQuery = query,
                              .cuEventElapsedTime = elapsed,
                              .cuStreamIsCapturing = capturing,
                              .cuThreadExchangeStreamCaptureMode = exchange};
    real[ID_cuLaunchKernel] = real[ID_cuGraphLaunch] = (void *)launch;
}

void library_launch(const struct kernel *kernel)
{
    uint64_t saved[WORDS] = {(uint64_t)kernel};
    void *handle = (void *)(kernel->id << 12);
    int64_t answer = kernel->is_graph
                         ? gate_graph(handle, NULL, 0, 0, saved, ID_cuGraphLaunch)
                         : gate_kernel(handle, kernel->blocks, 1, 1, saved, ID_cuLaunchKernel);

    if (answer == GO_ON)
        gpu_launch(kernel);
}

void pacing_feed(int container, uint32_t ceiling, uint32_t scale)
{
    sim->container[container].ceiling = ceiling;
    sim->container[container].scale = scale;
}

int64_t pacing_spent(int container)
{
    return sim->container[container].usage->device[0].spent;
}

uint64_t pacing_throttled(int container)
{
    return sim->container[container].usage->device[0].throttled_ns;
}
