/* The current machine: read when NVML is initialised, and again whenever its file changes. */
#include "machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_HANDLES = 4096 };

struct nvmlDevice_st {
    char uuid[MAX_TEXT];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct machine *current;
static struct stat stamp;
static char *path;
static unsigned int users;
static struct nvmlDevice_st handles[MAX_HANDLES];
static unsigned int handles_made;

static bool same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec &&
           one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

/* A file that cannot be read leaves the machine as it was. */
static void refresh(void)
{
    struct stat now;
    struct machine *next;

    if (stat(path, &now) != 0 || (current != NULL && same(&now, &stamp)))
        return;
    stamp = now;
    next = machine_read(path);
    if (next != NULL) {
        free(current);
        current = next;
    }
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = NVML_SUCCESS;
    const char *named = getenv("SLICEWISE_NVML_FILE");

    (void)flags;
    pthread_mutex_lock(&lock);
    if (users == 0) {
        free(path);
        path = named ? strdup(named) : NULL;
        free(current);
        current = NULL;
        if (path != NULL)
            refresh();
    }
    if (current == NULL)
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (current->failure != 0)
        result = (nvmlReturn_t)current->failure;
    else
        users++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

    pthread_mutex_lock(&lock);
    if (users > 0) {
        users--;
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t machine_enter(const struct machine **machine)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

    pthread_mutex_lock(&lock);
    if (users > 0) {
        refresh();
        tenants_add(current);
        *machine = current;
        if (current->failure == 0)
            return NVML_SUCCESS;
        result = (nvmlReturn_t)current->failure;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void machine_leave(void)
{
    pthread_mutex_unlock(&lock);
}

nvmlDevice_t machine_handle(const struct gpu *gpu)
{
    unsigned int at = 0;

    while (at < handles_made && strcmp(handles[at].uuid, gpu->uuid) != 0)
        at++;
    if (at == MAX_HANDLES)
        return NULL;
    if (at == handles_made) {
        memcpy(handles[at].uuid, gpu->uuid, sizeof handles[at].uuid);
        handles_made++;
    }
    return &handles[at];
}

nvmlReturn_t machine_gpu(const struct machine *machine, nvmlDevice_t device,
                         const struct gpu **gpu)
{
    if (device < handles || device >= handles + handles_made)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int at = 0; at < machine->gpus; at++)
        if (strcmp(machine->gpu[at].uuid, device->uuid) == 0) {
            *gpu = &machine->gpu[at];
            return machine->gpu[at].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
        }
    return NVML_ERROR_GPU_IS_LOST;
}

nvmlReturn_t machine_enter_gpu(nvmlDevice_t device, const struct machine **machine,
                               const struct gpu **gpu)
{
    nvmlReturn_t result = machine_enter(machine);

    if (result != NVML_SUCCESS)
        return result;
    result = machine_gpu(*machine, device, gpu);
    if (result != NVML_SUCCESS)
        machine_leave();
    return result;
}

nvmlReturn_t machine_text(const char *text, char *buffer, unsigned int length)
{
    if (buffer == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, strlen(text) + 1);
    return NVML_SUCCESS;
}
