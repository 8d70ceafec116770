/* From the continuous frontier to executable plans.
 *
 * At each iteration time asked for, the continuous schedule is followed as closely as real options
 * allow. The best of these plans, the corners of their convex hull, are improved by exchanges, and
 * between two neighbouring corners lie plans that begin like one and end like the other: where the
 * continuous schedule has all operations between two options, those have some operations on one
 * option and the rest on the other.
 *
 * If time runs out, what was found is handed over. The continuous frontier is followed from slow to
 * fast, so where that takes more than its share of the time, the fastest plan is made without it.
 */

#define _POSIX_C_SOURCE 199309L

#include "pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COARSE = 128, BEYOND = 16, CYCLES = 4, SMALL = 512, TRIES = 600 };
static const double SWEEP_SHARE = 0.5, FASTEST_SHARE = 0.75; /* of the time, until their end */
static const double SEARCHED = 0.4; /* of the range of times, from the fastest on */

typedef struct {
    double time;
    double energy;
    uint16_t *choice;
    int improved; /* by exchanges, already */
} Plan;

typedef struct {
    const Problem *problem;
    Watch *watch;
    Plan *plans;
    int64_t count;
    int64_t capacity;
    Schedule work;
    Schedule trial;
    Schedule slow;
    Schedule fast;
    Schedule beyond; /* a little slower than the continuous schedule of least energy */
    int has_beyond;
    Patterns *patterns; /* NULL if nothing repeats */
    uint16_t *wanted;   /* room for choices */
    int64_t between;    /* plans to make between the corners */
} Pool;

/* --- when to end ------------------------------------------------------------------------------- */

double watch_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int watch_look(Watch *watch)
{
    if (*watch->cancel)
        watch->over = CANCELLED;
    else if (!watch->over && watch->ends > 0 && watch_now() >= watch->ends)
        watch->over = OUT_OF_TIME;
    return watch->over;
}

/* Go on until later, unless nobody wants it any more. */
static void watch_until(Watch *watch, double ends)
{
    watch->ends = ends;
    watch->over = 0;
    watch_look(watch);
}

/* --- keeping plans ----------------------------------------------------------------------------- */

static int keep(Pool *pool, Schedule *schedule, int improved)
{
    if (pool->count == pool->capacity) {
        int64_t capacity = pool->capacity ? 2 * pool->capacity : 1024;
        Plan *more = realloc(pool->plans, sizeof(Plan) * (size_t)capacity);
        if (!more)
            return OUT_OF_MEMORY;
        pool->plans = more;
        pool->capacity = capacity;
    }
    size_t bytes = sizeof(uint16_t) * (size_t)pool->problem->operations;
    Plan plan = {0, 0, malloc(bytes), improved};
    if (!plan.choice)
        return OUT_OF_MEMORY;
    memcpy(plan.choice, schedule->choice, bytes);
    schedule_measure(schedule, &plan.time, &plan.energy);
    pool->plans[pool->count++] = plan;
    return 0;
}

static int by_time(const void *one, const void *other)
{
    const Plan *first = one, *second = other;
    if (first->time != second->time)
        return first->time < second->time ? -1 : 1;
    if (first->energy != second->energy)
        return first->energy < second->energy ? -1 : 1;
    return second->improved - first->improved;
}

/* Leave only plans that no other beats, by rising time. */
static void prune(Pool *pool)
{
    qsort(pool->plans, (size_t)pool->count, sizeof(Plan), by_time);
    int64_t kept = 0;
    for (int64_t number = 0; number < pool->count; number++) {
        if (kept == 0 || pool->plans[number].energy < pool->plans[kept - 1].energy)
            pool->plans[kept++] = pool->plans[number];
        else
            free(pool->plans[number].choice);
    }
    pool->count = kept;
}

/* Whether plans take all of their room, or a part of it. */
static int full(const Pool *pool, int64_t part)
{
    int64_t bytes = (int64_t)sizeof(uint16_t) * pool->problem->operations;
    return pool->count * bytes >= pool->problem->room / part;
}

