/* Plans under a cap of power: what Python hands over, and what it gets back. */

#ifndef ZEUS_CAPPED_H
#define ZEUS_CAPPED_H

#include "pipeline.h"

#include <math.h>
#include <stdint.h>

/* Powers are those of one pipeline beyond that of waiting, in watts; times are seconds. */
typedef struct {
    int32_t operations;
    int32_t devices;
    int32_t guides;               /* plans to begin with */
    int64_t evaluations;          /* schedules that the local search tries */
    double headroom;              /* what all operations may draw at any moment */
    double varied_headroom;       /* the same while times vary; only with a margin */
    double swing;                 /* bound of the highest less the lowest; infinite for none */
    double margin;                /* share by which each operation's time may vary; 0 for none */
    double horizon;               /* by when every useful schedule has ended; only with a margin */
    double seconds;               /* within which to be done; not more than 0 for any number */
    const volatile int32_t *cancel;
    const int32_t *device;        /* of each operation; -1 for none */
    const int32_t *curve;         /* of each operation */
    const int32_t *before_start;  /* operations + 1 places in `before` */
    const int32_t *before;        /* what an operation waits for */
    const int32_t *option_start;  /* curves + 1 places in the option_ arrays */
    const double *option_time;    /* rising within a curve */
    const double *option_power;   /* falling within a curve */
    const double *option_cost;    /* J beyond those of waiting as long */
    const uint16_t *guide_choice; /* guides x operations */
    const double *guide_end;      /* guides x operations: when each should end; the first is below */
                                  /* 0 if the guide has no ends but choices */
} CapProblem;

/* A row for each guide, and one for the best of all; Python has made room for them. */
typedef struct {
    double *time;                 /* infinite if there is no schedule */
    double *cost;
    double *peak;
    double *low;
    uint16_t *choice;             /* rows x operations */
    double *start;                /* rows x operations */
} CapResult;

int zeus_pipeline_capped(const CapProblem *problem, CapResult *result);

#define GUARD 1e-9                /* of the headroom, far above the rounding of sums */

typedef struct {
    double time;
    double priority;
    int32_t operation;
} Entry;

typedef struct {
    Entry *entries;
    int32_t count;
} Heap;

/* What a schedule comes to. */
typedef struct {
    double time;
    double cost;
    double peak;                  /* highest and lowest excess of total power, W */
    double low;
    double low_at;                /* when the lowest is drawn first */
} Outcome;

/* A schedule: what `scheduler_run` leaves behind. */
typedef struct {
    uint16_t *choice;
    double *start;
    double *end;
} Times;

/* The list scheduler, with what it needs while it runs. */
typedef struct {
    const CapProblem *problem;
    Watch watch;
    int32_t *after_start;
    int32_t *after;
    int32_t *missing;             /* how many operations each still waits for */
    Heap ready;
    Heap running;
    double *priority;             /* of two that are ready, the lower comes first */
    double *lane;                 /* devices x buckets: most power that may be drawn then */
    double *total;                /* the sum over devices, by bucket */
    double room;                  /* W that operations may draw beyond waiting */
    Times now;                    /* of the last run */
    Times spare;
} Scheduler;

int scheduler_create(Scheduler *state, const CapProblem *problem);
void scheduler_destroy(Scheduler *state);
/* Schedule everything: each operation at the option it is wished to have, or a slower one; or, if
 * there are ends, at the slowest that ends in time. A time of infinity if one never fits. */
Outcome scheduler_run(Scheduler *state, const uint16_t *wish, const double *ends);
/* Exchange the last schedule for the spare one. */
void scheduler_swap(Scheduler *state);

static inline int32_t options_of(const Scheduler *state, int32_t operation)
{
    const CapProblem *problem = state->problem;
    int32_t curve = problem->curve[operation];
    return problem->option_start[curve + 1] - problem->option_start[curve];
}

static inline int32_t place_of(const Scheduler *state, int32_t operation, int32_t option)
{
    return state->problem->option_start[state->problem->curve[operation]] + option;
}

static inline double time_of(const Scheduler *state, int32_t operation, int32_t option)
{
    return state->problem->option_time[place_of(state, operation, option)];
}

static inline double power_of(const Scheduler *state, int32_t operation, int32_t option)
{
    int32_t place = place_of(state, operation, option);
    return state->problem->option_time[place] > 0 ? state->problem->option_power[place] : 0;
}

#endif
