"""Which run a process belongs to, and whether it was started before."""

from __future__ import annotations

import pytest

from zeus.errors import RunError
from zeus.optimizer.batch_size.running._run_id import RunId


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"ZEUS_RUN_ID": "night 17"}, ("night 17", True)),
        ({"ZEUS_RUN_ID": "mine", "SLURM_JOB_ID": "7"}, ("mine", True)),
        # Several runs may share a Slurm job, so only the scheduler knows of a second start.
        ({"SLURM_JOB_ID": "7"}, ("slurm 7", False)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "0"}, ("slurm 7", False)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, ("slurm 7", True)),
        (
            {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_CLUSTER_NAME": "big"},
            ("slurm big 7 1", False),
        ),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RESTART_COUNT": "1"}, ("slurm 7", True)),
        ({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}, None),
        (
            {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "0"},
            ("torchrun abc", False),
        ),
        ({"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "1"}, ("torchrun abc", True)),
    ],
)
def test_schedulers_say_which_run_it_is(variables, found):
    run = RunId.find(None, variables)
    assert (None if run is None else (run.name, run.restarted)) == found


def test_what_is_stated_comes_first():
    run = RunId.find("mine", {"ZEUS_RUN_ID": "another"})
    assert run == RunId("mine", restarted=True, stated=True)
    with pytest.raises(RunError, match="`run_id` must have at most 200 characters"):
        RunId.find("x" * 201, {})


def test_which_exceptions_a_run_outlives():
    stated, slurm = RunId("mine", True, stated=True), RunId("slurm 7", False)
    elastic = RunId("torchrun a", False, crash_restarts=True)
    assert stated.outlives(SystemExit(143))
    assert not stated.outlives(RuntimeError())
    assert not slurm.outlives(SystemExit(1))
    assert elastic.outlives(RuntimeError())
    for run in (stated, slurm, elastic):
        assert not run.outlives(KeyboardInterrupt())


def test_torchrun_says_whether_it_will_start_its_workers_again():
    variables = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_MAX_RESTARTS": "2"}
    for count, again in (("0", True), ("1", True), ("2", False)):
        run = RunId.find(None, {**variables, "TORCHELASTIC_RESTART_COUNT": count})
        assert run is not None
        assert run.crash_restarts == again
