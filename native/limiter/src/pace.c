/* The container's account on one GPU: two growing numbers that all its processes share.

   `credited` is what the clock has given, `spent` what was handed out. A process takes a lease
   from `spent` and waits until `credited` has reached its ticket: first come, first served. No
   thread keeps the account; whoever is on the slow path refills it. */
#include "pace.h"

static const uint64_t REFILL_NS = 50000;
static const uint64_t LONGEST_NAP_NS = 5000000;
static const uint64_t LONGEST_GAP_NS = 10000000000u;
static const uint64_t SWEEP_NS = 50000000u;
/* A debt of more than this is damage, not use: the longest honest one is one lease a process. */
static const int64_t ABSURD_NS = 60000000000;
enum { THROTTLES_A_LINE = 100 };

static void credit(struct usage_device *account, int64_t ns, int64_t burst)
{
    int64_t old = LOAD(account->credited), next;

    do {
        int64_t most = LOAD(account->spent) + burst;
        next = old + ns > most ? most : old + ns;
    } while (!__atomic_compare_exchange_n(&account->credited, &old, next, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
}

/* Where nobody is paced, and after damage: what was handed out counts as paid. */
static void forgive(struct usage_device *account, int64_t burst)
{
    int64_t old = LOAD(account->credited), spent = LOAD(account->spent);

    while ((old < spent || old > spent + burst) &&
           !__atomic_compare_exchange_n(&account->credited, &old, spent, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

static void publish(struct usage_device *account, struct device *device, uint64_t now)
{
    uint64_t launches = __atomic_exchange_n(&device->launches, 0, __ATOMIC_RELAXED);

    ADD(account->launches, launches);
    ADD(own->slot->launches, launches);
    STORE(account->last_launch_ns, now);
    STORE(own->slot->touched_ns, now);
}

static void refill(struct usage_device *account, struct device *device, uint32_t ceiling,
                   uint64_t now)
{
    uint64_t stamp = LOAD(account->stamp);
    uint64_t passed = now - stamp;

    if (stamp != 0 && now > stamp && passed < REFILL_NS)
        return;
    if (!__atomic_compare_exchange_n(&account->stamp, &stamp, now, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    publish(account, device, now);
    if (stamp == 0)
        credit(account, LOAD(device->burst_ns) + LOAD(account->spent) - LOAD(account->credited),
               LOAD(device->burst_ns));
    else if (now > stamp)
        credit(account,
               (int64_t)((passed > LONGEST_GAP_NS ? LONGEST_GAP_NS : passed) * ceiling /
                         WHOLE_CORES),
               LOAD(device->burst_ns));
}

static void note_wait(struct usage_device *account, uint64_t ns)
{
    static const char *const words[] = {"slicewise: launches wait for their share of the GPU",
                                        NULL};

    ADD(account->throttled_ns, ns);
    ADD(own->slot->throttled_ns, ns);
    if (own->verbose && ADD(own->throttles, 1) % THROTTLES_A_LINE == 0)
        write_line(words);
}

static uint64_t nap(int64_t debt, uint32_t ceiling)
{
    uint64_t ns = (uint64_t)debt * WHOLE_CORES / (ceiling ? ceiling : 1);

    return ns < REFILL_NS ? REFILL_NS : ns > LONGEST_NAP_NS ? LONGEST_NAP_NS : ns;
}

/* Left where others find it if this process is killed; one thread of a process at a time. */
static bool note_pending(int number, int64_t piece)
{
    uint64_t none = 0, word = ((uint64_t)number + 1) << PENDING_SHIFT | (uint64_t)piece;

    return __atomic_compare_exchange_n(&own->usage->pending[own->slot_number], &none, word, false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void wait_for(struct usage_device *account, struct device *device, int64_t ticket)
{
    uint64_t reported = now_ns(), swept = reported;
    int64_t debt;

    while ((debt = ticket - LOAD(account->credited)) > 0) {
        uint32_t ceiling = grant_ceiling(device);
        uint64_t now;
        if (ceiling >= UNPACED || debt > ABSURD_NS) {
            forgive(account, LOAD(device->burst_ns));
            break;
        }
        sleep_ns(nap(debt, ceiling));
        now = now_ns();
        refill(account, device, ceiling, now);
        /* Said while it lasts: the agent lends to those who wait. */
        note_wait(account, now - reported);
        reported = now;
        if (now - swept > SWEEP_NS) {
            slots_clear_dead();
            swept = now;
        }
        grant_refresh();
    }
}

void pace_pay(int number, int64_t charge)
{
    struct device *device = &own->device[number];
    struct usage_device *account = &own->usage->device[number];
    int64_t lease, piece, ticket;
    uint32_t ceiling;

    grant_refresh();
    ceiling = grant_ceiling(device);
    refill(account, device, ceiling, now_ns());
    lease = LOAD(device->lease_ns);
    piece = charge - lease > LEASE_NS ? charge - lease : LEASE_NS;
    ticket = ADD(account->spent, piece);
    ADD(device->lease_ns, piece - charge);
    if (ceiling >= UNPACED) {
        forgive(account, LOAD(device->burst_ns));
    } else if (ticket > LOAD(account->credited)) {
        bool noted = note_pending(number, piece);
        wait_for(account, device, ticket);
        if (noted)
            STORE(own->usage->pending[own->slot_number], 0);
    }
}

void pace_correct(int number, int64_t ns)
{
    ADD(own->usage->device[number].spent, ns);
}
