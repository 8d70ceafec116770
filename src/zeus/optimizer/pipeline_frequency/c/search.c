/* A random search around a plan, for gains that no single exchange has.
 *
 * A few operations that are near each other get faster, one of those around them gets slower, and
 * slack and exchanges do the rest. What is not better is undone. Only what a try has touched is
 * considered again, so a try costs microseconds, whatever the size of the pipeline. The same numbers
 * are drawn in every run.
 */

#include "pipeline.h"

#include <string.h>

enum { FASTER = 4, STEPS = 3 }; /* operations of a try, and options by which one gets faster, at most */

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*state >> 32) * below) >> 32);
}

/* An operation that waits for this one, or that it waits for; itself if there is none. */
static int32_t neighbour(const Schedule *schedule, int32_t operation, uint64_t *state)
{
    const Problem *problem = schedule->problem;
    const Graph *graph = schedule->graph;
    int32_t before = problem->before_start[operation + 1] - problem->before_start[operation];
    int32_t after = graph->after_start[operation + 1] - graph->after_start[operation];
    if (before + after == 0)
        return operation;
    int32_t place = (int32_t)draw(state, (uint32_t)(before + after));
    return place < before ? problem->before[problem->before_start[operation] + place]
                          : graph->after[graph->after_start[operation] + place - before];
}

static void disturb(Schedule *schedule, uint64_t *state)
{
    uint32_t operations = (uint32_t)schedule->problem->operations;
    int32_t operation = (int32_t)draw(state, operations);
    uint32_t count = 1 + draw(state, FASTER);
    for (uint32_t number = 0; number < count; number++) {
        int32_t option = schedule->choice[operation] - 1 - (int32_t)draw(state, STEPS);
        if (schedule->choice[operation] > 0)
            schedule_choose(schedule, operation, option < 0 ? 0 : option);
        operation = neighbour(schedule, operation, state);
    }
    for (int turn = 0; turn < 2; turn++) {
        operation = neighbour(schedule, operation, state);
        int32_t least = schedule->choice[operation];
        int32_t most = schedule_slowest(schedule, operation);
        if (most > least)
            schedule_choose(schedule, operation,
                            least + 1 + (int32_t)draw(state, (uint32_t)(most - least)));
    }
}

void schedule_search(Schedule *schedule, Schedule *best, int32_t tries)
{
    size_t operations = (size_t)schedule->problem->operations;
    uint64_t state = 20240229;
    schedule_copy(best, schedule);
    for (int32_t number = 0; number < tries && !watch_over(schedule->watch); number++) {
        memset(schedule->touched, 0, operations);
        disturb(schedule, &state);
        schedule_repair(schedule);
        if (schedule->cost <= best->cost)
            schedule_copy(best, schedule); /* also where it is equal, to get away from here */
        else
            schedule_copy(schedule, best);
    }
    schedule_copy(schedule, best);
}
