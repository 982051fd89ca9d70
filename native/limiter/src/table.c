/* What was given out: open addressing, in stripes with a lock each. */
#include "account.h"

enum { FIRST_ROOM = 256 };

static uint64_t mix(enum kind kind, uint64_t key)
{
    uint64_t hash = (key + kind) * 0x9e3779b97f4a7c15ull;

    return hash ^ hash >> 32;
}

static struct stripe *stripe_of(uint64_t hash)
{
    return &own->stripe[hash % STRIPES];
}

static uint32_t home(const struct stripe *stripe, uint64_t hash)
{
    return (uint32_t)(hash / STRIPES) & (stripe->room - 1);
}

/* The place of the entry, or the empty place where it would be. */
static uint32_t seek(const struct stripe *stripe, enum kind kind, uint64_t key, uint64_t hash)
{
    uint32_t at = home(stripe, hash);

    while (stripe->entries[at].kind &&
           (stripe->entries[at].key != key || stripe->entries[at].kind != kind))
        at = (at + 1) & (stripe->room - 1);
    return at;
}

static bool grow(struct stripe *stripe)
{
    struct stripe larger = {.room = stripe->room ? 2 * stripe->room : FIRST_ROOM};

    larger.entries = memory_map(larger.room * sizeof(struct entry), false, NULL);
    if (larger.entries == NULL)
        return false;
    for (uint32_t at = 0; at < stripe->room; at++) {
        const struct entry *entry = &stripe->entries[at];
        if (entry->kind)
            larger.entries[seek(&larger, entry->kind, entry->key, mix(entry->kind, entry->key))] =
                *entry;
    }
    if (stripe->entries)
        memory_unmap(stripe->entries, stripe->room * sizeof(struct entry));
    stripe->entries = larger.entries;
    stripe->room = larger.room;
    return true;
}

bool table_put(const struct entry *entry)
{
    uint64_t hash = mix(entry->kind, entry->key);
    struct stripe *stripe = stripe_of(hash);
    bool done = false;

    mutex_lock(&stripe->lock);
    /* Half full at most: searches and removals stay short. */
    if (2 * stripe->count < stripe->room || grow(stripe)) {
        struct entry *place = &stripe->entries[seek(stripe, entry->kind, entry->key, hash)];
        stripe->count += place->kind == 0;
        *place = *entry;
        done = true;
    }
    mutex_unlock(&stripe->lock);
    return done;
}

/* Closes the gap, so that no entry is further from its home than a search would go. */
static void remove_at(struct stripe *stripe, uint32_t at)
{
    uint32_t mask = stripe->room - 1;

    stripe->count--;
    for (uint32_t next = (at + 1) & mask; stripe->entries[next].kind; next = (next + 1) & mask) {
        const struct entry *entry = &stripe->entries[next];
        uint32_t wished = home(stripe, mix(entry->kind, entry->key));
        if (((next - wished) & mask) >= ((next - at) & mask)) {
            stripe->entries[at] = *entry;
            at = next;
        }
    }
    stripe->entries[at].kind = 0;
}

bool table_take(enum kind kind, uint64_t key, struct entry *entry)
{
    uint64_t hash = mix(kind, key);
    struct stripe *stripe = stripe_of(hash);
    bool found = false;

    mutex_lock(&stripe->lock);
    if (stripe->room) {
        uint32_t at = seek(stripe, kind, key, hash);
        found = stripe->entries[at].kind != 0;
        if (found) {
            *entry = stripe->entries[at];
            remove_at(stripe, at);
        }
    }
    mutex_unlock(&stripe->lock);
    return found;
}

bool table_refer(enum kind kind, uint64_t key, int change, struct entry *after)
{
    uint64_t hash = mix(kind, key);
    struct stripe *stripe = stripe_of(hash);
    bool found = false;

    mutex_lock(&stripe->lock);
    if (stripe->room) {
        uint32_t at = seek(stripe, kind, key, hash);
        found = stripe->entries[at].kind != 0;
        if (found) {
            stripe->entries[at].references += (uint32_t)change;
            *after = stripe->entries[at];
            if (after->references == 0)
                remove_at(stripe, at);
        }
    }
    mutex_unlock(&stripe->lock);
    return found;
}

void table_drop(CUcontext context)
{
    for (int each = 0; each < STRIPES; each++) {
        struct stripe *stripe = &own->stripe[each];
        mutex_lock(&stripe->lock);
        for (uint32_t at = 0; at < stripe->room;) {
            struct entry *entry = &stripe->entries[at];
            if (entry->kind && entry->kind != KIND_MAPPING && entry->context == context &&
                entry->pool == NO_POOL) {
                account_change(entry->device, -(int64_t)entry->bytes);
                remove_at(stripe, at);
            } else {
                at++;
            }
        }
        mutex_unlock(&stripe->lock);
    }
}
