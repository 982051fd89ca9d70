/* Memory limits by cgroup, in a file that outlives the process and that the CUDA stand-in obeys:
   one limit a line, `<UUID> <soft> <hard> <path>`. A cgroup that is removed has none any more. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine.h"

enum { MAX_LIMITS = 256, MAX_PATH = 1024 };

static const unsigned long long NO_LIMIT = ~0ULL;

struct limit {
    char uuid[MAX_TEXT], path[MAX_PATH];
    unsigned long long soft, hard;
};

struct table {
    FILE *file;
    int rows;
    struct limit limit[MAX_LIMITS];
};

static bool is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Reads the file and keeps it locked until it is closed. */
static bool open_table(const char *path, struct table *table)
{
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct limit limit;

    table->rows = 0;
    table->file = descriptor < 0 ? NULL : fdopen(descriptor, "r+");
    if (table->file == NULL || flock(descriptor, LOCK_EX) != 0)
        return false;
    while (table->rows < MAX_LIMITS && fscanf(table->file, "%95s %llu %llu %1023[^\n]", limit.uuid,
                                              &limit.soft, &limit.hard, limit.path) == 4)
        if (is_folder(limit.path))
            table->limit[table->rows++] = limit;
    return true;
}

static void write_table(struct table *table)
{
    rewind(table->file);
    if (ftruncate(fileno(table->file), 0) != 0)
        return;
    for (int at = 0; at < table->rows; at++)
        fprintf(table->file, "%s %llu %llu %s\n", table->limit[at].uuid, table->limit[at].soft,
                table->limit[at].hard, table->limit[at].path);
}

static int find(const struct table *table, const char *uuid, const char *path)
{
    for (int at = 0; at < table->rows; at++)
        if (strcmp(table->limit[at].uuid, uuid) == 0 && strcmp(table->limit[at].path, path) == 0)
            return at;
    return -1;
}

/* What both calls refuse alike. */
static nvmlReturn_t check(const struct machine *machine, const struct gpu *gpu, const char *path)
{
    if (machine->memory_limits[0] == '\0' || gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (path == NULL || strlen(path) >= MAX_PATH)
        return NVML_ERROR_INVALID_ARGUMENT;
    return is_folder(path) ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

static nvmlReturn_t put(struct table *table, const struct gpu *gpu,
                        const nvmlSetMemoryLimits_v1_t *limits)
{
    unsigned long long size = (unsigned long long)gpu->memory << 20;
    int at = find(table, gpu->uuid, limits->nameSpace);
    int none = limits->softLimit == 0 && limits->hardLimit == NO_LIMIT;
    struct limit *limit;

    if (!none && (limits->softLimit > limits->hardLimit || limits->hardLimit > size))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (none) {
        if (at >= 0)
            table->limit[at] = table->limit[--table->rows];
        return NVML_SUCCESS;
    }
    if (at < 0) {
        if (table->rows == MAX_LIMITS)
            return NVML_ERROR_MEMORY;
        at = table->rows++;
    }
    limit = &table->limit[at];
    snprintf(limit->uuid, sizeof limit->uuid, "%s", gpu->uuid);
    snprintf(limit->path, sizeof limit->path, "%s", limits->nameSpace);
    limit->soft = limits->softLimit;
    limit->hard = limits->hardLimit;
    return NVML_SUCCESS;
}

static nvmlReturn_t set(const struct machine *machine, const struct gpu *gpu,
                        const nvmlSetMemoryLimits_v1_t *limits)
{
    struct table table;
    nvmlReturn_t result = NVML_ERROR_UNKNOWN;

    if (open_table(machine->memory_limits, &table)) {
        result = put(&table, gpu, limits);
        write_table(&table);
    }
    if (table.file)
        fclose(table.file);
    return result;
}

static nvmlReturn_t get(const struct machine *machine, const struct gpu *gpu,
                        nvmlGetMemoryLimits_v1_t *limits)
{
    struct table table;
    nvmlReturn_t result = NVML_ERROR_UNKNOWN;

    if (open_table(machine->memory_limits, &table)) {
        int at = find(&table, gpu->uuid, limits->nameSpace);
        result = at < 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
        if (at >= 0) {
            limits->softLimit = table.limit[at].soft;
            limits->hardLimit = table.limit[at].hard;
            limits->currentUsed = 0;
        }
    }
    if (table.file)
        fclose(table.file);
    return result;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                          const nvmlSetMemoryLimits_v1_t *limits)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    result = check(machine, gpu, limits->nameSpace);
    if (result == NVML_SUCCESS && geteuid() != 0)
        result = NVML_ERROR_NO_PERMISSION;
    if (result == NVML_SUCCESS)
        result = set(machine, gpu, limits);
    machine_leave();
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    const struct machine *machine;
    const struct gpu *gpu;
    nvmlReturn_t result = machine_enter_gpu(device, &machine, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    result = check(machine, gpu, limits->nameSpace);
    if (result == NVML_SUCCESS)
        result = get(machine, gpu, limits);
    machine_leave();
    return result;
}
