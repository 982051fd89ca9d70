/* Finding functions of loaded libraries without asking the loader's own lookup. */
#ifndef SLICEWISE_ELF_H
#define SLICEWISE_ELF_H

#include <stdbool.h>

/* The real functions; the stubs jump through these, and our own code uses nothing else. */
extern void *(*real_dlsym)(void *, const char *);
extern void *(*real_dlvsym)(void *, const char *, const char *);
extern void *(*real_dlopen)(const char *, int);

/* Fills the three, once; what is not found answers NULL. */
void elf_resolve(void);
/* A symbol of the libc, or NULL. */
void *elf_libc(const char *name);
/* The path of the loaded library whose file name begins so, into the buffer. */
bool elf_loaded(const char *start, char *path, unsigned long room);

#endif
