/* What the processes of a simulated machine did on GPU 0: machine_state FILE [busy].

   Prints the most memory that was in use at once and how often it was above the bound; or, for
   each process, its PID and its nanoseconds of the engine. */
#include <fcntl.h>
#include <stdio.h>

#include "state.h"

int main(int count, char **arguments)
{
    int descriptor;
    struct state *state = count > 1 ? state_open(arguments[1], &descriptor) : NULL;

    if (state == NULL)
        return 1;
    state_lock(state);
    if (count > 2) {
        engine_advance(state, 0, state_now());
        for (int at = 0; at < STATE_PROCESSES; at++)
            if (state->tenant[at].taken)
                printf("%u %llu\n", state->tenant[at].pid,
                       (unsigned long long)state->queue[at][0].busy_ns);
    } else {
        printf("%lld %lld\n", (long long)state->engine[0].highest,
               (long long)state->engine[0].violations);
    }
    state_unlock(state);
    return 0;
}
