/* Executable plans: one real option for every operation, all times whole ticks.
 *
 * `earliest` and `latest` say where an operation may lie if the deadline is to be kept. A change of
 * one choice is passed on to those operations only whose bounds it moves.
 */

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PASSES = 16 };

typedef struct {
    int64_t saving;
    int32_t operation;
} Offer;

static const int64_t *ticks_of(const Schedule *schedule, int32_t operation)
{
    return schedule->problem->option_ticks + schedule->graph->first[operation];
}

static const int64_t *costs_of(const Schedule *schedule, int32_t operation)
{
    return schedule->problem->option_cost + schedule->graph->first[operation];
}

static void set_choice(Schedule *schedule, int32_t operation, int32_t option)
{
    schedule->choice[operation] = (uint16_t)option;
    schedule->length[operation] = ticks_of(schedule, operation)[option];
}

/* The slowest option that fits, looked for from a likely one on; -1 if none does. */
static int32_t fitting(const Schedule *schedule, int32_t operation, int64_t window, int32_t likely)
{
    const int64_t *ticks = ticks_of(schedule, operation);
    int32_t count = schedule->graph->options[operation];
    while (likely + 1 < count && ticks[likely + 1] <= window)
        likely++;
    while (likely >= 0 && ticks[likely] > window)
        likely--;
    return likely;
}

/* --- bounds ------------------------------------------------------------------------------------ */

/* When an operation can start; what it waits for may leave one out. */
static int64_t ready(const Schedule *schedule, int32_t operation, int32_t without)
{
    const Problem *problem = schedule->problem;
    int64_t time = 0;
    for (int32_t place = problem->before_start[operation];
         place < problem->before_start[operation + 1]; place++) {
        int32_t other = problem->before[place];
        int64_t end = schedule->earliest[other] + schedule->length[other];
        if (other != without && end > time)
            time = end;
    }
    return time;
}

/* When it must have ended; what waits for it may leave one out. */
static int64_t due(const Schedule *schedule, int32_t operation, int32_t without)
{
    const Graph *graph = schedule->graph;
    int64_t time = schedule->deadline;
    for (int32_t place = graph->after_start[operation];
         place < graph->after_start[operation + 1]; place++) {
        int32_t other = graph->after[place];
        int64_t start = schedule->latest[other] - schedule->length[other];
        if (other != without && start < time)
            time = start;
    }
    return time;
}

static int fits(const Schedule *schedule, int32_t operation)
{
    return schedule->earliest[operation] + schedule->length[operation] <=
           schedule->latest[operation];
}

void schedule_refresh(Schedule *schedule)
{
    int32_t operations = schedule->problem->operations;
    schedule->cost = 0;
    for (int32_t operation = 0; operation < operations; operation++) {
        set_choice(schedule, operation, schedule->choice[operation]);
        schedule->earliest[operation] = ready(schedule, operation, -1);
        schedule->cost += costs_of(schedule, operation)[schedule->choice[operation]];
    }
    for (int32_t operation = operations - 1; operation >= 0; operation--)
        schedule->latest[operation] = due(schedule, operation, -1);
}

int64_t schedule_end(const Schedule *schedule)
{
    int64_t end = 0;
    for (int32_t operation = 0; operation < schedule->problem->operations; operation++) {
        int64_t own = schedule->earliest[operation] + schedule->length[operation];
        if (own > end)
            end = own;
    }
    return end;
}

static void mark(Schedule *schedule, const int32_t *from, const int32_t *to, int32_t *low,
                 int32_t *high)
{
    for (; from < to; from++) {
        int32_t word = *from >> 6;
        schedule->pending[word] |= (uint64_t)1 << (*from & 63);
        if (word < *low)
            *low = word;
        if (word > *high)
            *high = word;
    }
}

static void mark_after(Schedule *schedule, int32_t operation, int32_t *low, int32_t *high)
{
    const Graph *graph = schedule->graph;
    mark(schedule, graph->after + graph->after_start[operation],
         graph->after + graph->after_start[operation + 1], low, high);
}

