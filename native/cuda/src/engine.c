/* A GPU's time: one engine, contexts served round robin in slices, all stamps exact.

   Nothing runs in the background: whoever asks brings the engine up to the present, and what
   happened meanwhile is stamped with the time at which it would have happened. */
#include "state.h"

static const uint64_t SAMPLE_NS = 1000000000u / STATE_WINDOW;
static const uint64_t NEVER = UINT64_MAX;

static struct work *head(struct state *state, int at, int gpu)
{
    struct queue *queue = &state->queue[at][gpu];

    return queue->done == queue->added ? NULL : &queue->work[queue->done % STATE_QUEUE];
}

static void complete(struct state *state, int at, int gpu, uint64_t now)
{
    struct queue *queue = &state->queue[at][gpu];
    struct work *work = head(state, at, gpu);

    if (work->is_event)
        __atomic_store_n(&queue->stamp[work->stamp], now, __ATOMIC_RELEASE);
    queue->done++;
    if (queue->done == queue->added)
        state->engine[gpu].waiting[at / 64] &= ~(1ULL << (at % 64));
}

/* The queue after the current one that has work to do now, or -1 and when the next has. */
static int choose(struct state *state, int gpu, uint64_t *wake)
{
    struct engine *engine = &state->engine[gpu];
    int chosen = -1;
    uint32_t best = STATE_PROCESSES;

    *wake = NEVER;
    for (int word = 0; word < STATE_PROCESSES / 64; word++)
        for (uint64_t bits = engine->waiting[word]; bits; bits &= bits - 1) {
            int at = word * 64 + __builtin_ctzll(bits);
            struct work *work;
            uint32_t distance;
            work = head(state, at, gpu);
            if (work->ready_ns > engine->now_ns) {
                *wake = work->ready_ns < *wake ? work->ready_ns : *wake;
                continue;
            }
            distance = ((uint32_t)at + STATE_PROCESSES - engine->current) % STATE_PROCESSES;
            /* The current queue stays until its slice is over, and then goes to the end. */
            if (distance == 0 && engine->slice_left_ns == 0)
                distance = STATE_PROCESSES - 1;
            if (distance < best) {
                best = distance;
                chosen = at;
            }
        }
    return chosen;
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static void sample(struct state *state, int gpu)
{
    struct engine *engine = &state->engine[gpu];

    for (int at = 0; at < STATE_PROCESSES; at++)
        if (state->tenant[at].taken && state->tenant[at].launched) {
            struct queue *queue = &state->queue[at][gpu];
            queue->sample[engine->samples % STATE_SAMPLES] = queue->busy_ns;
        }
    engine->samples++;
    engine->next_sample_ns += SAMPLE_NS;
}

/* An event takes no time, but its context must have its turn to stamp it. */
static void run(struct state *state, int at, int gpu, uint64_t until)
{
    struct engine *engine = &state->engine[gpu];
    struct work *work = head(state, at, gpu);
    uint64_t step;

    if (engine->current != (uint32_t)at) {
        engine->current = (uint32_t)at;
        engine->slice_left_ns = engine->slice_ns;
        engine->now_ns += engine->switch_ns;
    } else if (engine->slice_left_ns == 0) {
        engine->slice_left_ns = engine->slice_ns;
    }
    if (work->is_event) {
        complete(state, at, gpu, engine->now_ns);
        return;
    }
    if (engine->now_ns >= until)
        return;
    step = least(least(work->left_ns, engine->slice_left_ns), until - engine->now_ns);
    work->left_ns -= step;
    engine->slice_left_ns -= step;
    engine->now_ns += step;
    state->queue[at][gpu].busy_ns += step;
    if (work->left_ns == 0)
        complete(state, at, gpu, engine->now_ns);
}

void engine_advance(struct state *state, int gpu, uint64_t now)
{
    struct engine *engine = &state->engine[gpu];

    if (engine->now_ns == 0) {
        engine->now_ns = now;
        engine->next_sample_ns = now + SAMPLE_NS;
    }
    while (engine->now_ns < now) {
        uint64_t until = least(now, engine->next_sample_ns), wake;
        int at = choose(state, gpu, &wake);
        if (at >= 0)
            run(state, at, gpu, until);
        else
            engine->now_ns = least(until, wake);
        if (engine->now_ns >= engine->next_sample_ns)
            sample(state, gpu);
    }
    /* Events that became due at this very moment, where nothing else has its turn. */
    for (int at = choose(state, gpu, &(uint64_t){0}); at >= 0 && head(state, at, gpu)->is_event;
         at = choose(state, gpu, &(uint64_t){0})) {
        engine->current = (uint32_t)at;
        complete(state, at, gpu, engine->now_ns);
    }
}

uint64_t engine_add(struct state *state, int at, int gpu, struct work work)
{
    struct queue *queue = &state->queue[at][gpu];

    if (queue->added - queue->done == STATE_QUEUE)
        return 0;
    state->tenant[at].launched = 1;
    queue->work[queue->added % STATE_QUEUE] = work;
    state->engine[gpu].waiting[at / 64] |= 1ULL << (at % 64);
    return ++queue->added;
}

uint64_t engine_left(const struct state *state, int at, int gpu, uint64_t until)
{
    const struct queue *queue = &state->queue[at][gpu];
    uint64_t left = 0;

    for (uint64_t each = queue->done; each < until && each < queue->added; each++)
        left += queue->work[each % STATE_QUEUE].left_ns;
    return left;
}

unsigned int engine_percent(const struct state *state, int at, int gpu)
{
    const struct engine *engine = &state->engine[gpu];
    const struct queue *queue = &state->queue[at][gpu];
    uint64_t newest, oldest;

    if (engine->samples <= STATE_WINDOW || !state->tenant[at].launched)
        return 0;
    newest = queue->sample[(engine->samples - 1) % STATE_SAMPLES];
    oldest = queue->sample[(engine->samples - 1 - STATE_WINDOW) % STATE_SAMPLES];
    return (unsigned int)((newest - oldest) * 100 / 1000000000u);
}
