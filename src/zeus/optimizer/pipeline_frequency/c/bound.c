/* Lines below all plans: what a plan costs in a time is at least where each of them is then.
 *
 * Each breakpoint of the continuous frontier is one, and so is each flow that windows were priced
 * with.
 */

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEEPER = 3,  /* steps for the shortest iteration, each four times steeper */
    LINES = 32,   /* of windows, over the useful range of times; half in a large pipeline */
    LARGE = 2000, /* operations, more than */
    REPEATED = 24 /* chains, from which on the middle matters more than the beginning and the end */
};

__int128 least_cost(const Problem *problem, int32_t operation, int64_t price)
{
    const int32_t *start = problem->hull_start + problem->curve[operation];
    const int64_t *ticks = problem->hull_ticks, *slope = problem->hull_slope;
    __int128 cost = 0;
    int32_t corner = start[1] - 1;
    for (; corner > start[0] && slope[corner] < price; corner--)
        cost += (__int128)slope[corner] * (ticks[corner] - ticks[corner - 1]);
    return cost + (__int128)price * ticks[corner];
}

static int enlarge(void *array, size_t bytes)
{
    void **place = array, *more = realloc(*place, bytes);
    if (more)
        *place = more;
    return !more;
}

int bound_breakpoint(Bound *bound, __int128 dual, int64_t ticks, int64_t slope)
{
    Solution *solution = bound->solution;
    if (solution->breakpoints == bound->capacity) {
        bound->capacity = bound->capacity ? 2 * bound->capacity : 1024;
        size_t bytes = sizeof(int64_t) * (size_t)bound->capacity;
        if (enlarge(&solution->breakpoint_ticks, bytes) ||
            enlarge(&solution->breakpoint_slope, bytes) ||
            enlarge(&solution->breakpoint_high, bytes) || enlarge(&solution->breakpoint_low, bytes))
            return OUT_OF_MEMORY;
    }
    solution->breakpoint_ticks[solution->breakpoints] = ticks;
    solution->breakpoint_slope[solution->breakpoints] = slope;
    solution->breakpoint_high[solution->breakpoints] = (int64_t)(dual >> 64);
    solution->breakpoint_low[solution->breakpoints++] = (uint64_t)dual;
    return 0;
}

static int add_line(Bound *bound, __int128 dual, int64_t slope)
{
    Solution *solution = bound->solution;
    if (solution->lines == bound->line_capacity) {
        bound->line_capacity = bound->line_capacity ? 2 * bound->line_capacity : LINES;
        size_t bytes = sizeof(int64_t) * (size_t)bound->line_capacity;
        if (enlarge(&solution->line_slope, bytes) || enlarge(&solution->line_high, bytes) ||
            enlarge(&solution->line_low, bytes))
            return OUT_OF_MEMORY;
    }
    solution->line_slope[solution->lines] = slope;
    solution->line_high[solution->lines] = (int64_t)(dual >> 64);
    solution->line_low[solution->lines++] = (uint64_t)dual;
    return 0;
}

static void take_flow(Bound *bound, const int64_t *flow, const int32_t *arc_of_place)
{
    const Problem *problem = bound->problem;
    int64_t *arcs = bound->flow + problem->operations;
    memcpy(bound->flow, flow, sizeof(int64_t) * (size_t)problem->operations);
    for (int32_t place = 0; place < problem->before_start[problem->operations]; place++)
        arcs[place] = flow[arc_of_place[place]];
}

/* How much flows through the whole pipeline. */
static int64_t whole_flow(const Bound *bound)
{
    const Problem *problem = bound->problem;
    int64_t whole = 0;
    for (int32_t operation = 0; operation < problem->operations; operation++)
        if (problem->before_start[operation] == problem->before_start[operation + 1])
            whole += bound->flow[operation];
    return whole;
}

