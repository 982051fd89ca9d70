/* Pacing on a clock of its own: the limiter's code and the stand-in's engine, without waiting.

   Processes are coroutines that run in the order of simulated time. What paces their launches is
   the library's own code, or one of the ways that others pace by; the engine that serves them is
   the CUDA stand-in's. The agent is whoever calls `pacing_run`. */
#ifndef SLICEWISE_PACING_H
#define SLICEWISE_PACING_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#include "state.h"

enum way { WAY_NONE, WAY_LIBRARY, WAY_VCUDA, WAY_HAMI, WAY_DELTA, WAY_AIMD };
enum { MAX_PROCESSES = 16, MAX_CONTAINERS = 8, EVENTS = 128, STACK_BYTES = 262144 };

struct own;
struct usage;

struct kernel {
    uint64_t id, ns;
    uint32_t blocks, is_graph;
};

/* Tokens as others keep them, for each process. */
struct tokens {
    int64_t left, share, total;
    uint64_t launched_ns;
    int up_limit, rounds, free_sum, neighbours, cooldown;
    bool throttled;
};

struct container {
    enum way way;
    uint32_t cores, limit;
    /* What the agent has said last; processes take it over when they look. */
    uint32_t ceiling, scale;
    struct usage *usage;
};

struct event {
    uint64_t number;
    uint32_t stamp;
};

struct process {
    ucontext_t context;
    void *stack;
    uint64_t wake_ns, on_ns, off_ns, random;
    void (*body)(struct process *);
    struct container *container;
    struct own *own;
    struct process *watched;
    struct tokens tokens;
    struct event event[EVENTS];
    int number, events;
    char work;
};

struct simulation {
    uint64_t now_ns, next_ns, latency_ns[2], host_ns;
    ucontext_t scheduler;
    struct state *state;
    struct process *current;
    struct process process[MAX_PROCESSES * 2];
    struct container container[MAX_CONTAINERS];
    int processes, containers, tenants;
};

extern struct simulation *sim __attribute__((visibility("hidden")));

/* coroutines.c: time passes for the process that runs; others have their turn in between. */
void pass(uint64_t ns);
uint64_t random_below(struct process *process, uint64_t bound);

/* gpu.c: the driver's part of the process that runs. */
void gpu_launch(const struct kernel *kernel);
void gpu_wait(void);
void gpu_record(struct event *event);
bool gpu_is_done(const struct event *event);
uint64_t gpu_stamp(const struct event *event);
/* What NVML shows of a container, and of the GPU: how many processes have it, busy or not. */
int gpu_percent(const struct container *container, int *processes, int *all);

/* library.c: the limiter's own code in a process. */
void library_join(struct process *process);
void library_launch(const struct kernel *kernel);

/* tokens.c: what vcuda-controller, HAMi-core and vgpu-manager do. */
void tokens_join(struct process *process);
void tokens_launch(const struct kernel *kernel);
void tokens_watch(struct process *watcher);

/* works.c: what programs do, for ever. */
void work_run(struct process *process);

#define API __attribute__((visibility("default")))
API void pacing_begin(uint64_t slice_ns, uint64_t switch_ns, uint64_t least_ns, uint64_t most_ns);
API int pacing_container(int way, int cores, int limit);
API int pacing_process(int container, char work, uint64_t on_ns, uint64_t off_ns, uint64_t seed);
API void pacing_run(uint64_t until_ns);
API void pacing_feed(int container, uint32_t ceiling, uint32_t scale);
API int64_t pacing_spent(int container);
API uint64_t pacing_throttled(int container);
API uint64_t pacing_busy(int process);
API int pacing_percent(int process);
API void pacing_end(void);

#endif