/* Corners of the lower convex hull, as places in the pruned pool. */
static int64_t hull(const Pool *pool, int64_t *corners)
{
    int64_t count = 0;
    const Plan *plans = pool->plans;
    for (int64_t number = 0; number < pool->count; number++) {
        const Plan *next = &plans[number];
        while (count > 1) {
            const Plan *before = &plans[corners[count - 2]], *last = &plans[corners[count - 1]];
            if ((last->energy - before->energy) * (next->time - before->time) <
                (next->energy - before->energy) * (last->time - before->time))
                break;
            count--;
        }
        corners[count++] = number;
    }
    return count;
}

static void restore(Schedule *schedule, const Plan *plan)
{
    memcpy(schedule->choice, plan->choice,
           sizeof(uint16_t) * (size_t)schedule->problem->operations);
    schedule->deadline = 0;
    schedule_refresh(schedule);
    schedule->deadline = schedule_end(schedule);
    schedule_refresh(schedule);
}

/* --- making plans ------------------------------------------------------------------------------ */

static int from_continuous(void *context, int64_t deadline, const int64_t *finish, int useful)
{
    Pool *pool = context;
    schedule_follow(&pool->work, finish, deadline);
    schedule_use_slack(&pool->work);
    if (!useful) {
        schedule_copy(&pool->beyond, &pool->work);
        pool->has_beyond = 1;
    }
    pool->problem->progress[0] += useful;
    if (full(pool, 1)) {
        prune(pool);
        if (full(pool, 2) && !pool->watch->over)
            pool->watch->over = OUT_OF_TIME;
    }
    return keep(pool, &pool->work, 0);
}

/* The shortest plan there can be, which slack makes cheaper. */
static int make_fastest(Pool *pool)
{
    Schedule *work = &pool->work;
    memset(work->choice, 0, sizeof(uint16_t) * (size_t)pool->problem->operations);
    work->deadline = 0;
    schedule_refresh(work);
    work->deadline = schedule_end(work);
    schedule_refresh(work);
    schedule_use_slack(work);
    return keep(pool, work, 0);
}

static int improve_corners(Pool *pool, const int64_t *corners, int64_t count)
{
    for (int64_t corner = 0; corner < count; corner++) {
        if (pool->plans[corners[corner]].improved)
            continue;
        if (watch_look(pool->watch) || full(pool, 1))
            return pool->watch->over ? pool->watch->over : OUT_OF_TIME;
        restore(&pool->work, &pool->plans[corners[corner]]);
        schedule_use_slack(&pool->work);
        schedule_exchange(&pool->work);
        schedule_use_slack(&pool->work);
        pool->plans[corners[corner]].improved = 1;
        int failed = keep(pool, &pool->work, 1);
        if (failed)
            return failed;
    }
    return 0;
}

/* Search around the fastest of plans that exchanges improve no more: slack is scarce there. */
static int search_around(Pool *pool, const int64_t *corners, int64_t count)
{
    double first = pool->plans[corners[0]].time, last = pool->plans[corners[count - 1]].time;
    for (int64_t corner = 0; corner < count; corner++) {
        if (pool->plans[corners[corner]].time > first + SEARCHED * (last - first))
            break;
        if (watch_look(pool->watch) || full(pool, 1))
            return pool->watch->over ? pool->watch->over : OUT_OF_TIME;
        restore(&pool->work, &pool->plans[corners[corner]]);
        schedule_search(&pool->work, &pool->trial, TRIES);
        int failed = keep(pool, &pool->work, 1);
        if (failed)
            return failed;
    }
    return 0;
}

/* The best plan of a given length that begins like one and ends like the other. */
static int splice(Pool *pool, int64_t deadline)
{
    double best_energy = 0;
    if (watch_look(pool->watch) || full(pool, 1))
        return pool->watch->over ? pool->watch->over : OUT_OF_TIME;
    for (int fast_first = 0; fast_first < 2; fast_first++) {
        double time, energy;
        schedule_splice(&pool->trial, &pool->slow, &pool->fast, deadline, fast_first);
        schedule_use_slack(&pool->trial);
        schedule_measure(&pool->trial, &time, &energy);
        if (!fast_first || energy < best_energy) {
            best_energy = energy;
            schedule_copy(&pool->work, &pool->trial);
        }
    }
    return keep(pool, &pool->work, 0);
}

