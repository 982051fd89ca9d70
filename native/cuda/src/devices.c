/* Initialisation, and questions about devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_address = 1ULL << 44};

static const char *unknown[256];
static unsigned int unknowns;

void driver_lock(void)
{
    pthread_mutex_lock(&driver.lock);
}

void driver_unlock(void)
{
    pthread_mutex_unlock(&driver.lock);
}

_Noreturn void driver_abort(const char *function, const char *what)
{
    fprintf(stderr, "the CUDA stand-in ends the test: %s: %s\n", function, what);
    abort();
}

static void list_unknown(void)
{
    for (unsigned int at = 0; at < unknowns; at++)
        fprintf(stderr, "the CUDA stand-in does not know %s\n", unknown[at]);
}

CUresult driver_unknown(const char *function)
{
    driver_lock();
    if (unknowns == 0)
        atexit(list_unknown);
    for (unsigned int at = 0; at < unknowns; at++)
        if (unknown[at] == function) {
            driver_unlock();
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    if (unknowns < sizeof unknown / sizeof unknown[0])
        unknown[unknowns++] = function;
    driver_unlock();
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fail_on_demand(const char *function)
{
    for (unsigned int at = 0; at < driver.facts.failures; at++) {
        struct failure *failure = &driver.facts.failure[at];
        unsigned int call;
        if (strcmp(failure->function, function) != 0)
            continue;
        call = __atomic_add_fetch(&failure->calls, 1, __ATOMIC_RELAXED);
        if (call == failure->nth || (failure->every && call % failure->every == 0))
            return failure->result;
    }
    return CUDA_SUCCESS;
}

CUresult driver_enter(const char *function)
{
    if (!driver.initialised || driver.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    return driver.facts.failures ? fail_on_demand(function) : CUDA_SUCCESS;
}

CUresult driver_enter_context(const char *function, struct context **context)
{
    CUresult result = driver_enter(function);

    if (result != CUDA_SUCCESS)
        return result;
    *context = context_current();
    if (*context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if ((*context)->dead)
        driver_abort(function, "called in a context that was destroyed");
    return CUDA_SUCCESS;
}

static void note_fork(void)
{
    driver.forked = driver.initialised;
}

static void publish_gpus(void)
{
    struct state *state = driver.state;

    for (unsigned int at = 0; at < driver.facts.gpus; at++) {
        const struct gpu_fact *gpu = &driver.facts.gpu[at];
        struct engine *engine = &state->engine[at];
        memcpy(engine->uuid, gpu->uuid, sizeof engine->uuid);
        engine->memory = gpu->memory;
        engine->bound = gpu->bound;
        engine->latency_ns = driver.facts.latency_ns;
        engine->slice_ns = driver.facts.slice_ns;
        engine->switch_ns = driver.facts.switch_ns;
    }
    state->gpus = driver.facts.gpus;
}

static CUresult start(void)
{
    const char *path = getenv("SLICEWISE_CUDA_FILE");

    if (path == NULL || !facts_read(path, &driver.facts) || driver.facts.gpus == 0)
        return CUDA_ERROR_NO_DEVICE;
    driver.state = state_open(driver.facts.state, &driver.descriptor);
    if (driver.state == NULL)
        return CUDA_ERROR_UNKNOWN;
    state_lock(driver.state);
    publish_gpus();
    driver.tenant = state_join(driver.state, driver.descriptor);
    if (driver.tenant >= 0)
        limits_join();
    state_unlock(driver.state);
    if (driver.tenant < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_atfork(NULL, NULL, note_fork);
    driver.initialised = true;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    driver_lock();
    if (!driver.initialised)
        result = start();
    driver_unlock();
    return result;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = driver.initialised ? driver.facts.version : 13040;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount);
    *count = (int)driver.facts.gpus;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet);
    if (ordinal < 0 || ordinal >= (int)driver.facts.gpus)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

static const struct gpu_fact *gpu_of(CUdevice device)
{
    return device >= 0 && device < (int)driver.facts.gpus ? &driver.facts.gpu[device] : NULL;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName);
    if (gpu_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", gpu_of(device)->name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    const char *text;
    unsigned int at = 0, byte;

    ENTER(cuDeviceGetUuid_v2);
    if (gpu_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, 0, sizeof *uuid);
    for (text = gpu_of(device)->uuid + 4; *text && at < 16; text++)
        if (*text != '-' && sscanf(text, "%2x", &byte) == 1) {
            uuid->bytes[at++] = (unsigned char)byte;
            text++;
        }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem_v2);
    if (gpu_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = gpu_of(device)->memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t whole;
    CUresult result = cuDeviceTotalMem_v2(&whole, device);

    if (result == CUDA_SUCCESS)
        *bytes = whole > UINT32_MAX ? UINT32_MAX : (unsigned int)whole;
    return result;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    ENTER(cuDeviceComputeCapability);
    if (gpu_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *major = (int)gpu_of(device)->major;
    *minor = (int)gpu_of(device)->minor;
    return CUDA_SUCCESS;
}

/* Attributes that are plain numbers and programs ask for. */
static const struct {
    int attribute, value;
} attributes[] = {
    {1, 1024},  {2, 1024},  {3, 1024}, {4, 64},      {5, 2147483647}, {6, 65535}, {7, 65535},
    {8, 49152}, {9, 65536}, {10, 32},  {11, 1 << 30}, {12, 65536},     {13, 1410000},
    {14, 512},  {15, 1},    {18, 0},   {19, 1},       {20, 0},         {31, 1},    {33, 1},
    {34, 0},    {35, 0},    {36, 1215000}, {37, 5120}, {38, 41943040}, {40, 3},    {41, 1},
    {50, 0},    {78, 1},    {79, 1},   {80, 1},       {81, 167936},    {82, 65536}, {83, 1},
    {86, 1},    {88, 1},    {89, 1},   {90, 1},       {91, 1},         {95, 1},    {97, 166912},
    {98, 1},    {99, 1},    {100, 1},  {101, 1},      {102, 1},        {103, 1},   {106, 32},
    {111, 1024}, {115, 1},  {119, 1},
};

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    const struct gpu_fact *gpu = gpu_of(device);

    ENTER(cuDeviceGetAttribute);
    if (gpu == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    if (attribute == 16)
        *value = (int)gpu->sms;
    else if (attribute == 39)
        *value = (int)gpu->threads;
    else if (attribute == 75)
        *value = (int)gpu->major;
    else if (attribute == 76)
        *value = (int)gpu->minor;
    for (size_t at = 0; at < sizeof attributes / sizeof attributes[0]; at++)
        if (attributes[at].attribute == attribute)
            *value = attributes[at].value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    ENTER(cuDeviceGetPCIBusId);
    if (gpu_of(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice one, CUdevice other)
{
    ENTER(cuDeviceCanAccessPeer);
    *can = one != other;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    for (size_t at = 0; at < sizeof results / sizeof results[0]; at++)
        if (results[at].result == error) {
            *name = results[at].name;
            return CUDA_SUCCESS;
        }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    for (size_t at = 0; at < sizeof results / sizeof results[0]; at++)
        if (results[at].result == error) {
            *text = results[at].text;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