static void mark_before(Schedule *schedule, int32_t operation, int32_t *low, int32_t *high)
{
    const Problem *problem = schedule->problem;
    mark(schedule, problem->before + problem->before_start[operation],
         problem->before + problem->before_start[operation + 1], low, high);
}

/* Choose another option; returns whether everything whose bounds moved still fits. */
static int choose(Schedule *schedule, int32_t operation, int32_t option)
{
    const int64_t *costs = costs_of(schedule, operation);
    schedule->cost += costs[option] - costs[schedule->choice[operation]];
    set_choice(schedule, operation, option);
    schedule->touched[operation] = 1;
    int fine = fits(schedule, operation);

    /* What follows has higher numbers, what precedes lower ones: one pass each way. */
    int32_t low = schedule->words, high = -1;
    mark_after(schedule, operation, &low, &high);
    for (int32_t word = low; word <= high; word++)
        while (schedule->pending[word]) {
            int32_t other = 64 * word + __builtin_ctzll(schedule->pending[word]);
            schedule->pending[word] &= schedule->pending[word] - 1;
            int64_t time = ready(schedule, other, -1);
            if (time == schedule->earliest[other])
                continue;
            schedule->earliest[other] = time;
            schedule->touched[other] = 1;
            fine &= fits(schedule, other);
            mark_after(schedule, other, &low, &high);
        }
    low = schedule->words;
    high = -1;
    mark_before(schedule, operation, &low, &high);
    for (int32_t word = high; word >= low; word--)
        while (schedule->pending[word]) {
            int32_t bit = 63 - __builtin_clzll(schedule->pending[word]);
            int32_t other = 64 * word + bit;
            schedule->pending[word] &= ~((uint64_t)1 << bit);
            int64_t time = due(schedule, other, -1);
            if (time == schedule->latest[other])
                continue;
            schedule->latest[other] = time;
            schedule->touched[other] = 1;
            fine &= fits(schedule, other);
            mark_before(schedule, other, &low, &high);
        }
    return fine;
}

/* --- where plans come from --------------------------------------------------------------------- */

void schedule_follow(Schedule *schedule, const int64_t *finish, int64_t deadline)
{
    /* An operation that ends early leaves its rest to those after it. */
    schedule->deadline = deadline;
    for (int32_t operation = 0; operation < schedule->problem->operations; operation++) {
        int64_t start = ready(schedule, operation, -1);
        schedule->earliest[operation] = start;
        int32_t option = fitting(schedule, operation, finish[operation] - start,
                                 schedule->choice[operation]);
        set_choice(schedule, operation, option < 0 ? 0 : option);
    }
    schedule_refresh(schedule);
}

void schedule_splice(Schedule *schedule, const Schedule *slow, const Schedule *fast,
                     int64_t deadline, int fast_first)
{
    /* The earlier of two feasible times of each start and end is feasible, and so is the later:
     * every operation gets at least the time that it has in one of the two plans. */
    int64_t delay = deadline - fast->deadline, advance = slow->deadline - deadline;
    schedule->deadline = deadline;
    for (int32_t operation = 0; operation < schedule->problem->operations; operation++) {
        int64_t slow_length = slow->length[operation], fast_length = fast->length[operation];
        int64_t slow_start = slow->earliest[operation], fast_start = fast->earliest[operation];
        if (fast_first)
            slow_start -= advance;
        else
            fast_start += delay;
        int64_t slow_end = slow_start + slow_length, fast_end = fast_start + fast_length;
        int64_t start, end;
        if (fast_first) {
            start = slow_start > fast_start ? slow_start : fast_start;
            end = slow_end > fast_end ? slow_end : fast_end;
        } else {
            start = slow_start < fast_start ? slow_start : fast_start;
            end = slow_end < fast_end ? slow_end : fast_end;
        }
        int32_t likely = fast->choice[operation];
        set_choice(schedule, operation, fitting(schedule, operation, end - start, likely));
    }
    schedule_refresh(schedule);
}

