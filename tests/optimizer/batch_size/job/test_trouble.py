"""What needs a person, in words; and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec

from zeus.optimizer.batch_size.job._trouble import Recent


def after(*runs: dict[str, Any], running: tuple[int, ...] = (), **changes: Any) -> str:
    recent = Recent()
    for number, run in enumerate(runs, 1):
        usual: dict[str, Any] = {
            "state": "failed",
            "recurrence": number,
            "batch_size": 64,
            "epochs": 20,
            "best": None,
            "note": "",
            "unmeasured": False,
        }
        recent.add(spec(**changes), **{**usual, **run})
    return recent.trouble(running)


REACHED: dict[str, Any] = {"state": "converged"}


def test_a_job_that_reaches_its_target_needs_nobody():
    assert after() == ""
    assert after(REACHED, REACHED) == ""
    assert after({}, {}, REACHED) == ""


def test_a_target_that_no_batch_size_reaches():
    sizes = [{"batch_size": size, "best": best} for size, best in ((64, 0.8), (32, 0.87), (16, 0))]
    said = after(REACHED, *sizes, {"state": "stopped", "best": 0.5}, {"best": 0.6})
    assert said == (
        "target not reached by any batch size in the latest 5 recurrences; best metric 0.87"
    )
    lower = after(*sizes[:2], higher_is_better=False)
    assert lower.endswith("in the latest 2 recurrences; best metric 0.8")
    assert after({}) == "target not reached by batch size 64 in the latest recurrence"


def test_a_recurrence_that_goes_on_is_not_lost():
    missed = {"recurrence": 1, "state": "stopped"}
    assert after(missed, running=(1,)) == ""
    assert "in the latest recurrence" in after({"recurrence": 1}, {"recurrence": 2}, running=(2,))
    # Attempts of one recurrence are one night.
    assert "in the latest recurrence" in after(missed, missed, missed)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            [{"epochs": 0, "note": "out of\nmemory"}],
            "the latest run failed before the end of the first epoch: out of memory",
        ),
        (
            [{"epochs": 0}, {"epochs": 0, "note": "x" * 500}],
            f"the latest 2 runs failed before the end of the first epoch: {'x' * 119}…",
        ),
        ([{"state": "expired"}], "the latest run stopped reporting, and its lease expired"),
        (
            [{"state": "expired"}, {"state": "cancelled"}, {"state": "expired"}],
            "the latest 2 runs stopped reporting, and their leases expired",
        ),
        ([{"state": "cancelled", "note": "interrupted"}], ""),
        (
            [{"state": "cancelled"}, {"state": "cancelled", "note": "exit code 1"}],
            "the latest 2 runs were cancelled: exit code 1",
        ),
    ],
)
def test_runs_that_did_not_even_miss(runs, said):
    assert after(REACHED, *runs) == said


def test_energy_that_is_not_measured():
    blind = {**REACHED, "unmeasured": True}
    assert after(blind) == "the energy of the latest run was not measured"
    assert after(blind, REACHED) == ""
    # A run without any epoch has nothing to measure.
    assert "energy" not in after(REACHED, {"epochs": 0, "unmeasured": True})
    assert after(blind, {"epochs": 3, "unmeasured": True}) == (
        "target not reached by batch size 64 in the latest recurrence; "
        "the energy of the latest run was not measured"
    )


def test_a_run_that_goes_on_after_all():
    recent = Recent()
    recent.add(
        spec(), state="expired", recurrence=1, batch_size=64, epochs=2, best=0.4, note="",
        unmeasured=False,
    )  # fmt: skip
    assert "expired" in recent.trouble(())
    recent.resume()
    assert recent == Recent()


def test_a_program_that_seems_to_ignore_its_batch_size_needs_a_person():
    warned = {"note": "the target was reached in epoch 3; warning: an epoch takes as many steps"}
    assert after({**REACHED, **warned}) == "an epoch takes as many steps"
    assert after({**REACHED, **warned}, REACHED) == ""
    # A run without an epoch says nothing about it.
    crashed = {"state": "cancelled", "epochs": 0}
    assert after({**REACHED, **warned}, crashed) == "an epoch takes as many steps"
