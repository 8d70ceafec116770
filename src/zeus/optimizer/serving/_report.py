"""The report of a service: energy per token, bounds kept, what was held when, and what was saved.

What the same requests would have taken at the highest setting cannot be measured at the same time.
So what is measured is compared with what the controller predicts for that setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zeus._latencies import Latencies
from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._interval import Decision, ServingInterval, ServingSetting

_MINUTE = 60.0
_MAX_CHANGES = 10_000
_LEAST = 1e-3  # joules that are compared


@dataclass(frozen=True)
class Forecast:
    """Energies of the same intervals, in joules.

    Attributes:
        highest: Predicted at the highest setting.
        chosen: Predicted at the chosen settings.
        measured: Measured, in those of them that were measured, out of `metered`.
        metered: Predicted at the highest setting, in those that were measured.
    """

    highest: float = 0.0
    chosen: float = 0.0
    measured: float = 0.0
    metered: float = 0.0

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(
            self.highest + other.highest,
            self.chosen + other.chosen,
            self.measured + other.measured,
            self.metered + other.metered,
        )

    @property
    def predicted_saving(self) -> float | None:
        """Share of energy that is predicted to be saved; `None` if there is no prediction."""
        return 1 - self.chosen / self.highest if self.highest > _LEAST else None

    @property
    def measured_saving(self) -> float | None:
        """Share by which what was measured is below the prediction at the highest setting."""
        return 1 - self.measured / self.metered if self.metered > _LEAST else None


class ServingReport:
    """Sums over the intervals of a service.

    Args:
        bounds: Its bounds.
        observe: Whether settings are not carried out.
    """

    def __init__(self, bounds: Sequence[Bound], *, observe: bool = False) -> None:
        self.bounds = tuple(bounds)
        self.observe = observe
        self.seconds = 0.0
        self.energy: float | None = None
        self.prompt_tokens = self.generated_tokens = 0.0
        self.metered_tokens = 0.0  # generated where energy was measured
        self.finished = 0
        self.settings = 0  # that were chosen, one after the other
        self.latencies = {bound: Latencies() for bound in self.bounds}
        self.changes: list[tuple[float, ServingSetting, str]] = []
        self._minute = {bound: Latencies() for bound in self.bounds}
        self._minute_seconds = 0.0
        self._minutes = {bound: [0, 0] for bound in self.bounds}
        self.forecast = Forecast()

    def add(self, interval: ServingInterval) -> None:
        """Count an interval."""
        self.seconds += interval.seconds
        if interval.energy is not None:
            self.energy = (self.energy or 0.0) + interval.energy
            self.metered_tokens += interval.generated_tokens
        self.prompt_tokens += interval.prompt_tokens
        self.generated_tokens += interval.generated_tokens
        self.finished += interval.finished
        for bound in self.bounds:
            seen = interval.latencies.get(bound.latency)
            if seen is not None and seen.total:
                self.latencies[bound] += seen
                self._minute[bound] += seen
        self._minute_seconds += interval.seconds
        if self._minute_seconds >= _MINUTE:
            self._end_minute()

    def held(self, time: float, decision: Decision) -> None:
        """Note a setting from an instant on."""
        if not self.changes or self.changes[-1][1] != decision.setting:
            self.settings += 1
            self.changes.append((time, decision.setting, decision.reason))
            del self.changes[:-_MAX_CHANGES]

    def predicted(self, forecast: Forecast) -> None:
        """Count what is predicted of an interval."""
        self.forecast += forecast

    @property
    def predicted_saving(self) -> float | None:
        """Share of energy that is predicted to be saved; `None` if there is no prediction."""
        return self.forecast.predicted_saving

    @property
    def measured_saving(self) -> float | None:
        """Share by which measured energy is below that predicted at the highest setting.

        `None` if one of them is not known, and while nothing is changed.
        """
        return None if self.observe else self.forecast.measured_saving

    def minutes(self, bound: Bound) -> tuple[int, int]:
        """Return the number of whole minutes with requests, and in how many a bound was kept."""
        total, kept = self._minutes[bound]
        return total, kept

    @property
    def joules_per_token(self) -> float | None:
        """Joules per generated token, prompts included; `None` if unknown."""
        if self.energy is None or self.metered_tokens <= 0:
            return None
        return self.energy / self.metered_tokens

    def kept(self, bound: Bound) -> bool | None:
        """Whether a bound was kept over the run; `None` without requests."""
        seen = self.latencies[bound]
        return seen.share_above(bound.seconds) <= bound.budget if seen.total else None

    def _end_minute(self) -> None:
        self._minute_seconds = 0.0
        for bound, seen in self._minute.items():
            if seen.total:
                self._minutes[bound][0] += 1
                self._minutes[bound][1] += seen.share_above(bound.seconds) <= bound.budget
            self._minute[bound] = Latencies()

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON; seconds, joules, and 0 to 1 for shares."""
        return {
            "seconds": self.seconds,
            "energy": self.energy,
            "requests": self.finished,
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "joules_per_token": self.joules_per_token,
            "predicted_saving": self.predicted_saving,
            "measured_saving": self.measured_saving,
            "bounds": [
                {
                    "bound": str(bound),
                    "latency": bound.latency,
                    "percent": bound.percent,
                    "seconds": bound.seconds,
                    "measured": self.latencies[bound].percentile(bound.percent),
                    "requests": self.latencies[bound].total,
                    "share_above": self.latencies[bound].share_above(bound.seconds),
                    "kept": self.kept(bound),
                    "minutes": self._minutes[bound][0],
                    "minutes_kept": self._minutes[bound][1],
                }
                for bound in self.bounds
            ],
            "held": [
                {
                    "time": time,
                    "prefill": setting.prefill,
                    "decode": setting.decode,
                    "reason": reason,
                }
                for time, setting, reason in self.changes
            ],
        }

    def lines(self, unit: str) -> list[str]:
        """Return the report in lines for people.

        Args:
            unit: Unit of settings.
        """
        energy = "energy unknown" if self.energy is None else f"{self.energy:.0f} J"
        each = self.joules_per_token
        lines = [
            f"{self.seconds:.0f} s, {self.finished} requests, {self.generated_tokens:.0f} tokens, "
            f"{energy}" + ("" if each is None else f", {each:.3g} J per generated token")
        ]
        for bound in self.bounds:
            seen = self.latencies[bound]
            measured = seen.percentile(bound.percent)
            if measured is None:
                lines.append(f"{bound}: no request")
                continue
            word = "kept" if self.kept(bound) else "broken"
            total, kept = self._minutes[bound]
            minutes = f", {kept} of {total} minutes" if total else ""
            lines.append(f"{bound}: {word}, measured {measured:.3g} s{minutes}")
        if self.predicted_saving is not None:
            lines.append(f"predicted, not measured: {self.predicted_saving:.1%} less energy")
        saving = self.measured_saving
        if saving is not None:
            word = "less" if saving >= 0 else "more"
            lines.append(
                f"measured: {abs(saving):.1%} {word} energy than is predicted at the highest "
                "setting"
            )
        if self.changes:
            settings = sorted({(s.prefill, s.decode) for _, s, _ in self.changes})
            low, high = settings[0], settings[-1]
            lines.append(
                f"held {len(self.changes)} settings from {min(high):g} to {min(low):g} {unit}"
            )
        return lines
