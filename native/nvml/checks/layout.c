/* Prints every structure's size and the place of every field, to be compared with the bindings. */
#include <stddef.h>
#include <stdio.h>

#include "nvml.h"

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

int main(void)
{
    SIZE(nvmlPciInfo_t);
    FIELD(nvmlPciInfo_t, busIdLegacy);
    FIELD(nvmlPciInfo_t, domain);
    FIELD(nvmlPciInfo_t, bus);
    FIELD(nvmlPciInfo_t, device);
    FIELD(nvmlPciInfo_t, pciDeviceId);
    FIELD(nvmlPciInfo_t, pciSubSystemId);
    FIELD(nvmlPciInfo_t, busId);
    SIZE(nvmlMemory_t);
    FIELD(nvmlMemory_t, total);
    FIELD(nvmlMemory_t, free);
    FIELD(nvmlMemory_t, used);
    SIZE(nvmlMemory_v2_t);
    FIELD(nvmlMemory_v2_t, version);
    FIELD(nvmlMemory_v2_t, total);
    FIELD(nvmlMemory_v2_t, reserved);
    FIELD(nvmlMemory_v2_t, free);
    FIELD(nvmlMemory_v2_t, used);
    SIZE(nvmlUtilization_t);
    FIELD(nvmlUtilization_t, gpu);
    FIELD(nvmlUtilization_t, memory);
    SIZE(nvmlProcessInfo_t);
    FIELD(nvmlProcessInfo_t, pid);
    FIELD(nvmlProcessInfo_t, usedGpuMemory);
    FIELD(nvmlProcessInfo_t, gpuInstanceId);
    FIELD(nvmlProcessInfo_t, computeInstanceId);
    SIZE(nvmlProcessUtilizationSample_t);
    FIELD(nvmlProcessUtilizationSample_t, pid);
    FIELD(nvmlProcessUtilizationSample_t, timeStamp);
    FIELD(nvmlProcessUtilizationSample_t, smUtil);
    FIELD(nvmlProcessUtilizationSample_t, memUtil);
    FIELD(nvmlProcessUtilizationSample_t, encUtil);
    FIELD(nvmlProcessUtilizationSample_t, decUtil);
    SIZE(nvmlSetMemoryLimits_v1_t);
    FIELD(nvmlSetMemoryLimits_v1_t, nameSpace);
    FIELD(nvmlSetMemoryLimits_v1_t, softLimit);
    FIELD(nvmlSetMemoryLimits_v1_t, hardLimit);
    SIZE(nvmlGetMemoryLimits_v1_t);
    FIELD(nvmlGetMemoryLimits_v1_t, nameSpace);
    FIELD(nvmlGetMemoryLimits_v1_t, softLimit);
    FIELD(nvmlGetMemoryLimits_v1_t, hardLimit);
    FIELD(nvmlGetMemoryLimits_v1_t, currentUsed);
    SIZE(nvmlEventData_t);
    FIELD(nvmlEventData_t, device);
    FIELD(nvmlEventData_t, eventType);
    FIELD(nvmlEventData_t, eventData);
    FIELD(nvmlEventData_t, gpuInstanceId);
    FIELD(nvmlEventData_t, computeInstanceId);
    SIZE(nvmlFieldValue_t);
    FIELD(nvmlFieldValue_t, fieldId);
    FIELD(nvmlFieldValue_t, scopeId);
    FIELD(nvmlFieldValue_t, timestamp);
    FIELD(nvmlFieldValue_t, latencyUsec);
    FIELD(nvmlFieldValue_t, valueType);
    FIELD(nvmlFieldValue_t, nvmlReturn);
    FIELD(nvmlFieldValue_t, value);
    SIZE(nvmlValue_t);
    return 0;
}
