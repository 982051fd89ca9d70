/* The driver of a simulated process: launches, waits, and the percentages that NVML would show. */
#include "pacing.h"

static const uint64_t LEAST_WAIT_NS = 1000;

static void advance(void)
{
    engine_advance(sim->state, 0, sim->now_ns);
}

static struct queue *own_queue(void)
{
    return &sim->state->queue[sim->current->number][0];
}

static void wait_until_done(uint64_t number)
{
    for (advance(); own_queue()->done < number; advance()) {
        uint64_t left = engine_left(sim->state, sim->current->number, 0, number);
        pass(left > LEAST_WAIT_NS ? left : LEAST_WAIT_NS);
    }
}

/* A full queue holds its process back, as the hardware's does. */
static uint64_t add(struct work work)
{
    uint64_t number;

    advance();
    while ((number = engine_add(sim->state, sim->current->number, 0, work)) == 0)
        wait_until_done(own_queue()->done + 1);
    return number;
}

void gpu_launch(const struct kernel *kernel)
{
    struct process *process = sim->current;
    uint64_t width = kernel->ns * 2 / 5;
    uint64_t latency = sim->latency_ns[0] +
                       random_below(process, sim->latency_ns[1] - sim->latency_ns[0] + 1);

    add((struct work){.ready_ns = sim->now_ns + latency,
                      .left_ns = kernel->ns - width / 2 + random_below(process, width)});
    pass(sim->host_ns);
}

void gpu_wait(void)
{
    wait_until_done(own_queue()->added);
}

void gpu_record(struct event *event)
{
    event->number = add((struct work){
        .ready_ns = sim->now_ns, .stamp = event->stamp, .is_event = 1});
    advance();
}

bool gpu_is_done(const struct event *event)
{
    advance();
    return own_queue()->done >= event->number;
}

uint64_t gpu_stamp(const struct event *event)
{
    return own_queue()->stamp[event->stamp];
}

int gpu_percent(const struct container *container, int *processes, int *all)
{
    int sum = 0;

    *processes = *all = 0;
    advance();
    for (int at = 0; at < sim->processes; at++) {
        int percent = pacing_percent(at);
        *processes += sim->process[at].watched == NULL;
        *all += percent;
        sum += sim->process[at].container == container ? percent : 0;
    }
    return sum;
}
