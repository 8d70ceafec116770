"""Power that a GPU draws for each process, learned from its energy and the time of processes.

Energy counters are of a whole GPU. If two processes take turns faster than it is read, or share it,
only their time is known apart, and a watt of one is not a watt of the other. But the shares of time
vary, and the power with them. So the power while a process runs is estimated by a Kalman filter:
each interval is one equation,

    mean power = sum over processes of share x power while it runs + share of waiting x its power,

and powers may drift. Where shares never vary, nothing can be learned, and powers stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WAITING = 0
"""Stands for the time in which no process runs; no process has this number."""

_FIRST_SPREAD = 0.5  # of an estimate before the first equation, as a share of it
_WAITING_GUESS = 0.25  # of the power of a process, before anything is known
_RESIDENT = 1.3  # power of a GPU with resident work, divided by that with none: first guess
_RESIDENT_SPREAD = 0.3
_DRIFT = 0.003  # standard deviation of the drift of a power in a second, as a share of it
_ALIGNED = 0.05  # seconds; what is read further apart is not learned as noise
_MISALIGNED = 0.002  # seconds by which energy and time are read apart, at least
_NOISE = 0.003  # of an interval's power, at least
_LEAST_VARIANCE = 1e-4  # W²
_NOISE_MEMORY = 50  # intervals over which their noise is learned
_OUTLIER = 4.0  # standard deviations; a power that is further off bears less upon estimates
_STEP_SPREAD = 0.2  # of powers after a change, as a share of them
_SURPRISED = 1.5  # times as much as expected, on the mean: estimates are less certain than thought
_SURPRISE_MEMORY = 15  # intervals of that mean
_MOST_INFLATED = 1.3  # factor of variances, for one interval
_FORGET = 1800.0  # seconds without running, after which a process is forgotten


class LoadPowers:
    """Watts of one GPU while each process runs, and while none does."""

    def __init__(self) -> None:
        self._watts: dict[int, float] = {}
        self._covariance: dict[int, dict[int, float]] = {}
        self._seen: dict[int, float] = {}
        self._time: float | None = None
        self._excess: float | None = None  # variance of powers of intervals, in W²
        self._intervals = 1  # from which it was learned
        self._last_surprise: float | None = None
        self._outlier = False
        self._surprised = 1.0  # surprises squared, divided by what is expected of them

    def uncertainty(self, pid: int) -> float:
        """Return the standard deviation of the watts of a process, as a share of them."""
        watts = self._watts.get(pid, 0.0)  # 0 also of what was forgotten
        return max(0.0, self._covariance[pid][pid]) ** 0.5 / watts if watts else 1.0

    def expect_waiting(self, idle_power: float) -> None:
        """Begin with the idle power of the GPU, as long as nothing is known of waiting."""
        if WAITING not in self._watts:
            self._watts[WAITING] = _RESIDENT * idle_power
            self._covariance[WAITING] = {WAITING: (_RESIDENT_SPREAD * idle_power) ** 2}

    def watts(self, pid: int) -> float | None:
        """Return the watts while a process runs, `None` if nothing was learned of it."""
        return self._watts.get(pid)

    def typical(self) -> float:
        """Return the mean watts of known processes while they run; 1 if there is none."""
        known = [watts for pid, watts in self._watts.items() if pid != WAITING]
        return sum(known) / len(known) if known else 1.0

    def update(
        self,
        begin: float,
        end: float,
        shares: Mapping[int, float],
        watts: float,
        misaligned: float,
    ) -> None:
        """Learn from an interval.

        Args:
            begin: Its begin, in seconds.
            end: Its end.
            shares: Share of the interval in which each process ran; `WAITING` is the rest.
            watts: Mean power in it.
            misaligned: Seconds by which energy and time were read apart.
        """
        self._drift(end - begin if self._time is None else end - self._time)
        self._time = end
        self._add(shares, watts)
        self._seen.update({pid: end for pid, share in shares.items() if share > 0})
        self._correct(shares, watts, end - begin, misaligned)
        for pid, seen in list(self._seen.items()):
            if end - seen > _FORGET and pid != WAITING:
                self._forget(pid)

    def _add(self, shares: Mapping[int, float], watts: float) -> None:
        """Begin with what others draw: the power of the interval for all that is not known."""
        unknown = [pid for pid, share in shares.items() if share > 0 and pid not in self._watts]
        if not unknown:
            return
        explained = sum(self._watts.get(pid, 0.0) * share for pid, share in shares.items())
        guess_per_share = {pid: _WAITING_GUESS if pid == WAITING else 1.0 for pid in unknown}
        weight = sum(shares[pid] * guess_per_share[pid] for pid in unknown)
        # A short first share explains little: do not blame a whole misaligned edge on it.
        highest = max([watts, *self._watts.values()])
        each = min(max(0.0, watts - explained) / weight, 1.5 * highest)
        each = max(each, 0.2 * watts)
        for pid in unknown:
            first = each * guess_per_share[pid]
            self._watts[pid] = first
            self._covariance[pid] = {pid: (_FIRST_SPREAD * max(first, 0.3 * watts)) ** 2}

    def _drift(self, elapsed: float) -> None:
        for pid, row in self._covariance.items():
            row[pid] = row.get(pid, 0.0) + (_DRIFT * self._watts[pid]) ** 2 * elapsed

    def _correct(
        self, shares: Mapping[int, float], watts: float, seconds: float, misaligned: float
    ) -> None:
        known = [pid for pid, share in shares.items() if share > 0]
        values = [self._watts[pid] for pid in known]
        spread = max(values) - min(values) if len(values) > 1 else 0.0
        spread = max(spread, 0.2 * watts)
        if self._excess is None:
            self._excess = ((_MISALIGNED + misaligned) * spread / seconds) ** 2
        variance = self._excess + (_NOISE * watts) ** 2 + _LEAST_VARIANCE
        if misaligned > _ALIGNED:
            variance += (misaligned * spread / seconds) ** 2
        surprise = watts - sum(self._watts[pid] * shares[pid] for pid in known)
        bearing, expected = self._bearing(shares, known)
        outlier = surprise**2 > _OUTLIER**2 * (expected + variance)
        last = self._last_surprise or 0.0
        if outlier and self._outlier and surprise * last > 0:  # no accident: it has changed
            for pid in known:
                self._covariance[pid][pid] += (_STEP_SPREAD * self._watts[pid]) ** 2
            bearing, expected = self._bearing(shares, known)
        self._outlier = outlier
        total = expected + variance
        self._learn_noise(surprise, variance)
        self._inflate(surprise**2 / total)
        total = max(total, surprise**2 / _OUTLIER**2)
        for pid, bears in bearing.items():
            self._watts[pid] = max(0.0, self._watts[pid] + bears / total * surprise)
            row = self._covariance[pid]
            for other, bears_too in bearing.items():
                lower = row.get(other, 0.0) - bears * bears_too / total
                if lower:
                    row[other] = lower

    def _bearing(
        self, shares: Mapping[int, float], known: Sequence[int]
    ) -> tuple[dict[int, float], float]:
        """Return how an unexpected power bears upon each estimate, and its expected variance."""
        bearing = {
            pid: sum(row.get(other, 0.0) * shares[other] for other in known)
            for pid, row in self._covariance.items()
        }
        return bearing, sum(bearing[pid] * shares[pid] for pid in known)

    def _learn_noise(self, surprise: float, variance: float) -> None:
        """Learn from differences of successive surprises: wrong estimates surprise alike."""
        last, self._last_surprise = self._last_surprise, surprise
        if last is None or self._excess is None:
            return
        noise = min((surprise - last) ** 2 / 2, 9 * variance)
        self._intervals = min(self._intervals + 1, _NOISE_MEMORY)
        self._excess += (noise - self._excess) / self._intervals

    def _inflate(self, surprised: float) -> None:
        """Trust estimates less where they go wrong: a process may do something else by now."""
        self._surprised += (min(surprised, 25.0) - self._surprised) / _SURPRISE_MEMORY
        if self._surprised <= _SURPRISED:
            return
        factor = min(_MOST_INFLATED, self._surprised / _SURPRISED)
        if max(map(self.uncertainty, self._watts)) * factor**0.5 < _FIRST_SPREAD:
            for row in self._covariance.values():
                for pid in row:
                    row[pid] *= factor

    def _forget(self, pid: int) -> None:
        for table in (self._watts, self._covariance, self._seen):
            table.pop(pid, None)
        for row in self._covariance.values():
            row.pop(pid, None)
