/* How vcuda-controller, HAMi-core and vgpu-manager pace: thread blocks are paid from tokens, and a
   watcher adds tokens some ten times a second, by how far NVML's figure is from the limit.

   Written after their sources of 2022-11, 2026-06 and 2026, with their constants; of vgpu-manager
   its two ways of changing a hard limit's tokens. Graphs pay nothing but there. */
#include "pacing.h"

enum { SMS = 108, THREADS = 2048, FACTOR = 32, LEAST_DIFFERENCE = 5 };
enum { CHANGE_LIMIT_INTERVAL = 30, USAGE_THRESHOLD = 5, ALL = 100, HUNDREDTHS = 100 };
static const uint64_t NAP_NS = 10000000, WATCH_NS = 120000000;
static const uint64_t SHORT_WATCH_NS = 100000000, SILENCE_NS = 200000000;

void tokens_join(struct process *process)
{
    process->tokens = (struct tokens){.total = (int64_t)SMS * THREADS * FACTOR, .neighbours = 1};
    process->tokens.up_limit = (int)process->container->cores / HUNDREDTHS;
}

/* vgpu-manager: a launch that comes after a silence is timed, and its share of the time slept. */
static void rest_after_silence(struct tokens *tokens)
{
    int64_t cores = sim->current->container->cores / HUNDREDTHS;
    uint64_t silent = sim->now_ns - tokens->launched_ns, began = sim->now_ns;

    if (silent >= SILENCE_NS) {
        gpu_wait();
        pass((sim->now_ns - began) * (uint64_t)(ALL - cores) / (uint64_t)cores);
    }
    tokens->launched_ns = sim->now_ns;
}

/* A launch only waits while the balance is below zero, whatever it will take itself. */
void tokens_launch(const struct kernel *kernel)
{
    struct tokens *tokens = &sim->current->tokens;

    if (!kernel->is_graph || sim->current->container->way >= WAY_DELTA) {
        for (; tokens->left < 0; tokens->throttled = true)
            pass(NAP_NS);
        tokens->left -= kernel->blocks;
    }
    gpu_launch(kernel);
    if (sim->current->container->way >= WAY_DELTA)
        rest_after_silence(tokens);
}

static int64_t step(const struct tokens *tokens, int limit, int used)
{
    int64_t difference = limit > used ? limit - used : used - limit, change;

    difference = difference < LEAST_DIFFERENCE ? LEAST_DIFFERENCE : difference;
    change = (int64_t)SMS * SMS * THREADS / 256 * difference / 10;
    if (difference > limit / 2)
        change = change * difference * 2 / (limit + 1);
    if (used <= limit)
        return tokens->share + change > tokens->total ? tokens->total : tokens->share + change;
    return tokens->share < change ? 0 : tokens->share - change;
}

static void add(struct tokens *tokens)
{
    int64_t sum = tokens->left + tokens->share;

    tokens->left = sum > tokens->total ? tokens->total : sum;
}

/* Soft limits of vcuda: the container's own limit alone, a slowly raised one beside others. */
static int soft_limit(struct tokens *tokens, const struct container *container, int processes,
                      int all)
{
    int cores = (int)container->cores / HUNDREDTHS, limit = (int)container->limit / HUNDREDTHS;

    if (processes > tokens->neighbours) {
        tokens->share = THREADS;
        tokens->up_limit = cores;
        tokens->rounds = tokens->free_sum = 0;
    }
    tokens->neighbours = processes;
    if (processes <= 1)
        return limit;
    tokens->free_sum += ALL - all;
    if (++tokens->rounds % CHANGE_LIMIT_INTERVAL == 0) {
        if (tokens->free_sum * 2 / CHANGE_LIMIT_INTERVAL > USAGE_THRESHOLD) {
            int raised = tokens->up_limit + cores / 10;
            tokens->up_limit = raised > limit ? limit : raised;
        }
        tokens->rounds = 0;
    }
    if (tokens->rounds % (CHANGE_LIMIT_INTERVAL / 2) == 0)
        tokens->free_sum = 0;
    return tokens->up_limit;
}

