/* The layout of gpu-manager's own agent: limits from /etc/vcuda, usage in shared memory.

   No agent feeds this layout; the container's processes do it themselves (feed.c). */
#include "process.h"

static const char FOLDER[] = "/etc/vcuda";
static const char CLIENT[] = "/usr/local/nvidia/bin/gpu-client";
static const int64_t BURST_NS = 20000000;
enum { ID_LENGTH = 64, UID_LENGTH = 36, MOST_TEXT = 65536, MOST_PATH = 512 };

/* Where this container's limits were found, and how its agent is told of a process. */
static struct {
    char folder[MOST_PATH], socket[MOST_PATH], id[ID_LENGTH + 1];
    bool is_told;
} place;

/* vcuda.config as gpu-manager writes it. */
struct config {
    char pod_uid[48];
    int32_t limit;
    char driver[4044];
    char container[4096];
    char versions[16];
    uint64_t gpu_memory;
    int32_t utilization, hard_limit, others[2], enable;
    char end[4];
};
_Static_assert(sizeof(struct config) == 8240, "config");
_Static_assert(offsetof(struct config, gpu_memory) == 8208, "gpu_memory");
_Static_assert(offsetof(struct config, utilization) == 8216, "utilization");
_Static_assert(offsetof(struct config, hard_limit) == 8220, "hard_limit");
_Static_assert(offsetof(struct config, enable) == 8232, "enable");

