/* Questions about one GPU that hold still: names, numbers, places, and lasting troubles. */
#include <stdio.h>
#include <string.h>

#include "machine.h"
#include "pci.h"

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *index = (unsigned int)(gpu - machine->gpu);
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *minor = gpu->minor;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    result = machine_text(gpu->uuid, uuid, length);
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    result = machine_text(gpu->name, name, length);
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *brand = gpu->brand;
    machine_leave();
    return NVML_SUCCESS;
}

void pci_fill(const char *bus, nvmlPciInfo_t *pci)
{
    unsigned int domain = 0, number = 0, slot = 0;

    memset(pci, 0, sizeof *pci);
    sscanf(bus, "%x:%x:%x", &domain, &number, &slot);
    pci->domain = domain;
    pci->bus = number;
    pci->device = slot;
    snprintf(pci->busId, sizeof pci->busId, "%s", bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff,
             number & 0xff, slot & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    pci_fill(gpu->bus, pci);
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *major = gpu->capability_major;
    *minor = gpu->capability_minor;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *current = *pending = gpu->mig;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *nodes, unsigned int scope)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);
    int numa;

    (void)scope;
    if (result != NVML_SUCCESS)
        return result;
    numa = gpu->numa;
    machine_leave();
    if (numa == UNKNOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    if ((unsigned int)numa >= words * BITS)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[numa / BITS] = 1UL << (numa % BITS);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *pending,
                                       unsigned int *failed)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *corrected = *pending = 0;
    *uncorrected = *failed = gpu->rows_failed;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    for (int at = 0; at < count; at++) {
        bool known = values[at].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
        values[at].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[at].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[at].value.ullVal = 0;
        values[at].value.uiVal = known ? gpu->recovery : 0;
    }
    machine_leave();
    return NVML_SUCCESS;
}
