"""Jobs of several processes, started by `torchrun`: they decide together, once, and never hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.device.clients import PYTHONPATH, Clients
from tests.optimizer.support import truth, work

from zeus.clock import MonotonicClock
from zeus.device import _simulated as simulated
from zeus.frontier import Frontier, ZeusCost

pytest.importorskip("torch")

WORKER = Path(__file__).with_name("rank_worker.py")
SECONDS = 240
"""After which something hangs for sure."""
ODD = 187.5
JOB = work(0.05, activity=1.0, compute_bound=0.4)
TRUE = truth("v100", JOB)

ENVIRONMENT = {
    "PYTHONPATH": PYTHONPATH,
    "OMP_NUM_THREADS": "1",
    "ZEUS_HELPER": "0",
    # What a rank says is read from files; where it comes from does not matter here.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def torchrun(processes: int, directory: Path, *scenarios: str, **variables: str) -> int:
    """Run scenarios in so many processes; the exit code of the launcher."""
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={processes}", str(WORKER), str(directory), *scenarios,
        ],
        env={**os.environ, **ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    (directory / "errors").write_text(done.stderr)
    return done.returncode


def answers(directory: Path, scenario: str, processes: int = 2) -> list:
    """What every rank found."""
    return [
        json.loads((directory / f"{scenario}-{rank}.json").read_text()) for rank in range(processes)
    ]


def onlookers(spec: str) -> list[simulated.SimulatedGpuDriver]:
    """The shared GPUs, each set to an odd limit."""
    drivers = simulated.build(spec, MonotonicClock(), None)
    for driver in drivers:
        driver.set_power_limit(ODD)
    return drivers


# --- In virtual time ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> Path:
    """One launch of two processes, in which everything happens that leaves both alive."""
    directory = tmp_path_factory.mktemp("two-ranks")
    code = torchrun(
        2, directory,
        "own_gpu", "all_gpus", "refused", "refused_later", "saved", "one_fails", "comes_late",
        "run_on_first", "only_first", "comes_too_late", "announces_late", "only_some",
        ZEUS_STATE_DIR=str(directory / "state"),
    )  # fmt: skip
    assert code == 0, (directory / "errors").read_text()
    return directory


def test_all_ranks_decide_the_same(two_ranks):
    first, second = answers(two_ranks, "own_gpu")
    for name in ("frontier", "chosen", "max_power", "profiling", "steps"):
        assert first[name] == second[name]
    assert first["trouble"] == second["trouble"] == ""
    assert first["warnings"] == second["warnings"] == []
    assert first["limits"] == [first["chosen"], ODD], "each has a hand on its own GPU only"
    assert second["limits"] == [ODD, first["chosen"]]
    assert first["after"] == second["after"] == [ODD, ODD]


def test_energy_is_summed_and_time_is_that_of_the_slowest(two_ranks):
    (first, _) = answers(two_ranks, "own_gpu")
    frontier = Frontier.from_dict(first["frontier"])
    assert frontier.max_power == 500, "of all GPUs"
    assert ODD in [point.knob for point in frontier], "the limit from before is compared with"
    for point in frontier:
        if point.knob == ODD:
            continue
        true = TRUE.at(point.knob)
        assert point.time == pytest.approx(true.time + 0.01, rel=0.002)  # the second rank's
        # Both compute the same; the second also waits for its host, at static power.
        assert point.energy == pytest.approx(2 * true.energy + 0.01 * 34.44, rel=0.02)


def test_the_choice_is_by_the_maximum_power_of_all(two_ranks):
    (first, _) = answers(two_ranks, "own_gpu")
    frontier = Frontier.from_dict(first["frontier"])
    assert first["chosen"] == ZeusCost(0.3).select(frontier).point.knob
    mistaken = min(frontier, key=lambda point: 0.3 * point.energy + 0.7 * 250 * point.time)
    assert mistaken.knob < first["chosen"]


def test_a_gpu_that_every_rank_measures_counts_once(two_ranks):
    both = answers(two_ranks, "all_gpus")
    for answer in both:
        frontier = Frontier.from_dict(answer["frontier"])
        assert frontier.max_power == 500
        for point in frontier:
            assert point.energy == pytest.approx(2 * TRUE.at(point.knob).energy, rel=0.02)
        assert answer["limits"] == [answer["chosen"]] * 2
        (said,) = answer["warnings"]
        assert "do not add up over ranks" in said, "the monitor's, which is right about it"


def test_a_rank_without_permission_makes_all_observe_with_one_message(two_ranks):
    first, second = answers(two_ranks, "refused")
    for answer in (first, second):
        assert answer["observing"]
        assert answer["trouble"].startswith("rank 1: no permission: power limit control")
        assert answer["limits"] == [ODD, ODD]
        assert answer["profiling"] == 0
        assert answer["steps"] == 200
        assert answer["energy"] > 0
    (said,) = first["warnings"]
    assert "rank 1: no permission" in said
    assert second["warnings"] == []


def test_a_rank_that_is_refused_amid_profiling_stops_all(two_ranks):
    first, second = answers(two_ranks, "refused_later")
    assert first["trouble"] == second["trouble"]
    assert first["trouble"].startswith("rank 1: no permission")
    assert len(first["warnings"]) == 1
    assert first["steps"] == second["steps"] == 100


def test_a_profile_is_written_once_and_read_by_all(two_ranks):
    (first, first_again), (second, second_again) = answers(two_ranks, "saved")
    assert first["profiling"] == second["profiling"] > 0
    assert (first["exists"], second["exists"]) == (True, False)
    assert first_again["profiling"] == second_again["profiling"] == 0
    assert first_again["frontier"] == second_again["frontier"] == first["frontier"]
    assert first_again["chosen"] == second_again["chosen"] == first["chosen"]
    assert first_again["limits"] == [first["chosen"], ODD]
    (profile,) = json.loads((two_ranks / "profiles-0.json").read_text())["profiles"]
    assert (profile["gpus"], profile["job"], profile["batch_size"]) == (2, "a", 4)


def test_a_rank_that_fails_alone_does_not_keep_the_others_waiting(two_ranks):
    # They would wait for ten minutes, far beyond the end of this test.
    first, second = answers(two_ranks, "one_fails")
    assert "my own mistake" in second["trouble"]
    assert "all 2 processes must take part" in first["trouble"]
    for answer in (first, second):
        assert answer["steps"] == 300
        assert answer["limits"] == [ODD, ODD]
        assert len(answer["warnings"]) == 1


def test_if_only_some_ranks_have_an_optimizer_they_say_so(two_ranks):
    first, second = answers(two_ranks, "only_some")
    assert "all 2 processes must take part within 1.5 s, but not all did" in first["trouble"]
    assert first["steps"] == 200
    assert first["limits"] == [ODD, ODD]
    assert second["trouble"] == ""


def test_a_rank_without_an_optimizer_does_not_keep_the_others_waiting(two_ranks):
    # They would wait for ten minutes, far beyond the end of this test.
    first, second = answers(two_ranks, "only_first")
    assert first["trouble"] == (
        "every process of the job needs its own power limit optimizer, but rank 1 of 2 had none "
        "after 0.5 s"
    )
    (warning,) = first["warnings"]
    assert "training goes on with the previous setting: every process" in warning
    assert (first["steps"], first["profiling"], first["limits"]) == (200, 0, [ODD, ODD])
    for answer in (first, second):
        assert (answer["total"], answer["ranks"]) == (2.0, [0, 1]), "they work together as before"


@pytest.mark.parametrize("scenario", ["comes_late", "announces_late"])
def test_a_rank_that_is_late_is_waited_for(two_ranks, scenario):
    first, second = answers(two_ranks, scenario)
    assert first["trouble"] == second["trouble"] == ""
    assert first["chosen"] == second["chosen"]
    assert first["chosen"] is not None
    assert first["frontier"] == second["frontier"]


def test_a_rank_that_comes_too_late_does_not_wait_for_long_either(two_ranks):
    for rank, answer in enumerate(answers(two_ranks, "comes_too_late")):
        assert f"rank {1 - rank} of 2 had none" in answer["trouble"]
        assert len(answer["warnings"]) == 1
        assert answer["steps"] == 200


def test_a_run_that_only_some_ranks_have_is_not_logged(two_ranks):
    first, second = answers(two_ranks, "run_on_first")
    (warning,) = first["warnings"]
    assert "no longer logged: every process of the job needs its own Zeus callback" in warning
    assert first["logged"] == second["logged"] == []
    assert first["total"] == second["total"] == 2.0


def test_only_the_first_rank_tells_the_log(two_ranks):
    first, second = answers(two_ranks, "own_gpu")
    assert first["infos"] > 0
    assert second["infos"] == 0


# --- On a node that all processes share ---------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.thorough
def test_four_ranks_on_a_shared_node(tmp_path):
    drivers = onlookers("v100x4")
    assert torchrun(4, tmp_path, "shared", ZEUS_SIMULATE="v100x4") == 0, (
        tmp_path / "errors"
    ).read_text()
    all_four = answers(tmp_path, "shared", 4)
    for rank, answer in enumerate(all_four):
        assert answer["trouble"] == ""
        assert answer["own"] == [rank]
        assert answer["chosen"] == all_four[0]["chosen"]
        assert answer["frontier"] == all_four[0]["frontier"]
        assert answer["max_power"] == 1000
        assert answer["everywhere"] == [answer["chosen"]] * 4
        assert answer["seen"] == all_four[0]["seen"], "all go down together"
    assert list(dict.fromkeys(all_four[0]["seen"]))[:3] == [250, 200, 150]
    frontier = Frontier.from_dict(all_four[0]["frontier"])
    highest = frontier.at(250)
    # Four GPUs at full load, each counted once.
    assert 500 < highest.average_power < 1000
    assert [driver.power_limit() for driver in drivers] == [ODD] * 4


def test_a_rank_that_dies(tmp_path):
    """The launcher ends the others, and whoever comes next finds all limits as they were."""
    drivers = onlookers("v100x2")
    assert torchrun(2, tmp_path, "dies", "wait", ZEUS_SIMULATE="v100x2") != 0
    assert drivers[0].power_limit() == ODD
    assert restored_limits() == [ODD, ODD]


def test_without_a_launcher_the_others_go_on(tmp_path):
    drivers = onlookers("v100x2")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(tmp_path), "dies"],
            env={
                **os.environ, **ENVIRONMENT, "ZEUS_SIMULATE": "v100x2", "RANK": str(rank),
                "WORLD_SIZE": "2", "ZEUS_TEST_STORE": str(tmp_path / "store"),
            },
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        codes = [rank.wait(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, -signal.SIGKILL]
    survivor = json.loads((tmp_path / "dies-0.json").read_text())
    assert "all 2 processes must take part" in survivor["trouble"]
    assert survivor["steps"] == 60
    assert survivor["limit"] == ODD
    assert len(survivor["warnings"]) == 1
    assert drivers[0].power_limit() == ODD
    assert restored_limits() == [ODD, ODD]


def restored_limits() -> list[float]:
    """The limits after Zeus has started again on the machine."""
    clients = Clients(ZEUS_SIMULATE="v100x2")
    try:
        limits: list[float] = clients.ask("say([gpu.power_limit() for gpu in get_gpus()])")
    finally:
        clients.stop()
    return limits
