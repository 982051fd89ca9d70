/* How near two GPUs are. A GPU's NVLink lanes are numbered by the GPU they lead to, then
 * come the lanes to switches. */
#include "machine.h"
#include "pci.h"

enum end { END_NONE, END_GPU, END_SWITCH };

static enum end follow(const struct machine *machine, const struct gpu *gpu, unsigned int link,
                       const struct gpu **peer)
{
    const unsigned int *lanes = machine->lanes[gpu - machine->gpu];

    for (unsigned int other = 0; other < machine->gpus; other++) {
        if (link < lanes[other]) {
            *peer = &machine->gpu[other];
            return END_GPU;
        }
        link -= lanes[other];
    }
    return link < gpu->switch_lanes ? END_SWITCH : END_NONE;
}

/* Enters, and says where a lane ends; a GPU without any lanes does not know NVLink. */
static nvmlReturn_t enter_link(nvmlDevice_t device, unsigned int link, enum end *end,
                               const struct gpu **peer)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    if (link >= NVML_NVLINK_MAX_LINKS)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (follow(machine, gpu, 0, peer) == END_NONE)
        result = NVML_ERROR_NOT_SUPPORTED;
    else
        *end = follow(machine, gpu, link, peer);
    if (result != NVML_SUCCESS)
        machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      unsigned int *active)
{
    enum end end;
    const struct gpu *peer;
    nvmlReturn_t result = enter_link(device, link, &end, &peer);

    if (result != NVML_SUCCESS)
        return result;
    *active = end != END_NONE;
    machine_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci)
{
    enum end end;
    const struct gpu *peer;
    nvmlReturn_t result = enter_link(device, link, &end, &peer);

    if (result != NVML_SUCCESS)
        return result;
    if (end == END_GPU)
        pci_fill(peer->bus, pci);
    else if (end == END_SWITCH)
        pci_fill("00000000:F0:00.0", pci);
    machine_leave();
    return end == END_NONE ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                              nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 unsigned int *type)
{
    enum end end;
    const struct gpu *peer;
    nvmlReturn_t result = enter_link(device, link, &end, &peer);

    if (result != NVML_SUCCESS)
        return result;
    *type = end == END_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    machine_leave();
    return end == END_NONE ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 unsigned int *level)
{
    const struct machine *machine;
    const struct gpu *first, *second;
    nvmlReturn_t result = machine_enter_gpu(one, &machine, &first);

    if (result != NVML_SUCCESS)
        return result;
    result = machine_gpu(machine, other, &second);
    if (result == NVML_SUCCESS)
        *level = machine->level[first - machine->gpu][second - machine->gpu];
    machine_leave();
    return result;
}
