/* Events: a fault is reported to a set once, when its sequence number first appears in the file. */
#include <stdlib.h>
#include <time.h>

#include "machine.h"

enum { MAX_WATCHED = 256, LOOK_MILLISECONDS = 50 };

struct nvmlEventSet_st {
    int watched, known;
    struct {
        nvmlDevice_t device;
        unsigned long long types;
    } watch[MAX_WATCHED];
    unsigned long long sequence[MAX_FAULTS];
};

static bool is_known(const struct nvmlEventSet_st *set, unsigned long long sequence)
{
    for (int at = 0; at < set->known; at++)
        if (set->sequence[at] == sequence)
            return true;
    return false;
}

/* Forgets faults that were taken out of the file, so that they may come again. */
static void forget(const struct machine *machine, struct nvmlEventSet_st *set)
{
    int kept = 0;

    for (int at = 0; at < set->known; at++)
        for (int fault = 0; fault < machine->faults; fault++)
            if (machine->fault[fault].sequence == set->sequence[at]) {
                set->sequence[kept++] = set->sequence[at];
                break;
            }
    set->known = kept;
}

static const struct fault *next_fault(const struct machine *machine,
                                      const struct nvmlEventSet_st *set)
{
    const struct fault *first = NULL;

    for (int at = 0; at < machine->faults; at++) {
        const struct fault *fault = &machine->fault[at];
        if (!is_known(set, fault->sequence) && (!first || fault->sequence < first->sequence))
            first = fault;
    }
    return first;
}

static unsigned long long wanted(const struct nvmlEventSet_st *set, nvmlDevice_t device)
{
    for (int at = 0; at < set->watched; at++)
        if (set->watch[at].device == device)
            return set->watch[at].types;
    return 0;
}

/* One look at the machine: an event, a lost GPU among the watched, or nothing yet. */
static nvmlReturn_t look(struct nvmlEventSet_st *set, nvmlEventData_t *event)
{
    const struct machine *machine;
    const struct fault *fault;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter(&machine);

    if (result != NVML_SUCCESS)
        return result;
    result = NVML_ERROR_TIMEOUT;
    forget(machine, set);
    while (result == NVML_ERROR_TIMEOUT && (fault = next_fault(machine, set)) != NULL) {
        nvmlDevice_t device = machine_handle(&machine->gpu[fault->gpu]);
        unsigned long long type = fault->ecc ? NVML_EVENT_ECC_DOUBLE_BIT : NVML_EVENT_XID;
        set->sequence[set->known++] = fault->sequence;
        if (wanted(set, device) & type) {
            *event = (nvmlEventData_t){device, type, fault->ecc ? 0 : fault->xid, 0, 0};
            result = NVML_SUCCESS;
        }
    }
    for (int at = 0; result == NVML_ERROR_TIMEOUT && at < set->watched; at++)
        if (machine_gpu(machine, set->watch[at].device, &gpu) == NVML_ERROR_GPU_IS_LOST)
            result = NVML_ERROR_GPU_IS_LOST;
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    *types = NVML_EVENT_XID | NVML_EVENT_ECC_DOUBLE_BIT;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    const struct machine *machine;
    nvmlReturn_t result = machine_enter(&machine);
    struct nvmlEventSet_st *made;

    if (result != NVML_SUCCESS)
        return result;
    made = calloc(1, sizeof *made);
    for (int at = 0; made && at < machine->faults; at++)
        made->sequence[made->known++] = machine->fault[at].sequence;
    machine_leave();
    *set = made;
    return made ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);
    int at = 0;

    if (result != NVML_SUCCESS)
        return result;
    while (at < set->watched && set->watch[at].device != device)
        at++;
    if (at == MAX_WATCHED) {
        result = NVML_ERROR_MEMORY;
    } else {
        set->watch[at].device = device;
        set->watch[at].types = types;
        set->watched = at == set->watched ? at + 1 : set->watched;
    }
    machine_leave();
    return result;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event,
                                 unsigned int timeout)
{
    nvmlReturn_t result = look(set, event);

    while (result == NVML_ERROR_TIMEOUT && timeout > 0) {
        unsigned int pause = timeout < LOOK_MILLISECONDS ? timeout : LOOK_MILLISECONDS;
        nanosleep(&(struct timespec){0, pause * 1000000L}, NULL);
        timeout -= pause;
        result = look(set, event);
    }
    return result;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout)
{
    return nvmlEventSetWait_v2(set, event, timeout);
}
