/* The first use of a hook in a process: driver, grant, usage, slot, and which device is which. */
#include "process.h"

#include "driver.h"

static const char FOLDER[] = "/etc/slicewise/limit";
static const uint64_t STAGE_WAIT_NS = 100000000u;

static struct own blank;
struct own *own = &blank;

static void allocate(void)
{
    bool wiped = false;
    struct own *expected = &blank, *fresh = memory_map(sizeof *fresh, true, &wiped);

    if (fresh == NULL)
        return;
    fresh->not_wiped = !wiped;
    fresh->pid = process_id();
    if (!__atomic_compare_exchange_n(&own, &expected, fresh, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        memory_unmap(fresh, sizeof *fresh);
}

/* True for the one caller that has to do the work; the others wait until it is done. */
static bool begin(uint32_t *stage)
{
    for (;;) {
        uint32_t seen = STAGE_NONE;
        if (__atomic_compare_exchange_n(stage, &seen, STAGE_WORKING, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return true;
        if (seen == STAGE_READY)
            return false;
        word_wait(stage, STAGE_WORKING, STAGE_WAIT_NS);
    }
}

static void finish(uint32_t *stage)
{
    __atomic_store_n(stage, STAGE_READY, __ATOMIC_RELEASE);
    word_wake(stage);
}

static void join(char *path, const char *folder, const char *name)
{
    size_t length = text_length(folder);

    copy_bytes(path, folder, length);
    path[length] = '/';
    copy_bytes(path + length + 1, name, text_length(name) + 1);
}

static uint32_t read_folder(const char *folder)
{
    char path[4096];

    if (text_length(folder) > sizeof path - 16 || grant_open(folder) != GRANT_GOOD)
        return MODE_CLOSED;
    join(path, folder, "usage");
    if (!usage_open(path)) {
        if (own->flags & FAIL_CLOSED) {
            own->refusal = "usage: not a usage file that can be mapped";
            return MODE_CLOSED;
        }
        usage_alone();
    }
    standalone_lower();
    return MODE_LIMIT;
}

static uint32_t choose_mode(void)
{
    const char *other;

    if (file_exists(FOLDER))
        return read_folder(FOLDER);
    /* For tests and for use without an agent; a real container's folder always wins. */
    other = environment("SLICEWISE_LIMIT_DIR");
    if (other != NULL)
        return read_folder(other);
    if (vcuda_open() || standalone_names())
        return MODE_LIMIT;
    return MODE_PASS;
}

void process_policy(void)
{
    const char *wish;

    if (own == &blank)
        allocate();
    if (!begin(&own->policy_stage))
        return;
    own->mode = choose_mode();
    wish = environment("SLICEWISE_LIMIT_LOG");
    own->verbose = (own->flags & VERBOSE) || (wish && wish[0] == '1');
    finish(&own->policy_stage);
}

/* Kernels before 4.14 cannot wipe: the child finds its parent's state, and clears it itself. */
static void notice_fork(void)
{
    if (!own->not_wiped || own->pid == process_id())
        return;
    clear_bytes(own, sizeof *own);
    own->not_wiped = 1;
    own->pid = process_id();
}

bool process_prepare(void)
{
    if (own == &blank)
        allocate();
    notice_fork();
    if (!begin(&own->stage))
        return true;
    driver_find();
    process_policy();
    if (own->mode == MODE_LIMIT)
        own->slot_taken = slot_take();
    if (own->vcuda && own->slot_taken)
        vcuda_register();
    own->open = own->graphs_open = own->mode == MODE_PASS;
    finish(&own->stage);
    return true;
}

static bool is_paced(const struct device *device)
{
    return (own->flags & GATE_COMPUTE) && device->cores > 0 &&
           (device->limit > device->cores || device->cores < UNPACED);
}

static void decide_open(void)
{
    bool open = own->mode == MODE_PASS || (own->mode == MODE_LIMIT && own->mapped);

    for (uint32_t at = 0; open && own->mode == MODE_LIMIT && at < own->ordinals; at++)
        open = own->record[at] >= 0 && !is_paced(&own->device[own->record[at]]);
    STORE(own->open, open);
}

void process_decide(void)
{
    for (int at = 0; at < FILE_DEVICES; at++) {
        struct device *device = &own->device[at];
        bool gated = (own->flags & GATE_MEMORY) && device->memory > 0;
        STORE(device->gate, gated ? device->memory : INT64_MAX);
    }
    decide_open();
}

static bool read_uuid(CUuuid *uuid, CUdevice device)
{
    return helper.cuDeviceGetUuid_v2(uuid, device) == CUDA_SUCCESS ||
           helper.cuDeviceGetUuid(uuid, device) == CUDA_SUCCESS;
}

static bool is_same(const uint8_t *one, const uint8_t *other)
{
    for (int at = 0; at < 16; at++)
        if (one[at] != other[at])
            return false;
    return true;
}

/* Limits that name no device hold for every visible one. */
static int copy_template(int ordinal, const CUuuid *uuid)
{
    struct device *device = &own->device[ordinal];

    if (ordinal >= FILE_DEVICES)
        return DEVICE_NONE;
    if (ordinal > 0) {
        *device = own->device[0];
        device->lease_ns = 0;
    }
    copy_bytes(device->uuid, uuid->bytes, 16);
    text_uuid(device->uuid_text, device->uuid);
    device->ordinal = ordinal;
    return ordinal;
}

static int find_record(const CUuuid *uuid)
{
    for (uint32_t at = 0; at < own->devices; at++)
        if (is_same(own->device[at].uuid, uuid->bytes))
            return (int)at;
    return DEVICE_NONE;
}

static void map_one(int ordinal)
{
    CUuuid uuid;
    CUdevice device;
    int record = DEVICE_NONE, sms;

    if (helper.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && read_uuid(&uuid, device))
        record = own->devices ? find_record(&uuid) : copy_template(ordinal, &uuid);
    own->record[ordinal] = (int8_t)record;
    if (record < 0)
        return;
    own->device[record].ordinal = device;
    if (helper.cuDeviceGetAttribute(&sms, 16, device) == CUDA_SUCCESS && sms > 0)
        own->device[record].sms = (uint32_t)sms;
}

void process_map_devices(void)
{
    int count;

    if (own->mode != MODE_LIMIT || __atomic_load_n(&own->mapped, __ATOMIC_ACQUIRE) ||
        helper.cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0)
        return;
    mutex_lock(&own->slow_lock);
    if (!own->mapped) {
        own->ordinals = (uint32_t)(count > MAX_ORDINALS ? MAX_ORDINALS : count);
        /* From the last to the first, for the first one is the template. */
        for (int at = (int)own->ordinals - 1; at >= 0; at--)
            map_one(at);
        if (own->devices == 0) {
            own->devices = own->ordinals > FILE_DEVICES ? FILE_DEVICES : own->ordinals;
            standalone_lower();
        }
        if (own->ordinals == 1 && own->record[0] >= 0 && own->slot_taken)
            own->single = (uint32_t)own->record[0] + 1;
        __atomic_store_n(&own->mapped, 1, __ATOMIC_RELEASE);
        process_decide();
    }
    mutex_unlock(&own->slow_lock);
}

int device_of_ordinal(CUdevice ordinal)
{
    if (own->mode == MODE_CLOSED)
        return DEVICE_FORBIDDEN;
    process_map_devices();
    if (!own->mapped || ordinal < 0 || ordinal >= MAX_ORDINALS)
        return DEVICE_NONE;
    return (uint32_t)ordinal < own->ordinals && own->record[ordinal] >= 0 ? own->record[ordinal]
                                                                          : DEVICE_FORBIDDEN;
}

static int note_context(int record)
{
    uint64_t bit = 1ull << record;

    if (!(LOAD(own->slot->contexts) & bit)) {
        CUcontext context = NULL;
        if (helper.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
            return DEVICE_NONE;
        __atomic_fetch_or(&own->slot->contexts, bit, __ATOMIC_SEQ_CST);
    }
    return record;
}

int device_find(void)
{
    CUdevice ordinal;
    int record;

    if (own->mode == MODE_CLOSED || !own->slot_taken)
        return DEVICE_FORBIDDEN;
    process_map_devices();
    if (own->single)
        return note_context((int)own->single - 1);
    if (helper.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return DEVICE_NONE;
    record = device_of_ordinal(ordinal);
    return record >= 0 ? note_context(record) : record;
}