static bool is_hex(char letter)
{
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

/* The last word of 64 hexadecimal digits between start and end, with nothing hexadecimal around. */
static bool find_id(const char *start, const char *end, char *id)
{
    bool found = false;

    for (const char *at = start; at < end;) {
        const char *word = at;
        while (at < end && is_hex(*at))
            at++;
        if (at - word == ID_LENGTH) {
            copy_bytes(id, word, ID_LENGTH);
            id[ID_LENGTH] = '\0';
            found = true;
        }
        at += at == word;
    }
    return found;
}

static const char *line_end(const char *line)
{
    while (*line && *line != '\n')
        line++;
    return line;
}

static bool holds(const char *line, const char *end, const char *word)
{
    for (; line < end; line++)
        if (text_begins(line, word))
            return true;
    return false;
}

/* In lines that hold the word: the memory controller's, the unified one's, the host name's. */
static bool search(const char *path, const char *word, const char *other, char *id)
{
    char *text = memory_map(MOST_TEXT, false, NULL);
    bool found = false;

    if (text == NULL || file_text(path, text, MOST_TEXT) <= 0)
        return false;
    for (const char *line = text; *line && !found;) {
        const char *end = line_end(line);
        if (holds(line, end, word) || (other && holds(line, end, other)))
            found = find_id(line, end, id);
        line = *end ? end + 1 : end;
    }
    memory_unmap(text, MOST_TEXT);
    return found;
}

static bool read_id(char *id)
{
    return search("/proc/self/cgroup", ":memory:", "0::", id) ||
           search("/proc/self/mountinfo", " /etc/hostname ", NULL, id);
}

static void append(char *path, const char *text)
{
    size_t length = text_length(path);

    copy_bytes(path + length, text, text_length(text) + 1);
}

static bool read_config(const char *path, struct config *config, uint64_t *device, uint64_t *inode)
{
    int file = file_open(path, READ_ONLY, 0);
    uint64_t bytes;
    bool good;

    if (file < 0)
        return false;
    good = file_read(file, config, sizeof *config, 0) == sizeof *config &&
           file_status(file, device, inode, &bytes);
    file_close(file);
    return good;
}

/* The kubelet's folder of the pod holds the file behind /etc/hosts. */
static bool read_pod_uid(char *uid)
{
    static const char pods[] = "/pods/";
    char *text = memory_map(MOST_TEXT, false, NULL);
    bool found = false;

    if (text == NULL || file_text("/proc/self/mountinfo", text, MOST_TEXT) <= 0)
        return false;
    for (const char *at = text; *at && !found; at++)
        if (text_begins(at, pods) && at[sizeof pods - 1 + UID_LENGTH] == '/') {
            copy_bytes(uid, at + sizeof pods - 1, UID_LENGTH);
            uid[UID_LENGTH] = '\0';
            found = true;
        }
    memory_unmap(text, MOST_TEXT);
    return found;
}

static void run_client(void)
{
    char uid[UID_LENGTH + 1] = "";
    const char *const arguments[] = {CLIENT,   "--addr",    place.socket, "--cont-id",
                                     place.id, "--pod-uid", uid,          NULL};
    const char *const nothing[] = {NULL};

    if (file_exists(place.socket) && file_exists(CLIENT) && read_pod_uid(uid))
        process_run(CLIENT, arguments, nothing);
    place.is_told = true;
}

static void name_usage(char *path, uint64_t device, uint64_t inode)
{
    char digits[24];

    append(path, "/dev/shm/slicewise-");
    append(path, text_number(digits + sizeof digits, device));
    append(path, "-");
    append(path, text_number(digits + sizeof digits, inode));
}

static void take(const struct config *config)
{
    struct device *device = &own->device[0];
    int32_t cores = config->utilization;
    int32_t limit = config->hard_limit ? cores : config->limit;

    cores = cores < 0 || cores > 100 ? 100 : cores;
    limit = limit < cores || limit > 100 ? cores : limit;
    own->flags = config->enable ? GATE_MEMORY | GATE_COMPUTE | SHOW_IN_NVML | COUNT_MANAGED : 0;
    device->memory = config->gpu_memory > INT64_MAX / 4 ? 0 : (int64_t)config->gpu_memory;
    device->cores = device->ceiling = (uint32_t)cores * 100;
    device->limit = (uint32_t)limit * 100;
    device->scale = SCALE_ONE;
    device->burst_ns = BURST_NS;
}

static void enter(const char *folder, const char *below)
{
    place.folder[0] = '\0';
    append(place.folder, folder);
    append(place.folder, below);
}

static bool read_here(struct config *config, uint64_t *device, uint64_t *inode)
{
    char path[MOST_PATH] = "";

    append(path, place.folder);
    append(path, "/vcuda.config");
    return read_config(path, config, device, inode);
}

/* The configuration itself, or that of this container among those of its pod. */
static bool find_config(const char *folder, struct config *config, uint64_t *device,
                        uint64_t *inode)
{
    char below[ID_LENGTH + 2] = "/";

    enter(folder, "/vcuda.sock");
    copy_bytes(place.socket, place.folder, sizeof place.socket);
    place.is_told = false;
    enter(folder, "");
    if (!read_id(place.id))
        place.id[0] = '\0';
    if (read_here(config, device, inode))
        return true;
    if (place.id[0] == '\0')
        return false;
    append(below, place.id);
    enter(folder, below);
    if (read_here(config, device, inode))
        return true;
    run_client();
    return read_here(config, device, inode);
}

void vcuda_register(void)
{
    if (!place.is_told && place.id[0] != '\0')
        run_client();
}

size_t vcuda_pids(int32_t *pids, size_t room)
{
    char path[MOST_PATH] = "";
    long bytes;
    int file;

    append(path, place.folder);
    append(path, "/pids.config");
    file = file_open(path, READ_ONLY, 0);
    if (file < 0)
        return 0;
    bytes = file_read(file, pids, room * sizeof *pids, 0);
    file_close(file);
    return bytes > 0 ? (size_t)bytes / sizeof *pids : 0;
}

bool vcuda_open(void)
{
    const char *folder = file_exists(FOLDER) ? FOLDER : environment("SLICEWISE_VCUDA_DIR");
    struct config config;
    uint64_t device = 0, inode = 0;
    char path[128] = "";

    if (folder == NULL || text_length(folder) > 300 ||
        !find_config(folder, &config, &device, &inode))
        return false;
    take(&config);
    name_usage(path, device, inode);
    if (!usage_create(path))
        usage_alone();
    own->vcuda = own->usage != NULL && (own->flags & GATE_COMPUTE);
    return own->usage != NULL;
}
