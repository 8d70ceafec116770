"""Measurements of a job's previous run, so that its next one only has to verify them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from zeus.optimizer.pipeline_frequency.job._messages import (
    Instruction,
    Measured,
    RankPlace,
    sequence_from,
)


class MeasuredRank(Protocol):
    """A rank of a job, as far as it matters here."""

    seat: RankPlace
    gpu: str
    sequence: tuple[Instruction, ...]
    measured: Measured | None
    trouble: str


@dataclass(frozen=True)
class PreviousProfile:
    """Measurements at one place of a pipeline.

    Attributes:
        place: Indices of the place and of the GPU there.
        degrees: Numbers of places and of GPUs per place.
        gpu: Model of the GPU.
        sequence: Instructions of a step.
        measured: The measurements.
    """

    place: tuple[int, int]
    degrees: tuple[int, int]
    gpu: str
    sequence: tuple[Instruction, ...]
    measured: Measured

    def fits(self, rank: MeasuredRank) -> bool:
        """Return whether a rank is at the same place, with the same GPU and instructions."""
        return (
            self.place == rank.seat.place[1:]
            and self.degrees == rank.seat.degrees[1:]
            and self.gpu == rank.gpu
            and self.sequence == rank.sequence
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "place": list(self.place),
            "degrees": list(self.degrees),
            "gpu": self.gpu,
            "sequence": [list(each) for each in self.sequence],
            "measured": self.measured.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PreviousProfile:
        """Return it from its JSON form; the inverse of `to_dict`."""
        (place, gpu), (places, gpus) = record["place"], record["degrees"]
        return cls(
            (place, gpu),
            (places, gpus),
            record["gpu"],
            sequence_from(record["sequence"]),
            Measured.from_dict(record["measured"]),
        )


def previous_profiles(ranks: Iterable[MeasuredRank]) -> list[PreviousProfile]:
    """Return the measurements of a run that has ended, one for each place."""
    found: dict[tuple[int, int], PreviousProfile] = {}
    for rank in ranks:
        if rank.measured is None or not rank.sequence or rank.trouble:
            continue
        _, place, gpu = rank.seat.place
        measured = replace(rank.measured, passages=(), urgent=False)
        found.setdefault(
            (place, gpu),
            PreviousProfile((place, gpu), rank.seat.degrees[1:], rank.gpu, rank.sequence, measured),
        )
    return list(found.values())
