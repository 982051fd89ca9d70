/* Whether each name of standard input, asked for in every way, is answered by the limiter. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_limiter(void *address)
{
    Dl_info info;

    return address && dladdr(address, &info) && info.dli_fname &&
           strstr(info.dli_fname, "libslicewise-limit") != NULL;
}

int main(int count, char **arguments)
{
    void *handle = dlopen(arguments[1], RTLD_NOW);
    char name[128];

    (void)count;
    if (handle == NULL) {
        puts(dlerror());
        return 1;
    }
    while (scanf("%127s", name) == 1)
        printf("%s %d %d %d\n", name, is_limiter(dlsym(handle, name)),
               is_limiter(dlsym(RTLD_DEFAULT, name)), is_limiter(dlsym(RTLD_NEXT, name)));
    return 0;
}
