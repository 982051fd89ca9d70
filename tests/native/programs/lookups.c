/* Prints what dlsym and dlvsym answer: asked from the program, from a library that it links by
   name, and from one that was opened with RTLD_DEEPBIND.
   Built with -DLIBRARY it is that library. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef LIBRARY
#define ASK ask_inside
#else
#define ASK ask_here
#endif

static void tell(const char *who, const char *how, const char *name, void *found)
{
    Dl_info info;
    const char *file = "nowhere";

    if (found && dladdr(found, &info) && info.dli_fname)
        file = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
    printf("%s %s %s %s\n", who, how, name, file);
}

/* Defined here and in the library: RTLD_NEXT tells the two callers apart. */
__attribute__((visibility("default"))) int twice_defined(void)
{
    return 1;
}

__attribute__((visibility("default"))) void ASK(const char *who)
{
    static const char *const names[] = {"malloc",      "twice_defined", "cudnnCreate", "nvlink_x",
                                        "no_such_one", "c",             "",            "n",
                                        "fopen",       "pthread_create"};

    for (unsigned int at = 0; at < sizeof names / sizeof names[0]; at++) {
        tell(who, "next", names[at], dlsym(RTLD_NEXT, names[at]));
        tell(who, "default", names[at], dlsym(RTLD_DEFAULT, names[at]));
    }
    tell(who, "version", "malloc", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"));
    tell(who, "version", "malloc", dlvsym(RTLD_NEXT, "malloc", "GLIBC_9.9"));
}

#ifndef LIBRARY
int main(int count, char **arguments)
{
    void (*ask)(const char *);
    void *plain = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    void *deep = dlopen(arguments[2], RTLD_NOW | RTLD_DEEPBIND);

    (void)count;
    ask_here("program");
    *(void **)&ask = dlsym(plain, "ask_inside");
    ask("library");
    *(void **)&ask = dlsym(deep, "ask_inside");
    ask("deepbind");
    return 0;
}
#endif
