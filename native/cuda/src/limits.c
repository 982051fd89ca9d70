/* The driver's own memory limits: those that NVML's stand-in wrote for cgroups of this process.

   All memory of all processes in a cgroup counts, their contexts too, and a limit holds in every
   cgroup below. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "driver.h"

enum { MAX_PATH = 1024 };

static bool is_inside(const char *cgroup, const char *limited)
{
    size_t length = strlen(limited);

    return strncmp(cgroup, limited, length) == 0 &&
           (cgroup[length] == '\0' || cgroup[length] == '/');
}

/* The limited cgroup below the mounted tree, or NULL when it is not of this tree. */
static const char *strip_root(const char *path)
{
    size_t length = strlen(driver.facts.cgroups);

    return strncmp(path, driver.facts.cgroups, length) == 0 ? path + length : NULL;
}

static int64_t sum_inside(const char *limited, int gpu)
{
    int64_t sum = 0;

    for (int at = 0; at < STATE_PROCESSES; at++) {
        const struct tenant *tenant = &driver.state->tenant[at];
        if (tenant->taken && is_inside(tenant->cgroup, limited))
            sum += tenant->used[gpu] + tenant->contexts[gpu];
    }
    return sum;
}

static bool exceeds(const char *path, unsigned long long hard, int gpu, int64_t bytes)
{
    const char *limited = strip_root(path);

    return limited != NULL &&
           is_inside(driver.state->tenant[driver.tenant].cgroup, limited) &&
           sum_inside(limited, gpu) + bytes > (int64_t)hard;
}

bool limits_allow(int gpu, int64_t bytes)
{
    char uuid[64], path[MAX_PATH];
    unsigned long long hard;
    bool allowed = true;
    FILE *file = driver.facts.limits[0] ? fopen(driver.facts.limits, "re") : NULL;

    if (file == NULL)
        return true;
    flock(fileno(file), LOCK_SH);
    while (allowed && fscanf(file, "%63s %*u %llu %1023[^\n]", uuid, &hard, path) == 3)
        if (strcmp(uuid, driver.facts.gpu[gpu].uuid) == 0)
            allowed = !exceeds(path, hard, gpu, bytes);
    fclose(file);
    return allowed;
}

/* By the kernel's unified tree; tests without one name another. */
void limits_join(void)
{
    struct tenant *tenant = &driver.state->tenant[driver.tenant];
    const char *named = getenv("SLICEWISE_CUDA_CGROUP");
    char line[MAX_PATH];
    FILE *file = named ? NULL : fopen("/proc/self/cgroup", "re");

    if (named)
        snprintf(tenant->cgroup, sizeof tenant->cgroup, "%s", named);
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(tenant->cgroup, sizeof tenant->cgroup, "%.255s", line + 3);
        }
    if (file)
        fclose(file);
}
