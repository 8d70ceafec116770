/* The search for the fastest schedule under a cap of power, and a bound on the swing.
 *
 * Guides come from plans without a cap. The schedules of the best ones are improved by trying
 * changes of what operations wish for: those that decide when the iteration ends get faster, and
 * others that draw power at the same time slower. The random numbers are the same in each run.
 */

#include "capped.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 3, STARTS = 8 };

#define THRESHOLD 0.001 /* by which share a change may be worse at first */
#define ENERGY 0.05     /* weight of energy, as time at the cap: what is left over is for others */

typedef struct {
    Scheduler state;
    const CapProblem *problem;
    size_t count;
    uint64_t random;
    int through;                  /* whether to search among those that exceed the swing as well */
    uint16_t *wish;
    uint16_t *trial;
    int32_t *critical;            /* operations that decide when the iteration ends */
    Outcome best;                 /* of this start, and its schedule */
    uint16_t *choice;
    double *start;
    Outcome first;                /* of all starts */
    uint16_t *first_choice;
    double *first_start;
} Search;

static uint32_t any(Search *search, uint32_t below)
{
    search->random ^= search->random << 13;
    search->random ^= search->random >> 7;
    search->random ^= search->random << 17;
    return (uint32_t)((search->random >> 32) % below);
}

/* --- what is better ---------------------------------------------------------------------------- */

/* Watts by which the swing exceeds its bound. */
static double beyond(const Search *search, const Outcome *outcome)
{
    double more = outcome->peak - outcome->low - search->problem->swing;
    return more > GUARD * search->state.room ? more : 0;
}

static double room_of(const Search *search)
{
    return search->state.room > 1 ? search->state.room : 1;
}

/* Seconds; any schedule that keeps the swing is better than one that does not. */
static double judged(const Search *search, const Outcome *outcome)
{
    double more = beyond(search, outcome);
    return more > 0 ? outcome->time * (1.5 + more / room_of(search)) : outcome->time;
}

/* The same; or without a step, for the search to go through schedules that do not keep it yet. */
static double weighed(const Search *search, const Outcome *outcome)
{
    if (!search->through)
        return judged(search, outcome);
    return outcome->time * (1 + beyond(search, outcome) / room_of(search));
}

static double level_of(const Search *search, const Outcome *outcome)
{
    return weighed(search, outcome) + ENERGY * outcome->cost / room_of(search);
}

static void keep(Search *search, const Outcome *outcome)
{
    search->best = *outcome;
    memcpy(search->choice, search->state.now.choice, search->count * sizeof(uint16_t));
    memcpy(search->start, search->state.now.start, search->count * sizeof(double));
}

/* --- what to change ---------------------------------------------------------------------------- */

/* The operations that follow each other without a gap up to the end, last one first. */
static int32_t chain(Search *search, double time)
{
    const CapProblem *problem = search->problem;
    const Times *now = &search->state.now;
    int32_t count = 0, operation = -1;
    for (int32_t other = problem->operations - 1; other >= 0 && operation < 0; other--)
        if (now->end[other] == time)
            operation = other;
    while (operation >= 0 && count < problem->operations) {
        double start = now->start[operation];
        int32_t previous = -1;
        search->critical[count++] = operation;
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++)
            if (now->end[problem->before[place]] == start)
                previous = problem->before[place];
        if (previous < 0 && start > 0)
            /* It waited for power: for one that ended then. */
            for (int32_t other = 0; other < problem->operations && previous < 0; other++)
                if (now->end[other] == start && now->start[other] < start)
                    previous = other;
        operation = previous;
    }
    return count;
}

/* Let an operation that runs between two times draw less, or more: another than `without`. */
static void change_between(Search *search, double from, double until, int32_t without, int less)
{
    const Scheduler *state = &search->state;
    int32_t found = -1;
    uint32_t seen = 0;
    for (int32_t other = 0; other < search->problem->operations; other++) {
        if (state->now.start[other] > until || state->now.end[other] <= from || other == without)
            continue;
        int32_t option = state->now.choice[other];
        if (less ? option + 1 < options_of(state, other) : option > 0)
            if (!any(search, ++seen))
                found = other;
    }
    if (found >= 0)
        search->trial[found] = (uint16_t)(state->now.choice[found] + (less ? 1 : -1));
}

