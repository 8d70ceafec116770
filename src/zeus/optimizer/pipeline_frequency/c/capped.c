/* Schedules whose total power never exceeds a cap.
 *
 * A list scheduler goes through the iteration in the order of time. Each operation starts when what
 * it waits for has ended, at the option it is wished to have, or else at the next slower one that
 * the cap leaves room for; if there is none, it waits until another operation has ended. So every
 * schedule keeps the cap, whatever the wishes are.
 */

#include "capped.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

/* --- heaps ------------------------------------------------------------------------------------- */

static int before(const Entry *one, const Entry *other)
{
    if (one->time != other->time)
        return one->time < other->time;
    if (one->priority != other->priority)
        return one->priority < other->priority;
    return one->operation < other->operation;
}

static void push(Heap *heap, Entry entry)
{
    int32_t place = heap->count++;
    while (place > 0 && before(&entry, &heap->entries[(place - 1) / 2])) {
        heap->entries[place] = heap->entries[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap->entries[place] = entry;
}

static Entry pop(Heap *heap)
{
    Entry top = heap->entries[0], last = heap->entries[--heap->count];
    int32_t place = 0;
    for (;;) {
        int32_t child = 2 * place + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!before(&heap->entries[child], &last))
            break;
        heap->entries[place] = heap->entries[child];
        place = child;
    }
    heap->entries[place] = last;
    return top;
}

/* --- power while times vary -------------------------------------------------------------------- */

static int32_t bucket(const Scheduler *state, double time)
{
    double place = time / state->problem->horizon * BUCKETS;
    return place >= BUCKETS ? BUCKETS - 1 : (int32_t)place;
}

/* Whether the cap is kept wherever the operation and all others may be, if each takes between 1 - m
 * and 1 + m of its time: starts and ends then move by as much, being sums of times. */
static int fits_anywhere(const Scheduler *state, int32_t operation, double start, double end,
                         double power)
{
    double margin = state->problem->margin;
    int32_t device = state->problem->device[operation];
    int32_t last = bucket(state, end * (1 + margin));
    for (int32_t place = bucket(state, start * (1 - margin)); place <= last; place++) {
        double more = power;
        if (device >= 0) {
            double drawn = state->lane[(int64_t)device * BUCKETS + place];
            more = power > drawn ? power - drawn : 0;
        }
        if (more > 0 && state->total[place] + more > state->problem->varied_headroom)
            return 0;
    }
    return 1;
}

static void draw_anywhere(Scheduler *state, int32_t operation, double start, double end, double power)
{
    double margin = state->problem->margin;
    int32_t device = state->problem->device[operation];
    int32_t last = bucket(state, end * (1 + margin));
    for (int32_t place = bucket(state, start * (1 - margin)); place <= last; place++) {
        double more = power;
        if (device >= 0) {
            double *drawn = &state->lane[(int64_t)device * BUCKETS + place];
            more = power > *drawn ? power - *drawn : 0;
            *drawn += more;
        }
        state->total[place] += more > 0 ? more : 0;
    }
}

/* --- going through time ------------------------------------------------------------------------ */

typedef struct {
    double last;                  /* time of the last event */
    double drawn;                 /* excess now */
    double counted;               /* the same; operations below blocking power count as waiting */
    Outcome outcome;
} Now;

/* What is drawn from a time on, until the next event. */
static void note(Now *now, double from)
{
    if (now->drawn > now->outcome.peak)
        now->outcome.peak = now->drawn;
    if (now->drawn < now->outcome.low) {
        now->outcome.low = now->drawn;
        now->outcome.low_at = from;
    }
}

/* Let time go on: what ends until then draws no more. */
static void advance(Scheduler *state, Now *now, double time)
{
    if (time > now->last)
        note(now, now->last);
    while (state->running.count && state->running.entries[0].time <= time) {
        double end = state->running.entries[0].time;
        while (state->running.count && state->running.entries[0].time == end) {
            int32_t operation = pop(&state->running).operation;
            double power = power_of(state, operation, state->now.choice[operation]);
            now->drawn -= power;
            now->counted -= power > 0 ? power : 0;
        }
        if (!state->running.count)
            now->drawn = now->counted = 0; /* leaves no rounding behind */
        if (end < time)
            note(now, end);
    }
    now->last = time;
}

static int fits(const Scheduler *state, const Now *now, int32_t operation, int32_t option)
{
    double power = power_of(state, operation, option);
    if (power <= 0)
        return 1;
    if (now->counted + power > state->room)
        return 0;
    double end = now->last + time_of(state, operation, option);
    return state->problem->margin <= 0 || fits_anywhere(state, operation, now->last, end, power);
}

/* The option to start with now, or -1. `ends` is when each operation should have ended. */
static int32_t chosen(const Scheduler *state, const Now *now, int32_t operation, const uint16_t *wish,
                      const double *ends)
{
    int32_t found = -1, count = options_of(state, operation);
    for (int32_t option = ends ? 0 : wish[operation]; option < count; option++) {
        if (!fits(state, now, operation, option))
            continue;
        if (!ends)
            return option;
        if (found >= 0 && now->last + time_of(state, operation, option) > ends[operation])
            break;
        found = option;
    }
    return found;
}

static void begin(Scheduler *state, Now *now, int32_t operation, int32_t option)
{
    const CapProblem *problem = state->problem;
    double power = power_of(state, operation, option), time = time_of(state, operation, option);
    double end = now->last + time;
    state->now.choice[operation] = (uint16_t)option;
    state->now.start[operation] = now->last;
    state->now.end[operation] = end;
    now->outcome.cost += problem->option_cost[place_of(state, operation, option)];
    if (end > now->outcome.time)
        now->outcome.time = end;
    if (time > 0) {
        now->drawn += power;
        now->counted += power > 0 ? power : 0;
        push(&state->running, (Entry){end, 0, operation});
        if (problem->margin > 0 && power > 0)
            draw_anywhere(state, operation, now->last, end, power);
    }
    for (int32_t place = state->after_start[operation]; place < state->after_start[operation + 1];
         place++) {
        int32_t other = state->after[place];
        if (--state->missing[other])
            continue;
        double ready = 0;
        for (int32_t input = problem->before_start[other];
             input < problem->before_start[other + 1]; input++) {
            double ended = state->now.end[problem->before[input]];
            ready = ended > ready ? ended : ready;
        }
        push(&state->ready, (Entry){ready, state->priority[other], other});
    }
}

Outcome scheduler_run(Scheduler *state, const uint16_t *wish, const double *ends)
{
    const CapProblem *problem = state->problem;
    const Outcome never = {HUGE_VAL, HUGE_VAL, 0, 0, 0};
    Now now = {0, 0, 0, {0, 0, -HUGE_VAL, HUGE_VAL, 0}};
    state->ready.count = state->running.count = 0;
    if (problem->margin > 0) {
        memset(state->lane, 0, sizeof(double) * BUCKETS * (size_t)problem->devices);
        memset(state->total, 0, sizeof(double) * BUCKETS);
    }
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        state->missing[operation] =
            problem->before_start[operation + 1] - problem->before_start[operation];
        if (!state->missing[operation])
            push(&state->ready, (Entry){0, state->priority[operation], operation});
    }
    while (state->ready.count) {
        Entry entry = pop(&state->ready);
        advance(state, &now, entry.time);
        int32_t option = chosen(state, &now, entry.operation, wish, ends);
        if (option >= 0) {
            begin(state, &now, entry.operation, option);
            continue;
        }
        /* Until another has ended; or, as all may move in time, until somewhat later. */
        double next = state->running.count ? state->running.entries[0].time : HUGE_VAL;
        if (problem->margin > 0 && entry.time + problem->horizon / BUCKETS < next)
            next = entry.time + problem->horizon / BUCKETS;
        if (next == HUGE_VAL || (problem->margin > 0 && entry.time >= problem->horizon))
            return never;
        entry.time = next;
        push(&state->ready, entry);
    }
    advance(state, &now, now.outcome.time);
    return now.outcome;
}

