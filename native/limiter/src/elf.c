/* Walks loaded objects and reads their symbol tables. */
#include "elf.h"

#include <stddef.h>
#include <stdint.h>

#include "system.h"

/* As <link.h> and <elf.h> have them; written out, for no header of a libc is needed here. */
struct program_header {
    uint32_t type, flags;
    uint64_t offset, address, physical, file_bytes, memory_bytes, alignment;
};

struct loaded_object {
    uint64_t base;
    const char *name;
    const struct program_header *headers;
    uint16_t count;
};

struct dynamic_entry {
    int64_t tag;
    uint64_t value;
};

struct symbol {
    uint32_t name;
    uint8_t info, other;
    uint16_t section;
    uint64_t value, size;
};

enum { HEADER_DYNAMIC = 2, TAG_HASH = 4, TAG_STRINGS = 5, TAG_SYMBOLS = 6 };
static const int64_t TAG_GNU_HASH = 0x6ffffef5;

extern int dl_iterate_phdr(int (*visit)(struct loaded_object *, size_t, void *), void *)
    __attribute__((weak, visibility("default")));

struct tables {
    uint64_t base;
    const char *strings;
    const struct symbol *symbols;
    const uint32_t *gnu, *plain;
};

static const void *place(uint64_t base, uint64_t value)
{
    /* glibc has made these absolute, musl leaves them relative. */
    return (const void *)(value < base ? base + value : value);
}

static bool read_tables(const struct loaded_object *object, struct tables *tables)
{
    const struct dynamic_entry *entry = NULL;

    *tables = (struct tables){.base = object->base};
    for (int at = 0; at < object->count; at++)
        if (object->headers[at].type == HEADER_DYNAMIC)
            entry = (const struct dynamic_entry *)(object->base + object->headers[at].address);
    for (; entry && entry->tag; entry++) {
        if (entry->tag == TAG_STRINGS)
            tables->strings = place(object->base, entry->value);
        else if (entry->tag == TAG_SYMBOLS)
            tables->symbols = place(object->base, entry->value);
        else if (entry->tag == TAG_GNU_HASH)
            tables->gnu = place(object->base, entry->value);
        else if (entry->tag == TAG_HASH)
            tables->plain = place(object->base, entry->value);
    }
    return tables->strings && tables->symbols && (tables->gnu || tables->plain);
}

static void *accept(const struct tables *tables, uint32_t at, const char *name)
{
    const struct symbol *symbol = &tables->symbols[at];

    if (symbol->section == 0 || text_compare(tables->strings + symbol->name, name) != 0)
        return NULL;
    return (void *)(tables->base + symbol->value);
}

static void *find_gnu(const struct tables *tables, const char *name)
{
    uint32_t buckets = tables->gnu[0], first = tables->gnu[1], words = tables->gnu[2];
    const uint32_t *bucket = tables->gnu + 4 + 2 * words, *chain = bucket + buckets;
    uint32_t hash = 5381, at;

    for (const char *each = name; *each; each++)
        hash = hash * 33 + (unsigned char)*each;
    at = buckets ? bucket[hash % buckets] : 0;
    if (at < first)
        return NULL;
    for (;; at++) {
        uint32_t other = chain[at - first];
        void *found = (other | 1) == (hash | 1) ? accept(tables, at, name) : NULL;
        if (found || (other & 1))
            return found;
    }
}

static void *find_plain(const struct tables *tables, const char *name)
{
    /* The second word is the number of symbols, whatever the chains are like. */
    for (uint32_t at = 1; at < tables->plain[1]; at++) {
        void *found = accept(tables, at, name);
        if (found)
            return found;
    }
    return NULL;
}

static const char *file_name(const char *path)
{
    const char *name = path;

    for (; *path; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

struct wanted {
    const char *symbol, *start;
    void *found;
    char *path;
    unsigned long room;
};

static bool is_libc(const char *name)
{
    return text_begins(name, "libc.so") || text_begins(name, "libdl.so") ||
           text_begins(name, "ld-musl-");
}

static int visit_symbol(struct loaded_object *object, size_t size, void *data)
{
    struct wanted *wanted = data;
    struct tables tables;

    (void)size;
    if (object->name == NULL || !is_libc(file_name(object->name)) ||
        !read_tables(object, &tables))
        return 0;
    wanted->found = tables.gnu ? find_gnu(&tables, wanted->symbol)
                               : find_plain(&tables, wanted->symbol);
    return wanted->found != NULL;
}

static int visit_name(struct loaded_object *object, size_t size, void *data)
{
    struct wanted *wanted = data;

    (void)size;
    if (object->name == NULL || !text_begins(file_name(object->name), wanted->start) ||
        text_length(object->name) >= wanted->room)
        return 0;
    copy_bytes(wanted->path, object->name, text_length(object->name) + 1);
    return 1;
}

void *elf_libc(const char *name)
{
    struct wanted wanted = {.symbol = name};

    if (dl_iterate_phdr)
        dl_iterate_phdr(visit_symbol, &wanted);
    return wanted.found;
}

bool elf_loaded(const char *start, char *path, unsigned long room)
{
    struct wanted wanted = {.start = start, .path = path, .room = room};

    return dl_iterate_phdr && dl_iterate_phdr(visit_name, &wanted) == 1;
}

static void *nothing(void)
{
    return NULL;
}

void elf_resolve(void)
{
    void *sym = elf_libc("dlsym"), *vsym = elf_libc("dlvsym"), *open = elf_libc("dlopen");
    void *none = (void *)nothing;

    __atomic_store_n((void **)&real_dlopen, open ? open : none, __ATOMIC_RELEASE);
    __atomic_store_n((void **)&real_dlvsym, vsym ? vsym : none, __ATOMIC_RELEASE);
    __atomic_store_n((void **)&real_dlsym, sym ? sym : none, __ATOMIC_RELEASE);
}