/* Let all operations of a kind in a part of the iteration draw somewhat less, or more. */
static void change_kind(Search *search, double time, int32_t by)
{
    const Scheduler *state = &search->state;
    const CapProblem *problem = search->problem;
    int32_t kind = problem->curve[any(search, (uint32_t)problem->operations)];
    double length = time / (1 << any(search, 4)), from = (time - length) * any(search, 1000) / 1000;
    for (int32_t other = 0; other < problem->operations; other++) {
        if (problem->curve[other] != kind || state->now.start[other] < from ||
            state->now.start[other] > from + length)
            continue;
        int32_t option = state->now.choice[other] + by;
        if (option >= 0 && option < options_of(state, other))
            search->trial[other] = (uint16_t)option;
    }
}

/* Change some wishes of the schedule that was run last. */
static void vary(Search *search, const Outcome *outcome, int32_t critical)
{
    const Times *now = &search->state.now;
    memcpy(search->trial, search->wish, search->count * sizeof(uint16_t));
    if (beyond(search, outcome) > 0 && any(search, 2)) {
        change_between(search, outcome->low_at, outcome->low_at, -1, 0);
        return;
    }
    if (!any(search, 3)) {
        int32_t by = any(search, 2) ? 1 : -1;
        change_kind(search, outcome->time, by);
        if (any(search, 2))
            change_kind(search, outcome->time, -by);
        return;
    }
    for (int32_t changes = 1 + (int32_t)any(search, MOST_STEPS); changes > 0; changes--) {
        int32_t operation = search->critical[any(search, (uint32_t)critical)];
        double start = now->start[operation], end = now->end[operation];
        int32_t option = now->choice[operation];
        if (option > search->wish[operation] || !any(search, 3))
            change_between(search, start, any(search, 2) ? end : start, operation, 1);
        if (option && any(search, 4)) {
            int32_t faster = 1 + (int32_t)any(search, MOST_STEPS);
            search->trial[operation] = (uint16_t)(option > faster ? option - faster : 0);
        }
    }
}

/* Try changes of wishes, and take those that are not worse by more than a falling threshold. */
static void improve(Search *search, int64_t evaluations)
{
    Scheduler *state = &search->state;
    size_t bytes = search->count * sizeof(uint16_t);
    memcpy(search->wish, search->choice, bytes);
    Outcome now = scheduler_run(state, search->wish, NULL);
    if (now.time == HUGE_VAL)
        return;
    double level = level_of(search, &now);
    int32_t critical = chain(search, now.time);
    for (int64_t number = 0; number < evaluations && !watch_over(&state->watch); number++) {
        double allowed = THRESHOLD * level * (1 - (double)number / (double)evaluations);
        vary(search, &now, critical);
        scheduler_swap(state);
        Outcome trial = scheduler_run(state, search->trial, NULL);
        if (level_of(search, &trial) - level < allowed * any(search, 1000) / 1000) {
            memcpy(search->wish, search->trial, bytes);
            now = trial;
            level = level_of(search, &trial);
            if (judged(search, &trial) < judged(search, &search->best))
                keep(search, &trial);
            critical = chain(search, now.time);
        } else {
            scheduler_swap(state); /* back to what `vary` starts from */
        }
    }
}

/* Slow down whatever saves energy and neither delays the end nor breaks the bounds. */
static void save(Search *search, int64_t evaluations)
{
    const CapProblem *problem = search->problem;
    Scheduler *state = &search->state;
    size_t bytes = search->count * sizeof(uint16_t);
    memcpy(search->wish, search->choice, bytes);
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        for (int32_t steps = 1 << MOST_STEPS; steps && evaluations > 0;) {
            int32_t now = search->wish[operation], option = now + steps;
            if (watch_over(&state->watch))
                return;
            if (option >= options_of(state, operation) ||
                problem->option_cost[place_of(state, operation, option)] >=
                    problem->option_cost[place_of(state, operation, now)]) {
                steps /= 2;
                continue;
            }
            memcpy(search->trial, search->wish, bytes);
            search->trial[operation] = (uint16_t)option;
            Outcome trial = scheduler_run(state, search->trial, NULL);
            evaluations--;
            if (trial.time <= search->best.time && trial.cost < search->best.cost &&
                beyond(search, &trial) <= beyond(search, &search->best)) {
                keep(search, &trial);
                memcpy(search->wish, search->choice, bytes);
            } else {
                steps /= 2;
            }
        }
    }
}

/* --- all of it --------------------------------------------------------------------------------- */

