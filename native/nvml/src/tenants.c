/* Processes of the CUDA stand-in: their memory, contexts included, and their part of the time. */
#include <string.h>

#include "machine.h"
#include "state.h"

static const unsigned long long MIB = 1ULL << 20;
static struct state *state;
static int descriptor;
static char opened[4096];

static bool open_state(const char path[static sizeof opened])
{
    if (state == NULL || strcmp(opened, path) != 0) {
        state = state_open(path, &descriptor);
        memcpy(opened, path, sizeof opened);
    }
    return state != NULL;
}

static void add_gpu(struct gpu *gpu, int engine)
{
    gpu->processes = gpu->described;
    gpu->used = gpu->described_used;
    gpu->utilization = gpu->described_utilization;
    engine_advance(state, engine, state_now());
    for (int at = 0; at < STATE_PROCESSES && gpu->processes < MAX_PROCESSES; at++) {
        const struct tenant *tenant = &state->tenant[at];
        int64_t bytes = tenant->used[engine] + tenant->contexts[engine];
        unsigned int percent = engine_percent(state, at, engine);
        uint32_t holder;
        if (!tenant->taken || (bytes == 0 && percent == 0))
            continue;
        /* The lock names its holder as this namespace sees it; nobody sees a lock of his own. */
        holder = state_holder(descriptor, at);
        gpu->process[gpu->processes++] = (struct process){
            .pid = holder ? holder : tenant->pid,
            .memory = (unsigned int)((bytes + (int64_t)MIB - 1) / (int64_t)MIB),
            .utilization = percent,
        };
        gpu->used += (unsigned int)((bytes + (int64_t)MIB - 1) / (int64_t)MIB);
        gpu->utilization += percent;
    }
    if (gpu->utilization > 100)
        gpu->utilization = 100;
}

void tenants_add(struct machine *machine)
{
    if (machine->tenants[0] == '\0' || !open_state(machine->tenants))
        return;
    state_lock(state);
    state_reap(state, descriptor);
    for (unsigned int at = 0; at < machine->gpus; at++)
        for (unsigned int engine = 0; engine < state->gpus; engine++)
            if (strcmp(machine->gpu[at].uuid, state->engine[engine].uuid) == 0)
                add_gpu(&machine->gpu[at], (int)engine);
    state_unlock(state);
}
