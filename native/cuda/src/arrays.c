/* Arrays, mipmapped arrays and external memory: things whose size the driver decides. */
#include <stdlib.h>

#include "driver.h"

static const uint64_t STEP = 64u << 10;
enum { MAX_ARRAYS = 65536 };

struct array {
    struct context *context;
    uint64_t bytes;
    int gpu;
    bool live;
};

static struct array *arrays[MAX_ARRAYS];
static unsigned int made;

static unsigned int format_bytes(unsigned int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 16;
    }
}

static uint64_t at_least_one(uint64_t number)
{
    return number ? number : 1;
}

static CUresult create(const char *function, struct array **array, uint64_t bytes)
{
    struct context *context;
    CUresult result = driver_enter_context(function, &context);
    unsigned int at;

    if (result == CUDA_SUCCESS)
        result = capture_forbid(function);
    if (result != CUDA_SUCCESS)
        return result;
    bytes = memory_round(bytes, STEP);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_take(context->gpu, (int64_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *array = calloc(1, sizeof **array);
    **array = (struct array){context, bytes, context->gpu, true};
    driver_lock();
    at = made++ % MAX_ARRAYS;
    if (arrays[at] == NULL || !arrays[at]->live)
        arrays[at] = *array;
    driver_unlock();
    return CUDA_SUCCESS;
}

static CUresult destroy(const char *function, struct array *array)
{
    CUresult result = driver_enter(function);

    if (result != CUDA_SUCCESS)
        return result;
    if (!array->live)
        driver_abort(function, "it was destroyed before");
    array->live = false;
    memory_take(array->gpu, -(int64_t)array->bytes);
    return CUDA_SUCCESS;
}

void arrays_drop_context(struct context *context)
{
    for (unsigned int at = 0; at < MAX_ARRAYS; at++)
        if (arrays[at] && arrays[at]->live && arrays[at]->context == context) {
            arrays[at]->live = false;
            memory_take(arrays[at]->gpu, -(int64_t)arrays[at]->bytes);
        }
}

static uint64_t size_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return d->Width * at_least_one(d->Height) * at_least_one(d->Depth) * d->NumChannels *
           format_bytes(d->Format);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return create("cuArray3DCreate_v2", array, size_of(descriptor));
}

EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
    CUDA_ARRAY3D_DESCRIPTOR wide = {d->Width, d->Height, d->Depth, d->Format, d->NumChannels, 0};

    return create("cuArray3DCreate", array, size_of(&wide));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};

    return create("cuArrayCreate_v2", array, size_of(&deep));
}

EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
    CUDA_ARRAY3D_DESCRIPTOR deep = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};

    return create("cuArrayCreate", array, size_of(&deep));
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    return destroy("cuArrayDestroy", array);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                       const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                       unsigned int levels)
{
    CUDA_ARRAY3D_DESCRIPTOR level = *descriptor;
    uint64_t bytes = 0;

    for (unsigned int at = 0; at < levels; at++) {
        bytes += size_of(&level);
        level.Width = at_least_one(level.Width / 2);
        level.Height = at_least_one(level.Height / 2);
        level.Depth = at_least_one(level.Depth / 2);
    }
    return create("cuMipmappedArrayCreate", (struct array **)mipmap, bytes);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    return destroy("cuMipmappedArrayDestroy", (struct array *)mipmap);
}

EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array,
                                             CUdevice device)
{
    ENTER(cuArrayGetMemoryRequirements);
    (void)device;
    *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->bytes, .alignment = STEP};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
                                                      CUmipmappedArray mipmap, CUdevice device)
{
    return cuArrayGetMemoryRequirements(needs, (CUarray)mipmap, device);
}

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)
{
    return create("cuImportExternalMemory", (struct array **)memory, descriptor->size);
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    return destroy("cuDestroyExternalMemory", (struct array *)memory);
}
