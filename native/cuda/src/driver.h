/* The stand-in's own view of a process: facts, contexts, objects. */
#ifndef SLICEWISE_DRIVER_H
#define SLICEWISE_DRIVER_H

#include <stdbool.h>

#include "cuda_api.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_KERNELS = 64, MAX_FAILURES = 64, MAX_NAME = 96, MAX_NESTED = 16 };

struct kernel_fact {
    char name[MAX_NAME];
    uint64_t ns;
    unsigned int spread;
};

struct failure {
    char function[MAX_NAME];
    /* The nth call fails, or with every one in so many. */
    unsigned int nth, every, calls;
    int result;
};

struct gpu_fact {
    char uuid[64], name[MAX_NAME];
    uint64_t memory, context, bound;
    unsigned int sms, threads, major, minor;
};

struct facts {
    char state[4096];
    /* The file of limits by cgroup, and where the tree of cgroups is mounted whose paths it has. */
    char limits[4096], cgroups[1024];
    int version;
    bool engine_off;
    uint64_t latency_ns, slice_ns, switch_ns;
    unsigned int gpus, kernels, failures;
    struct gpu_fact gpu[STATE_GPUS];
    struct kernel_fact kernel[MAX_KERNELS];
    struct failure failure[MAX_FAILURES];
};

struct driver {
    struct facts facts;
    struct state *state;
    int descriptor, tenant;
    bool initialised, forked;
    pthread_mutex_t lock;
    struct context *primary[STATE_GPUS];
    unsigned int primary_users[STATE_GPUS], primary_flags[STATE_GPUS];
    uint64_t next_address, samples_seen;
    /* Captures under way in the whole process, those of mode global apart. */
    int captures, global_captures;
};

struct context {
    int gpu;
    bool dead, is_primary;
    unsigned int flags;
    uint64_t id;
};

struct stream {
    struct context *context;
    unsigned int flags;
    int priority, capture, mode;
    bool dead;
    uint64_t capture_thread, id;
    struct graph *graph;
};

extern struct driver driver;

/* facts.c */
bool facts_read(const char *path, struct facts *facts);

/* limits.c: both are called with the state's lock held. */
void limits_join(void);
bool limits_allow(int gpu, int64_t bytes);

/* devices.c: every function enters here; a result that is not 0 is its answer. */
CUresult driver_enter(const char *function);
CUresult driver_enter_context(const char *function, struct context **context);
void driver_lock(void);
void driver_unlock(void);
_Noreturn void driver_abort(const char *function, const char *what);
/* Listed when the process ends. */
CUresult driver_unknown(const char *function);

#define ENTER(function)                              \
    do {                                             \
        CUresult refused_ = driver_enter(#function); \
        if (refused_ != CUDA_SUCCESS)                \
            return refused_;                         \
    } while (0)
#define ENTER_CONTEXT(function, context)                               \
    do {                                                               \
        CUresult refused_ = driver_enter_context(#function, &context); \
        if (refused_ != CUDA_SUCCESS)                                  \
            return refused_;                                           \
    } while (0)

/* contexts.c */
struct context *context_current(void);

/* streams.c: what CUDA forbids while a stream captures; the result that it answers, or 0. */
CUresult capture_forbid(const char *function);
CUresult capture_forbid_default(CUstream stream);
bool stream_captures(CUstream stream);
void stream_check(const char *function, CUstream stream);
struct graph *stream_graph(CUstream stream);
void queue_wait(int gpu, uint64_t until);
uint64_t queue_added(int gpu);
uint64_t queue_add(int gpu, struct work work);

/* memory.c: addresses are never given out twice. */
bool memory_take(int gpu, int64_t bytes);
CUdeviceptr memory_add(int gpu, uint64_t bytes, struct context *context, struct pool *pool);
bool memory_remove(CUdeviceptr address, struct pool **pool, uint64_t *bytes);
void memory_drop_context(struct context *context);
void *memory_host(CUdeviceptr address, uint64_t bytes);
uint64_t memory_round(uint64_t bytes, uint64_t step);

/* pools.c */
void pool_give(struct pool *pool, uint64_t bytes);
void pools_release(int gpu);

/* arrays.c */
void arrays_drop_context(struct context *context);

/* launch.c */
uint64_t function_ns(CUfunction function);
CUresult launch_add(const char *name, CUfunction function, CUstream stream);

/* graphs.c */
struct graph *graph_make(void);
void graph_add_ns(struct graph *graph, uint64_t ns);
void graph_add_memory(struct graph *graph, uint64_t bytes, CUdeviceptr *address);

/* entry.c, from names.txt. */
struct entry {
    const char *base;
    int version;
    bool per_thread;
    void *function;
};
extern const struct entry entries[];
extern const unsigned int entries_count;

#endif
