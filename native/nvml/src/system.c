/* Questions about the whole machine: versions, how many GPUs, and their handles. */
#include <stdio.h>
#include <string.h>

#include "machine.h"

static const struct {
    nvmlReturn_t result;
    const char *text;
} errors[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument Version Mismatch"},
};

const char *nvmlErrorString(nvmlReturn_t result)
{
    for (unsigned int at = 0; at < sizeof errors / sizeof errors[0]; at++)
        if (errors[at].result == result)
            return errors[at].text;
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    result = machine_text(machine->driver, version, length);
    machine_leave();
    return result;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);
    char text[MAX_TEXT + 16];

    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "%d.%s", machine->cuda / 1000, machine->driver);
    result = machine_text(text, version, length);
    machine_leave();
    return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    *version = machine->cuda;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    *count = machine->gpus;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

/* The handle of one GPU of a machine that was entered, which is left. */
static nvmlReturn_t take(const struct gpu *gpu, nvmlDevice_t *device)
{
    nvmlReturn_t result = gpu->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;

    if (result == NVML_SUCCESS) {
        *device = machine_handle(gpu);
        if (*device == NULL)
            result = NVML_ERROR_MEMORY;
    }
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    if (index < machine->gpus)
        return take(&machine->gpu[index], device);
    machine_leave();
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int at = 0; at < machine->gpus; at++)
        if (strcmp(machine->gpu[at].uuid, uuid) == 0)
            return take(&machine->gpu[at], device);
    machine_leave();
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int at = 0; at < machine->gpus; at++)
        if (strcmp(machine->gpu[at].bus, bus) == 0)
            return take(&machine->gpu[at], device);
    machine_leave();
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}