static int splice_corners(Pool *pool, const int64_t *corners, int64_t count)
{
    double range = pool->plans[corners[count - 1]].time - pool->plans[corners[0]].time;
    for (int64_t corner = 0; corner + 1 < count; corner++) {
        const Plan *fast = &pool->plans[corners[corner]];
        const Plan *slow = &pool->plans[corners[corner + 1]];
        double share = (slow->time - fast->time) / range;
        int64_t between = 1 + (int64_t)((double)pool->between * share);
        restore(&pool->fast, fast);
        restore(&pool->slow, slow);
        int64_t ticks = pool->slow.deadline - pool->fast.deadline;
        for (int64_t number = 1; number <= between; number++) {
            int64_t part = ticks / (between + 1) * number;
            int failed = part > 0 ? splice(pool, pool->fast.deadline + part) : 0;
            if (failed)
                return failed;
        }
    }
    return 0;
}

/* Where options are far apart, the plan of least energy may be slower than that schedule. */
static int look_beyond(Pool *pool)
{
    prune(pool);
    restore(&pool->fast, &pool->plans[pool->count - 1]);
    schedule_copy(&pool->slow, &pool->beyond);
    pool->slow.deadline = schedule_end(&pool->slow);
    int64_t ticks = pool->slow.deadline - pool->fast.deadline;
    for (int64_t number = 1; number < BEYOND && ticks >= BEYOND; number++) {
        int failed = splice(pool, pool->fast.deadline + ticks / BEYOND * number);
        if (failed)
            return failed;
    }
    return 0;
}

/* --- plans that repeat ------------------------------------------------------------------------- */

/* The plan of a pruned pool whose time is nearest; only the first `count` are asked. */
static const Plan *nearest(const Pool *pool, int64_t count, double time)
{
    const Plan *best = &pool->plans[0];
    for (int64_t number = 1; number < count; number++)
        if (fabs(pool->plans[number].time - time) < fabs(best->time - time))
            best = &pool->plans[number];
    return best;
}

/* Keep the plan of these choices, however long it takes, with slack used. */
static int keep_choices(Pool *pool, const uint16_t *choice)
{
    Schedule *work = &pool->work;
    memcpy(work->choice, choice, sizeof(uint16_t) * (size_t)pool->problem->operations);
    work->deadline = 0;
    schedule_refresh(work);
    work->deadline = schedule_end(work);
    schedule_refresh(work);
    schedule_use_slack(work);
    return keep(pool, work, 0);
}

/* Plans that repeat a best cycle, and begin and end like one of about the same length. */
static int make_periodic(Pool *pool)
{
    Schedule *work = &pool->work;
    prune(pool);
    int64_t count = pool->count;
    for (int32_t number = 0; number < patterns_count(pool->patterns); number++) {
        int64_t cycle = patterns_cycle(pool->patterns, number);
        double stretch = (double)cycle / (double)patterns_cycle(pool->patterns, 0);
        int64_t base = nearest(pool, count, pool->plans[0].time * stretch) - pool->plans;
        for (int everywhere = 0; everywhere < 2; everywhere++) {
            if (watch_look(pool->watch) || full(pool, 1))
                return pool->watch->over ? pool->watch->over : OUT_OF_TIME;
            memcpy(pool->wanted, pool->plans[base].choice,
                   sizeof(uint16_t) * (size_t)pool->problem->operations);
            patterns_apply(pool->patterns, cycle, everywhere, pool->wanted);
            int failed = keep_choices(pool, pool->wanted);
            if (failed)
                return failed;
            restore(work, &pool->plans[base]);
            schedule_toward(work, pool->wanted);
            schedule_use_slack(work);
            failed = keep(pool, work, 0);
            if (failed)
                return failed;
        }
    }
    return 0;
}

