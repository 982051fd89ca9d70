/* HAMi's variables: limits for use without an agent; beside a grant they may only lower it. */
#include "process.h"

static const int64_t BURST_NS = 20000000;

/* Digits with k, m or g in either case; anything else after the digits counts as bytes. */
static int64_t read_size(const char *text)
{
    uint64_t number = 0;
    int shift = 0;

    if (text == NULL)
        return 0;
    while (*text >= '0' && *text <= '9' && number < 1ull << 52)
        number = number * 10 + (uint64_t)(*text++ - '0');
    switch (*text | 32) {
    case 'k': shift = 10; break;
    case 'm': shift = 20; break;
    case 'g': shift = 30; break;
    default: break;
    }
    return number > (uint64_t)INT64_MAX / 4 >> shift ? INT64_MAX / 4 : (int64_t)(number << shift);
}

static int64_t memory_of(int ordinal)
{
    char name[64] = "CUDA_DEVICE_MEMORY_LIMIT_", digits[24];
    const char *number = text_number(digits + sizeof digits, (uint64_t)ordinal);
    int64_t own_limit;

    copy_bytes(name + 25, number, text_length(number) + 1);
    own_limit = ordinal < 0 ? 0 : read_size(environment(name));
    return own_limit ? own_limit : read_size(environment("CUDA_DEVICE_MEMORY_LIMIT"));
}

static uint32_t read_cores(void)
{
    int64_t percent = read_size(environment("CUDA_DEVICE_SM_LIMIT"));

    return percent > 0 && percent < 100 ? (uint32_t)percent * 100 : 0;
}

bool standalone_names(void)
{
    uint32_t cores = read_cores();
    bool any = cores > 0;
    struct device *device = &own->device[0];

    for (int ordinal = -1; ordinal < FILE_DEVICES && !any; ordinal++)
        any = memory_of(ordinal) > 0;
    if (!any)
        return false;
    own->flags = GATE_MEMORY | GATE_COMPUTE | SHOW_IN_NVML | COUNT_MANAGED;
    device->memory = memory_of(-1);
    device->cores = device->ceiling = device->limit = cores;
    device->scale = SCALE_ONE;
    device->burst_ns = BURST_NS;
    usage_alone();
    return own->usage != NULL;
}

void standalone_lower(void)
{
    uint32_t cores = read_cores();

    for (uint32_t at = 0; at < own->devices; at++) {
        struct device *device = &own->device[at];
        int64_t memory = memory_of(device->ordinal);
        if (memory && (device->memory == 0 || memory < device->memory))
            STORE(device->memory, memory);
        if (cores == 0)
            continue;
        if (device->cores == 0 || cores < device->cores)
            STORE(device->cores, cores);
        if (cores < device->limit || device->limit == 0)
            STORE(device->limit, cores);
        if (cores < device->ceiling || device->ceiling == 0)
            STORE(device->ceiling, cores);
    }
}
