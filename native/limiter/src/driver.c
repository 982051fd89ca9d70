/* Finds the real driver, once, at the first use of a hook and never at load time. */
#include "driver.h"

#include "elf.h"
#include "process.h"

enum { LAZY = 1, NO_LOAD = 4, SWAPS = 256, NVML_SUCCESS = 0, NVML_NOT_FOUND = 6 };

/* In the stubs: the addresses of all hooks, by number. */
extern void *const hook_table[HOOKS] __attribute__((visibility("hidden")));

static CUresult not_found(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult no_device(void)
{
    return CUDA_ERROR_NO_DEVICE;
}

static CUresult not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static const char *const names[HOOKS] = {
#define HOOK(name) #name,
#include "hooks.def"
#undef HOOK
};

void *real[HOOKS];
struct helpers helper;
int (*nvml_uuid)(void *, char *, unsigned int);

/* From the real address to the hook; written before `found` is. */
static struct {
    void *address, *hook;
} swaps[SWAPS];
static uint32_t found;

int hook_find(const char *name)
{
    int low = 0, high = HOOKS;

    while (low < high) {
        int middle = (low + high) / 2, order = text_compare(name, names[middle]);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

void *hook_address(int hook)
{
    return hook_table[hook];
}

static unsigned int swap_place(const void *address)
{
    return (unsigned int)(((uintptr_t)address >> 4) * 2654435761u >> 8) % SWAPS;
}

void *hook_swap(void *address)
{
    for (unsigned int at = swap_place(address); swaps[at].address; at = (at + 1) % SWAPS)
        if (swaps[at].address == address)
            return swaps[at].hook;
    return address;
}

static void add_swap(void *address, void *hook)
{
    unsigned int at = swap_place(address);

    while (swaps[at].address && swaps[at].address != address)
        at = (at + 1) % SWAPS;
    swaps[at].hook = hook;
    swaps[at].address = address;
}

bool driver_found(void)
{
    return __atomic_load_n(&found, __ATOMIC_ACQUIRE) == 1;
}

bool driver_has(int hook)
{
    return real[hook] != (void *)not_supported && real[hook] != (void *)not_found &&
           real[hook] != (void *)no_device;
}

/* The driver that the program has loaded already, for two must never be mixed. */
static void *open_library(const char *start, const char *name)
{
    char path[4096];

    if (real_dlopen == NULL)
        elf_resolve();
    if (elf_loaded(start, path, sizeof path)) {
        void *handle = real_dlopen(path, LAZY | NO_LOAD);
        if (handle)
            return handle;
    }
    return real_dlopen(name, LAZY);
}

static void *find(void *handle, const char *name, void *otherwise)
{
    void *address = real_dlsym(handle, name);

    /* An address inside ourselves means that the handle is no driver's. */
    return address ? address : otherwise;
}

static void find_helpers(void *handle)
{
#define HELPER(name, arguments) *(void **)&helper.name = find(handle, #name, (void *)not_supported);
    HELPERS(HELPER)
#undef HELPER
}

static bool is_nvml(int hook)
{
    return names[hook][0] == 'n';
}

bool driver_find(void)
{
    void *handle;

    if (driver_found())
        return true;
    for (int at = 0; at < HOOKS; at++)
        if (!is_nvml(at))
            real[at] = (void *)(at == ID_cuInit ? no_device : not_found);
    handle = open_library("libcuda.so", "libcuda.so.1");
    find_helpers(handle);
    if (handle == NULL)
        return false;
    for (int at = 0; at < HOOKS; at++) {
        void *address = is_nvml(at) ? NULL : real_dlsym(handle, names[at]);
        if (address != NULL)
            add_swap(address, hook_address(at));
        if (!is_nvml(at))
            real[at] = address ? address : (void *)not_supported;
    }
    __atomic_store_n(&found, 1, __ATOMIC_RELEASE);
    return true;
}

bool nvml_find(void)
{
    void *handle;

    if (__atomic_load_n(&real[ID_nvmlDeviceGetMemoryInfo], __ATOMIC_ACQUIRE) != NULL)
        return nvml_uuid != NULL;
    handle = open_library("libnvidia-ml.so", "libnvidia-ml.so.1");
    if (handle == NULL)
        return false;
    *(void **)&nvml_uuid = real_dlsym(handle, "nvmlDeviceGetUUID");
    __atomic_store_n(&real[ID_nvmlDeviceGetMemoryInfo_v2],
                     real_dlsym(handle, "nvmlDeviceGetMemoryInfo_v2"), __ATOMIC_RELEASE);
    __atomic_store_n(&real[ID_nvmlDeviceGetMemoryInfo],
                     real_dlsym(handle, "nvmlDeviceGetMemoryInfo"), __ATOMIC_RELEASE);
    return nvml_uuid != NULL;
}

/* Of NVML's functions those that feed.c needs, for it is called in programs that may not use it. */
static struct {
    uint32_t stage;
    int (*by_uuid)(const char *, void **);
    int (*utilization)(void *, nvml_sample *, uint32_t *, unsigned long long);
} sampler;
enum { SAMPLER_UNKNOWN, SAMPLER_READY, SAMPLER_NONE };

static bool sampler_find(void)
{
    void *handle;
    int (*initialise)(void);

    if (sampler.stage != SAMPLER_UNKNOWN)
        return sampler.stage == SAMPLER_READY;
    sampler.stage = SAMPLER_NONE;
    handle = open_library("libnvidia-ml.so", "libnvidia-ml.so.1");
    if (handle == NULL)
        return false;
    *(void **)&initialise = real_dlsym(handle, "nvmlInit_v2");
    *(void **)&sampler.by_uuid = real_dlsym(handle, "nvmlDeviceGetHandleByUUID");
    *(void **)&sampler.utilization = real_dlsym(handle, "nvmlDeviceGetProcessUtilization");
    if (initialise && sampler.by_uuid && sampler.utilization && initialise() == NVML_SUCCESS)
        sampler.stage = SAMPLER_READY;
    return sampler.stage == SAMPLER_READY;
}

bool nvml_sampled(const char *uuid, nvml_sample *samples, uint32_t *count, uint64_t since_us)
{
    void *handle;
    int result;

    if (!sampler_find() || sampler.by_uuid(uuid, &handle) != NVML_SUCCESS)
        return false;
    result = sampler.utilization(handle, samples, count, since_us);
    if (result == NVML_NOT_FOUND)
        *count = 0;
    return result == NVML_SUCCESS || result == NVML_NOT_FOUND;
}