static void watch_vcuda(struct tokens *tokens, const struct container *container, int used,
                        int processes, int all)
{
    int cores = (int)container->cores / HUNDREDTHS;

    if (container->limit > container->cores) {
        tokens->share = step(tokens, soft_limit(tokens, container, processes, all), used);
    } else if (processes <= 1 && used < cores / 10) {
        tokens->left = step(tokens, cores, used);
        return;
    } else {
        tokens->share = step(tokens, cores, used);
    }
    add(tokens);
}

static void watch_hami(struct tokens *tokens, const struct container *container, int used)
{
    if (tokens->share == tokens->total && tokens->left < 0) {
        tokens->total *= 2;
        tokens->share = tokens->total;
    }
    if (used > ALL)
        return;
    tokens->share = step(tokens, (int)container->cores / HUNDREDTHS, used);
    add(tokens);
}

/* vgpu-manager's own: steps are at least a part of the pool, or grow by adding and shrink by
   dividing; a debt is forgiven with every refill. */
static int64_t step_delta(const struct tokens *tokens, int limit, int used)
{
    int64_t difference = limit > used ? limit - used : used - limit, change, least;

    difference = difference < LEAST_DIFFERENCE ? LEAST_DIFFERENCE : difference;
    change = (int64_t)SMS * SMS * THREADS * difference / 2560;
    if (2 * difference > limit)
        change = change * difference * 2 / (limit + 1);
    least = tokens->total * difference / (limit * 64);
    change = change < least ? least : change;
    if (used <= limit)
        return tokens->share + change > tokens->total ? tokens->total : tokens->share + change;
    return tokens->share < change ? 0 : tokens->share - change;
}

static int64_t step_aimd(struct tokens *tokens, int limit, int used)
{
    int high = limit * 875 / 1000, low = limit * 800 / 1000;
    int64_t unit, share = tokens->share;

    high = high < 1 ? 1 : high;
    low = low >= high ? high - 1 : low;
    unit = (int64_t)SMS * THREADS * 3 * high / 400;
    tokens->cooldown -= tokens->cooldown > 0;
    if (used < low) {
        share += unit * (limit - used < LEAST_DIFFERENCE ? LEAST_DIFFERENCE : limit - used) / 5;
        share = share > tokens->total ? tokens->total : share;
    } else if (used > high && tokens->cooldown == 0) {
        share /= 3;
        tokens->cooldown = 4;
    }
    return share < unit ? unit : share;
}

static void watch_vgpu(struct tokens *tokens, const struct container *container, int used, int all)
{
    int cores = (int)container->cores / HUNDREDTHS;
    int64_t share = container->way == WAY_DELTA ? step_delta(tokens, cores, used)
                                                : step_aimd(tokens, cores, used);
    bool throttled = tokens->throttled;

    tokens->throttled = false;
    if (all == used && used < (cores < 20 ? 1 : cores / 10) && !throttled) {
        tokens->left = share;
        return;
    }
    tokens->share = share;
    add(tokens);
    tokens->left = tokens->left < 0 ? 0 : tokens->left;
}

void tokens_watch(struct process *watcher)
{
    struct tokens *tokens = &watcher->watched->tokens;

    for (;;) {
        int processes, all, used;
        pass(watcher->container->way >= WAY_DELTA ? SHORT_WATCH_NS : WATCH_NS);
        used = gpu_percent(watcher->container, &processes, &all);
        if (watcher->container->way == WAY_VCUDA)
            watch_vcuda(tokens, watcher->container, used, processes, all);
        else if (watcher->container->way == WAY_HAMI)
            watch_hami(tokens, watcher->container, used);
        else
            watch_vgpu(tokens, watcher->container, used, all);
    }
}
