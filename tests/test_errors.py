"""Errors reach a process that waits for another one."""

from __future__ import annotations

import pickle

import pytest

from zeus import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.CapabilityError(errors.Reason.UNSUPPORTED, "power: none", "buy another"),
        errors.MissingExtraError("a server", "server", "store"),
        errors.BackendError("no answer", status=503),
        *(
            kind("`x` must be 1, but got 2")
            for kind in vars(errors).values()
            if isinstance(kind, type)
            and issubclass(kind, errors.ZeusError)
            and "__init__" not in vars(kind)
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_may_be_sent_to_another_process(error):
    """One that cannot be made again there hangs a pool of processes."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
