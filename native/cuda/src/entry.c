/* cuGetProcAddress: base names, the newest form that is not newer than the version asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { LEGACY = 1, PER_THREAD = 2, FOUND = 0, UNKNOWN_NAME = 1, TOO_NEW = 2 };

/* Whether the forms for per-thread streams are meant; NVIDIA's driver then has no others. */
static bool wants_per_thread(const char *symbol, uint64_t flags)
{
    for (unsigned int at = 0; (flags & PER_THREAD) && at < entries_count; at++)
        if (entries[at].per_thread && strcmp(entries[at].base, symbol) == 0)
            return true;
    return false;
}

/* The newest form that is not newer than the version, or NULL; and whether the name is known. */
static void *choose(const char *symbol, int version, uint64_t flags, int *status)
{
    bool per_thread = wants_per_thread(symbol, flags);
    const struct entry *best = NULL;

    *status = UNKNOWN_NAME;
    for (unsigned int at = 0; at < entries_count; at++) {
        const struct entry *entry = &entries[at];
        if (strcmp(entry->base, symbol) != 0)
            continue;
        if (*status == UNKNOWN_NAME)
            *status = TOO_NEW;
        if (entry->version <= version && entry->per_thread == per_thread &&
            (best == NULL || entry->version > best->version))
            best = entry;
    }
    if (best == NULL)
        return NULL;
    *status = FOUND;
    return best->function;
}

/* Every question goes into this file where one is named, for tests that ask it again. */
static void note(const char *symbol, int version, uint64_t flags)
{
    const char *path = getenv("SLICEWISE_CUDA_QUESTIONS");
    FILE *file = path ? fopen(path, "ae") : NULL;

    if (file) {
        fprintf(file, "%s %d %llu\n", symbol, version, (unsigned long long)flags);
        fclose(file);
    }
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    uint64_t flags, int *status)
{
    int found;

    if (symbol == NULL || function == NULL || flags > (LEGACY | PER_THREAD))
        return CUDA_ERROR_INVALID_VALUE;
    note(symbol, version, flags);
    *function = choose(symbol, version, flags, &found);
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    void *chosen;
    int found;

    if (symbol == NULL || function == NULL || flags > (LEGACY | PER_THREAD))
        return CUDA_ERROR_INVALID_VALUE;
    note(symbol, version, flags);
    chosen = choose(symbol, version, flags, &found);
    if (chosen == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *function = chosen;
    return CUDA_SUCCESS;
}
