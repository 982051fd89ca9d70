/* What an agent of ours would feed, where gpu-manager's own agent serves: scale and ceiling.

   Ten times a second one thread of one of the container's processes, the holder of a record lock,
   compares what NVML saw of its processes with what was charged, and writes what follows for all.
   It is a thread that is about to wait for its turn anyway: none of our own runs in a program that
   did not ask for it, and none is left when a program ends. */
#include "driver.h"
#include "process.h"

static const uint64_t PERIOD_NS = 100000000u;
static const uint64_t LONGEST_PERIOD_NS = 1000000000u;
static const uint64_t SILENCE_NS = 2000000000u;
static const uint64_t SAMPLED_US = 1000000u;
static const double LEAST_USE = 3, ROUNDING = 0.5, STEP = 0.04;
enum { MOST_PIDS = 1024, MOST_SAMPLES = 256, LOWEST_SCALE = 13107, HIGHEST_SCALE = 262144 };

struct use {
    double seen;
    uint32_t processes;
    bool is_known, is_alone;
};

/* The newest sample of every process, as NVML lists them; a process may be there twice. */
static bool is_newest(const nvml_sample *samples, uint32_t count, uint32_t at)
{
    for (uint32_t other = 0; other < count; other++)
        if (samples[other].pid == samples[at].pid &&
            (samples[other].time_us > samples[at].time_us ||
             (samples[other].time_us == samples[at].time_us && other < at)))
            return false;
    return samples[at].pid != 0 && samples[at].percent <= 100;
}

static bool is_own(const int32_t *pids, size_t count, uint32_t pid)
{
    for (size_t at = 0; at < count; at++)
        if ((uint32_t)pids[at] == pid)
            return true;
    return false;
}

static struct use measure(const struct device *device, const int32_t *pids, size_t known)
{
    nvml_sample samples[MOST_SAMPLES];
    uint32_t count = MOST_SAMPLES;
    struct use use = {.is_alone = true};

    use.is_known = known > 0 && nvml_sampled(device->uuid_text, samples, &count,
                                             time_us() - SAMPLED_US);
    for (uint32_t at = 0; use.is_known && at < count; at++) {
        if (!is_newest(samples, count, at) || samples[at].percent == 0)
            continue;
        if (!is_own(pids, known, samples[at].pid)) {
            use.is_alone = false;
            continue;
        }
        use.seen += samples[at].percent;
        use.processes++;
    }
    return use;
}

/* The number to the power of STEP, for numbers from one half to two. */
static double soften(double number)
{
    double y = (number - 1) / (number + 1), square = y * y;
    double x = STEP * 2 * y * (1 + square * (1.0 / 3 + square * (1.0 / 5 + square / 7)));

    return 1 + x * (1 + x / 2 * (1 + x / 3));
}

/* As the agent's own correction: slow, and blind to what a whole percentage cannot tell. */
static double correct(const struct feed_window *window)
{
    double seen = 0, charged = 0, ratio;
    uint32_t count = window->count < FEED_SAMPLES ? window->count : FEED_SAMPLES;

    for (uint32_t at = 0; at < count; at++) {
        seen += (window->seen[at] + ROUNDING * window->processes[at]) / count;
        charged += window->charged[at] / count;
    }
    if (seen - charged <= ROUNDING && charged - seen <= ROUNDING)
        return 1;
    seen += seen < charged ? ROUNDING : -ROUNDING;
    if (seen <= LEAST_USE || charged <= LEAST_USE)
        return 1;
    ratio = seen / charged;
    return soften(ratio < 0.5 ? 0.5 : ratio > 2 ? 2 : ratio);
}

static void take_sample(struct feed_window *window, int64_t spent, const struct use *use,
                        uint64_t now)
{
    uint64_t passed = now - window->at_ns;
    uint32_t at = window->count % FEED_SAMPLES;

    if (use->is_known && window->at_ns != 0 && passed <= LONGEST_PERIOD_NS) {
        window->seen[at] = use->seen;
        window->processes[at] = use->processes;
        window->charged[at] = (double)(spent - window->spent) * 100 / (double)passed;
        window->count++;
    }
    window->at_ns = now;
    window->spent = spent;
}

static void feed_device(int number, const int32_t *pids, size_t known, uint64_t now)
{
    struct device *device = &own->device[number];
    struct usage_feed *feed = &own->usage->feed[number];
    struct feed_window *window = &own->window[number];
    struct use use = measure(device, pids, known);
    uint32_t before = window->count, scale = LOAD(feed->scale);
    bool lent = use.is_known && use.is_alone;

    take_sample(window, LOAD(own->usage->device[number].spent), &use, now);
    if (window->count != before) {
        double next = (scale ? scale : SCALE_ONE) * correct(window) + 0.5;
        scale = next < LOWEST_SCALE    ? LOWEST_SCALE
                : next > HIGHEST_SCALE ? HIGHEST_SCALE
                                       : (uint32_t)next;
        STORE(feed->scale, scale);
    }
    STORE(feed->ceiling, lent ? device->limit : device->cores);
    STORE(feed->fed_ns, now);
}

static void feed_all(uint64_t now)
{
    int32_t pids[MOST_PIDS];
    size_t known = vcuda_pids(pids, MOST_PIDS);

    for (uint32_t at = 0; at < own->devices; at++)
        feed_device((int)at, pids, known, now);
}

/* The ceiling of somebody who feeds no more is the guarantee; what was learned stays. */
static void follow(int number, uint64_t now)
{
    struct device *device = &own->device[number];
    const struct usage_feed *feed = &own->usage->feed[number];
    uint32_t ceiling = LOAD(feed->ceiling), scale = LOAD(feed->scale);
    bool silent = now - LOAD(feed->fed_ns) > SILENCE_NS;

    if (silent || ceiling < device->cores || ceiling > device->limit)
        ceiling = device->cores;
    STORE(device->ceiling, ceiling);
    if (scale >= LOWEST_SCALE && scale <= HIGHEST_SCALE)
        STORE(device->scale, scale);
}

void feed_refresh(void)
{
    uint32_t idle = 0;
    uint64_t now;

    if (!own->vcuda || !own->mapped)
        return;
    now = now_ns();
    if (now - LOAD(own->usage->feed[0].fed_ns) >= PERIOD_NS &&
        __atomic_compare_exchange_n(&own->feed_lock, &idle, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        if (feed_lock()) {
            feed_all(now);
            feed_unlock();
        }
        __atomic_store_n(&own->feed_lock, 0, __ATOMIC_RELEASE);
    }
    for (uint32_t at = 0; at < own->devices; at++)
        follow((int)at, now);
}
