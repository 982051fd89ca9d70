/* The machine that the file describes, and how the calls reach it. */
#ifndef SLICEWISE_MACHINE_H
#define SLICEWISE_MACHINE_H

#include <stdbool.h>

#include "nvml.h"

enum { MAX_CARDS = 64, MAX_PROCESSES = 512, MAX_FAULTS = 256, MAX_TEXT = 96 };

/* A number the file does not give. */
enum { UNKNOWN = -1 };

struct process {
    unsigned int pid;
    unsigned int memory;
    unsigned int utilization;
    bool graphics;
};

struct card {
    char uuid[MAX_TEXT];
    char name[MAX_TEXT];
    char bus[32];
    unsigned int minor, memory, used, utilization, brand, recovery, switch_lanes;
    int numa, temperature, power, capability_major, capability_minor;
    bool mig, lost, rows_failed;
    int processes;
    struct process process[MAX_PROCESSES];
};

struct fault {
    unsigned long long sequence;
    unsigned int card;
    unsigned long long xid;
    bool ecc;
};

struct machine {
    char driver[MAX_TEXT];
    int cuda;
    int failure;
    unsigned int cards;
    int faults;
    struct card card[MAX_CARDS];
    unsigned int lanes[MAX_CARDS][MAX_CARDS];
    unsigned int level[MAX_CARDS][MAX_CARDS];
    struct fault fault[MAX_FAULTS];
};

/* machine_file.c: a new machine from the file, or NULL with a line on standard error. */
struct machine *machine_read(const char *path);

/* machine.c: every call enters, and leaves if it was let in. The machine is current meanwhile. */
nvmlReturn_t machine_enter(const struct machine **machine);
void machine_leave(void);

/* A handle outlives changes of the file: it stands for a UUID. Called while inside. */
nvmlDevice_t machine_handle(const struct card *card);
nvmlReturn_t machine_card(const struct machine *machine, nvmlDevice_t device,
                          const struct card **card);

/* Enters and finds the card; on failure it has left already. */
nvmlReturn_t machine_enter_card(nvmlDevice_t device, const struct machine **machine,
                                const struct card **card);

/* Copies text with its end, or says that the buffer is too small. */
nvmlReturn_t machine_text(const char *text, char *buffer, unsigned int length);

#endif
