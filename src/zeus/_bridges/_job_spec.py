"""Keywords of `JobSpec` as clients of zeus 0.16's batch-size server wrote them."""

from __future__ import annotations

from typing import Any

from zeus._bridges._modules import warn_once
from zeus.errors import JobSpecError

_RENAMED = {
    "beta_knob": "beta",
    "higher_is_better_metric": "higher_is_better",
    "num_pruning_rounds": "pruning_rounds",
    "window_size": "window",
}
_DROPPED = ("mab_num_explorations", "mab_prior_mean", "mab_prior_precision")
_FORMER = {*_RENAMED, *_DROPPED, "job_id", "job_id_prefix", "mab_seed"}
_DEFAULT_TARGET = 0.5  # documented


def translated(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords of today's `JobSpec`; unknown ones stay.

    Raises:
        JobSpecError: If something is given in both ways.
    """
    used = sorted(_FORMER & keywords.keys())
    if not used:
        return keywords
    dropped = [name for name in used if name in _DROPPED]
    warn_once(
        f"JobSpec({', '.join(f'{name}=' for name in used)})",
        "name=, beta=, higher_is_better=, pruning_rounds=, window= and seed="
        + (f"; without effect: {', '.join(dropped)}" if dropped else ""),
        stacklevel=3,
    )
    today = {name: value for name, value in keywords.items() if name not in _FORMER}
    renamed = {new: keywords[old] for old, new in _RENAMED.items() if old in keywords}
    if "job_id_prefix" in keywords or "job_id" in keywords:
        renamed["name"] = _name(keywords.get("job_id"), keywords.get("job_id_prefix"))
    if keywords.get("mab_seed") is not None:
        renamed["seed"] = keywords["mab_seed"]
    twice = sorted(today.keys() & renamed.keys())
    if twice:
        raise JobSpecError(f"{', '.join(twice)} must be given once, but is given twice: {keywords}")
    return {"target_metric": _DEFAULT_TARGET, **today, **renamed}


def _name(job_id: str | None, prefix: str | None) -> str | None:
    if job_id is None:
        return prefix
    if prefix is not None and not job_id.startswith(prefix):
        raise JobSpecError(
            f"`job_id` must begin with `job_id_prefix` {prefix!r}, but got {job_id!r}"
        )
    return job_id