/* --- setting up -------------------------------------------------------------------------------- */

static void connect(Scheduler *state)
{
    const CapProblem *problem = state->problem;
    int32_t count = problem->operations, edges = problem->before_start[count];
    for (int32_t place = 0; place < edges; place++)
        state->after_start[problem->before[place] + 1]++;
    for (int32_t operation = 0; operation < count; operation++)
        state->after_start[operation + 1] += state->after_start[operation];
    /* `missing` counts what is there already. */
    for (int32_t operation = 0; operation < count; operation++)
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++) {
            int32_t other = problem->before[place];
            state->after[state->after_start[other] + state->missing[other]++] = operation;
        }
}

/* Of what must follow an operation, the longest, at the fastest options: the longer, the sooner. */
static void prioritize(Scheduler *state)
{
    const CapProblem *problem = state->problem;
    for (int32_t operation = problem->operations - 1; operation >= 0; operation--) {
        double tail = 0;
        for (int32_t place = state->after_start[operation];
             place < state->after_start[operation + 1]; place++)
            if (state->priority[state->after[place]] < tail)
                tail = state->priority[state->after[place]];
        state->priority[operation] = tail - time_of(state, operation, 0);
    }
}

int scheduler_create(Scheduler *state, const CapProblem *problem)
{
    size_t count = (size_t)problem->operations + 1;
    size_t edges = (size_t)problem->before_start[problem->operations] + 1;
    size_t lanes = problem->margin > 0 ? BUCKETS * (size_t)problem->devices : 1;
    *state = (Scheduler){.problem = problem};
    state->watch.cancel = problem->cancel;
    state->watch.ends = problem->seconds > 0 ? watch_now() + problem->seconds : 0;
    state->room = problem->headroom;
    state->after_start = calloc(count + 1, sizeof(int32_t));
    state->after = calloc(edges, sizeof(int32_t));
    state->missing = calloc(count, sizeof(int32_t));
    state->ready.entries = calloc(count, sizeof(Entry));
    state->running.entries = calloc(count, sizeof(Entry));
    state->priority = calloc(count, sizeof(double));
    state->lane = calloc(lanes, sizeof(double));
    state->total = calloc(BUCKETS, sizeof(double));
    Times *times[] = {&state->now, &state->spare};
    for (int number = 0; number < 2; number++) {
        times[number]->choice = calloc(count, sizeof(uint16_t));
        times[number]->start = calloc(count, sizeof(double));
        times[number]->end = calloc(count, sizeof(double));
        if (!times[number]->choice || !times[number]->start || !times[number]->end)
            return 0;
    }
    if (!state->after_start || !state->after || !state->missing || !state->ready.entries ||
        !state->running.entries || !state->priority || !state->lane || !state->total)
        return 0;
    connect(state);
    prioritize(state);
    return 1;
}

void scheduler_destroy(Scheduler *state)
{
    void *all[] = {state->after_start, state->after, state->missing, state->ready.entries,
                   state->running.entries, state->priority, state->lane, state->total,
                   state->now.choice, state->now.start, state->now.end, state->spare.choice,
                   state->spare.start, state->spare.end};
    for (size_t number = 0; number < sizeof all / sizeof *all; number++)
        free(all[number]);
}

void scheduler_swap(Scheduler *state)
{
    Times last = state->now;
    state->now = state->spare;
    state->spare = last;
}
