"""Values of a trial in the words of a command line: `{batch_size}` and others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from zeus.errors import RunError
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._share import BatchShare

SIZES = ("batch_size", "local_batch_size")
"""Placeholders by which a program learns its batch size."""
SHARES = ("local_batch_size", "accumulation_steps", "replicas")
"""Placeholders that depend on the number of replicas."""
KNOWN = (
    *SIZES,
    "accumulation_steps",
    "replicas",
    "learning_rate_scale",
    "job",
    "trial",
    "recurrence",
    "attempt",
)

# `${NAME}` is a shell's.
_BRACES = re.compile(r"(?<!\$)\{([A-Za-z][\w -]*)\}")
_ALONE = re.compile(r"(?:[^{}]*=)?\{[^{}]*\}")
_SIMILAR = 0.75


def values_of(decision: Decision, share: BatchShare) -> dict[str, str]:
    """Return the value of every placeholder."""
    return {
        "batch_size": str(decision.batch_size),
        "local_batch_size": str(share.local_batch_size),
        "accumulation_steps": str(share.accumulation_steps),
        "replicas": str(share.replicas),
        "learning_rate_scale": repr(decision.learning_rate_scale),
        "job": decision.job,
        "trial": decision.trial,
        "recurrence": str(decision.recurrence),
        "attempt": str(decision.attempt),
    }


def filled(program: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Fill in a command line for one trial. Braces around anything else stay as they are."""
    words = []
    for word in program:
        done = word
        for name, value in values.items():
            done = done.replace(f"{{{name}}}", value)
        words.append(done)
    return words


def used(program: Sequence[str], names: Iterable[str]) -> bool:
    """Return whether a command line has any of these placeholders."""
    return any(f"{{{name}}}" in word for word in program for name in names)


def check_placeholders(program: Sequence[str]) -> None:
    """Check that a command line has no placeholder that is unknown.

    Braces have other uses, too, so an unknown name is refused if it resembles a known one, or if it
    stands for a whole value (`{bs}`, `--bs={bs}`) in a command without any batch size.

    Raises:
        RunError: If it has one; lists those that are known.
    """
    sized = used(program, SIZES)
    plain = {_plain(name): name for name in KNOWN}
    for word in program:
        for name in _BRACES.findall(word):
            if name in KNOWN:
                continue
            close = get_close_matches(_plain(name), plain, 1, _SIMILAR)
            if close or (not sized and _ALONE.fullmatch(word)):
                known = ", ".join(f"{{{each}}}" for each in KNOWN)
                meant = f" (perhaps {{{plain[close[0]]}}})" if close else ""
                raise RunError(
                    f"a placeholder in the command must be one of {known}, but got "
                    f"{{{name}}}{meant}"
                )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
