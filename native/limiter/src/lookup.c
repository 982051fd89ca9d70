/* What dlsym, dlvsym and cuGetProcAddress answer for hooked names. */
#include "driver.h"
#include "elf.h"
#include "process.h"

/* Read by the stubs: 1 stands for a name that is not ours. */
static void *const NOT_OURS = (void *)1;

static bool is_pseudo(const void *handle)
{
    return handle == NULL || handle == (void *)-1;
}

/* RTLD_NEXT and RTLD_DEFAULT give the hook too, or one line of code would go around it. */
static void *answer(const void *handle, int hook, const void *real_answer)
{
    if (is_pseudo(handle))
        return driver_found() && hook_address(hook) && !driver_has(hook) &&
                       real[hook] != NULL
                   ? NULL
                   : hook_address(hook);
    return real_answer ? hook_address(hook) : NULL;
}

__attribute__((visibility("hidden"))) void *lookup_symbol(void *handle, const char *name);
void *lookup_symbol(void *handle, const char *name)
{
    int hook = hook_find(name);

    if (hook < 0)
        return NOT_OURS;
    return answer(handle, hook, is_pseudo(handle) ? NULL : real_dlsym(handle, name));
}

__attribute__((visibility("hidden"))) void *lookup_versioned(void *handle, const char *name,
                                                             const char *version);
void *lookup_versioned(void *handle, const char *name, const char *version)
{
    int hook = hook_find(name);

    if (hook < 0)
        return NOT_OURS;
    return answer(handle, hook, is_pseudo(handle) ? NULL : real_dlvsym(handle, name, version));
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    CUresult result;

    process_ready();
    result = REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && function && *function)
        *function = hook_swap(*function);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    uint64_t flags, int *status)
{
    CUresult result;

    process_ready();
    result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && function && *function)
        *function = hook_swap(*function);
    return result;
}

/* Once in a process, for a limit that cannot be read must not look like a broken driver. */
static CUresult refuse(void)
{
    const char *const words[] = {"slicewise: CUDA is refused: ", own->refusal ? own->refusal : "",
                                 NULL};

    if (__atomic_exchange_n(&own->told, 1, __ATOMIC_RELAXED) == 0)
        write_line(words);
    return CUDA_ERROR_NOT_PERMITTED;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    CUresult result;

    process_ready();
    if (own->mode == MODE_CLOSED)
        return refuse();
    if (own->mode == MODE_LIMIT && !own->slot_taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS)
        process_map_devices();
    return result;
}