/* Plans that repeat the best cycles of each corner. */
static int tile_corners(Pool *pool, const int64_t *corners, int64_t count)
{
    int64_t ticks = 0, cost = 0;
    for (int64_t corner = 0; corner < count; corner++) {
        restore(&pool->trial, &pool->plans[corners[corner]]);
        double slope = (double)(cost - pool->trial.cost) / (double)(pool->trial.deadline - ticks);
        ticks = pool->trial.deadline;
        cost = pool->trial.cost;
        for (int32_t cycles = 1; corner > 0 && cycles <= CYCLES; cycles++) {
            if (watch_look(pool->watch) || full(pool, 1))
                return pool->watch->over ? pool->watch->over : OUT_OF_TIME;
            memcpy(pool->wanted, pool->trial.choice,
                   sizeof(uint16_t) * (size_t)pool->problem->operations);
            if (!patterns_tile(pool->patterns, &pool->trial, slope, cycles, pool->wanted))
                break;
            int failed = keep_choices(pool, pool->wanted);
            if (failed)
                return failed;
        }
    }
    return 0;
}

/* --- rounds ------------------------------------------------------------------------------------ */

typedef int (*Step)(Pool *pool, const int64_t *corners, int64_t count);

/* Leave only plans that no other beats, and do something with the best ones, or with all. */
static int with_best(Pool *pool, Step step, int all)
{
    prune(pool);
    int64_t *corners = malloc(sizeof(int64_t) * (size_t)pool->count), count = pool->count;
    if (!corners)
        return OUT_OF_MEMORY;
    if (all)
        for (int64_t number = 0; number < count; number++)
            corners[number] = number;
    else
        count = hull(pool, corners);
    int failed = step(pool, corners, count);
    free(corners);
    return failed;
}

static int improve(Pool *pool)
{
    const Problem *problem = pool->problem;
    int failed = pool->has_beyond ? look_beyond(pool) : 0;
    if (!failed && pool->patterns)
        failed = make_periodic(pool);
    for (int32_t round = 0; !failed && round <= problem->rounds; round++) {
        problem->progress[0] = problem->plans; /* though the sweep may have ended early */
        problem->progress[1] = round + 1;
        pool->between = round < problem->rounds && problem->plans > COARSE ? COARSE
                                                                             : problem->plans;
        failed = with_best(pool, improve_corners, 0);
        if (!failed && pool->patterns && round == 0)
            failed = with_best(pool, tile_corners, 0);
        if (!failed && problem->operations <= SMALL && round == problem->rounds &&
            problem->plans > COARSE)
            failed = with_best(pool, search_around, 0);
        if (!failed)
            failed = with_best(pool, splice_corners, 0);
    }
    for (int turn = 0; !failed && turn < 2 && problem->operations <= SMALL; turn++)
        failed = with_best(pool, improve_corners, 1);
    prune(pool);
    return failed;
}

/* --- in and out -------------------------------------------------------------------------------- */

static int make_graph(const Problem *problem, Graph *graph)
{
    int32_t operations = problem->operations, arcs = problem->before_start[operations];
    graph->after_start = calloc((size_t)operations + 2, sizeof(int32_t));
    graph->after = calloc((size_t)arcs + 1, sizeof(int32_t));
    graph->first = calloc((size_t)operations, sizeof(int32_t));
    graph->options = calloc((size_t)operations, sizeof(int32_t));
    if (!graph->after_start || !graph->after || !graph->first || !graph->options)
        return OUT_OF_MEMORY;
    for (int32_t operation = 0; operation < operations; operation++) {
        const int32_t *start = problem->option_start + problem->curve[operation];
        graph->first[operation] = start[0];
        graph->options[operation] = start[1] - start[0];
    }
    /* One place ahead, so that filling in leaves the starts where they belong. */
    int32_t *next = graph->after_start + 1;
    for (int32_t place = 0; place < arcs; place++)
        next[problem->before[place] + 1]++;
    for (int32_t operation = 0; operation < operations; operation++)
        next[operation + 1] += next[operation];
    for (int32_t operation = 0; operation < operations; operation++)
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++)
            graph->after[next[problem->before[place]]++] = operation;
    return 0;
}

