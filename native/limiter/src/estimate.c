/* How long a kernel takes, by its function and the size of its grid. */
#include "pace.h"

enum { AVERAGED = 8 };

static struct estimate *place_of(uint64_t key)
{
    return &own->estimate[key >> 54];
}

/* The kernel's entry; a new one, or one that took another's place, knows nothing yet. */
struct estimate *estimate_find(uint64_t key)
{
    struct estimate *estimate = place_of(key);

    if (LOAD(estimate->key) != key) {
        STORE(estimate->timings, 0);
        STORE(estimate->highest_ns, 0);
        STORE(estimate->is_wild, 0);
        STORE(estimate->ns, (uint32_t)UNKNOWN_NS);
        STORE(estimate->key, key);
    }
    return estimate;
}

void estimate_update(struct estimate *estimate, uint64_t key, uint64_t measured)
{
    uint32_t ns = measured > UINT32_MAX ? UINT32_MAX : (uint32_t)measured;
    uint32_t timings = LOAD(estimate->timings), highest = LOAD(estimate->highest_ns);
    uint32_t weight = timings < AVERAGED ? timings + 1 : AVERAGED;
    int64_t old = LOAD(estimate->ns);

    if (LOAD(estimate->key) != key)
        return;
    STORE(estimate->ns, (uint32_t)(old + ((int64_t)ns - old) / (int64_t)weight));
    highest -= highest / 50;
    highest = ns > highest ? ns : highest;
    STORE(estimate->highest_ns, highest);
    STORE(estimate->is_wild, highest >= WILD_NS);
    STORE(estimate->timings, timings + (timings < UINT32_MAX));
}

void estimate_forget(uint64_t key)
{
    struct estimate *estimate = place_of(key);

    if (LOAD(estimate->key) == key)
        STORE(estimate->key, 0);
}
