/* What all processes of one simulated machine share: its memory in use and its engines' time.

   The CUDA and the NVML stand-in map the same file, so that a GPU's memory and time are those of
   one machine. Liveness of a process is a record lock, which a killed one cannot leave behind. */
#ifndef SLICEWISE_STATE_H
#define SLICEWISE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    STATE_GPUS = 8,
    STATE_PROCESSES = 320,
    STATE_QUEUE = 1024,
    STATE_STAMPS = 512,
    STATE_SAMPLES = 8,
    /* Samples of what was busy are taken six times a second and cover one second, as NVML's. */
    STATE_WINDOW = 6,
};

/* One piece of work of a queue: a kernel, or an event when it takes no time. */
struct work {
    uint64_t ready_ns, left_ns;
    uint32_t stamp, is_event;
};

struct queue {
    uint64_t done, added;
    uint64_t busy_ns;
    uint64_t sample[STATE_SAMPLES];
    uint64_t stamp[STATE_STAMPS];
    struct work work[STATE_QUEUE];
};

struct tenant {
    uint32_t taken, pid, launched, padding;
    uint64_t start_ticks, pid_namespace, free_since_ns;
    /* Bytes that the process asked for, and bytes of its contexts. */
    int64_t used[STATE_GPUS], contexts[STATE_GPUS];
    /* Where the kernel counts the process, for limits by cgroup. */
    char cgroup[256];
};

struct engine {
    char uuid[64];
    uint64_t memory, bound;
    uint64_t latency_ns, slice_ns, switch_ns;
    uint64_t now_ns, slice_left_ns, next_sample_ns, samples;
    uint32_t current, padding;
    uint64_t waiting[STATE_PROCESSES / 64];
    /* The most that processes had at once, and how often that was above the bound. */
    int64_t highest, violations;
};

struct state {
    uint64_t magic;
    pthread_mutex_t lock;
    uint32_t gpus;
    struct engine engine[STATE_GPUS];
    struct tenant tenant[STATE_PROCESSES];
    /* Large, and touched only by those who launch. */
    struct queue queue[STATE_PROCESSES][STATE_GPUS];
};

/* Maps the file and makes it if it is not there; NULL with a line on standard error. */
struct state *state_open(const char *path, int *descriptor);
void state_lock(struct state *state);
void state_unlock(struct state *state);
uint64_t state_now(void);

/* The rest is called with the lock held. */
int state_join(struct state *state, int descriptor);
uint32_t state_holder(int descriptor, int at);
void state_reap(struct state *state, int descriptor);
bool state_take(struct state *state, int descriptor, int at, int gpu, int64_t bytes);
int64_t state_sum(const struct state *state, int gpu, bool contexts);

void engine_advance(struct state *state, int gpu, uint64_t now);
uint64_t engine_add(struct state *state, int at, int gpu, struct work work);
unsigned int engine_percent(const struct state *state, int at, int gpu);
/* What is left for a queue to do before the given piece of work is done. */
uint64_t engine_left(const struct state *state, int at, int gpu, uint64_t until);

#endif
