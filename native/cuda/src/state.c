/* The file that the processes of one simulated machine share. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t MAGIC = 0x3145544154534c53u;
static const uint64_t UNJUDGED_NS = 500000000u;
enum { LOCK_BASE = 1 << 30 };

uint64_t state_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void prepare(struct state *state)
{
    pthread_mutexattr_t kind;

    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    /* A process that is killed inside leaves counters that are still plausible. */
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&state->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    state->magic = MAGIC;
}

struct state *state_open(const char *path, int *descriptor)
{
    struct state *state;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (file < 0 || flock(file, LOCK_EX) != 0 || ftruncate(file, sizeof *state) != 0) {
        fprintf(stderr, "%s: cannot be the machine's state: %s\n", path, strerror(errno));
        return NULL;
    }
    fchmod(file, 0666);
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED) {
        perror(path);
        return NULL;
    }
    if (state->magic != MAGIC)
        prepare(state);
    flock(file, LOCK_UN);
    *descriptor = file;
    return state;
}

void state_lock(struct state *state)
{
    if (pthread_mutex_lock(&state->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&state->lock);
}

void state_unlock(struct state *state)
{
    pthread_mutex_unlock(&state->lock);
}

/* The state letter of a process and when it started, in ticks; 0 when there is none. */
static char judge(uint32_t pid, uint64_t *ticks)
{
    char path[64], text[1024], letter = 0;
    const char *rest;
    unsigned long long started = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    rest = strrchr(text, ')');
    if (rest == NULL || sscanf(rest,
                               ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                               "%*s %*s %*s %llu",
                               &letter, &started) != 2)
        return 0;
    *ticks = started;
    return letter;
}

static uint64_t own_namespace(void)
{
    struct stat found;

    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

static struct flock lock_of(int at, short type)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_BASE + at, .l_len = 1};
}

uint32_t state_holder(int descriptor, int at)
{
    struct flock lock = lock_of(at, F_WRLCK);

    if (fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return 0;
    return (uint32_t)lock.l_pid;
}

/* A real driver frees a process's memory after its files were closed: the lock alone is early. */
static bool is_dead(struct state *state, int descriptor, int at)
{
    struct tenant *tenant = &state->tenant[at];
    uint64_t ticks = 0, now = state_now();
    char letter;

    if (tenant->pid == (uint32_t)getpid() && tenant->pid_namespace == own_namespace()) {
        judge(tenant->pid, &ticks);
        return ticks != tenant->start_ticks;
    }
    if (state_holder(descriptor, at) != 0) {
        tenant->free_since_ns = 0;
        return false;
    }
    if (tenant->pid_namespace == own_namespace()) {
        letter = judge(tenant->pid, &ticks);
        return letter == 0 || letter == 'Z' || letter == 'X' || ticks != tenant->start_ticks;
    }
    if (tenant->free_since_ns == 0)
        tenant->free_since_ns = now;
    return now - tenant->free_since_ns > UNJUDGED_NS;
}

static void clear(struct state *state, int at)
{
    if (state->tenant[at].launched)
        memset(state->queue[at], 0, sizeof state->queue[at]);
    memset(&state->tenant[at], 0, sizeof state->tenant[at]);
}

void state_reap(struct state *state, int descriptor)
{
    for (int at = 0; at < STATE_PROCESSES; at++) {
        struct tenant *tenant = &state->tenant[at];
        if (!tenant->taken || !is_dead(state, descriptor, at))
            continue;
        for (unsigned int gpu = 0; gpu < state->gpus; gpu++)
            state->engine[gpu].waiting[at / 64] &= ~(1ULL << (at % 64));
        clear(state, at);
    }
}

int state_join(struct state *state, int descriptor)
{
    state_reap(state, descriptor);
    for (int at = 0; at < STATE_PROCESSES; at++) {
        struct flock lock = lock_of(at, F_WRLCK);
        struct tenant *tenant = &state->tenant[at];
        if (tenant->taken || fcntl(descriptor, F_SETLK, &lock) != 0)
            continue;
        clear(state, at);
        tenant->pid = (uint32_t)getpid();
        judge(tenant->pid, &tenant->start_ticks);
        tenant->pid_namespace = own_namespace();
        tenant->taken = 1;
        return at;
    }
    return -1;
}

int64_t state_sum(const struct state *state, int gpu, bool contexts)
{
    int64_t sum = 0;

    for (int at = 0; at < STATE_PROCESSES; at++)
        if (state->tenant[at].taken)
            sum += state->tenant[at].used[gpu] + (contexts ? state->tenant[at].contexts[gpu] : 0);
    return sum;
}

/* Takes memory of a GPU, or gives it back; the GPU's size is the only limit it knows. */
bool state_take(struct state *state, int descriptor, int at, int gpu, int64_t bytes)
{
    struct engine *engine = &state->engine[gpu];
    int64_t sum;

    if (bytes > 0 && state_sum(state, gpu, true) + bytes > (int64_t)engine->memory) {
        state_reap(state, descriptor);
        if (state_sum(state, gpu, true) + bytes > (int64_t)engine->memory)
            return false;
    }
    state->tenant[at].used[gpu] += bytes;
    sum = state_sum(state, gpu, false);
    if (engine->bound != 0 && sum > (int64_t)engine->bound) {
        state_reap(state, descriptor);
        sum = state_sum(state, gpu, false);
        if (bytes > 0 && sum > (int64_t)engine->bound)
            engine->violations++;
    }
    if (sum > engine->highest)
        engine->highest = sum;
    return true;
}
