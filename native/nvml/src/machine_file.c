/* Reads the file that describes the machine: one fact a line, a card's facts below its line. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { MAX_LINE = 512 };

static bool refuse(const char *path, int number, const char *line)
{
    fprintf(stderr, "%s:%d: '%s': expected a fact of the machine as slicewise writes it\n", path,
            number, line);
    return false;
}

static bool read_gpu(struct machine *machine, const char *rest)
{
    unsigned int index;
    struct card *card = &machine->card[machine->cards];

    if (machine->cards == MAX_CARDS ||
        sscanf(rest, "%u %u %95s %31s", &index, &card->minor, card->uuid, card->bus) != 4 ||
        index != machine->cards)
        return false;
    card->numa = card->temperature = card->power = UNKNOWN;
    for (unsigned int other = 0; other < MAX_CARDS; other++)
        machine->level[index][other] = machine->level[other][index] = index == other ? 0 : 50;
    machine->cards++;
    return true;
}

static bool read_process(struct card *card, const char *rest)
{
    char kind[16];
    struct process *process = &card->process[card->processes];

    if (card->processes == MAX_PROCESSES ||
        sscanf(rest, "%u %u %u %15s", &process->pid, &process->memory, &process->utilization,
               kind) != 4)
        return false;
    process->graphics = strcmp(kind, "graphics") == 0;
    card->processes++;
    return process->graphics || strcmp(kind, "compute") == 0;
}

static bool read_link(struct machine *machine, const char *rest)
{
    unsigned int one, other, lanes, level;

    if (sscanf(rest, "%u %u %u %u", &one, &other, &lanes, &level) != 4 ||
        one >= machine->cards || other >= machine->cards)
        return false;
    machine->lanes[one][other] = machine->lanes[other][one] = lanes;
    machine->level[one][other] = machine->level[other][one] = level;
    return true;
}

static bool read_fault(struct machine *machine, const char *rest)
{
    char kind[8];
    struct fault *fault = &machine->fault[machine->faults];

    if (machine->faults == MAX_FAULTS ||
        sscanf(rest, "%llu %u %7s %llu", &fault->sequence, &fault->card, kind, &fault->xid) != 4 ||
        fault->card >= machine->cards)
        return false;
    fault->ecc = strcmp(kind, "ecc") == 0;
    machine->faults++;
    return fault->ecc || strcmp(kind, "xid") == 0;
}

static bool read_machine_fact(struct machine *machine, const char *word, const char *rest)
{
    if (strcmp(word, "driver") == 0)
        return snprintf(machine->driver, sizeof machine->driver, "%s", rest) < MAX_TEXT;
    if (strcmp(word, "cuda") == 0)
        return sscanf(rest, "%d", &machine->cuda) == 1;
    if (strcmp(word, "failure") == 0)
        return sscanf(rest, "%d", &machine->failure) == 1;
    if (strcmp(word, "gpu") == 0)
        return read_gpu(machine, rest);
    if (strcmp(word, "link") == 0)
        return read_link(machine, rest);
    return strcmp(word, "fault") == 0 && read_fault(machine, rest);
}

static bool read_card_fact(struct card *card, const char *word, const char *rest)
{
    int mig = 0;

    if (strcmp(word, "name") == 0)
        return snprintf(card->name, sizeof card->name, "%s", rest) < MAX_TEXT;
    if (strcmp(word, "memory") == 0)
        return sscanf(rest, "%u %u", &card->memory, &card->used) == 2;
    if (strcmp(word, "utilization") == 0)
        return sscanf(rest, "%u", &card->utilization) == 1;
    if (strcmp(word, "brand") == 0)
        return sscanf(rest, "%u", &card->brand) == 1;
    if (strcmp(word, "capability") == 0)
        return sscanf(rest, "%d %d", &card->capability_major, &card->capability_minor) == 2;
    if (strcmp(word, "recovery") == 0)
        return sscanf(rest, "%u", &card->recovery) == 1;
    if (strcmp(word, "switch") == 0)
        return sscanf(rest, "%u", &card->switch_lanes) == 1;
    if (strcmp(word, "numa") == 0)
        return sscanf(rest, "%d", &card->numa) == 1;
    if (strcmp(word, "temperature") == 0)
        return sscanf(rest, "%d", &card->temperature) == 1;
    if (strcmp(word, "power") == 0)
        return sscanf(rest, "%d", &card->power) == 1;
    if (strcmp(word, "state") == 0) {
        int lost, rows;
        bool read = sscanf(rest, "%d %d %d", &mig, &lost, &rows) == 3;
        card->mig = read && mig;
        card->lost = read && lost;
        card->rows_failed = read && rows;
        return read;
    }
    return strcmp(word, "process") == 0 && read_process(card, rest);
}

static bool read_line(struct machine *machine, char *line)
{
    char *rest = strchr(line, ' ');

    if (rest == NULL)
        return strcmp(line, "end") == 0;
    *rest++ = '\0';
    if (read_machine_fact(machine, line, rest))
        return true;
    return machine->cards > 0 && read_card_fact(&machine->card[machine->cards - 1], line, rest);
}

struct machine *machine_read(const char *path)
{
    char line[MAX_LINE];
    bool whole = false, good = true;
    FILE *file = fopen(path, "re");
    struct machine *machine = calloc(1, sizeof *machine);

    for (int number = 1; file && machine && good && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        whole = strcmp(line, "end") == 0;
        good = read_line(machine, line) || refuse(path, number, line);
    }
    /* A file without its last line is one that somebody is still writing. */
    if (file && good && !whole)
        good = refuse(path, 0, "no line 'end'");
    if (file)
        fclose(file);
    if (file && machine && good)
        return machine;
    free(machine);
    return NULL;
}
