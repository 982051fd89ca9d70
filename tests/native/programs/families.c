/* Forks so many children that each use CUDA at once, and waits for them: families CHILDREN. */
#include "driver_calls.h"

#include <sys/wait.h>
#include <unistd.h>

static int use_cuda(void)
{
    CUcontext context;
    CUdeviceptr address;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    return cuMemAlloc_v2(&address, 256 << 10) ? 2 : 0;
}

int main(int count, char **arguments)
{
    int children = count > 1 ? atoi(arguments[1]) : 1, failed = 0, status;
    int gate[2];
    char start;

    find_calls("dlsym");
    if (pipe(gate))
        return 3;
    for (int at = 0; at < children; at++)
        if (fork() == 0) {
            close(gate[1]);
            /* All begin when the parent lets go. */
            if (read(gate[0], &start, 1) != 0)
                _exit(9);
            _exit(use_cuda());
        }
    close(gate[1]);
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%d\n", failed);
    return 0;
}
