/* The kernel without libc: system calls, futexes, clocks, strings. Nothing here touches errno. */
#ifndef SLICEWISE_SYSTEM_H
#define SLICEWISE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AT_HERE = -100,
    READ_ONLY = 0,
    READ_WRITE = 2,
    CREATE = 0100,
    EXCLUSIVE = 0200,
    CLOSE_ON_EXEC = 02000000,
    KERNEL_AGAIN = -11,
};

long system_call(long number, long a, long b, long c, long d, long e, long f);

int file_open(const char *path, int flags, int mode);
/* The same file under a number from 64 up, so that a program's own numbers stay as they were. */
int file_raise(int file);
void file_close(int file);
long file_read(int file, void *buffer, size_t bytes, uint64_t at);
bool file_status(int file, uint64_t *device, uint64_t *inode, uint64_t *bytes);
bool file_exists(const char *path);
bool file_resize(int file, uint64_t bytes);
/* A record lock of one byte: tries, and never waits. */
bool file_lock(int file, uint64_t at);
void file_unlock(int file, uint64_t at);
/* A whole small file as text; its length, or a negative number. */
long file_text(const char *path, char *buffer, size_t room);
void *file_map(int file, size_t bytes);
/* Zeroed memory of this process; with `wiped`, it reads zero again in a forked child. */
void *memory_map(size_t bytes, bool wiped, bool *was_wiped);
void memory_unmap(void *address, size_t bytes);

uint64_t now_ns(void);
/* The wall clock, by which NVML stamps its samples. */
uint64_t time_us(void);
void sleep_ns(uint64_t ns);
uint32_t process_id(void);
/* The letter of a process's state and its start, in ticks; 0 when there is no such process. */
char process_state(uint32_t pid, uint64_t *start_ticks);
/* Runs a program and waits for it; whatever it answers. */
void process_run(const char *path, const char *const *arguments, const char *const *variables);
void write_line(const char *const *words);

/* A lock of this process alone; it lies in memory that a forked child finds unlocked. */
bool mutex_lock_until(uint32_t *mutex, uint64_t deadline_ns);
void word_wake(uint32_t *word);

/* 0 free, 1 held, 2 held and somebody waits. */
static inline void mutex_lock(uint32_t *mutex)
{
    uint32_t unlocked = 0;

    if (!__atomic_compare_exchange_n(mutex, &unlocked, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        mutex_lock_until(mutex, 0);
}

static inline void mutex_unlock(uint32_t *mutex)
{
    if (__atomic_exchange_n(mutex, 0, __ATOMIC_RELEASE) == 2)
        word_wake(mutex);
}

void word_wait(uint32_t *word, uint32_t value, uint64_t ns);

size_t text_length(const char *text);
int text_compare(const char *one, const char *other);
bool text_begins(const char *text, const char *start);
char *text_number(char *end, uint64_t number);
/* `GPU-` and 36 letters, as NVML names a device of these bytes. */
void text_uuid(char *text, const uint8_t *uuid);
void *copy_bytes(void *to, const void *from, size_t bytes);
void *clear_bytes(void *to, size_t bytes);

/* One variable of the environment the process began with, or NULL. */
const char *environment(const char *name);

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#define ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_RELAXED)

#endif
