/* System calls by hand, so that the library asks nothing of any libc. */
#include "system.h"

#if defined(__x86_64__)
enum {
    CALL_WRITE = 1, CALL_CLOSE = 3, CALL_FSTAT = 5, CALL_MMAP = 9, CALL_MUNMAP = 11,
    CALL_PREAD = 17, CALL_MADVISE = 28, CALL_NANOSLEEP = 35, CALL_GETPID = 39, CALL_FCNTL = 72,
    CALL_FTRUNCATE = 77, CALL_FUTEX = 202, CALL_CLOCK_GETTIME = 228, CALL_OPENAT = 257,
    CALL_FACCESSAT = 269, CALL_CLONE = 56, CALL_EXECVE = 59, CALL_EXIT = 60, CALL_WAIT = 61,
};

long system_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum {
    CALL_WRITE = 64, CALL_CLOSE = 57, CALL_FSTAT = 80, CALL_MMAP = 222, CALL_MUNMAP = 215,
    CALL_PREAD = 67, CALL_MADVISE = 233, CALL_NANOSLEEP = 101, CALL_GETPID = 172, CALL_FCNTL = 25,
    CALL_FTRUNCATE = 46, CALL_FUTEX = 98, CALL_CLOCK_GETTIME = 113, CALL_OPENAT = 56,
    CALL_FACCESSAT = 48, CALL_CLONE = 220, CALL_EXECVE = 221, CALL_EXIT = 93, CALL_WAIT = 260,
};

long system_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;

    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "only x86-64 and aarch64"
#endif

enum {
    MAP_SHARED_FLAG = 1, MAP_PRIVATE_FLAG = 2, MAP_ANONYMOUS_FLAG = 32, PROTECTION = 3,
    WIPE_ON_FORK = 18, FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129,
    CONTROL_DUPLICATE = 1030, CONTROL_SET_LOCK = 6, LOCK_WRITE = 1, LOCK_NONE = 2,
    CLOCK_REALTIME_ID = 0, CLOCK_MONOTONIC_ID = 1, FIRST_FREE_NUMBER = 64, SIGNAL_CHILD = 17,
};

struct kernel_time {
    int64_t seconds, nanoseconds;
};

struct kernel_lock {
    int16_t type, whence;
    int64_t start, length;
    int32_t pid;
};

int file_open(const char *path, int flags, int mode)
{
    return (int)system_call(CALL_OPENAT, AT_HERE, (long)path, flags | CLOSE_ON_EXEC, mode, 0, 0);
}

int file_raise(int file)
{
    long raised;

    if (file < 0)
        return file;
    raised = system_call(CALL_FCNTL, file, CONTROL_DUPLICATE, FIRST_FREE_NUMBER, 0, 0, 0);
    if (raised < 0)
        return file;
    file_close(file);
    return (int)raised;
}

void file_close(int file)
{
    if (file >= 0)
        system_call(CALL_CLOSE, file, 0, 0, 0, 0, 0);
}

long file_read(int file, void *buffer, size_t bytes, uint64_t at)
{
    return system_call(CALL_PREAD, file, (long)buffer, (long)bytes, (long)at, 0, 0);
}

/* The kernel's struct stat: the places of device, inode and size are alike on both machines. */
bool file_status(int file, uint64_t *device, uint64_t *inode, uint64_t *bytes)
{
    uint64_t status[32];

    if (system_call(CALL_FSTAT, file, (long)status, 0, 0, 0, 0) != 0)
        return false;
    *device = status[0];
    *inode = status[1];
    *bytes = status[6];
    return true;
}

bool file_exists(const char *path)
{
    return system_call(CALL_FACCESSAT, AT_HERE, (long)path, 0, 0, 0, 0) == 0;
}

bool file_resize(int file, uint64_t bytes)
{
    return system_call(CALL_FTRUNCATE, file, (long)bytes, 0, 0, 0, 0) == 0;
}

static long set_lock(int file, uint64_t at, int16_t type)
{
    struct kernel_lock lock = {.type = type, .start = (int64_t)at, .length = 1};

    return system_call(CALL_FCNTL, file, CONTROL_SET_LOCK, (long)&lock, 0, 0, 0);
}

bool file_lock(int file, uint64_t at)
{
    return set_lock(file, at, LOCK_WRITE) == 0;
}

void file_unlock(int file, uint64_t at)
{
    set_lock(file, at, LOCK_NONE);
}

long file_text(const char *path, char *buffer, size_t room)
{
    int file = file_open(path, READ_ONLY, 0);
    long length = 0, more = 1;

    if (file < 0)
        return file;
    while (more > 0 && (size_t)length < room - 1) {
        more = file_read(file, buffer + length, room - 1 - (size_t)length, (uint64_t)length);
        length += more > 0 ? more : 0;
    }
    file_close(file);
    buffer[length] = '\0';
    return more < 0 ? more : length;
}

