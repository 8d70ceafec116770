"""Which GPUs a framework sees, and in what order.

Follows what the CUDA, ROCm and Level Zero runtimes (and PyTorch on top of them) do with their
environment variables, so that index 0 here is index 0 there. Pure functions over strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True)
class Candidate:
    """A GPU of the machine, as the driver numbers them (by PCI address).

    Attributes:
        uuid: Such as "GPU-8932f937-...".
        speed: Any number that grows with the GPU's throughput; decides which is first. Zero if
            unknown.
        mig_uuids: UUIDs of its MIG slices.
    """

    uuid: str
    speed: float = 0.0
    mig_uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Visible:
    """A GPU that the framework sees.

    Attributes:
        position: Its position among the candidates.
        mig_uuid: Its slice, if it sees only one (`GpuDriver.seen_as_slice`).
    """

    position: int
    mig_uuid: str | None = None


def visible_all(candidates: Sequence[Candidate], _: Mapping[str, str]) -> list[Visible]:
    """Return all candidates, in their order."""
    return [Visible(position) for position in range(len(candidates))]


def visible_nvidia(
    candidates: Sequence[Candidate], environment: Mapping[str, str]
) -> list[Visible]:
    """Apply `CUDA_DEVICE_ORDER` and `CUDA_VISIBLE_DEVICES`."""
    order = _cuda_order(candidates, environment.get("CUDA_DEVICE_ORDER"))
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is not None and value.startswith("MIG-"):
        return _mig_slice(value.split(",")[0], candidates)
    if value is not None:
        uuids = [candidates[position].uuid for position in order]
        order = [order[ordinal] for ordinal in _ordinals(value, uuids)]
    # A GPU that is partitioned into slices appears as the first of them.
    first_slices = [next(iter(candidate.mig_uuids), None) for candidate in candidates]
    return [Visible(position, first_slices[position]) for position in order]


def visible_amd(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> list[Visible]:
    """Apply `ROCR_VISIBLE_DEVICES` first, then `HIP_` or `CUDA_VISIBLE_DEVICES` to what is left."""
    positions = list(range(len(candidates)))
    rocr = environment.get("ROCR_VISIBLE_DEVICES")
    # HIP accepts the CUDA name too, but its own name takes precedence.
    hip = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
    for value in (rocr, hip):
        if value is not None:
            uuids = [candidates[position].uuid for position in positions]
            positions = [positions[ordinal] for ordinal in _ordinals(value, uuids)]
    return [Visible(position) for position in positions]


CARD = "card"
"""The slice that stands for a card with several tiles, where frameworks see each tile by itself."""


def visible_intel(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> list[Visible]:
    """Apply `ZE_FLAT_DEVICE_HIERARCHY`, `ZE_AFFINITY_MASK` and `ONEAPI_DEVICE_SELECTOR`.

    By default each tile of a card is a device. The first tile that is visible stands for the card,
    because its sensors and knobs are the card's. Both lists hide, and never reorder.
    """
    composite = environment.get("ZE_FLAT_DEVICE_HIERARCHY", "").upper() == "COMPOSITE"
    devices = [
        Visible(position, tile)
        for position, candidate in enumerate(candidates)
        for tile in ((None,) if composite else candidate.mig_uuids or (None,))
    ]
    mask = environment.get("ZE_AFFINITY_MASK", "").strip()
    if mask:
        # "0.1" is a tile of a device, of which the device is then all that is seen.
        listed = {_leading_number(entry) for entry in mask.split(",")}
        devices = [each for number, each in enumerate(devices) if number in listed]
    selector = environment.get("ONEAPI_DEVICE_SELECTOR", "").strip().lower()
    devices = [each for number, each in enumerate(devices) if _selected(selector, number)]
    first = {each.position: each for each in reversed(devices)}
    return [
        Visible(each.position, CARD) if each.mig_uuid and each is first[each.position] else each
        for each in devices
    ]


def _selected(selector: str, number: int) -> bool:
    """Whether a selector accepts the Level Zero device of this number, which must be a GPU."""
    terms = [term.strip() for term in selector.split(";") if term.strip()]
    accepted = [_names(term, number) for term in terms if term[0] != "!"]
    discarded = [_names(term[1:], number) for term in terms if term[0] == "!"]
    return (any(accepted) or not accepted) and not any(discarded)


def _names(term: str, number: int) -> bool:
    backend, _, devices = term.partition(":")
    entries = [entry.strip() for entry in devices.split(",")]
    return backend.strip() in ("level_zero", "*") and any(
        entry in ("gpu", "*", "*.*", "gpu.*") or _leading_number(entry) == number
        for entry in entries
    )


def _cuda_order(candidates: Sequence[Candidate], device_order: str | None) -> list[int]:
    positions = list(range(len(candidates)))
    if device_order == "PCI_BUS_ID" or not candidates:
        return positions
    if not all(candidate.speed for candidate in candidates):
        return positions  # one does not respond: keep the order rather than guess
    # By default CUDA puts the fastest GPU first and promises nothing about the rest; in practice
    # they stay in PCI order. `max` keeps the first of equals, so equal GPUs are not reordered.
    fastest = max(positions, key=lambda position: candidates[position].speed)
    return [fastest, *(position for position in positions if position != fastest)]


def _ordinals(value: str, uuids: Sequence[str]) -> list[int]:
    """Ordinals named by a list, up to the first entry that names no GPU; repetition hides all."""
    if value.startswith("GPU-"):
        written = list(takewhile(lambda entry: entry.startswith("GPU-"), value.split(",")))
        ordinals = [_by_uuid(entry, uuids) for entry in written]
        repeated = len(set(written)) < len(written)
    else:
        numbers = map(_leading_number, value.split(","))
        ordinals = list(takewhile(lambda number: number >= 0, numbers))
        repeated = len(set(ordinals)) < len(ordinals)
    found = list(takewhile(lambda ordinal: 0 <= ordinal < len(uuids), ordinals))
    # Repetition counts over all entries, also after one that names no GPU.
    return [] if repeated or len(set(found)) < len(found) else found


def _leading_number(entry: str) -> int:
    # The runtimes read a leading number and ignore what follows it: "1gpu" is 1.
    number = re.match(r"[+-]?[0-9]+", entry.strip())
    return int(number[0]) if number else -1


def _by_uuid(entry: str, uuids: Sequence[str]) -> int:
    matches = [ordinal for ordinal, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else -1


def _mig_slice(entry: str, candidates: Sequence[Candidate]) -> list[Visible]:
    """A process sees one MIG slice at most: the first one named."""
    if entry.startswith("MIG-GPU-"):
        # The older form names the parent: MIG-<GPU UUID>/<GPU instance>/<compute instance>.
        parent_uuid = entry.removeprefix("MIG-").split("/")[0]
        parent = _by_uuid(parent_uuid, [candidate.uuid for candidate in candidates])
        return [Visible(parent, entry)] if parent >= 0 and candidates[parent].mig_uuids else []
    matches = [
        Visible(position, uuid)
        for position, candidate in enumerate(candidates)
        for uuid in candidate.mig_uuids
        if uuid.startswith(entry)
    ]
    return matches if len(matches) == 1 else []