static void free_graph(Graph *graph)
{
    free(graph->after_start);
    free(graph->after);
    free(graph->first);
    free(graph->options);
}

static int hand_over(Pool *pool, Solution *solution)
{
    prune(pool);
    size_t operations = (size_t)pool->problem->operations, count = (size_t)pool->count;
    solution->plans = pool->count;
    solution->time = malloc(sizeof(double) * count);
    solution->energy = malloc(sizeof(double) * count);
    solution->choice = malloc(sizeof(uint16_t) * count * operations);
    if (!solution->time || !solution->energy || !solution->choice)
        return OUT_OF_MEMORY;
    for (size_t number = 0; number < count; number++) {
        solution->time[number] = pool->plans[number].time;
        solution->energy[number] = pool->plans[number].energy;
        memcpy(solution->choice + number * operations, pool->plans[number].choice,
               sizeof(uint16_t) * operations);
        free(pool->plans[number].choice);
        pool->plans[number].choice = NULL;
    }
    return 0;
}

void zeus_pipeline_free(Solution *solution)
{
    free(solution->breakpoint_ticks);
    free(solution->breakpoint_slope);
    free(solution->breakpoint_high);
    free(solution->breakpoint_low);
    free(solution->line_slope);
    free(solution->line_high);
    free(solution->line_low);
    free(solution->time);
    free(solution->energy);
    free(solution->choice);
    memset(solution, 0, sizeof *solution);
}

static int find_plans(Pool *pool, const Graph *graph, Solution *solution)
{
    const Problem *problem = pool->problem;
    Watch *watch = pool->watch;
    double began = watch_now(), seconds = problem->seconds;
    watch_until(watch, seconds > 0 ? began + SWEEP_SHARE * seconds : 0);
    int failed = sweep(problem, graph, watch, from_continuous, pool, solution);
    int swept = !failed;
    if (failed == OUT_OF_TIME) {
        watch_until(watch, seconds > 0 ? began + FASTEST_SHARE * seconds : 0);
        failed = make_fastest(pool);
        pool->has_beyond = 0; /* better fast plans are worth more than slow ones */
    }
    if (failed)
        return failed;
    watch_until(watch, seconds > 0 ? began + seconds : 0);
    failed = improve(pool);
    if (!failed)
        failed = watch->over;
    solution->refined = swept && !failed;
    return failed == OUT_OF_TIME ? 0 : failed;
}

/* 0, OUT_OF_MEMORY or CANCELLED; the solution is to be freed in all cases. */
int zeus_pipeline_solve(const Problem *problem, Solution *solution)
{
    Watch watch = {.cancel = problem->cancel};
    Pool pool = {.problem = problem, .watch = &watch};
    Graph graph = {0};
    memset(solution, 0, sizeof *solution);
    int failed = make_graph(problem, &graph) ||
                 schedule_create(&pool.work, problem, &graph, &watch) ||
                 schedule_create(&pool.trial, problem, &graph, &watch) ||
                 schedule_create(&pool.slow, problem, &graph, &watch) ||
                 schedule_create(&pool.fast, problem, &graph, &watch) ||
                 schedule_create(&pool.beyond, problem, &graph, &watch) ||
                 (problem->chains > 0 && patterns_create(&pool.patterns, problem));
    pool.wanted = malloc(sizeof(uint16_t) * (size_t)problem->operations);
    if (!pool.wanted)
        failed = OUT_OF_MEMORY;
    if (!failed)
        failed = find_plans(&pool, &graph, solution);
    if (!failed)
        failed = hand_over(&pool, solution);
    for (int64_t number = 0; number < pool.count; number++)
        free(pool.plans[number].choice);
    free(pool.plans);
    free(pool.wanted);
    patterns_destroy(pool.patterns);
    schedule_destroy(&pool.work);
    schedule_destroy(&pool.trial);
    schedule_destroy(&pool.slow);
    schedule_destroy(&pool.fast);
    schedule_destroy(&pool.beyond);
    free_graph(&graph);
    return failed;
}