static int create(Search *search, const CapProblem *problem)
{
    size_t count = (size_t)problem->operations + 1;
    *search = (Search){.problem = problem, .count = count - 1, .random = 0x9E3779B97F4A7C15u};
    search->first.time = HUGE_VAL;
    search->wish = calloc(count, sizeof(uint16_t));
    search->trial = calloc(count, sizeof(uint16_t));
    search->critical = calloc(count, sizeof(int32_t));
    search->choice = calloc(count, sizeof(uint16_t));
    search->start = calloc(count, sizeof(double));
    search->first_choice = calloc(count, sizeof(uint16_t));
    search->first_start = calloc(count, sizeof(double));
    return scheduler_create(&search->state, problem) && search->wish && search->trial &&
           search->critical && search->choice && search->start && search->first_choice &&
           search->first_start;
}

static void destroy(Search *search)
{
    void *all[] = {search->wish, search->trial, search->critical, search->choice, search->start,
                   search->first_choice, search->first_start};
    for (size_t number = 0; number < sizeof all / sizeof *all; number++)
        free(all[number]);
    scheduler_destroy(&search->state);
}

static void store(const Search *search, CapResult *result, int32_t row, const Outcome *outcome,
                  const uint16_t *choice, const double *start)
{
    result->time[row] = outcome->time;
    result->cost[row] = outcome->cost;
    result->peak[row] = outcome->peak;
    result->low[row] = outcome->low;
    memcpy(result->choice + (size_t)row * search->count, choice, search->count * sizeof(uint16_t));
    memcpy(result->start + (size_t)row * search->count, start, search->count * sizeof(double));
}

/* The best guide that is worse than a level, which is then raised to its own; -1 if none is. */
static int32_t next_best(const Search *search, const CapResult *result, double *level)
{
    int32_t best = -1;
    double least = HUGE_VAL;
    for (int32_t guide = 0; guide < search->problem->guides; guide++) {
        Outcome outcome = {.time = result->time[guide], .peak = result->peak[guide],
                           .low = result->low[guide]};
        double own = weighed(search, &outcome);
        if (own > *level && own < least) {
            least = own;
            best = guide;
        }
    }
    *level = least;
    return best;
}

/* Search from the best guides for a while. */
static void search_some(Search *search, const CapResult *result, int32_t number,
                        int64_t evaluations)
{
    size_t choices = search->count * sizeof(uint16_t), starts = search->count * sizeof(double);
    double level = -1;
    for (; number > 0; number--) {
        int32_t guide = next_best(search, result, &level);
        if (guide < 0)
            break;
        memcpy(search->wish, result->choice + (size_t)guide * search->count, choices);
        Outcome outcome = scheduler_run(&search->state, search->wish, NULL);
        if (outcome.time == HUGE_VAL)
            continue;
        keep(search, &outcome);
        improve(search, evaluations);
        if (judged(search, &search->best) < judged(search, &search->first)) {
            search->first = search->best;
            memcpy(search->first_choice, search->choice, choices);
            memcpy(search->first_start, search->start, starts);
        }
    }
}

/* Search from several guides, and on from the best that came of it. */
static void search_all(Search *search, const CapResult *result)
{
    int64_t evaluations = search->problem->evaluations;
    int bounded = search->problem->swing < HUGE_VAL;
    search_some(search, result, bounded ? STARTS / 2 : STARTS, evaluations / (2 * STARTS));
    if (bounded) {
        search->through = 1;
        search_some(search, result, STARTS / 2, evaluations / (2 * STARTS));
        search->through = 0;
    }
    search->best = search->first;
    memcpy(search->choice, search->first_choice, search->count * sizeof(uint16_t));
    memcpy(search->start, search->first_start, search->count * sizeof(double));
    if (search->best.time < HUGE_VAL) {
        improve(search, evaluations / 2);
        save(search, evaluations / 2);
    }
}

int zeus_pipeline_capped(const CapProblem *problem, CapResult *result)
{
    Search search;
    int failed = create(&search, problem) ? 0 : OUT_OF_MEMORY;
    if (!failed) {
        const Times *now = &search.state.now;
        for (int32_t guide = 0; guide < problem->guides; guide++) {
            const uint16_t *wish = problem->guide_choice + (size_t)guide * search.count;
            const double *ends = problem->guide_end + (size_t)guide * search.count;
            Outcome outcome = scheduler_run(&search.state, wish, ends[0] < 0 ? NULL : ends);
            store(&search, result, guide, &outcome, now->choice, now->start);
        }
        search_all(&search, result);
        store(&search, result, problem->guides, &search.best, search.choice, search.start);
        failed = search.state.watch.over == CANCELLED ? CANCELLED : 0;
    }
    destroy(&search);
    return failed;
}
