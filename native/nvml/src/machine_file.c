/* Reads the file that describes the machine: one fact a line, a GPU's facts below its line. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { MAX_LINE = 4200 };

static bool refuse(const char *path, int number, const char *line)
{
    fprintf(stderr, "%s:%d: '%s': expected a fact of the machine as slicewise writes it\n", path,
            number, line);
    return false;
}

static bool read_gpu(struct machine *machine, const char *rest)
{
    unsigned int index;
    struct gpu *gpu = &machine->gpu[machine->gpus];

    if (machine->gpus == MAX_GPUS ||
        sscanf(rest, "%u %u %95s %31s", &index, &gpu->minor, gpu->uuid, gpu->bus) != 4 ||
        index != machine->gpus)
        return false;
    gpu->numa = gpu->temperature = gpu->power = UNKNOWN;
    for (unsigned int other = 0; other < MAX_GPUS; other++)
        machine->level[index][other] = machine->level[other][index] = index == other ? 0 : 50;
    machine->gpus++;
    return true;
}

static bool read_process(struct gpu *gpu, const char *rest)
{
    char kind[16];
    struct process *process = &gpu->process[gpu->processes];

    if (gpu->processes == MAX_PROCESSES ||
        sscanf(rest, "%u %u %u %15s", &process->pid, &process->memory, &process->utilization,
               kind) != 4)
        return false;
    process->graphics = strcmp(kind, "graphics") == 0;
    gpu->processes++;
    return process->graphics || strcmp(kind, "compute") == 0;
}

static bool read_link(struct machine *machine, const char *rest)
{
    unsigned int one, other, lanes, level;

    if (sscanf(rest, "%u %u %u %u", &one, &other, &lanes, &level) != 4 ||
        one >= machine->gpus || other >= machine->gpus)
        return false;
    machine->lanes[one][other] = machine->lanes[other][one] = lanes;
    machine->level[one][other] = machine->level[other][one] = level;
    return true;
}

static bool read_fault(struct machine *machine, const char *rest)
{
    char kind[8];
    struct fault *fault = &machine->fault[machine->faults];

    if (machine->faults == MAX_FAULTS ||
        sscanf(rest, "%llu %u %7s %llu", &fault->sequence, &fault->gpu, kind, &fault->xid) != 4 ||
        fault->gpu >= machine->gpus)
        return false;
    fault->ecc = strcmp(kind, "ecc") == 0;
    machine->faults++;
    return fault->ecc || strcmp(kind, "xid") == 0;
}

static bool read_machine_fact(struct machine *machine, const char *word, const char *rest)
{
    if (strcmp(word, "driver") == 0)
        return snprintf(machine->driver, sizeof machine->driver, "%s", rest) < MAX_TEXT;
    if (strcmp(word, "tenants") == 0)
        return snprintf(machine->tenants, sizeof machine->tenants, "%s", rest) > 0;
    if (strcmp(word, "cuda") == 0)
        return sscanf(rest, "%d", &machine->cuda) == 1;
    if (strcmp(word, "memory_limits") == 0)
        return snprintf(machine->memory_limits, sizeof machine->memory_limits, "%s", rest) > 0;
    if (strcmp(word, "failure") == 0)
        return sscanf(rest, "%d", &machine->failure) == 1;
    if (strcmp(word, "gpu") == 0)
        return read_gpu(machine, rest);
    if (strcmp(word, "link") == 0)
        return read_link(machine, rest);
    return strcmp(word, "fault") == 0 && read_fault(machine, rest);
}

/* The facts of a GPU that are plain numbers, one or two of them. */
static const struct {
    const char *word;
    size_t first, second;
} numbers[] = {
    {"memory", offsetof(struct gpu, memory), offsetof(struct gpu, used)},
    {"utilization", offsetof(struct gpu, utilization), 0},
    {"brand", offsetof(struct gpu, brand), 0},
    {"capability", offsetof(struct gpu, capability_major), offsetof(struct gpu, capability_minor)},
    {"recovery", offsetof(struct gpu, recovery), 0},
    {"switch", offsetof(struct gpu, switch_lanes), 0},
    {"numa", offsetof(struct gpu, numa), 0},
    {"temperature", offsetof(struct gpu, temperature), 0},
    {"power", offsetof(struct gpu, power), 0},
};

static bool read_numbers(struct gpu *gpu, size_t row, const char *rest)
{
    int first, second = 0;
    int wanted = numbers[row].second ? 2 : 1;

    if (sscanf(rest, "%d %d", &first, &second) < wanted || first < 0 || second < 0)
        return false;
    memcpy((char *)gpu + numbers[row].first, &first, sizeof first);
    if (wanted == 2)
        memcpy((char *)gpu + numbers[row].second, &second, sizeof second);
    return true;
}

static bool read_state(struct gpu *gpu, const char *rest)
{
    int mig, lost, rows;

    if (sscanf(rest, "%d %d %d", &mig, &lost, &rows) != 3)
        return false;
    gpu->mig = mig;
    gpu->lost = lost;
    gpu->rows_failed = rows;
    return true;
}

static bool read_gpu_fact(struct gpu *gpu, const char *word, const char *rest)
{
    for (size_t row = 0; row < sizeof numbers / sizeof numbers[0]; row++)
        if (strcmp(word, numbers[row].word) == 0)
            return read_numbers(gpu, row, rest);
    if (strcmp(word, "name") == 0)
        return snprintf(gpu->name, sizeof gpu->name, "%s", rest) < MAX_TEXT;
    if (strcmp(word, "state") == 0)
        return read_state(gpu, rest);
    return strcmp(word, "process") == 0 && read_process(gpu, rest);
}

static bool read_line(struct machine *machine, char *line)
{
    char *rest = strchr(line, ' ');

    if (rest == NULL)
        return strcmp(line, "end") == 0;
    *rest++ = '\0';
    if (read_machine_fact(machine, line, rest))
        return true;
    return machine->gpus > 0 && read_gpu_fact(&machine->gpu[machine->gpus - 1], line, rest);
}

struct machine *machine_read(const char *path)
{
    char line[MAX_LINE];
    bool whole = false, good = true;
    FILE *file = fopen(path, "re");
    struct machine *machine = calloc(1, sizeof *machine);

    for (int number = 1; file && machine && good && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        whole = strcmp(line, "end") == 0;
        good = read_line(machine, line) || refuse(path, number, line);
    }
    /* A file without its last line is still being written. */
    if (file && good && !whole)
        good = refuse(path, 0, "no line 'end'");
    if (file)
        fclose(file);
    if (file && machine && good) {
        for (unsigned int at = 0; at < machine->gpus; at++) {
            struct gpu *gpu = &machine->gpu[at];
            gpu->described = gpu->processes;
            gpu->described_used = gpu->used;
            gpu->described_utilization = gpu->utilization;
        }
        return machine;
    }
    free(machine);
    return NULL;
}
