/* Processes as coroutines: the one whose time is least runs until another's is less. */
#include "pacing.h"

#include <stdlib.h>

#include "process.h"

/* Time begins after zero, which means never in the files. */
static const uint64_t BEGIN_NS = 1000000000000u;

struct simulation *sim;

void pass(uint64_t ns)
{
    struct process *process = sim->current;

    sim->now_ns += ns;
    if (sim->now_ns <= sim->next_ns)
        return;
    process->wake_ns = sim->now_ns;
    swapcontext(&process->context, &sim->scheduler);
}

uint64_t random_below(struct process *process, uint64_t bound)
{
    process->random ^= process->random << 13;
    process->random ^= process->random >> 7;
    process->random ^= process->random << 17;
    return bound ? process->random % bound : 0;
}

static void begin(void)
{
    sim->current->body(sim->current);
}

static struct process *add(void (*body)(struct process *), uint64_t seed)
{
    struct process *process = &sim->process[sim->processes];

    process->number = sim->processes++;
    process->body = body;
    process->wake_ns = sim->now_ns;
    process->random = 0x9e3779b97f4a7c15u * (seed * 64 + (uint64_t)process->number + 1);
    process->stack = malloc(STACK_BYTES);
    getcontext(&process->context);
    process->context.uc_stack.ss_sp = process->stack;
    process->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&process->context, begin, 0);
    return process;
}

void pacing_begin(uint64_t slice_ns, uint64_t switch_ns, uint64_t least_ns, uint64_t most_ns)
{
    sim = calloc(1, sizeof *sim);
    sim->now_ns = BEGIN_NS;
    sim->host_ns = 4000;
    sim->latency_ns[0] = least_ns;
    sim->latency_ns[1] = most_ns;
    sim->state = calloc(1, sizeof *sim->state);
    sim->state->gpus = 1;
    sim->state->engine[0].slice_ns = slice_ns;
    sim->state->engine[0].switch_ns = switch_ns;
    engine_advance(sim->state, 0, sim->now_ns);
}

int pacing_container(int way, int cores, int limit)
{
    struct container *container = &sim->container[sim->containers];

    container->way = (enum way)way;
    container->cores = container->ceiling = (uint32_t)cores;
    container->limit = (uint32_t)limit;
    container->scale = SCALE_ONE;
    container->usage = calloc(1, sizeof *container->usage);
    return sim->containers++;
}

int pacing_process(int container, char work, uint64_t on_ns, uint64_t off_ns, uint64_t seed)
{
    struct process *process = add(work_run, seed);

    process->container = &sim->container[container];
    process->work = work;
    process->on_ns = on_ns;
    process->off_ns = off_ns;
    sim->state->tenant[process->number].taken = 1;
    if (process->container->way == WAY_LIBRARY)
        library_join(process);
    if (process->container->way >= WAY_VCUDA) {
        struct process *watcher = add(tokens_watch, seed);
        tokens_join(process);
        watcher->watched = process;
        watcher->container = process->container;
    }
    return process->number;
}

void pacing_run(uint64_t until_ns)
{
    until_ns += BEGIN_NS;
    for (;;) {
        struct process *first = NULL;
        uint64_t next = until_ns;
        for (int at = 0; at < sim->processes; at++) {
            struct process *each = &sim->process[at];
            if (first == NULL || each->wake_ns < first->wake_ns) {
                if (first != NULL && first->wake_ns < next)
                    next = first->wake_ns;
                first = each;
            } else if (each->wake_ns < next) {
                next = each->wake_ns;
            }
        }
        if (first == NULL || first->wake_ns >= until_ns)
            break;
        sim->now_ns = first->wake_ns;
        sim->next_ns = next;
        sim->current = first;
        own = first->own;
        swapcontext(&sim->scheduler, &first->context);
    }
    sim->now_ns = until_ns;
    engine_advance(sim->state, 0, until_ns);
}

uint64_t pacing_busy(int process)
{
    return sim->state->queue[process][0].busy_ns;
}

int pacing_percent(int process)
{
    return (int)engine_percent(sim->state, process, 0);
}

void pacing_end(void)
{
    for (int at = 0; at < sim->processes; at++) {
        free(sim->process[at].stack);
        free(sim->process[at].own);
    }
    for (int at = 0; at < sim->containers; at++)
        free(sim->container[at].usage);
    free(sim->state);
    free(sim);
    sim = NULL;
    own = NULL;
}
