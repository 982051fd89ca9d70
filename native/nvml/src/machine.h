/* The machine that the file describes, and how the calls reach it. */
#ifndef SLICEWISE_MACHINE_H
#define SLICEWISE_MACHINE_H

#include <stdbool.h>

#include "nvml.h"

enum { MAX_GPUS = 64, MAX_PROCESSES = 512, MAX_FAULTS = 256, MAX_TEXT = 96 };

/* A number the file does not give. */
enum { UNKNOWN = -1 };

struct process {
    unsigned int pid;
    unsigned int memory;
    unsigned int utilization;
    bool graphics;
};

struct gpu {
    char uuid[MAX_TEXT];
    char name[MAX_TEXT];
    char bus[32];
    unsigned int minor, memory, used, utilization, brand, recovery, switch_lanes;
    int numa, temperature, power, capability_major, capability_minor;
    bool mig, lost, rows_failed;
    /* How much of this the file says; the rest came from the CUDA stand-in. */
    unsigned int described_used, described_utilization;
    int described, processes;
    struct process process[MAX_PROCESSES];
};

struct fault {
    unsigned long long sequence;
    unsigned int gpu;
    unsigned long long xid;
    bool ecc;
};

struct machine {
    char driver[MAX_TEXT];
    /* The state file of the CUDA stand-in, whose processes are shown too; empty without one. */
    char tenants[4096];
    /* The file of memory limits by cgroup; empty as with drivers before r615, which have none. */
    char memory_limits[4096];
    int cuda;
    int failure;
    unsigned int gpus;
    int faults;
    struct gpu gpu[MAX_GPUS];
    unsigned int lanes[MAX_GPUS][MAX_GPUS];
    unsigned int level[MAX_GPUS][MAX_GPUS];
    struct fault fault[MAX_FAULTS];
};

/* machine_file.c: a new machine from the file, or NULL with a line on standard error. */
struct machine *machine_read(const char *path);

/* machine.c: every call enters, and leaves if it was let in. The machine is current meanwhile. */
nvmlReturn_t machine_enter(const struct machine **machine);
void machine_leave(void);

/* tenants.c: the machine with the processes of the CUDA stand-in's state file added. */
void tenants_add(struct machine *machine);

/* A handle outlives changes of the file: it stands for a UUID. Called while inside. */
nvmlDevice_t machine_handle(const struct gpu *gpu);
nvmlReturn_t machine_gpu(const struct machine *machine, nvmlDevice_t device,
                         const struct gpu **gpu);

/* Enters and finds the GPU; on failure it has left already. */
nvmlReturn_t machine_enter_gpu(nvmlDevice_t device, const struct machine **machine,
                               const struct gpu **gpu);

/* Copies text with its end, or says that the buffer is too small. */
nvmlReturn_t machine_text(const char *text, char *buffer, unsigned int length);

#endif
