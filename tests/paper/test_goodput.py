"""Goodput, on traces of the Pollux artifact and on a model of several GPUs."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper.figures.multi_gpu import _APPLICATIONS, section_6_6
from paper.goodput import Gradient, best_batch_size
from paper.lab import Lab
from paper.pollux import load_application, train
from paper.product import load_traces
from paper.several_gpus import exchange, follow_goodput, spread
from zeus.errors import TraceError


def test_efficiency_follows_the_noise_scale():
    gradient = Gradient(initial=20, square=0.5, variance=3.0)
    assert gradient.noise == 120
    sizes = [20, 40, 160]
    expected = [(120 + 20) / (120 + size) for size in sizes]
    assert gradient.efficiency(sizes) == pytest.approx(expected)
    only_noise, no_noise = Gradient(20, 0.0, 3.0), Gradient(20, 0.5, 0.0)
    assert only_noise.noise == float("inf")
    assert only_noise.efficiency(sizes) == pytest.approx([1, 1, 1])
    assert no_noise.efficiency(sizes) == pytest.approx([1, 1 / 2, 1 / 8])
    assert Gradient(20, 0.0, 0.0).efficiency(sizes) == pytest.approx([1, 1, 1])


def test_more_noise_makes_larger_batches_worthwhile():
    sizes = [16, 32, 64, 128, 256]
    throughput = np.array([size / (1 + size / 100) for size in sizes])
    chosen = [best_batch_size(sizes, throughput, Gradient(16, 1.0, noise / 16))
              for noise in (0, 10, 100, 1000, 100_000)]  # fmt: skip
    assert chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == (16, 256)
    # Time for a sample's worth of progress is (1 + b/100) (noise + b) / b: least at 10 sqrt(noise).
    assert chosen[2] == 128
    assert best_batch_size([64], np.array([1.0]), Gradient(16, 1.0, 1.0)) == 64


@pytest.fixture(scope="module")
def archive(traces):
    path = traces / "pollux.tar.xz"
    if not path.exists():
        pytest.skip("no traces of the Pollux artifact")
    return path


@pytest.fixture(scope="module")
def applications(archive):
    return {name: load_application(archive, name) for name in _APPLICATIONS}


def test_recorded_progress_is_steps_times_efficiency(applications):
    for name, application in applications.items():
        for size, recorded in application.trainings.items():
            if name == "yolov3" and size > 32:
                continue  # there, statistics once an epoch are not enough
            steps = 0.0
            for epoch, progress in enumerate(np.diff(recorded.progress, prepend=0)):
                gradient = application.gradient(size, epoch)
                gain = size / application.initial * gradient.efficiency([size])[0]
                steps += progress / gain
            assert steps == pytest.approx(recorded.iteration[-1], rel=0.07), (name, size)


def test_goodput_finds_about_the_best_batch_size_unaided(applications):
    for name, application in applications.items():
        course = train(application, 4)
        fixed = [train(application, 4, size).seconds
                 for size in application.trainings if size >= application.sizes(4)[0]]  # fmt: skip
        assert course.seconds < 1.03 * min(fixed), name
        assert course.seconds < 0.75 * max(fixed), name
        assert course.sizes[-1] > course.sizes[0], name


def archive_of(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "made.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"pollux/simulator/traces/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


PLACEMENTS = (
    "placement,local_bsz,step_time,sync_time\n2,8,1.5,0.5\n2,4,1.0,0.5\n1,4,0.4,0\n12,4,9,5\n"
)
HEAD = "progress,iteration,metric,grad_sqr,grad_var\n"


def test_steps_of_shares_that_do_not_fit_are_accumulated(tmp_path):
    path = archive_of(tmp_path, {
        "tiny/placements.csv": PLACEMENTS,
        "tiny/validation-8.csv": f"{HEAD}100,100,1,-1,1\n",
        "tiny/validation-32.csv": f"{HEAD}100,25,1,3,1\n",
    })  # fmt: skip
    tiny = load_application(path, "tiny")
    assert sorted(tiny.steps) == [1, 2]  # the third is on two nodes
    assert (tiny.initial, tiny.sizes(2)[0], tiny.sizes(2)[-1]) == (8, 8, 32)
    assert tiny.step_time(8, 2) == 1.0
    assert tiny.step_time(12, 2) == 1.25
    assert tiny.step_time(32, 2) == 1.5 + 1.0  # two parts, one exchange
    # A squared norm is never negative; between recorded sizes it is interpolated.
    assert tiny.gradient(20, 0) == Gradient(8, 1.5, 1.0)
    # With a noise scale of 8/3, a step with 32 samples is worth 4 * efficiency = 16/13 steps of 8.
    assert train(tiny, 2, 32).seconds == pytest.approx(100 / (16 / 13) * 2.5)


def test_archives_that_cannot_be_used(tmp_path):
    path = archive_of(tmp_path, {"tiny/placements.csv": PLACEMENTS, "bad/placements.csv": "a\nx\n"})
    with pytest.raises(TraceError, match="has no application tiny"):
        load_application(path, "tiny")
    with pytest.raises(TraceError, match="cannot be read"):
        load_application(path, "bad")
    with pytest.raises(TraceError, match="cannot be read"):
        load_application(tmp_path / "absent", "tiny")


@pytest.fixture(scope="module")
def lab(traces):
    return Lab(load_traces(traces / "nsdi23"), seeds=2)


def test_a_workload_is_spread_over_gpus(lab, applications):
    one, own = lab.table("deepspeech2", "a40"), applications["deepspeech2"]
    epochs = {size: [6.0, 8.0] for size in (8, 16, 24, 64, 1024)}
    alone = spread(one, epochs, 1, None)
    assert alone.batch_sizes == (8, 16, 24, 64)
    assert alone.time[1] == pytest.approx(one.time[1])
    assert (one.time[1] > alone.time[2]).all()
    assert (alone.time[2] > one.time[2]).all()  # 24 lies between 16 and 32
    four, free = spread(one, epochs, 4, own), spread(one, epochs, 4, None)
    assert (four.batch_sizes, four.max_power) == ((64,), 1200)
    assert free.time[0] == pytest.approx(one.time[1] / 4)
    assert four.power[0] == pytest.approx(4 * one.power[1])
    longer = exchange(own, np.array([16.0]), 4)[0]
    assert 0.2 < longer < 0.4
    # The same seconds at each power limit.
    assert four.time[0] - free.time[0] == pytest.approx(longer * free.time[0, -1])


def test_a_batch_size_that_never_changes_takes_the_epochs_of_the_table(lab, applications):
    own = applications["deepspeech2"]
    epochs = {64: [7.0, 8.0], 128: [9.0, 9.0], 256: [12.0, 14.0], 512: [np.inf, np.inf]}
    table = spread(lab.table("deepspeech2", "a40"), epochs, 4, own)
    only = follow_goodput(table, own, least=256)
    assert set(only.sizes) == {256}  # 512 never reaches the target
    assert only.time == pytest.approx(13 * table.time[2, -1])
    assert only.energy == pytest.approx(13 * table.energy[2, -1])
    fixed = (table.expected_epochs * table.time[:, -1])[:3]
    exact = follow_goodput(table, own, informed=True)
    assert exact.time <= fixed.min()
    guided = follow_goodput(table, own)
    assert exact.time <= guided.time <= fixed.max()
    assert guided.sizes[0] == 64
    alike = follow_goodput(table, own, informed=True, alike=True)
    assert alike.time == pytest.approx(fixed.min())  # nothing to gain from changing
    limited = follow_goodput(table, own, limit=3)
    assert limited.energy < guided.energy


def test_the_exhibit(lab, archive, tmp_path):
    found = section_6_6(lab)
    assert "model on a model" in found.caption
    published = [fact for fact in found.facts if fact.published]
    assert published[0].published == "12 % more time, 21 % less energy"
    assert published[0].agrees is None
    assert found.data["zeus"]["paper"][2]["energy"] < found.data["goodput"]["energy"]
    elsewhere = Lab(replace(lab.traces, folder=tmp_path / "nsdi23"), seeds=1)
    assert "pollux.tar.xz cannot be read" in section_6_6(elsewhere).missing
    others = {"v100": lab.traces.power["v100"]}
    assert "no power trace" in section_6_6(Lab(replace(lab.traces, power=others), seeds=1)).missing
