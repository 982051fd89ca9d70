/* Strings and bytes without libc, and the environment that the process began with. */
#include "system.h"

enum { MOST_ENVIRONMENT = 256 << 10 };

static char *variables;
static size_t variables_length;

size_t text_length(const char *text)
{
    size_t length = 0;

    while (text[length])
        length++;
    return length;
}

int text_compare(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return (unsigned char)*one - (unsigned char)*other;
}

bool text_begins(const char *text, const char *start)
{
    while (*start && *text == *start)
        text++, start++;
    return *start == '\0';
}

char *text_number(char *end, uint64_t number)
{
    *--end = '\0';
    do
        *--end = (char)('0' + number % 10);
    while (number /= 10);
    return end;
}

void *copy_bytes(void *to, const void *from, size_t bytes)
{
    char *target = to;
    const char *source = from;

    while (bytes--)
        *target++ = *source++;
    return to;
}

void *clear_bytes(void *to, size_t bytes)
{
    char *target = to;

    while (bytes--)
        *target++ = 0;
    return to;
}

#ifndef SLICEWISE_HOSTED
/* The compiler calls these by name for large structures, where no use of them is seen before. */
__attribute__((used)) void *memcpy(void *to, const void *from, size_t bytes)
{
    return copy_bytes(to, from, bytes);
}

__attribute__((used)) void *memset(void *to, int byte, size_t bytes)
{
    char *target = to;

    while (bytes--)
        *target++ = (char)byte;
    return to;
}
#endif

/* Read once, by whoever initialises. */
static void read_environment(void)
{
    char *buffer;
    long length;

    if (variables != NULL)
        return;
    buffer = memory_map(MOST_ENVIRONMENT, false, NULL);
    if (buffer == NULL)
        return;
    length = file_text("/proc/self/environ", buffer, MOST_ENVIRONMENT);
    variables_length = length > 0 ? (size_t)length : 0;
    variables = buffer;
}

const char *environment(const char *name)
{
    size_t length = text_length(name);

    read_environment();
    for (size_t at = 0; at < variables_length; at += text_length(variables + at) + 1)
        if (text_begins(variables + at, name) && variables[at + length] == '=')
            return variables + at + length + 1;
    return NULL;
}

void text_uuid(char *text, const uint8_t *uuid)
{
    static const char digits[] = "0123456789abcdef";

    text = (char *)copy_bytes(text, "GPU-", 4) + 4;
    for (int at = 0; at < 16; at++) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            *text++ = '-';
        *text++ = digits[uuid[at] >> 4];
        *text++ = digits[uuid[at] & 15];
    }
    *text = '\0';
}
