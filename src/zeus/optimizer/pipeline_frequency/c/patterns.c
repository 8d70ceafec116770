/* Patterns: options of one cycle of each rank that repeat through the middle of the iteration.
 *
 * Where ranks run forward and backward in turn (the chains of `windows.c`), a rank keeps up with the
 * others if its two operations take no longer than a cycle. So for every length of a cycle, the best
 * pair of options of each rank is known, and the best lengths are the corners of the lower convex
 * hull of what all ranks cost.
 */

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

/* The pairs of options of a rank that none beats, by rising sum of times. */
typedef struct {
    int32_t curve[2];
    int32_t count;
    int64_t *ticks;
    int64_t *cost;
    uint16_t (*choice)[2];
} Steps;

struct Patterns {
    const Problem *problem;
    Steps *ranks;
    int32_t count;                /* of ranks that differ */
    int64_t *cycles;              /* lengths of the best cycles, rising */
    int32_t corners;
    int32_t first;                /* of the chains in the middle, where all ranks take part */
    int32_t last;
    double *sums;                 /* room for sums over them */
};

typedef struct {
    int64_t ticks;
    int64_t cost;
    uint16_t choice[2];
} Entry;

static int by_ticks(const void *one, const void *other)
{
    const Entry *first = one, *second = other;
    if (first->ticks != second->ticks)
        return first->ticks < second->ticks ? -1 : 1;
    return first->cost < second->cost ? -1 : first->cost > second->cost;
}

static int fill_steps(Steps *steps, const Problem *problem, int32_t one, int32_t other)
{
    const int32_t *starts = problem->option_start;
    int32_t firsts = starts[one + 1] - starts[one], seconds = starts[other + 1] - starts[other];
    size_t count = (size_t)firsts * (size_t)seconds;
    Entry *sorted = malloc(sizeof(Entry) * count);
    *steps = (Steps){{one, other}, 0, malloc(sizeof(int64_t) * count),
                     malloc(sizeof(int64_t) * count), malloc(2 * sizeof(uint16_t) * count)};
    if (!sorted || !steps->ticks || !steps->cost || !steps->choice) {
        free(sorted);
        return OUT_OF_MEMORY;
    }
    size_t place = 0;
    for (int32_t first = 0; first < firsts; first++)
        for (int32_t second = 0; second < seconds; second++)
            sorted[place++] = (Entry){
                problem->option_ticks[starts[one] + first] +
                    problem->option_ticks[starts[other] + second],
                problem->option_cost[starts[one] + first] +
                    problem->option_cost[starts[other] + second],
                {(uint16_t)first, (uint16_t)second}};
    qsort(sorted, count, sizeof(Entry), by_ticks);
    for (place = 0; place < count; place++) {
        if (steps->count > 0 && sorted[place].cost >= steps->cost[steps->count - 1])
            continue;
        steps->ticks[steps->count] = sorted[place].ticks;
        steps->cost[steps->count] = sorted[place].cost;
        memcpy(steps->choice[steps->count++], sorted[place].choice, sizeof sorted[place].choice);
    }
    free(sorted);
    return 0;
}

