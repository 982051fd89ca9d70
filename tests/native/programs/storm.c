/* Takes and gives back memory in every way at random: storm SEED [COUNT [HOW]].
   Without a count it goes on until it is killed. */
#include "driver_calls.h"

#include <unistd.h>

enum { MOST = 64 };

static struct {
    char kind;
    uint64_t value;
    size_t bytes;
} held[MOST];
static int count;
static uint64_t state;
static CUmemoryPool pool;

static uint64_t random_number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void keep(char kind, CUresult result, const uint64_t *value, size_t bytes)
{
    /* The only errors a program may see: no room, and what the driver fails with on demand. */
    if (result == CUDA_SUCCESS) {
        held[count].kind = kind;
        held[count].value = *value;
        held[count++].bytes = bytes;
    } else if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_UNKNOWN) {
        fprintf(stderr, "taking %c gave %d\n", kind, result);
        abort();
    }
}

static void take(void)
{
    size_t bytes = 1 + random_number(24 << 20), pitch, whole = (bytes | ((2u << 20) - 1)) + 1;
    uint64_t out = 0;
    CUdeviceptr address;
    CUmemAllocationProp prop = {.type = 1, .location = {LOCATION_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR flat = {bytes / 64 + 1, 16, 0x20, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {bytes / 64 + 1, 4, 4, 0x08, 4, 0};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = 1, .size = bytes};

    switch (random_number(10)) {
    case 0: keep('l', cuMemAlloc_v2(&out, bytes), &out, 0); break;
    case 1: keep('l', cuMemAllocPitch_v2(&out, &pitch, 700, bytes / 1024 + 1, 4), &out, 0); break;
    case 2: keep('l', cuMemAllocManaged(&out, bytes, 1), &out, 0); break;
    case 3: keep('s', cuMemAllocAsync(&out, bytes, NULL), &out, 0); break;
    case 4: keep('s', cuMemAllocFromPoolAsync(&out, bytes, pool, NULL), &out, 0); break;
    case 5: keep('h', cuMemCreate(&out, whole, &prop, 0), &out, whole); break;
    case 6: keep('a', cuArrayCreate_v2((CUarray *)&out, &flat), &out, 0); break;
    case 7: keep('a', cuArray3DCreate_v2((CUarray *)&out, &deep), &out, 0); break;
    case 8: keep('p', cuMipmappedArrayCreate((CUmipmappedArray *)&out, &deep, 5), &out, 0); break;
    default: keep('x', cuImportExternalMemory((CUexternalMemory *)&out, &handle), &out, 0); break;
    }
    if (count > 0 && held[count - 1].kind == 'h' && random_number(2) &&
        cuMemAddressReserve(&address, whole, 0, 0, 0) == CUDA_SUCCESS &&
        cuMemMap(address, held[count - 1].bytes, 0, held[count - 1].value, 0) == CUDA_SUCCESS) {
        /* From here on the mapping holds the memory. */
        cuMemRelease(held[count - 1].value);
        held[count - 1].kind = 'm';
        held[count - 1].value = address;
    }
}

static CUresult release(int at)
{
    uint64_t value = held[at].value;

    switch (held[at].kind) {
    case 'l': return cuMemFree_v2(value);
    case 's': return random_number(2) ? cuMemFree_v2(value) : cuMemFreeAsync(value, NULL);
    case 'h': return cuMemRelease(value);
    case 'm': return cuMemUnmap(value, held[at].bytes);
    case 'a': return cuArrayDestroy((CUarray)value);
    case 'p': return cuMipmappedArrayDestroy((CUmipmappedArray)value);
    default: return cuDestroyExternalMemory((CUexternalMemory)value);
    }
}

static void give(void)
{
    int at = (int)random_number((uint64_t)count);

    if (release(at) == CUDA_SUCCESS)
        held[at] = held[--count];
}

int main(int many, char **arguments)
{
    CUmemPoolProps props = {.allocType = 1, .location = {LOCATION_DEVICE, 0}};
    CUcontext context;

    state = many > 1 ? strtoull(arguments[1], NULL, 10) * 2654435761u + 1 : 1;
    find_calls(many > 3 ? arguments[3] : state % 3 == 0 ? "ask" : "dlsym");
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemPoolCreate(&pool, &props))
        return 1;
    if (random_number(2))
        cuMemPoolSetAttribute(pool, POOL_RELEASE_THRESHOLD, &(uint64_t){32u << 20});
    for (long at = many > 2 ? atol(arguments[2]) : -1; at != 0; at--)
        if (count > 0 && (count == MOST || random_number(5) < 2))
            give();
        else
            take();
    return 0;
}
