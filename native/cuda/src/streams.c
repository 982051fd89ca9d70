/* Streams, events and capture, with CUDA's own prohibitions. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

struct event {
    struct context *context;
    uint64_t number;
    uint32_t stamp;
    bool dead, recorded, captured;
};

static struct stream *captured[64];
static _Thread_local int thread_mode;
static bool stamps_taken[STATE_GPUS][STATE_STAMPS];

static bool is_default(CUstream stream)
{
    return (uintptr_t)stream <= 2;
}

static struct queue *own_queue(int gpu)
{
    return &driver.state->queue[driver.tenant][gpu];
}

/* Brings the engine up to now, with the lock of the state held; the dead are cleared sometimes. */
static void advance(int gpu)
{
    engine_advance(driver.state, gpu, state_now());
    if (driver.state->engine[gpu].samples != driver.samples_seen) {
        driver.samples_seen = driver.state->engine[gpu].samples;
        state_reap(driver.state, driver.descriptor);
    }
}

static void nap(uint64_t ns)
{
    struct timespec time = {0, (long)ns};

    nanosleep(&time, NULL);
}

void queue_wait(int gpu, uint64_t until)
{
    for (;;) {
        uint64_t left;
        state_lock(driver.state);
        advance(gpu);
        left = own_queue(gpu)->done >= until
                   ? 0
                   : engine_left(driver.state, driver.tenant, gpu, until) + 1000;
        state_unlock(driver.state);
        if (left == 0)
            return;
        nap(left > 500000 ? 500000 : left);
    }
}

uint64_t queue_added(int gpu)
{
    uint64_t added;

    state_lock(driver.state);
    added = own_queue(gpu)->added;
    state_unlock(driver.state);
    return added;
}

/* Waits while the queue is full, as the hardware's. */
uint64_t queue_add(int gpu, struct work work)
{
    for (;;) {
        uint64_t number;
        state_lock(driver.state);
        advance(gpu);
        work.ready_ns = state_now() + (work.is_event ? 0 : driver.facts.latency_ns);
        number = engine_add(driver.state, driver.tenant, gpu, work);
        if (number != 0 && work.is_event)
            advance(gpu);
        state_unlock(driver.state);
        if (number != 0)
            return number;
        nap(20000);
    }
}

void stream_check(const char *function, CUstream stream)
{
    if (!is_default(stream) && (stream->dead || stream->context->dead))
        driver_abort(function, "the stream or its context was destroyed");
}

bool stream_captures(CUstream stream)
{
    return !is_default(stream) && stream->capture != CAPTURE_NONE;
}

struct graph *stream_graph(CUstream stream)
{
    return stream->graph;
}

static void invalidate(bool global_only)
{
    for (int at = 0; at < 64; at++)
        if (captured[at] && (!global_only || captured[at]->mode == CAPTURE_GLOBAL))
            captured[at]->capture = CAPTURE_INVALIDATED;
}

static bool captures_here(void)
{
    uint64_t self = (uint64_t)syscall(SYS_gettid);

    for (int at = 0; at < 64; at++)
        if (captured[at] && captured[at]->capture_thread == self &&
            captured[at]->mode != CAPTURE_RELAXED)
            return true;
    return false;
}

