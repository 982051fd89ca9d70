/* What programs do: the works that the measurements are named after. */
#include "pacing.h"

enum { TINY = 1, BIG, VARYING, GRAPH, MIDDLE, RARE, FIRST_OF_STEP, DISTINCT = 60, STEP = 300 };
static const uint64_t US = 1000, MS = 1000000;

static void launch(const struct kernel *kernel)
{
    switch (sim->current->container->way) {
    case WAY_LIBRARY:
        library_launch(kernel);
        break;
    case WAY_NONE:
        gpu_launch(kernel);
        break;
    default:
        tokens_launch(kernel);
    }
}

static void repeat(struct kernel kernel, int count)
{
    for (int at = 0; at < count; at++)
        launch(&kernel);
}

static const struct kernel tiny = {.id = TINY, .ns = 10000, .blocks = 60};
static const struct kernel big = {.id = BIG, .ns = 50000000, .blocks = 16384};

/* Sixty kernels of 20 to 500 us, always in the same order, as the layers of a training step. */
static void run_step(void)
{
    for (uint64_t at = 0; at < STEP; at++) {
        uint64_t which = at * 7919 % DISTINCT, ns = 20 * US + which * 480 * US / DISTINCT;
        launch(&(struct kernel){
            .id = FIRST_OF_STEP + which, .ns = ns, .blocks = 400});
    }
    gpu_wait();
    pass(1900 * US);
}

/* One kernel whose calls differ: most take 100 us, one in twenty 20 ms. */
static void run_varying(struct process *process)
{
    for (int at = 0; at < 20; at++)
        launch(&(struct kernel){.id = VARYING,
                                .ns = random_below(process, 20) ? 100 * US : 20 * MS,
                                .blocks = 2048});
    gpu_wait();
}

static void run_once(struct process *process)
{
    switch (process->work) {
    case 't':
        repeat(tiny, 1000);
        break;
    case 'b':
        repeat(big, 1);
        break;
    case 'm':
        repeat(tiny, 200);
        repeat(big, 1);
        break;
    case 'r':
        run_step();
        return;
    case 'v':
        run_varying(process);
        return;
    case 'g':
        repeat((struct kernel){.id = GRAPH, .ns = 5 * MS, .blocks = 2560, .is_graph = 1}, 1);
        gpu_wait();
        pass(110 * US);
        return;
    case 'i':
        repeat((struct kernel){.id = MIDDLE, .ns = 100 * US, .blocks = 192}, 40);
        gpu_wait();
        pass(MS);
        return;
    default:
        /* Almost idle: one short kernel every 20 ms. */
        repeat((struct kernel){.id = RARE, .ns = 100 * US, .blocks = 2048}, 1);
        gpu_wait();
        pass(20 * MS);
        return;
    }
    gpu_wait();
}

/* Awake for so long, then asleep for so long, where it sleeps at all. */
static uint64_t asleep_ns(const struct process *process)
{
    uint64_t at = sim->now_ns % (process->on_ns + process->off_ns + !process->on_ns);

    return process->off_ns && at >= process->on_ns ? process->on_ns + process->off_ns - at : 0;
}

void work_run(struct process *process)
{
    for (;;) {
        uint64_t rest = asleep_ns(process);
        if (rest)
            pass(rest);
        else
            run_once(process);
    }
}