/* Place of the last pair that takes no longer than a cycle; -1 if there is none. */
static int32_t within(const Steps *steps, int64_t cycle)
{
    int32_t low = -1, high = steps->count - 1;
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (steps->ticks[middle] <= cycle)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static const Steps *steps_of(const Patterns *patterns, int32_t one, int32_t other)
{
    for (int32_t rank = 0; rank < patterns->count; rank++)
        if (patterns->ranks[rank].curve[0] == one && patterns->ranks[rank].curve[1] == other)
            return &patterns->ranks[rank];
    return NULL;
}

static int ascending(const void *one, const void *other)
{
    int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
    return first < second ? -1 : first > second;
}

/* Keep the corners of the lower convex hull of what cycles cost. */
static int find_corners(Patterns *patterns)
{
    int64_t shortest = 0;
    size_t total = 0;
    for (int32_t rank = 0; rank < patterns->count; rank++) {
        total += (size_t)patterns->ranks[rank].count;
        if (patterns->ranks[rank].ticks[0] > shortest)
            shortest = patterns->ranks[rank].ticks[0];
    }
    int64_t *cycles = malloc(sizeof(int64_t) * (total + 1));
    int64_t *costs = malloc(sizeof(int64_t) * (total + 1));
    patterns->cycles = cycles;
    if (!cycles || !costs) {
        free(costs);
        return OUT_OF_MEMORY;
    }
    size_t count = 0;
    for (int32_t rank = 0; rank < patterns->count; rank++)
        for (int32_t step = 0; step < patterns->ranks[rank].count; step++)
            if (patterns->ranks[rank].ticks[step] >= shortest)
                cycles[count++] = patterns->ranks[rank].ticks[step];
    qsort(cycles, count, sizeof(int64_t), ascending);
    int32_t corners = 0;
    for (size_t number = 0; number < count; number++) {
        int64_t cycle = cycles[number], cost = 0;
        for (int32_t rank = 0; rank < patterns->count; rank++) {
            const Steps *steps = &patterns->ranks[rank];
            cost += steps->cost[within(steps, cycle)];
        }
        if (corners > 0 && cost >= costs[corners - 1])
            continue;
        for (; corners > 1; corners--) {
            __int128 width = cycle - cycles[corners - 2];
            __int128 last = (__int128)(costs[corners - 1] - costs[corners - 2]) * width;
            if (last < (__int128)(cost - costs[corners - 2]) *
                           (cycles[corners - 1] - cycles[corners - 2]))
                break;
        }
        cycles[corners] = cycle;
        costs[corners++] = cost;
    }
    free(costs);
    patterns->corners = corners;
    return 0;
}

static int32_t members_of(const Problem *problem, int32_t chain)
{
    return problem->chain_start[chain + 1] - problem->chain_start[chain];
}

/* Whether the operations of two chains have the same options. */
static int alike(const Problem *problem, int32_t one, int32_t other)
{
    const int32_t *first = problem->chain_member + 4 * problem->chain_start[one];
    const int32_t *second = problem->chain_member + 4 * problem->chain_start[other];
    if (members_of(problem, one) != members_of(problem, other))
        return 0;
    for (int32_t place = 0; place < 4 * members_of(problem, one); place++)
        if (place % 4 != 3 && problem->curve[first[place]] != problem->curve[second[place]])
            return 0;
    return 1;
}

/* The most successive chains that are alike, of all that are longest. */
static void find_middle(Patterns *patterns)
{
    const Problem *problem = patterns->problem;
    for (int32_t first = 0, last; first < problem->chains; first = last + 1) {
        for (last = first; last + 1 < problem->chains && alike(problem, first, last + 1);)
            last++;
        int32_t longer = members_of(problem, first) - members_of(problem, patterns->first);
        if (longer > 0 || (longer == 0 && last - first > patterns->last - patterns->first)) {
            patterns->first = first;
            patterns->last = last;
        }
    }
}

int patterns_create(Patterns **created, const Problem *problem)
{
    int32_t members = problem->chain_start[problem->chains];
    Patterns *patterns = *created = calloc(1, sizeof(Patterns));
    if (!patterns)
        return OUT_OF_MEMORY;
    patterns->problem = problem;
    patterns->ranks = calloc((size_t)members + 1, sizeof(Steps));
    patterns->sums = malloc(2 * sizeof(double) * ((size_t)problem->chains + 2));
    if (!patterns->ranks || !patterns->sums)
        return OUT_OF_MEMORY;
    find_middle(patterns);
    for (int32_t place = 0; place < members; place++) {
        const int32_t *member = problem->chain_member + 4 * place;
        int32_t one = problem->curve[member[0]], other = problem->curve[member[1]];
        if (!steps_of(patterns, one, other) &&
            fill_steps(&patterns->ranks[patterns->count++], problem, one, other))
            return OUT_OF_MEMORY;
    }
    return patterns->count > 0 ? find_corners(patterns) : 0;
}

void patterns_destroy(Patterns *patterns)
{
    if (!patterns)
        return;
    for (int32_t rank = 0; rank < patterns->count; rank++) {
        free(patterns->ranks[rank].ticks);
        free(patterns->ranks[rank].cost);
        free(patterns->ranks[rank].choice);
    }
    free(patterns->ranks);
    free(patterns->sums);
    free(patterns->cycles);
    free(patterns);
}

int32_t patterns_count(const Patterns *patterns)
{
    return patterns->corners;
}

int64_t patterns_cycle(const Patterns *patterns, int32_t number)
{
    return patterns->cycles[number];
}

void patterns_apply(const Patterns *patterns, int64_t cycle, int everywhere, uint16_t *choice)
{
    const Problem *problem = patterns->problem;
    for (int32_t chain = 0; chain < problem->chains; chain++) {
        if (!everywhere && (chain < patterns->first || chain > patterns->last))
            continue;
        for (int32_t place = problem->chain_start[chain]; place < problem->chain_start[chain + 1];
             place++) {
            const int32_t *member = problem->chain_member + 4 * place;
            const Steps *steps =
                steps_of(patterns, problem->curve[member[0]], problem->curve[member[1]]);
            int32_t step = within(steps, cycle);
            choice[member[0]] = steps->choice[step < 0 ? 0 : step][0];
            choice[member[1]] = steps->choice[step < 0 ? 0 : step][1];
        }
    }
}

/* --- a plan's own cycles ----------------------------------------------------------------------- */

/* What the two operations of all ranks cost in a chain, and when they start on average. */
static void sum_chain(const Schedule *schedule, int32_t chain, double *cost, double *start)
{
    const Problem *problem = schedule->problem;
    *cost = *start = 0;
    for (int32_t place = problem->chain_start[chain]; place < problem->chain_start[chain + 1];
         place++) {
        const int32_t *member = problem->chain_member + 4 * place;
        for (int32_t part = 0; part < 2; part++)
            *cost += (double)problem->option_cost[schedule->graph->first[member[part]] +
                                                  schedule->choice[member[part]]];
        *start += (double)schedule->earliest[member[0]] / members_of(problem, chain);
    }
}

int patterns_tile(const Patterns *patterns, const Schedule *schedule, double slope, int32_t cycles,
                  uint16_t *choice)
{
    const Problem *problem = patterns->problem;
    int32_t count = patterns->last - patterns->first + 1, best = -1;
    double *cost = patterns->sums, *start = patterns->sums + count + 1, least = 0;
    if (count < 2 * cycles + 1)
        return 0;
    double total = 0;
    for (int32_t number = 0; number < count; number++) {
        double own;
        sum_chain(schedule, patterns->first + number, &own, &start[number]);
        cost[number] = total;
        total += own;
    }
    for (int32_t number = 0; number + cycles < count; number++) {
        double value = cost[number + cycles] - cost[number] +
                       slope * (start[number + cycles] - start[number]);
        if (best < 0 || value < least) {
            least = value;
            best = number;
        }
    }
    const int32_t *starts = problem->chain_start + patterns->first;
    for (int32_t number = 0; number < count; number++) {
        int32_t like = ((number - best) % cycles + cycles) % cycles + best;
        const int32_t *own = problem->chain_member + 4 * starts[number];
        const int32_t *other = problem->chain_member + 4 * starts[like];
        for (int32_t member = 0; member < members_of(problem, patterns->first); member++)
            for (int32_t part = 0; part < 2; part++)
                choice[own[4 * member + part]] = schedule->choice[other[4 * member + part]];
    }
    return 1;
}