/* Potentially unsafe calls, while a capture forbids them to this thread. */
CUresult capture_forbid(const char *function)
{
    CUresult result = CUDA_SUCCESS;

    (void)function;
    if (driver.captures == 0 || thread_mode == CAPTURE_RELAXED)
        return CUDA_SUCCESS;
    driver_lock();
    if ((thread_mode == CAPTURE_GLOBAL && driver.global_captures > 0) || captures_here()) {
        invalidate(false);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    driver_unlock();
    return result;
}

/* The legacy stream waits for all others, so it may not be used while one captures. */
CUresult capture_forbid_default(CUstream stream)
{
    bool blocked = false;

    if (driver.captures == 0 || (stream != NULL && stream != (CUstream)1))
        return CUDA_SUCCESS;
    driver_lock();
    for (int at = 0; at < 64; at++)
        blocked |= captured[at] && (captured[at]->flags & 1) == 0;
    driver_unlock();
    return blocked ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int old = thread_mode;

    ENTER(cuThreadExchangeStreamCaptureMode);
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    struct context *context;
    static uint64_t made;

    ENTER_CONTEXT(cuStreamCreateWithPriority, context);
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = context;
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    (*stream)->id = 10 + ++made;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER(cuStreamDestroy_v2);
    stream_check("cuStreamDestroy_v2", stream);
    stream->dead = true;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    ENTER(cuStreamGetPriority);
    *priority = is_default(stream) ? 0 : stream->priority;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    ENTER(cuStreamGetFlags);
    *flags = is_default(stream) ? 0 : stream->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    ENTER(cuStreamGetId);
    *id = is_default(stream) ? (uintptr_t)stream : stream->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *found)
{
    struct context *context;

    ENTER_CONTEXT(cuStreamGetCtx, context);
    *found = is_default(stream) ? context : stream->context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    struct context *context;

    ENTER_CONTEXT(cuStreamGetDevice, context);
    *device = is_default(stream) ? context->gpu : stream->context->gpu;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    struct context *context;
    CUresult result;

    ENTER_CONTEXT(cuStreamSynchronize, context);
    stream_check("cuStreamSynchronize", stream);
    result = capture_forbid("cuStreamSynchronize");
    if (result == CUDA_SUCCESS)
        queue_wait(context->gpu, queue_added(context->gpu));
    return result;
}

EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return cuStreamSynchronize(stream);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    struct context *context;
    bool done;

    ENTER_CONTEXT(cuStreamQuery, context);
    stream_check("cuStreamQuery", stream);
    state_lock(driver.state);
    advance(context->gpu);
    done = own_queue(context->gpu)->done == own_queue(context->gpu)->added;
    state_unlock(driver.state);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    ENTER(cuStreamWaitEvent);
    (void)event, (void)flags;
    stream_check("cuStreamWaitEvent", stream);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    int at = 0;

    ENTER(cuStreamBeginCapture_v2);
    if (is_default(stream) || stream->capture != CAPTURE_NONE || mode < 0 || mode > 2)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    driver_lock();
    while (at < 64 && captured[at])
        at++;
    if (at < 64) {
        captured[at] = stream;
        stream->capture = CAPTURE_ACTIVE;
        stream->mode = mode;
        stream->capture_thread = (uint64_t)syscall(SYS_gettid);
        stream->graph = graph_make();
        driver.captures++;
        driver.global_captures += mode == CAPTURE_GLOBAL;
    }
    driver_unlock();
    return at < 64 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    bool broken;

    ENTER(cuStreamEndCapture);
    if (is_default(stream) || stream->capture == CAPTURE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    for (int at = 0; at < 64; at++)
        if (captured[at] == stream)
            captured[at] = NULL;
    driver.captures--;
    driver.global_captures -= stream->mode == CAPTURE_GLOBAL;
    broken = stream->capture == CAPTURE_INVALIDATED;
    stream->capture = CAPTURE_NONE;
    driver_unlock();
    *graph = broken ? NULL : stream->graph;
    stream->graph = NULL;
    return broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    CUresult result;

    ENTER(cuStreamIsCapturing);
    result = capture_forbid_default(stream);
    if (result == CUDA_SUCCESS)
        *status = is_default(stream) ? CAPTURE_NONE : stream->capture;
    return result;
}

EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
    return cuStreamIsCapturing(stream == NULL ? (CUstream)2 : stream, status);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    struct context *context;
    uint32_t stamp = 0;

    ENTER_CONTEXT(cuEventCreate, context);
    (void)flags;
    driver_lock();
    while (stamp < STATE_STAMPS && stamps_taken[context->gpu][stamp])
        stamp++;
    if (stamp < STATE_STAMPS)
        stamps_taken[context->gpu][stamp] = true;
    driver_unlock();
    if (stamp == STATE_STAMPS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = calloc(1, sizeof **event);
    (*event)->context = context;
    (*event)->stamp = stamp;
    return CUDA_SUCCESS;
}

static void check(const char *function, CUevent event)
{
    if (event->dead || event->context->dead)
        driver_abort(function, "the event or its context was destroyed");
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(cuEventDestroy_v2);
    if (event->dead)
        driver_abort("cuEventDestroy_v2", "the event was destroyed before");
    event->dead = true;
    driver_lock();
    stamps_taken[event->context->gpu][event->stamp] = false;
    driver_unlock();
    return CUDA_SUCCESS;
}

static CUresult record(const char *function, CUevent event, CUstream stream)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);

    if (result == CUDA_SUCCESS && !stream_captures(stream))
        result = capture_forbid(function);
    if (result != CUDA_SUCCESS)
        return result;
    check(function, event);
    stream_check(function, stream);
    event->captured = stream_captures(stream);
    if (event->captured) {
        /* Nothing but the program itself may put an event into its graph. */
        if (getenv("SLICEWISE_CUDA_NO_CAPTURED_EVENTS"))
            driver_abort(function, "recorded into a capturing stream");
        return CUDA_SUCCESS;
    }
    event->number = 0;
    if (!driver.facts.engine_off)
        event->number =
            queue_add(context->gpu, (struct work){.stamp = event->stamp, .is_event = 1});
    event->recorded = true;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return record("cuEventRecord", event, stream);
}

EXPORT CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return record("cuEventRecord_ptsz", event, stream ? stream : (CUstream)2);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    (void)flags;
    return record("cuEventRecordWithFlags", event, stream);
}

static bool is_done(CUevent event)
{
    bool done;

    if (!event->recorded || driver.facts.engine_off)
        return true;
    state_lock(driver.state);
    advance(event->context->gpu);
    done = own_queue(event->context->gpu)->done >= event->number;
    state_unlock(driver.state);
    return done;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    CUresult result;

    ENTER(cuEventQuery);
    check("cuEventQuery", event);
    result = capture_forbid("cuEventQuery");
    if (result != CUDA_SUCCESS)
        return result;
    return is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    CUresult result;

    ENTER(cuEventSynchronize);
    check("cuEventSynchronize", event);
    result = capture_forbid("cuEventSynchronize");
    if (result == CUDA_SUCCESS && event->recorded && !driver.facts.engine_off)
        queue_wait(event->context->gpu, event->number);
    return result;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime);
    check("cuEventElapsedTime", start);
    check("cuEventElapsedTime", end);
    if (!start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(start) || !is_done(end))
        return CUDA_ERROR_NOT_READY;
    state_lock(driver.state);
    *milliseconds = (float)((double)(int64_t)(own_queue(end->context->gpu)->stamp[end->stamp] -
                                              own_queue(start->context->gpu)->stamp[start->stamp]) /
                            1e6);
    state_unlock(driver.state);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime(milliseconds, start, end);
}
