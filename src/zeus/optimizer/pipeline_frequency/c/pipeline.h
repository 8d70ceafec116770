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
    volatile int32_t *progress;   /* two numbers that other threads read: how many of the plans were
                                     made at first, and rounds of improving them since then */
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
    double cost_unit;             /* units of slope times ticks in one of `option_cost` */
    const int32_t *rank_before;   /* place in `before` of the operation before on the rank, or -1 */
    int32_t chains;               /* of windows: see `windows.c` */
    const int32_t *chain_start;   /* chains + 1 places in `chain_member` */
    const int32_t *chain_member;  /* three operations of a rank each, and how it is linked on */
} Problem;

/* What Python gets back; freed by zeus_pipeline_free. */
typedef struct {
    int64_t breakpoints;          /* of the continuous frontier, from slow to fast */
    int64_t *breakpoint_ticks;
    int64_t *breakpoint_slope;    /* cost of each tick less, from here to the next breakpoint */
    int64_t *breakpoint_high;     /* what every plan would cost in no time, at least: its cost is */
    uint64_t *breakpoint_low;     /* this x 2^64 + this - slope x ticks or more, at any time */
    int64_t lines;                /* the same of windows: slopes, and costs in no time */
    int64_t *line_slope;
    int64_t *line_high;
    uint64_t *line_low;
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
/* As much of the wanted choices as the deadline allows, which the present ones keep. */
void schedule_toward(Schedule *schedule, const uint16_t *wanted);
/* The next two leave a plan that keeps its deadline even if the watch ends them early. */
/* Let operations that have slack run slower; whatever saves most comes first. */
void schedule_use_slack(Schedule *schedule);
/* Exchange time between an operation and its neighbours while that saves anything. */
void schedule_exchange(Schedule *schedule);
/* Choose another option; returns whether the deadline is kept. */
int schedule_choose(Schedule *schedule, int32_t operation, int32_t option);
/* The slowest option of an operation that its slack allows. */
int32_t schedule_slowest(const Schedule *schedule, int32_t operation);
/* Use slack, and exchange, where operations were touched. */
void schedule_repair(Schedule *schedule);
/* Search around a plan at random; `best` is room for another one. */
void schedule_search(Schedule *schedule, Schedule *best, int32_t tries);
/* Seconds and joules that executing the plan takes. */
void schedule_measure(const Schedule *schedule, double *time, double *energy);

/* What an operation costs at least, beyond its slowest option, if each of its ticks costs `price`
 * as well. The sum over all operations, each at the price of its flow, bounds every plan from below,
 * whatever flow it is: so that flow may be found for rounded slopes, and the bound is of the hull. */
__int128 least_cost(const Problem *problem, int32_t operation, int64_t price);

/* Bounds from windows, for any flow of a `slope` through operations and the arcs of `before`. */
typedef struct Windows Windows;
int windows_create(Windows **windows, const Problem *problem, Watch *watch);
void windows_destroy(Windows *windows);
int windows_bound(Windows *windows, const int64_t *operation_flow, const int64_t *pause_flow,
                  __int128 *bound);

/* The least cost of a chain if all of a rank has one price, and its derivative by each price. */
double windows_cycle(Windows *windows, int32_t chain, const double *price, double *length);

/* Flows that raise the bound of windows. */
typedef struct Prices Prices;
int prices_create(Prices **prices, const Problem *problem, const Graph *graph, Watch *watch,
                  Windows *windows);
void prices_destroy(Prices *prices);
/* Find the best prices near those of a flow, with cycles as long as by these times. */
void prices_find(Prices *prices, const int64_t *operations, const int64_t *finish);
/* Change the flow so that it has them, as far as there is any. */
void prices_apply(const Prices *prices, int64_t *operations, int64_t *arcs);

/* Options that repeat in every cycle, for each of the cycles that are best. */
typedef struct Patterns Patterns;
int patterns_create(Patterns **patterns, const Problem *problem);
void patterns_destroy(Patterns *patterns);
int32_t patterns_count(const Patterns *patterns);
int64_t patterns_cycle(const Patterns *patterns, int32_t number);
/* Choose the options of a cycle, wherever ranks are in turn, or only while all are. */
void patterns_apply(const Patterns *patterns, int64_t cycle, int everywhere, uint16_t *choice);
/* Repeat those successive cycles of a plan that are best if a tick costs `slope`; 0 if there are too
 * few. */
int patterns_tile(const Patterns *patterns, const Schedule *schedule, double slope, int32_t cycles,
                  uint16_t *choice);

/* Where lines below all plans are recorded. */
typedef struct {
    const Problem *problem;
    Solution *solution;
    int64_t capacity;             /* breakpoints */
    int64_t line_capacity;
    Windows *windows;             /* NULL if there are none */
    Prices *prices;               /* NULL if hardly anything repeats */
    int64_t *flow;                /* of operations, and of the arcs of `before` behind them */
    int64_t *end;                 /* of each operation, as early as can be */
    int32_t *by;                  /* place in `before` of what it waits for last, or -1 */
    int64_t fastest;              /* ticks of the shortest iteration */
    int64_t every;                /* ticks between lines of windows */
    int64_t last;                 /* ticks of the last one */
} Bound;

int bound_create(Bound *bound, const Problem *problem, const Graph *graph, Watch *watch,
                 Solution *solution);
void bound_destroy(Bound *bound);
int bound_breakpoint(Bound *bound, __int128 dual, int64_t ticks, int64_t slope);
/* Whether the last line of windows is far enough from a breakpoint for another one. */
int bound_due(const Bound *bound, int64_t ticks);
/* Lines from the flow at a breakpoint, where operations end by `finish`. */
int bound_windows(Bound *bound, int64_t ticks, const int64_t *flow, const int32_t *arc_of_place,
                  const int64_t *finish);
/* The same for the shortest iteration, with steeper ones as well. */
int bound_shortest(Bound *bound, const int64_t *flow, const int32_t *arc_of_place,
                   const int64_t *finish);

/* Follow the continuous frontier from slow to fast. `visit` gets the time by which each operation
 * ends, first at corners that are slower than useful, then at each of the iteration times asked
 * for; it returns 0 to go on. If it ends early, the breakpoints still bound every plan from below,
 * as the line from the last one known goes on to the shortest time. */
typedef int (*Visitor)(void *context, int64_t deadline, const int64_t *finish, int useful);
int sweep(const Problem *problem, const Graph *graph, Watch *watch, Visitor visit, void *context,
          Solution *solution);

#endif
