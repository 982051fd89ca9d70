/* Modules, functions and launches; a kernel takes the time that the facts give its name. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct module {
    bool dead;
};

struct function {
    char name[MAX_NAME];
    struct module *module;
    uint64_t ns;
    unsigned int spread;
};

static const uint64_t UNKNOWN_NS = 10000;

static struct module *load(void)
{
    return calloc(1, sizeof(struct module));
}

static struct function *find(struct module *module, const char *name)
{
    struct function *function = calloc(1, sizeof *function);

    strncpy(function->name, name, MAX_NAME - 1);
    function->module = module;
    function->ns = UNKNOWN_NS;
    for (unsigned int at = 0; at < driver.facts.kernels; at++)
        if (strcmp(driver.facts.kernel[at].name, name) == 0) {
            function->ns = driver.facts.kernel[at].ns;
            function->spread = driver.facts.kernel[at].spread;
        }
    return function;
}

uint64_t function_ns(CUfunction function)
{
    static _Thread_local uint64_t random = 88172645463325252u;
    uint64_t width = 2 * function->ns * function->spread / 100;

    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return function->ns - width / 2 + (width ? random % width : 0);
}

CUresult launch_add(const char *name, CUfunction function, CUstream stream)
{
    struct context *context;
    CUresult result = driver_enter_context(name, &context);

    if (result != CUDA_SUCCESS)
        return result;
    stream_check(name, stream);
    result = capture_forbid_default(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream_captures(stream)) {
        graph_add_ns(stream_graph(stream), function_ns(function));
        return CUDA_SUCCESS;
    }
    if (!driver.facts.engine_off)
        queue_add(context->gpu, (struct work){.left_ns = function_ns(function)});
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                               unsigned int bx, unsigned int by, unsigned int bz,
                               unsigned int shared, CUstream stream, void **params, void **extra)
{
    if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)shared, (void)params, (void)extra;
    return launch_add("cuLaunchKernel", f, stream);
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy,
                                    unsigned int gz, unsigned int bx, unsigned int by,
                                    unsigned int bz, unsigned int shared, CUstream stream,
                                    void **params, void **extra)
{
    if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)shared, (void)params, (void)extra;
    return launch_add("cuLaunchKernel_ptsz", f, stream ? stream : (CUstream)2);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                                 void **extra)
{
    (void)params, (void)extra;
    return launch_add("cuLaunchKernelEx", f, config->hStream);
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params,
                                      void **extra)
{
    (void)params, (void)extra;
    return launch_add("cuLaunchKernelEx_ptsz", f, config->hStream ? config->hStream : (CUstream)2);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
                                          unsigned int gz, unsigned int bx, unsigned int by,
                                          unsigned int bz, unsigned int shared, CUstream stream,
                                          void **params)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params;
    return launch_add("cuLaunchCooperativeKernel", f, stream);
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy,
                                               unsigned int gz, unsigned int bx, unsigned int by,
                                               unsigned int bz, unsigned int shared,
                                               CUstream stream, void **params)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params;
    return launch_add("cuLaunchCooperativeKernel_ptsz", f, stream ? stream : (CUstream)2);
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                                     unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    (void)flags;
    for (unsigned int at = 0; at < count && result == CUDA_SUCCESS; at++)
        result = launch_add("cuLaunchCooperativeKernelMultiDevice", list[at].function,
                            list[at].hStream);
    return result;
}

EXPORT CUresult cuLaunch(CUfunction f)
{
    return launch_add("cuLaunch", f, NULL);
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    (void)width, (void)height;
    return launch_add("cuLaunchGrid", f, NULL);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    (void)width, (void)height;
    return launch_add("cuLaunchGridAsync", f, stream);
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data)
{
    ENTER(cuLaunchHostFunc);
    stream_check("cuLaunchHostFunc", stream);
    function(data);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct context *context;

    ENTER_CONTEXT(cuModuleLoadData, context);
    (void)image;
    *module = load();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                                   int *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER(cuModuleGetLoadingMode);
    *mode = 2;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(cuModuleGetFunction);
    *function = find(module, name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    ENTER(cuModuleUnload);
    if (module->dead)
        driver_abort("cuModuleUnload", "the module was unloaded before");
    module->dead = true;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    ENTER(cuFuncGetAttribute);
    (void)function;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    ENTER(cuFuncSetAttribute);
    (void)function, (void)attribute, (void)value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    ENTER(cuFuncSetCacheConfig);
    (void)function, (void)config;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    ENTER(cuFuncSetBlockShape);
    (void)function, (void)x, (void)y, (void)z;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryLoadData(CUmodule *library, const void *code, int *options, void **values,
                                  unsigned int count, int *library_options, void **library_values,
                                  unsigned int library_count)
{
    ENTER(cuLibraryLoadData);
    (void)code, (void)options, (void)values, (void)count, (void)library_options;
    (void)library_values, (void)library_count;
    *library = load();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryUnload(CUmodule library)
{
    return cuModuleUnload(library);
}

EXPORT CUresult cuLibraryGetKernel(CUfunction *kernel, CUmodule library, const char *name)
{
    return cuModuleGetFunction(kernel, library, name);
}

EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUmodule library)
{
    ENTER(cuLibraryGetModule);
    *module = library;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel)
{
    ENTER(cuKernelGetFunction);
    *function = kernel;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetLibrary(CUmodule *library, CUfunction kernel)
{
    ENTER(cuKernelGetLibrary);
    *library = kernel->module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUfunction kernel, CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, kernel);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                            int size, size_t shared)
{
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)function, (void)size, (void)shared;
    *blocks = 2;
    return CUDA_SUCCESS;
}