void schedule_toward(Schedule *schedule, const uint16_t *wanted)
{
    /* What gets faster goes first, so that what gets slower has its time. */
    int32_t operations = schedule->problem->operations;
    for (int32_t operation = 0; operation < operations; operation++)
        if (wanted[operation] < schedule->choice[operation])
            schedule->choice[operation] = wanted[operation];
    schedule_refresh(schedule);
    for (int32_t operation = 0; operation < operations; operation++) {
        int32_t option = wanted[operation];
        int64_t window = schedule->latest[operation] - schedule->earliest[operation];
        while (option > schedule->choice[operation] &&
               ticks_of(schedule, operation)[option] > window)
            option--;
        if (option > schedule->choice[operation])
            choose(schedule, operation, option);
    }
}

/* --- slack ------------------------------------------------------------------------------------- */

/* What an operation saves with all of its slack, and by which option. */
static int64_t saving(const Schedule *schedule, int32_t operation, int32_t *option)
{
    int64_t window = schedule->latest[operation] - schedule->earliest[operation];
    int32_t current = schedule->choice[operation];
    const int64_t *costs = costs_of(schedule, operation);
    *option = fitting(schedule, operation, window, current);
    return *option > current ? costs[current] - costs[*option] : 0;
}

static int better(Offer one, Offer other)
{
    return one.saving > other.saving ||
           (one.saving == other.saving && one.operation < other.operation);
}

