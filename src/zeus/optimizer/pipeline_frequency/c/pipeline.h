/* What the parts of the solver share. Times are whole ticks, costs whole units: nothing is compared
 * within a tolerance. Operations are numbered so that each comes after those that it waits for. */

#ifndef ZEUS_PIPELINE_H
#define ZEUS_PIPELINE_H

#include <stdint.h>

#define UNBOUNDED ((int64_t)1 << 62)

/* Why something ends before it is done. */
#define OUT_OF_MEMORY 1
#define OUT_OF_TIME 2
#define CANCELLED 3

/* The problem, as Python hands it over. Operations that have the same options share a curve. */
typedef struct {
    int32_t operations;
    int32_t curves;
    int32_t plans;                /* how many iteration times to make plans for */
    int32_t rounds;               /* how often to improve the best plans */
    int64_t blocking_slope;       /* what a tick of the whole pipeline costs while it waits */
    double blocking_power;        /* watts of one waiting GPU */
    double gpus;                  /* of one pipeline */
    double seconds;               /* within which to be done; not more than 0 for any number */
    int64_t room;                 /* bytes that plans may take; stops refining when they are full */
    const volatile int32_t *cancel; /* another thread sets it when nobody wants plans any more */
    const int32_t *curve;         /* of each operation */
    const int32_t *before_start;  /* operations + 1 places in `before` */
    const int32_t *before;        /* what an operation waits for */
    const int32_t *option_start;  /* curves + 1 places in the option_ arrays */
    const int64_t *option_ticks;  /* rising within a curve */
    const int64_t *option_cost;   /* falling within a curve */
    const double *option_time;    /* s */
    const double *option_energy;  /* J, of all GPUs that run the operation */
    const double *option_busy;    /* GPU-seconds in which no blocking power is drawn */
    const int32_t *hull_start;    /* curves + 1 places in the hull_ arrays */
    const int64_t *hull_ticks;    /* corners of the lower convex hull of a curve, rising */
    const int64_t *hull_slope;    /* cost per tick from the corner before to this one, falling */
    const int32_t *corner_start;  /* the same with rounded slopes: the fewer different slopes there */
    const int64_t *corner_ticks;  /* are, the fewer breakpoints */
    const int64_t *corner_slope;
} Problem;

/* What Python gets back; freed by zeus_pipeline_free. */
typedef struct {
    int64_t breakpoints;          /* of the continuous frontier, from slow to fast */
    int64_t *breakpoint_ticks;
    int64_t *breakpoint_slope;    /* cost of each tick less, from here to the next breakpoint */
    int64_t *breakpoint_high;     /* what every plan would cost in no time, at least: its cost is */
    uint64_t *breakpoint_low;     /* this x 2^64 + this - slope x ticks or more, at any time */
    int64_t plans;                /* by rising time, falling energy */
    double *time;
    double *energy;
    uint16_t *choice;             /* plans x operations: an option of the operation's curve */
    int32_t refined;              /* 0 if it ended before it was done */
} Solution;

/* When to end. Asked in every loop that may run long, so the time is read now and then only. */
typedef struct {
    const volatile int32_t *cancel;
    double ends;                  /* by the clock of `watch_now`; 0 for never */
    uint32_t asked;
    int over;                     /* 0, OUT_OF_TIME or CANCELLED; stays once it is set */
} Watch;

double watch_now(void);
int watch_look(Watch *watch);

static inline int watch_over(Watch *watch)
{
    /* In a large pipeline, a few rounds of some loops take long: the flag is read in each. */
    if (watch->over || (!*watch->cancel && (++watch->asked & 15)))
        return watch->over;
    return watch_look(watch);
}

/* What follows from the problem for each operation. */
typedef struct {
    int32_t *after_start;         /* operations + 1 places in `after` */
    int32_t *after;               /* what waits for an operation */
    int32_t *first;               /* place of an operation's first option */
    int32_t *options;             /* how many it has */
} Graph;

/* An executable plan under a deadline, kept consistent while its choices change. */
typedef struct {
    const Problem *problem;
    const Graph *graph;
    Watch *watch;
    int64_t deadline;             /* ticks */
    uint16_t *choice;
    int64_t *length;              /* ticks, as chosen */
    int64_t *earliest;            /* start, ticks */
    int64_t *latest;              /* end, ticks, so that the deadline is kept */
    int64_t cost;
    uint64_t *pending;            /* one bit per operation, all clear between calls */
    int32_t words;
    uint8_t *touched;             /* whose times or choice have changed */
    void *scratch;                /* room for what a call needs only while it lasts */
} Schedule;

int schedule_create(Schedule *schedule, const Problem *problem, const Graph *graph,
                    Watch *watch);
void schedule_destroy(Schedule *schedule);
/* Work out all times from the choices. */
void schedule_refresh(Schedule *schedule);
void schedule_copy(Schedule *to, const Schedule *from);
int64_t schedule_end(const Schedule *schedule);
/* Choose for every operation, in order, the slowest option that ends by `finish`. */
void schedule_follow(Schedule *schedule, const int64_t *finish, int64_t deadline);
/* The beginning of one plan and the end of another, so that all takes until the deadline. */
void schedule_splice(Schedule *schedule, const Schedule *slow, const Schedule *fast,
                     int64_t deadline, int fast_first);
/* The next two leave a plan that keeps its deadline even if the watch ends them early. */
/* Let operations that have slack run slower; whatever saves most comes first. */
void schedule_use_slack(Schedule *schedule);
/* Exchange time between an operation and its neighbours while that saves anything. */
void schedule_exchange(Schedule *schedule);
/* Seconds and joules that executing the plan takes. */
void schedule_measure(const Schedule *schedule, double *time, double *energy);

/* Follow the continuous frontier from slow to fast. `visit` gets the time by which each operation
 * ends, first at corners that are slower than useful, then at each of the iteration times asked
 * for; it returns 0 to go on. If it ends early, the breakpoints still bound every plan from below,
 * as the line from the last one known goes on to the shortest time. */
typedef int (*Visitor)(void *context, int64_t deadline, const int64_t *finish, int useful);
int sweep(const Problem *problem, const Graph *graph, Watch *watch, Visitor visit, void *context,
          Solution *solution);

#endif