static void *map(size_t bytes, int flags, int file)
{
    long result = system_call(CALL_MMAP, 0, (long)bytes, PROTECTION, flags, file, 0);

    return result < 0 && result > -4096 ? NULL : (void *)result;
}

void *file_map(int file, size_t bytes)
{
    return map(bytes, MAP_SHARED_FLAG, file);
}

void *memory_map(size_t bytes, bool wiped, bool *was_wiped)
{
    void *memory = map(bytes, MAP_PRIVATE_FLAG | MAP_ANONYMOUS_FLAG, -1);

    if (memory != NULL && wiped)
        *was_wiped =
            system_call(CALL_MADVISE, (long)memory, (long)bytes, WIPE_ON_FORK, 0, 0, 0) == 0;
    return memory;
}

void memory_unmap(void *address, size_t bytes)
{
    system_call(CALL_MUNMAP, (long)address, (long)bytes, 0, 0, 0, 0);
}

uint64_t now_ns(void)
{
    struct kernel_time time = {0, 0};

    system_call(CALL_CLOCK_GETTIME, CLOCK_MONOTONIC_ID, (long)&time, 0, 0, 0, 0);
    return (uint64_t)time.seconds * 1000000000u + (uint64_t)time.nanoseconds;
}

uint64_t time_us(void)
{
    struct kernel_time time = {0, 0};

    system_call(CALL_CLOCK_GETTIME, CLOCK_REALTIME_ID, (long)&time, 0, 0, 0, 0);
    return (uint64_t)time.seconds * 1000000u + (uint64_t)time.nanoseconds / 1000;
}

void sleep_ns(uint64_t ns)
{
    struct kernel_time time = {(int64_t)(ns / 1000000000u), (int64_t)(ns % 1000000000u)};

    system_call(CALL_NANOSLEEP, (long)&time, 0, 0, 0, 0, 0);
}

uint32_t process_id(void)
{
    return (uint32_t)system_call(CALL_GETPID, 0, 0, 0, 0, 0, 0);
}

char process_state(uint32_t pid, uint64_t *start_ticks)
{
    char path[32] = "/proc/", text[1024], digits[24];
    const char *rest = NULL;
    size_t at = 6;
    char letter;

    for (const char *digit = text_number(digits + sizeof digits, pid); *digit;)
        path[at++] = *digit++;
    copy_bytes(path + at, "/stat", 6);
    if (file_text(path, text, sizeof text) <= 0)
        return 0;
    /* The program's name may hold anything, a closing parenthesis included. */
    for (char *each = text; *each; each++)
        if (*each == ')')
            rest = each;
    if (rest == NULL || rest[1] != ' ')
        return 0;
    letter = rest[2];
    rest += 2;
    *start_ticks = 0;
    for (int field = 3; field < 22; field++)
        while (*rest && *rest++ != ' ')
            ;
    while (*rest >= '0' && *rest <= '9')
        *start_ticks = *start_ticks * 10 + (uint64_t)(*rest++ - '0');
    return letter;
}

void process_run(const char *path, const char *const *arguments, const char *const *variables)
{
    long child = system_call(CALL_CLONE, SIGNAL_CHILD, 0, 0, 0, 0, 0);

    if (child == 0) {
        system_call(CALL_EXECVE, (long)path, (long)arguments, (long)variables, 0, 0, 0);
        system_call(CALL_EXIT, 127, 0, 0, 0, 0, 0);
    }
    if (child > 0)
        system_call(CALL_WAIT, child, 0, 0, 0, 0, 0);
}

void write_line(const char *const *words)
{
    char line[512];
    size_t at = 0;

    for (; *words; words++)
        for (const char *each = *words; *each && at < sizeof line - 1; each++)
            line[at++] = *each;
    line[at++] = '\n';
    system_call(CALL_WRITE, 2, (long)line, (long)at, 0, 0, 0);
}

void word_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
    struct kernel_time time = {(int64_t)(ns / 1000000000u), (int64_t)(ns % 1000000000u)};

    system_call(CALL_FUTEX, (long)word, FUTEX_WAIT_PRIVATE, value, (long)&time, 0, 0);
}

void word_wake(uint32_t *word)
{
    system_call(CALL_FUTEX, (long)word, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0, 0, 0);
}

bool mutex_lock_until(uint32_t *mutex, uint64_t deadline_ns)
{
    uint32_t free_word = 0;

    if (__atomic_compare_exchange_n(mutex, &free_word, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return true;
    while (__atomic_exchange_n(mutex, 2, __ATOMIC_ACQUIRE) != 0) {
        uint64_t now = deadline_ns ? now_ns() : 0;
        if (deadline_ns && now >= deadline_ns)
            return false;
        word_wait(mutex, 2, deadline_ns ? deadline_ns - now : 1000000000u);
    }
    return true;
}