static void sift(Offer *heap, int32_t count, int32_t place)
{
    Offer moved = heap[place];
    for (;;) {
        int32_t child = 2 * place + 1;
        if (child >= count)
            break;
        if (child + 1 < count && better(heap[child + 1], heap[child]))
            child++;
        if (!better(heap[child], moved))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = moved;
}

static void use_slack_of(Schedule *schedule, const uint8_t *only)
{
    Offer *heap = schedule->scratch;
    int32_t count = 0, option;
    for (int32_t operation = 0; operation < schedule->problem->operations; operation++) {
        if (only && !only[operation])
            continue;
        int64_t saved = saving(schedule, operation, &option);
        if (saved > 0)
            heap[count++] = (Offer){saved, operation};
    }
    for (int32_t place = count / 2 - 1; place >= 0; place--)
        sift(heap, count, place);
    while (count > 0 && !watch_over(schedule->watch)) {
        /* Slack only gets less, so an offer that still holds is the best there is. */
        int64_t saved = saving(schedule, heap[0].operation, &option);
        if (saved == heap[0].saving)
            choose(schedule, heap[0].operation, option);
        if (saved == heap[0].saving || saved == 0)
            heap[0] = heap[--count];
        else
            heap[0].saving = saved;
        if (count > 0)
            sift(heap, count, 0);
    }
}

void schedule_use_slack(Schedule *schedule)
{
    use_slack_of(schedule, NULL);
}

/* --- exchanges --------------------------------------------------------------------------------- */

typedef struct {
    int64_t limit;     /* of a neighbour, by all others than the operation itself */
    int32_t current;
    int32_t trial;
    int32_t best;
} Neighbour;

/* Give an operation more time at the expense of all its neighbours on one side, or less in their
 * favour: the best such change is made if it saves anything. */
static int exchange_with(Schedule *schedule, int32_t operation, const int32_t *others,
                         int32_t count, int following)
{
    if (count == 0)
        return 0;
    const int64_t *ticks = ticks_of(schedule, operation), *costs = costs_of(schedule, operation);
    int32_t current = schedule->choice[operation], best_option = -1;
    int64_t best = 0;
    /* The most that the operation can save if it gets slower, and its neighbours if it gets faster:
     * once the others pay more than that, there is no need to go on. */
    int64_t most[2] = {costs[current] - costs[schedule->graph->options[operation] - 1], 0};
    Neighbour *neighbours = schedule->scratch;
    for (int32_t at = 0; at < count; at++) {
        int32_t other = others[at], own = schedule->choice[other];
        int64_t limit = following ? ready(schedule, other, operation)
                                  : due(schedule, other, operation);
        int64_t window = following ? schedule->latest[other] - limit
                                   : limit - schedule->earliest[other];
        const int64_t *prices = costs_of(schedule, other);
        neighbours[at].limit = limit;
        neighbours[at].current = own;
        most[1] += prices[own] - prices[fitting(schedule, other, window, own)];
    }
    for (int faster = 0; faster < 2; faster++) {
        for (int32_t at = 0; at < count; at++)
            neighbours[at].trial = neighbours[at].current;
        for (int32_t option = current; option >= 0 && option < schedule->graph->options[operation];
             option += faster ? -1 : 1) {
            int64_t change = costs[option] - costs[current];
            int64_t edge = following ? schedule->earliest[operation] + ticks[option]
                                     : schedule->latest[operation] - ticks[option];
            int64_t paid = faster ? change : 0;
            int32_t at = 0;
            for (; at < count; at++) {
                Neighbour *neighbour = &neighbours[at];
                int64_t window;
                if (following)
                    window = schedule->latest[others[at]] -
                             (edge > neighbour->limit ? edge : neighbour->limit);
                else
                    window = (edge < neighbour->limit ? edge : neighbour->limit) -
                             schedule->earliest[others[at]];
                neighbour->trial = fitting(schedule, others[at], window, neighbour->trial);
                if (neighbour->trial < 0)
                    break;
                const int64_t *prices = costs_of(schedule, others[at]);
                int64_t more = prices[neighbour->trial] - prices[neighbour->current];
                change += more;
                if (!faster)
                    paid += more;
            }
            if (at < count)
                break; /* slower options do not fit either */
            if (change < best) {
                best = change;
                best_option = option;
                for (at = 0; at < count; at++)
                    neighbours[at].best = neighbours[at].trial;
            }
            if (paid - most[faster] >= best)
                break;
        }
    }
    if (best_option < 0)
        return 0;
    /* Neighbours may depend on each other in ways that were not looked at. What gets faster goes
     * first, so that whatever does not fit on the way will not fit in the end. */
    int fine = 1;
    for (int slower = 0; slower < 2; slower++) {
        if (best_option != current && (best_option > current) == slower)
            fine &= choose(schedule, operation, best_option);
        for (int32_t at = 0; at < count; at++)
            if (neighbours[at].best != neighbours[at].current &&
                (neighbours[at].best > neighbours[at].current) == slower)
                fine &= choose(schedule, others[at], neighbours[at].best);
    }
    if (fine)
        return 1;
    choose(schedule, operation, current);
    for (int32_t at = 0; at < count; at++)
        choose(schedule, others[at], neighbours[at].current);
    return 0;
}

static int near_change(const Schedule *schedule, const uint8_t *changed, int32_t operation)
{
    const Problem *problem = schedule->problem;
    const Graph *graph = schedule->graph;
    if (changed[operation])
        return 1;
    for (int32_t place = problem->before_start[operation];
         place < problem->before_start[operation + 1]; place++)
        if (changed[problem->before[place]])
            return 1;
    for (int32_t place = graph->after_start[operation];
         place < graph->after_start[operation + 1]; place++)
        if (changed[graph->after[place]])
            return 1;
    return 0;
}

/* Exchange where something has changed, until nothing does. */
static void exchange_changed(Schedule *schedule, uint8_t *changed)
{
    const Problem *problem = schedule->problem;
    const Graph *graph = schedule->graph;
    int32_t operations = problem->operations;
    for (int pass = 0; pass < MOST_PASSES && !schedule->watch->over; pass++) {
        int improved = 0;
        memset(schedule->touched, 0, (size_t)operations);
        for (int32_t operation = 0; operation < operations; operation++) {
            if (!near_change(schedule, changed, operation))
                continue;
            if (watch_over(schedule->watch))
                break;
            int32_t start = graph->after_start[operation];
            improved |= exchange_with(schedule, operation, graph->after + start,
                                      graph->after_start[operation + 1] - start, 1);
            start = problem->before_start[operation];
            improved |= exchange_with(schedule, operation, problem->before + start,
                                      problem->before_start[operation + 1] - start, 0);
        }
        if (!improved)
            break;
        memcpy(changed, schedule->touched, (size_t)operations);
    }
}

void schedule_exchange(Schedule *schedule)
{
    size_t operations = (size_t)schedule->problem->operations;
    uint8_t *changed = schedule->touched + operations;
    memset(changed, 1, operations);
    exchange_changed(schedule, changed);
}

void schedule_repair(Schedule *schedule)
{
    size_t operations = (size_t)schedule->problem->operations;
    uint8_t *changed = schedule->touched + operations;
    use_slack_of(schedule, schedule->touched);
    memcpy(changed, schedule->touched, operations);
    exchange_changed(schedule, changed);
}

int schedule_choose(Schedule *schedule, int32_t operation, int32_t option)
{
    return choose(schedule, operation, option);
}

int32_t schedule_slowest(const Schedule *schedule, int32_t operation)
{
    int64_t window = schedule->latest[operation] - schedule->earliest[operation];
    return fitting(schedule, operation, window, schedule->choice[operation]);
}

/* --- what it takes ----------------------------------------------------------------------------- */

typedef struct {
    double sum;
    double lost; /* what rounding has taken away */
} Sum;

static void add(Sum *sum, double value)
{
    double total = sum->sum + value;
    double larger = sum->sum, smaller = value;
    if (larger * larger < smaller * smaller) {
        larger = value;
        smaller = sum->sum;
    }
    sum->lost += (larger - total) + smaller;
    sum->sum = total;
}

void schedule_measure(const Schedule *schedule, double *time, double *energy)
{
    const Problem *problem = schedule->problem;
    double *end = schedule->scratch;
    Sum computation = {0}, busy = {0};
    *time = 0;
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        int32_t option = schedule->graph->first[operation] + schedule->choice[operation];
        double start = 0;
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++)
            if (end[problem->before[place]] > start)
                start = end[problem->before[place]];
        end[operation] = start + problem->option_time[option];
        if (end[operation] > *time)
            *time = end[operation];
        add(&computation, problem->option_energy[option]);
        add(&busy, problem->option_busy[option]);
    }
    double waiting = problem->gpus * *time - (busy.sum + busy.lost);
    *energy = computation.sum + computation.lost + problem->blocking_power * waiting;
}

