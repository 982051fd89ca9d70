/* Reads the file that describes the machine: one fact a line, a GPU's facts below its line. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

enum { MAX_LINE = 4200 };

static bool read_gpu(struct facts *facts, const char *rest)
{
    struct gpu_fact *gpu = &facts->gpu[facts->gpus];
    unsigned long long memory;

    if (facts->gpus == STATE_GPUS || sscanf(rest, "%63s %llu", gpu->uuid, &memory) != 2)
        return false;
    gpu->memory = memory << 20;
    gpu->sms = 108;
    gpu->threads = 2048;
    gpu->major = 8;
    strcpy(gpu->name, "NVIDIA Stand-in");
    facts->gpus++;
    return true;
}

static bool read_gpu_fact(struct gpu_fact *gpu, const char *word, const char *rest)
{
    unsigned long long amount;

    if (strcmp(word, "name") == 0)
        return snprintf(gpu->name, sizeof gpu->name, "%s", rest) < MAX_NAME;
    if (strcmp(word, "processors") == 0)
        return sscanf(rest, "%u %u", &gpu->sms, &gpu->threads) == 2;
    if (strcmp(word, "capability") == 0)
        return sscanf(rest, "%u %u", &gpu->major, &gpu->minor) == 2;
    if (sscanf(rest, "%llu", &amount) != 1)
        return false;
    if (strcmp(word, "context") == 0)
        gpu->context = amount << 20;
    else if (strcmp(word, "bound") == 0)
        gpu->bound = amount;
    else
        return false;
    return true;
}

static bool read_kernel(struct facts *facts, const char *rest)
{
    struct kernel_fact *kernel = &facts->kernel[facts->kernels];
    double microseconds;

    if (facts->kernels == MAX_KERNELS ||
        sscanf(rest, "%95s %lf %u", kernel->name, &microseconds, &kernel->spread) < 2)
        return false;
    kernel->ns = (uint64_t)(microseconds * 1000);
    facts->kernels++;
    return true;
}

static bool read_failure(struct facts *facts, const char *word, const char *rest)
{
    struct failure *failure = &facts->failure[facts->failures];
    unsigned int number;

    if (facts->failures == MAX_FAILURES ||
        sscanf(rest, "%95s %u %d", failure->function, &number, &failure->result) != 3 ||
        number == 0)
        return false;
    *(strcmp(word, "fail") == 0 ? &failure->nth : &failure->every) = number;
    facts->failures++;
    return true;
}

static bool read_machine_fact(struct facts *facts, const char *word, const char *rest)
{
    unsigned long long latency, slice, change;

    if (strcmp(word, "state") == 0)
        return snprintf(facts->state, sizeof facts->state, "%s", rest) > 0;
    if (strcmp(word, "limits") == 0)
        return sscanf(rest, "%4095s %1023s", facts->limits, facts->cgroups) == 2;
    if (strcmp(word, "cuda") == 0)
        return sscanf(rest, "%d", &facts->version) == 1;
    if (strcmp(word, "gpu") == 0)
        return read_gpu(facts, rest);
    if (strcmp(word, "kernel") == 0)
        return read_kernel(facts, rest);
    if (strcmp(word, "fail") == 0 || strcmp(word, "flaky") == 0)
        return read_failure(facts, word, rest);
    if (strcmp(word, "engine") == 0 && strcmp(rest, "off") == 0)
        return facts->engine_off = true;
    if (strcmp(word, "times") == 0 &&
        sscanf(rest, "%llu %llu %llu", &latency, &slice, &change) == 3) {
        facts->latency_ns = latency;
        facts->slice_ns = slice;
        facts->switch_ns = change;
        return true;
    }
    return false;
}

static bool read_line(struct facts *facts, char *line)
{
    char *rest = strchr(line, ' ');

    if (rest == NULL)
        return strcmp(line, "end") == 0;
    *rest++ = '\0';
    return read_machine_fact(facts, line, rest) ||
           (facts->gpus > 0 && read_gpu_fact(&facts->gpu[facts->gpus - 1], line, rest));
}

bool facts_read(const char *path, struct facts *facts)
{
    char line[MAX_LINE];
    bool whole = false;
    FILE *file = fopen(path, "re");

    *facts = (struct facts){
        .version = 13040, .latency_ns = 5000, .slice_ns = 2000000, .switch_ns = 50000};
    snprintf(facts->state, sizeof facts->state, "%s.state", path);
    for (int number = 1; file && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        whole = strcmp(line, "end") == 0;
        if (!read_line(facts, line)) {
            fprintf(stderr, "%s:%d: '%s': expected a fact of the machine\n", path, number, line);
            whole = false;
            break;
        }
    }
    if (file)
        fclose(file);
    return whole;
}
