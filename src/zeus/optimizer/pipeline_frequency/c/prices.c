/* Prices that raise the bound of windows: more flow along one rank, less along another.
 *
 * The flow of the continuous frontier is the best one without windows. With them another is better,
 * and as the middle of the iteration repeats, the best prices of ranks are found for one of its
 * cycles (by subgradients: the bound is concave in them). Then as much is added to the flow, or taken
 * from it, along a path through each rank.
 */

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 40, STALLED = 6 };
static const double HOPE = 0.02; /* part of the cost that the bound may be expected to rise by */

struct Prices {
    const Problem *problem;
    const Graph *graph;
    Windows *windows;
    Watch *watch;
    int32_t chain;                /* in the middle, of all that are longest */
    int32_t ranks;                /* its members */
    double *price;                /* of each rank */
    double *best;
    double *length;               /* derivative of the bound by each */
    int32_t *path;                /* operations */
    int32_t *places;              /* arcs between them, as places in `before` */
};

static const int32_t *members_of(const Prices *prices)
{
    return prices->problem->chain_member + 4 * prices->problem->chain_start[prices->chain];
}

/* --- a path with flow -------------------------------------------------------------------------- */

static int32_t place_between(const Problem *problem, int32_t before, int32_t after)
{
    int32_t place = problem->before_start[after];
    while (problem->before[place] != before)
        place++;
    return place;
}

/* Operations and arcs on the way of most flow through an operation; returns how many operations. */
static int32_t find_path(const Prices *prices, int32_t through, const int64_t *arcs,
                         int32_t *between)
{
    const Problem *problem = prices->problem;
    const Graph *graph = prices->graph;
    int32_t count = 0;
    *between = 0;
    prices->path[count++] = through;
    for (int32_t at = through; problem->before_start[at] < problem->before_start[at + 1];) {
        int32_t best = problem->before_start[at];
        for (int32_t place = best; place < problem->before_start[at + 1]; place++)
            if (arcs[place] > arcs[best])
                best = place;
        prices->places[(*between)++] = best;
        prices->path[count++] = at = problem->before[best];
    }
    for (int32_t at = through; graph->after_start[at] < graph->after_start[at + 1];) {
        int32_t best = -1;
        for (int32_t next = graph->after_start[at]; next < graph->after_start[at + 1]; next++) {
            int32_t place = place_between(problem, at, graph->after[next]);
            if (best < 0 || arcs[place] > arcs[best])
                best = place;
            if (best == place)
                prices->path[count] = graph->after[next];
        }
        prices->places[(*between)++] = best;
        at = prices->path[count++];
    }
    return count;
}

/* Change the flow along a path through a rank; never to less than none. */
static void change(const Prices *prices, int32_t through, int64_t amount, int64_t *operations,
                   int64_t *arcs)
{
    int32_t between, count = find_path(prices, through, arcs, &between);
    for (int32_t step = 0; step < count; step++)
        if (operations[prices->path[step]] + amount < 0)
            amount = -operations[prices->path[step]];
    for (int32_t step = 0; step < between; step++)
        if (arcs[prices->places[step]] + amount < 0)
            amount = -arcs[prices->places[step]];
    for (int32_t step = 0; step < count; step++)
        operations[prices->path[step]] += amount;
    for (int32_t step = 0; step < between; step++)
        arcs[prices->places[step]] += amount;
}

void prices_apply(const Prices *prices, int64_t *operations, int64_t *arcs)
{
    const int32_t *members = members_of(prices);
    const double most = (double)(UNBOUNDED / 8 / prices->ranks); /* the whole flow has to fit */
    for (int32_t rank = 0; rank < prices->ranks; rank++) {
        double more = prices->best[rank] - prices->price[rank];
        more = more < most ? more : most;
        change(prices, members[4 * rank], (int64_t)more, operations, arcs);
    }
}

/* --- the best prices --------------------------------------------------------------------------- */

void prices_find(Prices *prices, const int64_t *operations, const int64_t *finish)
{
    const int32_t *members = members_of(prices);
    size_t bytes = sizeof(double) * (size_t)prices->ranks;
    int64_t cycle = finish[members[2]] - finish[members[0]];
    double best = 0, step = 0.5, hope = 0;
    double *trial = prices->length + prices->ranks;
    for (int32_t rank = 0; rank < prices->ranks; rank++)
        trial[rank] = prices->best[rank] = prices->price[rank] =
            (double)operations[members[4 * rank]];
    int32_t stalled = 0;
    for (int32_t number = 0; number < TRIES && !watch_over(prices->watch); number++) {
        double value = windows_cycle(prices->windows, prices->chain, trial, prices->length);
        double norm = 0;
        for (int32_t rank = 0; rank < prices->ranks; rank++) {
            prices->length[rank] -= (double)cycle;
            value -= trial[rank] * (double)cycle;
            norm += prices->length[rank] * prices->length[rank];
        }
        if (number == 0)
            hope = value < 0 ? -HOPE * value : HOPE * value;
        if (number == 0 || value > best) {
            best = value;
            memcpy(prices->best, trial, bytes);
            stalled = 0;
        } else if (++stalled == STALLED) {
            step *= 0.6;
            stalled = 0;
            memcpy(trial, prices->best, bytes);
            continue;
        }
        if (norm == 0)
            break;
        for (int32_t rank = 0; rank < prices->ranks; rank++) {
            trial[rank] += step * (best + hope - value) / norm * prices->length[rank];
            if (trial[rank] < 0)
                trial[rank] = 0;
        }
    }
}

/* --- room -------------------------------------------------------------------------------------- */

int prices_create(Prices **created, const Problem *problem, const Graph *graph, Watch *watch,
                  Windows *windows)
{
    Prices *prices = *created = calloc(1, sizeof(Prices));
    if (!prices)
        return OUT_OF_MEMORY;
    prices->problem = problem;
    prices->graph = graph;
    prices->windows = windows;
    prices->watch = watch;
    int32_t longest = 0;
    for (int32_t chain = 0; chain < problem->chains; chain++) {
        int32_t count = problem->chain_start[chain + 1] - problem->chain_start[chain];
        longest = count > prices->ranks ? 1 : longest + (count == prices->ranks);
        prices->ranks = count > prices->ranks ? count : prices->ranks;
    }
    for (int32_t chain = 0, left = longest / 2; left >= 0; chain++)
        if (problem->chain_start[chain + 1] - problem->chain_start[chain] == prices->ranks) {
            prices->chain = chain;
            left--;
        }
    size_t ranks = (size_t)prices->ranks, operations = (size_t)problem->operations;
    prices->price = malloc(ranks * sizeof(double));
    prices->best = malloc(ranks * sizeof(double));
    prices->length = malloc(2 * ranks * sizeof(double));
    prices->path = malloc((operations + 1) * sizeof(int32_t));
    prices->places = malloc((operations + 1) * sizeof(int32_t));
    if (prices->price && prices->best && prices->length && prices->path && prices->places)
        return 0;
    return OUT_OF_MEMORY;
}

void prices_destroy(Prices *prices)
{
    if (!prices)
        return;
    free(prices->price);
    free(prices->best);
    free(prices->length);
    free(prices->path);
    free(prices->places);
    free(prices);
}
