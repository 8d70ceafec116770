"""Why a trial has its batch size, in words."""

from __future__ import annotations

from zeus.optimizer.batch_size.job._choice import Choice
from zeus.optimizer.batch_size.job._job_batch import Role
from zeus.optimizer.batch_size.job._share import can_share
from zeus.optimizer.batch_size.job._spec import JobSpec

PURPOSES = {
    "default": "the default batch size",
    "explore": "to learn what this batch size costs",
    "exploit": "the best batch size so far",
    "sample": "chosen by Thompson sampling",
    "retry": "a retry, after a trial that did not reach the target",
}
"""Purposes of trials in words, by the name of the role."""

_MOST = 10.0  # as a share: beyond, it makes no difference


def reason(spec: JobSpec, choice: Choice, replicas: int = 1) -> str:
    """Return why a batch size was chosen.

    Args:
        spec: The job.
        choice: The choice, with what it was worth, if the policy has said so.
        replicas: Number of data-parallel replicas of the trial.
    """
    role, size = choice.role, choice.batch_size
    if role == Role.DEFAULT and size != spec.default_batch_size:
        if not can_share(spec.default_batch_size, replicas):
            return f"in place of the default, which {replicas} replicas cannot share equally"
        return "in place of the default, which did not reach the target, or does not fit in memory"
    if role == Role.EXPLOIT and choice.against == size == spec.default_batch_size:
        return f"the default {size} is the cheapest known"
    if choice.saving is None:
        return PURPOSES[role.name.lower()]
    if role == Role.EXPLORE:
        return _exploration(choice)
    known = f"{size} is the cheapest known: {_saving(choice, f'the default {choice.against}')}"
    return f"a retry; {known}" if role == Role.RETRY else known


def _exploration(choice: Choice) -> str:
    expected = f"expected {_saving(choice, str(choice.against))}"
    if choice.worth is None or choice.worth <= 0:
        # Chosen for another reason than what it is worth.
        return f"another run of {choice.batch_size}, which may have been unlucky: {expected}"
    said = [f"explore {choice.batch_size}: {expected}", f"worth {_runs(choice.worth)}"]
    if choice.horizon is not None:
        said[-1] += f" over the next {choice.horizon:.0f} nights"
    if choice.risk is not None:
        said.append(f"risk {_runs(choice.risk)}")
    return ", ".join(said)


def _saving(choice: Choice, other: str) -> str:
    """Return the expected saving with its interval, as a loss if that is what is expected."""
    saving, low, high = choice.saving or 0.0, choice.saving_low, choice.saving_high
    sign, word = (1, "cheaper") if saving >= 0 else (-1, "more expensive")
    said = f"{_percent(abs(saving))} % {word} than {other}"
    if low is None or high is None:
        return said
    first, last = sorted((sign * low, sign * high))
    signed = "+" if round(100 * first) < 0 else ""
    return f"{said} (95 %: {_percent(first, signed)} to {_percent(last, signed)} %)"


def _percent(share: float, signed: str = "") -> str:
    if share > _MOST:
        return f"over {_MOST:.0%}".removesuffix("%")
    if share < -_MOST:
        return f"below -{_MOST:.0%}".removesuffix("%")
    return f"{round(100 * share):{signed}d}"


def _runs(number: float) -> str:
    if number < 0.05:
        return "less than 0.1 run"
    return f"{number:.1f} {'run' if round(number, 1) <= 1 else 'runs'}"
