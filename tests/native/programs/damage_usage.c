/* Damages a good usage file so many times and lets the library work with it: damage_usage SEED
   COUNT FILE. Prints how many were accepted, and how many of these had slots that were not ours. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "account.h"
#include "pace.h"

enum { MEMORY = 1 << 30, ASKED = 4096, DAMAGED_SLOTS = 8, TAKEN_SLOTS = 4 };
static uint64_t state;

static uint64_t random_number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static struct usage good = {.magic = USAGE_MAGIC,
                            .version = FILE_VERSION,
                            .size = sizeof(struct usage),
                            .slots = FILE_SLOTS,
                            .devices = FILE_DEVICES};

static void make_good(void)
{
    for (uint32_t at = 0; at < TAKEN_SLOTS; at++) {
        good.active[0] |= 1u << at;
        good.slot[at].state = 1;
        good.slot[at].pid = 1 + at;
        good.slot[at].used[0] = MEMORY / 16;
    }
}

/* A header that is not what it should be is refused; everything behind it may be anything. */
static bool is_whole(const struct usage *usage, uint64_t bytes)
{
    return bytes >= sizeof good && memcmp(usage, &good, offsetof(struct usage, created_ns)) == 0;
}

static uint64_t damage(struct usage *usage, int file)
{
    uint64_t count = 1 + random_number(64), bytes = sizeof good;

    for (uint64_t at = 0; at < count; at++) {
        static const uint64_t begins[] = {0, 32, 4096, 8192};
        static const uint64_t lengths[] = {32, 32, 512, DAMAGED_SLOTS * sizeof(struct usage_slot)};
        uint64_t part = random_number(8) ? 1 + random_number(3) : 0;
        ((uint8_t *)usage)[begins[part] + random_number(lengths[part])] =
            (uint8_t)random_number(256);
    }
    if (random_number(16) == 0)
        bytes = random_number(sizeof good);
    return ftruncate(file, (off_t)bytes) == 0 ? bytes : 0;
}

static void forget(void)
{
    if (own->usage)
        munmap(own->usage, sizeof *own->usage);
    own->usage = NULL;
    own->slot = NULL;
    own->devices = 1;
    own->device[0] = (struct device){.memory = MEMORY,
                                     .gate = MEMORY,
                                     .cores = 2500,
                                     .ceiling = UNPACED,
                                     .limit = WHOLE_CORES,
                                     .scale = SCALE_ONE,
                                     .burst_ns = 20000000};
}

/* What a program does: asks for memory, gives it back, and launches. */
static bool work(void)
{
    int64_t before;
    CUresult result;

    if (!slot_take())
        return true;
    before = LOAD(own->slot->used[0]);
    result = account_ask(0, ASKED);
    if (result == CUDA_SUCCESS) {
        account_keep(0, ASKED, ASKED);
        account_change(0, -ASKED);
    }
    account_fits(0, UINT64_MAX);
    pace_pay(0, LEASE_NS);
    pace_correct(0, -LEASE_NS);
    return (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) &&
           LOAD(own->slot->used[0]) == before && LOAD(own->slot->asking[0]) == 0;
}

int main(int count, char **arguments)
{
    long accepted = 0, foreign = 0, many = count > 2 ? atol(arguments[2]) : 1000;
    const char *path = count > 3 ? arguments[3] : "usage";
    int file = open(path, O_RDWR | O_CREAT, 0600);
    struct usage *usage;

    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    make_good();
    if (file < 0 || ftruncate(file, sizeof good) != 0)
        return 1;
    usage = mmap(NULL, sizeof good, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (long each = 0; each < many; each++) {
        uint64_t bytes;
        bool whole;
        if (ftruncate(file, sizeof good) != 0)
            return 1;
        *usage = good;
        bytes = damage(usage, file);
        whole = bytes == sizeof good && is_whole(usage, bytes);
        forget();
        if (usage_open(path) != whole) {
            puts(whole ? "a whole file was refused" : "a damaged header was accepted");
            return 1;
        }
        if (!whole)
            continue;
        accepted++;
        foreign += own->usage->active[0] != 0;
        if (!work()) {
            puts("its own slot is wrong");
            return 1;
        }
    }
    printf("%ld %ld\n", accepted, foreign);
    return 0;
}