static int add_windows(Bound *bound)
{
    int64_t slope = whole_flow(bound);
    __int128 dual;
    /* A line that time was over for is missing; all others hold. Where waiting costs more than flows,
     * a line rises with time: nothing follows from it for plans that take less. */
    if (slope <= bound->problem->blocking_slope ||
        windows_bound(bound->windows, bound->flow, bound->flow + bound->problem->operations, &dual))
        return 0;
    return add_line(bound, dual, slope);
}

/* Let more flow along the path that is longest with the fastest options. In the shortest iteration
 * it has no slack, whatever waiting costs there. */
static void add_to_longest(Bound *bound, int64_t amount)
{
    const Problem *problem = bound->problem;
    int64_t *arcs = bound->flow + problem->operations;
    int32_t last = 0;
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        int64_t start = 0;
        bound->by[operation] = -1;
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++) {
            int64_t end = bound->end[problem->before[place]];
            if (bound->by[operation] < 0 || end > start) {
                start = end;
                bound->by[operation] = place;
            }
        }
        bound->end[operation] =
            start + problem->option_ticks[problem->option_start[problem->curve[operation]]];
        if (bound->end[operation] > bound->end[last])
            last = operation;
    }
    for (int32_t operation = last;; operation = problem->before[bound->by[operation]]) {
        bound->flow[operation] += amount;
        if (bound->by[operation] < 0)
            break;
        arcs[bound->by[operation]] += amount;
    }
}

/* A line from a flow, and one from what suits windows better. */
static int add_both(Bound *bound, const int64_t *finish)
{
    int failed = add_windows(bound);
    if (failed || !bound->prices)
        return failed;
    prices_find(bound->prices, bound->flow, finish);
    prices_apply(bound->prices, bound->flow, bound->flow + bound->problem->operations);
    return add_windows(bound);
}

int bound_due(const Bound *bound, int64_t ticks)
{
    return bound->windows && (bound->last == 0 || bound->last - ticks >= bound->every);
}

int bound_windows(Bound *bound, int64_t ticks, const int64_t *flow, const int32_t *arc_of_place,
                  const int64_t *finish)
{
    if (!bound->windows)
        return 0;
    if (bound->last == 0)
        bound->every = (ticks - bound->fastest) /
                       (bound->problem->operations > LARGE ? LINES / 2 : LINES);
    bound->last = ticks;
    take_flow(bound, flow, arc_of_place);
    return add_both(bound, finish);
}

int bound_shortest(Bound *bound, const int64_t *flow, const int32_t *arc_of_place,
                   const int64_t *finish)
{
    int failed = bound_windows(bound, bound->fastest, flow, arc_of_place, finish);
    if (failed || !bound->windows)
        return failed;
    for (int32_t step = 0; step < STEEPER && !failed; step++) {
        take_flow(bound, flow, arc_of_place);
        int64_t whole = whole_flow(bound), most = UNBOUNDED / 8;
        add_to_longest(bound, whole < most >> (2 * step) ? whole << (2 * step) : most);
        failed = add_both(bound, finish);
    }
    return failed;
}

int bound_create(Bound *bound, const Problem *problem, const Graph *graph, Watch *watch,
                 Solution *solution)
{
    *bound = (Bound){.problem = problem, .solution = solution};
    if (problem->chains == 0)
        return 0;
    size_t places = (size_t)problem->before_start[problem->operations];
    bound->flow = malloc(sizeof(int64_t) * ((size_t)problem->operations + places));
    bound->end = malloc(sizeof(int64_t) * (size_t)problem->operations);
    bound->by = malloc(sizeof(int32_t) * (size_t)problem->operations);
    if (!bound->flow || !bound->end || !bound->by)
        return OUT_OF_MEMORY;
    int failed = windows_create(&bound->windows, problem, watch);
    if (!failed && problem->chains >= REPEATED)
        failed = prices_create(&bound->prices, problem, graph, watch, bound->windows);
    return failed;
}

void bound_destroy(Bound *bound)
{
    prices_destroy(bound->prices);
    windows_destroy(bound->windows);
    free(bound->flow);
    free(bound->end);
    free(bound->by);
}
