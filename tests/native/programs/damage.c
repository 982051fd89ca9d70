/* Damages a good grant so many times and gives it to the library: damage SEED COUNT. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

static uint64_t state;

static uint64_t random_number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static struct grant make_good(void)
{
    struct grant grant = {
        .magic = GRANT_MAGIC, .version = 1, .size = 4096, .sequence = 2, .devices = 2};

    for (int at = 0; at < 2; at++)
        grant.device[at] = (struct grant_device){.memory_bytes = 1 << 30,
                                                 .cores = 2500,
                                                 .ceiling = 2500,
                                                 .limit = 5000,
                                                 .scale = SCALE_ONE};
    grant.crc = crc32_of(grant.device, sizeof grant - 64);
    return grant;
}

/* Whatever was accepted, what is obeyed makes sense. */
static void check_policy(void)
{
    for (uint32_t at = 0; at < own->devices; at++) {
        const struct device *device = &own->device[at];
        if (device->cores > 10000 || device->ceiling < device->cores || device->ceiling > 10000 ||
            device->scale < 655 || device->scale > 6553600 || device->memory < 0 ||
            device->burst_ns <= 0 || device->limit < device->cores) {
            puts("absurd");
            exit(1);
        }
    }
}

int main(int count, char **arguments)
{
    long accepted = 0, repaired = 0, many = count > 2 ? atol(arguments[2]) : 1000;

    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    for (long each = 0; each < many; each++) {
        struct grant grant = make_good();
        uint64_t bytes = 1 + random_number(64);
        int repair = random_number(4) == 0;
        for (uint64_t at = 0; at < bytes; at++)
            ((uint8_t *)&grant)[random_number(repair ? 3 : 1) ? 64 + random_number(4032)
                                                              : random_number(4096)] =
                (uint8_t)random_number(256);
        if (repair)
            grant.crc = crc32_of(grant.device, sizeof grant - 64);
        if (grant_check(&grant) != NULL)
            continue;
        if (crc32_of(grant.device, sizeof grant - 64) != grant.crc) {
            puts("accepted with a wrong checksum");
            return 1;
        }
        grant_take(&grant);
        check_policy();
        accepted++;
        repaired += repair;
    }
    printf("%ld %ld\n", accepted, repaired);
    return 0;
}