/* --- room -------------------------------------------------------------------------------------- */

int schedule_create(Schedule *schedule, const Problem *problem, const Graph *graph,
                    Watch *watch)
{
    size_t operations = (size_t)problem->operations;
    schedule->problem = problem;
    schedule->graph = graph;
    schedule->watch = watch;
    schedule->words = (int32_t)((operations + 63) / 64);
    schedule->choice = calloc(operations, sizeof(uint16_t));
    schedule->length = calloc(operations, sizeof(int64_t));
    schedule->earliest = calloc(operations, sizeof(int64_t));
    schedule->latest = calloc(operations, sizeof(int64_t));
    schedule->pending = calloc((size_t)schedule->words, sizeof(uint64_t));
    schedule->touched = calloc(2 * operations, 1);
    size_t most = sizeof(Neighbour) > sizeof(Offer) ? sizeof(Neighbour) : sizeof(Offer);
    schedule->scratch = calloc(operations, most);
    if (schedule->choice && schedule->length && schedule->earliest && schedule->latest && schedule->pending &&
        schedule->touched && schedule->scratch)
        return 0;
    return OUT_OF_MEMORY;
}

void schedule_copy(Schedule *to, const Schedule *from)
{
    size_t operations = (size_t)from->problem->operations;
    to->deadline = from->deadline;
    to->cost = from->cost;
    memcpy(to->choice, from->choice, operations * sizeof(uint16_t));
    memcpy(to->length, from->length, operations * sizeof(int64_t));
    memcpy(to->earliest, from->earliest, operations * sizeof(int64_t));
    memcpy(to->latest, from->latest, operations * sizeof(int64_t));
}

void schedule_destroy(Schedule *schedule)
{
    free(schedule->choice);
    free(schedule->length);
    free(schedule->earliest);
    free(schedule->latest);
    free(schedule->pending);
    free(schedule->touched);
    free(schedule->scratch);
}
