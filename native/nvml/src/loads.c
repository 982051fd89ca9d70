/* Questions about what a GPU does now: memory, utilisation, processes, heat and power. */
#include <time.h>

#include "machine.h"

static const unsigned long long MIB = 1ULL << 20;
/* NVML's way of saying that a process is in no MIG instance. */
static const unsigned int NO_INSTANCE = 0xffffffffu;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    memory->total = gpu->memory * MIB;
    memory->used = gpu->used * MIB;
    memory->free = memory->total - memory->used;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);

    if (result == NVML_SUCCESS && memory->version != NVML_MEMORY_V2)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->used = plain.used;
    memory->free = plain.free;
    memory->reserved = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    rates->gpu = gpu->utilization;
    rates->memory = gpu->memory ? (unsigned int)(100ULL * gpu->used / gpu->memory) : 0;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                      unsigned int *degrees)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    if (sensor != 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (gpu->temperature == UNKNOWN)
        result = NVML_ERROR_NOT_SUPPORTED;
    else
        *degrees = (unsigned int)gpu->temperature;
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    if (gpu->power == UNKNOWN)
        result = NVML_ERROR_NOT_SUPPORTED;
    else
        *milliwatts = (unsigned int)gpu->power;
    machine_leave();
    return result;
}

static nvmlReturn_t list_processes(nvmlDevice_t device, bool graphics, unsigned int *count,
                                   nvmlProcessInfo_t *processes)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);
    unsigned int room = *count, found = 0;

    if (result != NVML_SUCCESS)
        return result;
    for (int at = 0; at < gpu->processes; at++) {
        const struct process *process = &gpu->process[at];
        if (process->graphics != graphics)
            continue;
        if (processes != NULL && found < room)
            processes[found] = (nvmlProcessInfo_t){process->pid, process->memory * MIB,
                                                   NO_INSTANCE, NO_INSTANCE};
        found++;
    }
    machine_leave();
    *count = found;
    return found > 0 && (processes == NULL || found > room) ? NVML_ERROR_INSUFFICIENT_SIZE
                                                            : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *processes)
{
    return list_processes(device, false, count, processes);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *processes)
{
    return list_processes(device, true, count, processes);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);
    struct timespec clock;
    unsigned long long now;

    if (result != NVML_SUCCESS)
        return result;
    clock_gettime(CLOCK_REALTIME, &clock);
    now = clock.tv_sec * 1000000ULL + clock.tv_nsec / 1000;
    if (gpu->processes == 0 || since >= now) {
        result = NVML_ERROR_NOT_FOUND;
    } else if (samples == NULL || *count < (unsigned int)gpu->processes) {
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    } else {
        for (int at = 0; at < gpu->processes; at++)
            samples[at] = (nvmlProcessUtilizationSample_t){
                gpu->process[at].pid, now, gpu->process[at].utilization, 0, 0, 0};
    }
    *count = (unsigned int)gpu->processes;
    machine_leave();
    return result;
}
