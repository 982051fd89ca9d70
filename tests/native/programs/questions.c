/* Asks the driver for every name, version and flag, and prints a checksum of each answer.

   questions LIBRARY < names: for each question what cuGetProcAddress and _v2 return, the status,
   and which exported symbol the answer is, with the limiter's own put back to the driver's. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*old_form)(const char *, void **, int, uint64_t);
typedef int (*new_form)(const char *, void **, int, uint64_t, int *);

static long asked, hooked;

/* The symbol an answer is, whichever library holds it. */
static const char *symbol_of(void *address)
{
    Dl_info info;

    if (address == NULL)
        return "nothing";
    if (address == (void *)1)
        return "untouched";
    if (!dladdr(address, &info) || info.dli_saddr != address || info.dli_sname == NULL)
        return "no export";
    hooked += strstr(info.dli_fname, "libslicewise-limit") != NULL;
    return info.dli_sname;
}

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

int main(int count, char **arguments)
{
    static const int versions[] = {2000,  2020,  3000,  3020,  4000,  4010,  5000,  5050,  6000,
                                   6050,  7000,  7050,  8000,  9000,  9020,  10000, 10010, 10020,
                                   11000, 11010, 11020, 11030, 11040, 11060, 11070, 11080, 12000,
                                   12010, 12020, 12030, 12040, 12050, 12080, 13000, 13010, 13050};
    static const uint64_t flags[] = {0, 1, 2, 3, 8};
    void *handle = dlopen(arguments[1], RTLD_NOW);
    new_form ask = handle ? (new_form)dlsym(handle, "cuGetProcAddress_v2") : NULL;
    old_form ask_old = handle ? (old_form)dlsym(handle, "cuGetProcAddress") : NULL;
    char name[128], line[256];

    (void)count;
    /* Drivers before CUDA 12 have the old form alone. */
    if (ask_old == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    while (scanf("%127s", name) == 1) {
        uint64_t hash = 14695981039346656037u;
        for (unsigned int v = 0; v < sizeof versions / sizeof versions[0]; v++)
            for (unsigned int f = 0; f < sizeof flags / sizeof flags[0]; f++) {
                void *found = (void *)1, *found_old = (void *)1;
                int status = 7, result = 7, result_old;
                if (ask != NULL)
                    result = ask(name, &found, versions[v], flags[f], &status);
                result_old = ask_old(name, &found_old, versions[v], flags[f]);
                snprintf(line, sizeof line, "%d %d %d %s", result, status, result_old,
                         symbol_of(found));
                hash = mix(mix(hash, line), symbol_of(found_old));
                asked += 1 + (ask != NULL);
            }
        printf("%s %016llx\n", name, (unsigned long long)hash);
    }
    fprintf(stderr, "%ld %ld\n", asked, hooked);
    return 0;
}
