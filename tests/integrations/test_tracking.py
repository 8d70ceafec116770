"""Values of a run for a tracker: when, under which step, of which steps; and errors of trackers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
from tests.integrations.support import ENOUGH_STEPS, STEP, Recorder

from zeus.errors import RunError
from zeus.integrations._tracking import samples_in
from zeus.integrations.loop import epochs, paused, steps
from zeus.integrations.tracker import Tracker
from zeus.monitor import ZeusMonitor
from zeus.optimizer import GlobalFrequencyOptimizer, GlobalPowerLimitOptimizer


@dataclass
class Memory(Tracker):
    """Keeps what it gets."""

    rows: list = field(default_factory=list)
    closed: int = 0

    def log(self, values, step):
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed += 1

    def of(self, name):
        return [(step, values[name]) for step, values in self.rows if name in values]


def test_rows_are_where_the_users_step_is_a_multiple(node, recorder):
    tracker = Memory(every=4, first_step=6)
    for _ in epochs(range(2), recorder, tracker=tracker):
        for _ in steps(range(5)):
            STEP.run(node.gpus)
    assert [step for step, _ in tracker.of("zeus/step_time")] == [8, 12, 16]
    assert [step for step, _ in tracker.of("zeus/epoch_time")] == [11, 16]
    assert tracker.closed == 1


def test_steps_are_counted_across_epochs_without_what_is_between_them(node, recorder):
    tracker = Memory(every=2)
    exact: list[float] = []
    for _ in epochs(range(2), recorder, tracker=tracker):
        for step in steps(range(3)):
            before = node.exact_energy()
            STEP.run(node.gpus)
            if len(exact) >= 3:
                STEP.run(node.gpus)  # in the second epoch, steps are twice as long
            exact.append(node.exact_energy() - before)
            if step == 1:
                with paused():
                    node.sleep(50.0)
        node.sleep(100.0)
    times = [value for _, value in tracker.of("zeus/step_time")]
    assert times == pytest.approx([1.1, 1.65, 2.2], rel=0.01)
    pairs = [(exact[i] + exact[i + 1]) / 2 for i in range(0, 6, 2)]
    energies = [value for _, value in tracker.of("zeus/step_energy")]
    assert energies == pytest.approx(pairs, rel=0.02)
    assert sum(energies) * 2 == pytest.approx(sum(exact), rel=0.01)


def test_only_epochs(node, recorder):
    tracker = Memory(every=None)
    for _ in epochs(range(2), recorder, tracker=tracker):
        for _ in steps(range(3)):
            STEP.run(node.gpus)
    assert [step for step, _ in tracker.rows] == [3, 6]
    assert not tracker.of("zeus/step_time")


def test_samples_are_those_of_the_batches(node, recorder):
    numpy = pytest.importorskip("numpy")
    tracker = Memory(every=2)
    batches = [(numpy.ones((size, 3)), numpy.ones(size)) for size in (4, 4, 1, 3)]
    for _ in epochs(range(1), recorder, tracker=tracker):
        for _ in steps(batches):
            STEP.run(node.gpus)
    ratios = [
        values["zeus/step_energy"] / values["zeus/energy_per_sample"]
        for _, values in tracker.rows
        if "zeus/step_energy" in values
    ]
    assert ratios == pytest.approx([4, 2])  # samples in a step
    (_, epoch) = tracker.rows[-1]
    by_sample = epoch["zeus/epoch_energy_per_sample"]
    assert epoch["zeus/epoch_energy"] / by_sample == pytest.approx(12)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (3, None),
        ("four", None),
        ([], None),
        ({}, None),
        ([1, 2], None),
        ({"ids": [1], "of": {}}, None),
    ],
)
def test_batches_without_arrays_have_unknown_samples(batch, samples):
    assert samples_in(batch) is samples


def test_samples_in_arrays():
    numpy = pytest.importorskip("numpy")
    assert samples_in(numpy.ones((5, 2))) == 5
    assert samples_in(numpy.float64(1)) is None
    assert samples_in([numpy.float64(1), {"x": (numpy.ones(7), numpy.ones(3))}]) == 7


def test_unknown_samples_leave_values_out(node, recorder):
    tracker = Memory(every=1)
    for _ in steps(range(2), recorder, tracker=tracker):
        STEP.run(node.gpus)
    assert tracker.of("zeus/step_energy")
    assert not tracker.of("zeus/energy_per_sample")
    assert not tracker.of("zeus/epoch_energy_per_sample")


def test_a_recurring_job_knows_its_samples_and_batch_size(node, shared_batch):
    tracker = Memory(every=1)
    shared_batch.on_train_begin()
    for _ in steps(range(2), shared_batch, tracker=tracker):
        STEP.run(node.gpus)
    for _, values in tracker.rows:
        assert values["zeus/batch_size"] == 4
        assert values["zeus/power_limit"] == node.gpus[0].power_limits().maximum
    (_, first) = tracker.rows[0]
    assert first["zeus/step_energy"] / first["zeus/energy_per_sample"] == pytest.approx(4)


def test_energy_that_is_not_known_is_absent():
    script = (
        "from zeus.integrations.loop import steps\n"
        "from zeus.integrations.tracker import Tracker\n"
        "from zeus.optimizer import Callback\n"
        "class Printed(Tracker):\n"
        "    def log(self, values, step): print(step, sorted(values))\n"
        "for _ in steps(range(2), Callback(), tracker=Printed(every=2, samples=8)):\n"
        "    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": "", "ZEUS_POWERCAP_ROOT": os.devnull},
        check=False,
        timeout=300,
    )
    assert done.stdout == "2 ['zeus/step_time']\n2 ['zeus/epoch_time']\n", done.stderr


# --- settings and savings -------------------------------------------------------------------------


def test_the_setting_in_force_and_what_it_saves(node):
    tracker = Memory(every=1)
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(node=node))
    limits = []
    for _ in epochs(range(2), optimizer, tracker=tracker):
        for _ in steps(range(ENOUGH_STEPS)):
            limits.append(node.gpus[0].power_limit())
            STEP.run(node.gpus)
    logged = [values for step, values in tracker.rows if "zeus/step_time" in values]
    assert [values["zeus/power_limit"] for values in logged] == limits
    assert "zeus/energy_saving" not in logged[0]  # before anything is known
    report = optimizer.report()
    assert report.energy_change is not None
    assert report.as_run is not None
    assert report.at_reference is not None
    (_, last) = tracker.rows[-1]
    assert last["zeus/energy_saving"] == pytest.approx(-report.energy_change)
    assert last["zeus/time_change"] == pytest.approx(report.time_change)
    assert 0 < last["zeus/run_energy_saving"] < last["zeus/energy_saving"]  # profiling included
    saved = 1 - report.as_run.energy / report.at_reference.energy
    assert last["zeus/run_energy_saving"] == pytest.approx(saved, rel=1e-3)


def test_savings_that_are_only_possible_are_named_so(node):
    tracker = Memory(every=1)
    optimizer = GlobalFrequencyOptimizer(ZeusMonitor(node=node), observe=True)
    for _ in steps(range(3 * ENOUGH_STEPS), optimizer, tracker=tracker):
        STEP.run(node.gpus)
    (_, last) = tracker.rows[-1]
    change = optimizer.report().energy_change
    assert change is not None
    assert last["zeus/possible_energy_saving"] == pytest.approx(-change)
    assert last["zeus/graphics_clock"] == max(node.gpus[0].supported_clocks().graphics)
    assert not {"zeus/energy_saving", "zeus/run_energy_saving"} & set(last)


# --- errors ---------------------------------------------------------------------------------------


class Failing(Memory):
    def log(self, values, step):
        if step >= 4:
            raise OSError("the disk is full")
        super().log(values, step)


def test_an_error_of_the_tracker_is_one_warning_and_training_goes_on(node, recorder, caplog):
    tracker = Failing(every=2)
    with caplog.at_level(logging.WARNING):
        for _ in epochs(range(2), recorder, tracker=tracker):
            for _ in steps(range(5)):
                STEP.run(node.gpus)
    assert [step for step, _ in tracker.rows] == [2]
    (record,) = caplog.records
    assert record.getMessage() == (
        "Failing gets no further values, and training goes on: OSError: the disk is full"
    )
    assert recorder.story == "[()()()()()pr][()()()()()pr]x"


def test_an_error_at_the_end_is_a_warning_too(node, recorder, caplog):
    class Closing(Memory):
        def close(self):
            raise OSError("the disk is full")

    for _ in steps(range(1), recorder, tracker=Closing()):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_callback_whose_values_cannot_be_had_does_not_stop_training(node, caplog):
    class Broken(Recorder):
        def values_to_log(self):
            raise ArithmeticError("no")

    broken = Broken()
    for _ in steps(range(2), broken, tracker=Memory(every=1)):
        pass
    assert broken.story == "[()()pr]x"
    assert len(caplog.records) == 1


def test_a_tracker_that_is_none_is_refused_with_the_rule(node):
    with pytest.raises(RunError, match=r"must be an object of zeus\.integrations\.tracker"):
        next(iter(epochs(range(1), tracker=print)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"every": 0}, "every >= 1"),
        ({"every": 1.5}, "`every` must be a whole number"),
        ({"samples": 0}, "samples >= 1"),
        ({"first_step": -1}, "first_step >= 0"),
    ],
)
def test_options_are_checked(options, rule):
    with pytest.raises(RunError, match=rule):
        Memory(**options)
