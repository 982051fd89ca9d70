/* Arrays and external memory: announced by their description, settled by what the driver says. */
#include "claim.h"

static const uint64_t STEP = 64u << 10;

static uint64_t format_bytes(unsigned int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    /* More than any format has; the driver's own figure settles it. */
    default: return 16;
    }
}

static uint64_t or_one(uint64_t number)
{
    return number ? number : 1;
}

static uint64_t size_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return multiply(multiply(multiply(d->Width, or_one(d->Height)), or_one(d->Depth)),
                    or_one(d->NumChannels) * format_bytes(d->Format));
}

static uint64_t needed(const struct claim *claim, CUarray array, uint64_t otherwise)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;

    if (claim->device >= 0 &&
        helper.cuArrayGetMemoryRequirements(&needs, array, own->device[claim->device].ordinal) ==
            CUDA_SUCCESS &&
        needs.size > 0)
        return needs.size;
    return otherwise;
}

/* What the driver took is more than announced and over the limit: it goes back at once. */
static CUresult give_back(CUarray array, const struct claim *claim)
{
    struct entry entry;

    if (table_take(KIND_ARRAY, (uint64_t)array, &entry))
        account_change(entry.device, -(int64_t)entry.bytes);
    REAL(cuArrayDestroy)(array);
    account_refuse(claim->device, claim->asked);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult finish(struct claim *claim, CUresult result, const CUarray *array)
{
    if (result != CUDA_SUCCESS) {
        claim_withdraw(claim);
        return result;
    }
    if (!claim_keep(claim, KIND_ARRAY, (uint64_t)*array, needed(claim, *array, claim->asked)))
        return give_back(*array, claim);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct claim claim;
    CUresult result = claim_current(&claim, d ? round_up(size_of(d), STEP) : 0);

    if (result != CUDA_SUCCESS)
        return result;
    return finish(&claim, REAL(cuArray3DCreate_v2)(array, d), array);
}

EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
    struct claim claim;
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    CUresult result;

    if (d)
        wide = (CUDA_ARRAY3D_DESCRIPTOR){d->Width,  d->Height,      d->Depth,
                                         d->Format, d->NumChannels, d->Flags};
    result = claim_current(&claim, round_up(size_of(&wide), STEP));
    if (result != CUDA_SUCCESS)
        return result;
    return finish(&claim, REAL(cuArray3DCreate)(array, d), array);
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    struct claim claim;
    CUDA_ARRAY3D_DESCRIPTOR deep = {0};
    CUresult result;

    if (d)
        deep = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    result = claim_current(&claim, round_up(size_of(&deep), STEP));
    if (result != CUDA_SUCCESS)
        return result;
    return finish(&claim, REAL(cuArrayCreate_v2)(array, d), array);
}

EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
    struct claim claim;
    CUDA_ARRAY3D_DESCRIPTOR deep = {0};
    CUresult result;

    if (d)
        deep = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    result = claim_current(&claim, round_up(size_of(&deep), STEP));
    if (result != CUDA_SUCCESS)
        return result;
    return finish(&claim, REAL(cuArrayCreate)(array, d), array);
}

/* Taken out first, put back if the driver refused. */
#define DESTROY(function, kind, handle)                                                  \
    do {                                                                                 \
        struct entry entry;                                                              \
        bool known = process_ready() && own->mode == MODE_LIMIT &&                       \
                     table_take(kind, (uint64_t)(handle), &entry);                       \
        CUresult result = REAL(function)(handle);                                        \
        if (known && result == CUDA_SUCCESS)                                             \
            account_change(entry.device, -(int64_t)entry.bytes);                         \
        else if (known)                                                                  \
            table_put(&entry);                                                           \
        return result;                                                                   \
    } while (0)

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    DESTROY(cuArrayDestroy, KIND_ARRAY, array);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                       const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                       unsigned int levels)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    struct claim claim;
    CUDA_ARRAY3D_DESCRIPTOR level = {0};
    uint64_t bytes = 0;
    CUresult result;

    if (descriptor)
        level = *descriptor;
    /* Sixty-four halvings leave one element whatever the sides were. */
    for (unsigned int at = 0; at < levels && at < 64 && bytes < 1ull << 60; at++) {
        bytes += size_of(&level);
        level.Width = or_one(level.Width / 2);
        level.Height = or_one(level.Height / 2);
        level.Depth = or_one(level.Depth / 2);
    }
    result = claim_current(&claim, round_up(bytes, STEP));
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMipmappedArrayCreate)(mipmap, descriptor, levels);
    if (result != CUDA_SUCCESS) {
        claim_withdraw(&claim);
        return result;
    }
    bytes = claim.asked;
    if (claim.device >= 0 && helper.cuMipmappedArrayGetMemoryRequirements(
                                 &needs, *mipmap, own->device[claim.device].ordinal) ==
                                 CUDA_SUCCESS && needs.size > 0)
        bytes = needs.size;
    claim_keep(&claim, KIND_MIPMAP, (uint64_t)*mipmap, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    DESTROY(cuMipmappedArrayDestroy, KIND_MIPMAP, mipmap);
}

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)
{
    struct claim claim;
    CUresult result = claim_current(&claim, descriptor ? round_up(descriptor->size, STEP) : 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuImportExternalMemory)(memory, descriptor);
    if (result == CUDA_SUCCESS)
        claim_keep(&claim, KIND_EXTERNAL, (uint64_t)*memory, claim.asked);
    else
        claim_withdraw(&claim);
    return result;
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    DESTROY(cuDestroyExternalMemory, KIND_EXTERNAL, memory);
}
