"""Extensions: other distributions add to the registries, and cost only themselves if they break.

The distributions are built and installed from `tests/extension` as users would do it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.support import one_error_line, zeus

pytest.importorskip("hatchling")

PROJECTS = Path(__file__).parent / "extension"


def install(target: Path, *projects: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--no-build-isolation", "--disable-pip-version-check", "--target", str(target),
         *(str(PROJECTS / project) for project in projects)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """Directory of an installed distribution that keeps all rules."""
    return install(tmp_path_factory.mktemp("acme"), "acme")


@pytest.fixture(scope="module")
def both(acme, tmp_path_factory):
    """Path with one more distribution, which breaks them."""
    broken = install(tmp_path_factory.mktemp("broken"), "broken")
    return os.pathsep.join(map(str, (acme, broken)))


@pytest.fixture
def gpus(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file, value in {"energy": 5, "power": 100, "limit": 300}.items():
            (tmp_path / name / file).write_text(str(value))
    return tmp_path


def say(script: str, path: Path | str, **variables: str) -> Any:
    """What a program says as JSON; it must not write anything else."""
    done = subprocess.run(
        [sys.executable, "-c", "import json\n" + script],
        env={**os.environ, "PYTHONPATH": str(path), "ZEUS_HELPER": "0", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_nothing_is_loaded_before_its_registry_is_consulted(acme, gpus):
    script = """
import sys
from zeus.monitor import ZeusMonitor
loaded = [name in sys.modules for name in ("acme_zeus", "importlib.metadata")]
monitor = ZeusMonitor()
loaded += [name in sys.modules for name in ("acme_zeus.gpus", "acme_zeus.policies", "numpy")]
print(json.dumps(loaded))
"""
    said = say(script, acme, ACME_GPUS=str(gpus))
    assert said == [False, False, True, False, False]


def test_a_vendor_of_gpus_is_measured_hidden_and_held_like_ours(acme, gpus):
    script = """
from pathlib import Path
from zeus.device import get_gpus
from zeus.monitor import ZeusMonitor
(gpu,) = get_gpus()
limit = Path("LIMIT")
seen = [[gpu.name, gpu.identity.vendor, limit.read_text()]]
with gpu.hold(power_limit=200):
    seen.append(float(limit.read_text()))
seen.append(float(limit.read_text()))
try:
    gpu.hold(power_limit=20)
except ValueError as error:
    seen.append(str(error))
monitor = ZeusMonitor()
monitor.begin_window("w")
fresh = limit.parent / "fresh"
fresh.write_text("12")
fresh.rename(limit.parent / "energy")  # at once, as a counter changes
seen.append(monitor.end_window("w").gpu_energy)
print(json.dumps(seen))
""".replace("LIMIT", str(gpus / "b" / "limit"))
    about, held, after, refused, energy = say(
        script, acme, ACME_GPUS=str(gpus), ACME_VISIBLE="ACME-b"
    )
    assert about == ["Acme b", "Acme", "300"]
    assert (held, after) == (200, 300)
    assert refused.startswith("50 W <= power_limit <= 300 W must hold for Acme b")
    assert list(energy) == ["0"]


@pytest.mark.parametrize("helper", ["0", "1"])
def test_an_error_that_a_driver_must_not_raise_costs_one_value(acme, gpus, helper):
    script = """
import threading, time
from pathlib import Path
from zeus.device import CapabilityError, get_gpus
from zeus.monitor import ZeusMonitor
path = Path("GPU")

def show(value):
    (path / "fresh").write_text(value)
    (path / "fresh").rename(path / "energy")  # at once, as a counter changes

monitor = ZeusMonitor()
monitor.begin_window("w")
time.sleep(0.5)
show("?")
time.sleep(0.5)
try:
    get_gpus()[1].energy()
except CapabilityError as error:
    seen = [str(error)]
show("12")
time.sleep(0.5)
seen.append(sorted(monitor.end_window("w").gpu_energy))
seen.append([thread.name for thread in threading.enumerate() if "sampler" in thread.name])
print(json.dumps(seen))
""".replace("GPU", str(gpus / "b"))
    error, measured, threads = say(script, acme, ACME_GPUS=str(gpus), ZEUS_HELPER=helper)
    assert error == (
        "implausible value: the driver raised ValueError: could not convert string to float: '?'"
    )
    assert measured == [0, 1]
    assert threads == ["zeus-sampler"]


def test_a_policy_is_replayed_beside_ours(acme):
    names = "default,try-all,acme_zeus.policies:Unregistered,zeus"
    done = zeus("replay", "--gpu", "v100", "--seeds", "1", "--policy", names, "--json",
                PYTHONPATH=str(acme))  # fmt: skip
    assert done.returncode == 0, done.stderr
    default, registered, unregistered, _ = json.loads(done.stdout)
    assert registered["policy"] == "try-all"
    assert unregistered["policy"] == "unregistered"
    assert {**registered, "policy": ""} == {**unregistered, "policy": ""}
    assert registered["last_batch_size"] == registered["optimal_batch_size"]
    assert registered["eta_last5_vs_default"] < 0.8 * default["eta_last5_vs_default"]


def test_a_policy_in_the_current_directory_is_found(tmp_path, acme):
    (tmp_path / "mine.py").write_text((acme / "acme_zeus" / "policies.py").read_text())
    done = zeus("replay", "--gpu", "v100", "--seeds", "1", "--recurrences", "3",
                "--policy", "mine:Unregistered", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\nunregistered " in done.stdout


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("acme_zeus.policies:Impostor", "must be none of Zeus's own (zeus, paper, paper-repaired,"),
        ("acme_zeus.policies:Failing", "policy acme_zeus.policies:Failing failed: IndexError: no"),
        ("acme_zeus.policies:Nope", "cannot be imported: AttributeError"),
        ("acme_zeus.gpus:VENDOR", "it must be a Policy with a `name`, but is GpuVendor("),
        ("nowhere:X", "nowhere:X cannot be imported: ModuleNotFoundError"),
        ("acme_zeus:", "unknown policy acme_zeus:; available: default, grid, paper,"),
        ("try", "available: default, grid, paper, paper-repaired, zeus, try-all"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_in_one_line(acme, policy, message):
    done = zeus("replay", "--gpu", "v100", "--seeds", "1", "--policy", policy,
                PYTHONPATH=str(acme))  # fmt: skip
    assert done.returncode in (1, 2)
    assert message in one_error_line(done)


def test_a_whole_cluster_takes_registered_policies_only(acme, tmp_path):
    done = zeus("cluster", "replay", "--tables", "x", "--policy", "acme_zeus.policies:TryAll",
                PYTHONPATH=str(acme))  # fmt: skip
    assert "a policy must be registered" in one_error_line(done)
    zeus("cluster", "generate", "--jobs", "500", "--output", str(tmp_path))
    done = zeus("cluster", "replay", "--tables", str(tmp_path), "--gpu", "v100", "--workers", "2",
                "--policy", "try-all", PYTHONPATH=str(acme))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "v100, try-all" in done.stdout


NIGHTS = """
from contextlib import closing
from zeus.optimizer.batch_size import CreateJob, Decide, JobSpec, ReportEpoch, open_jobs

def nights(count, spec=None):
    sizes = []
    with closing(open_jobs("sqlite:///STORE")) as jobs:
        if spec is not None:
            jobs.do(CreateJob(spec=spec))
        for _ in range(count):
            trial = jobs.do(Decide(job="j", gpu="V100", max_power=100.0))
            sizes.append(trial.batch_size)
            report = dict(epoch=1, time=1.0, energy=10.0 * trial.batch_size, metric=0.95)
            jobs.do(ReportEpoch(trial=trial.trial, **report))
    return sizes

"""


def test_a_job_decides_by_the_policy_and_is_refused_without_it(acme, tmp_path):
    script = NIGHTS.replace("STORE", f"{tmp_path}/jobs.db")
    first = 'spec = JobSpec("j", (8, 16, 32), 16, 0.9, policy="try-all", beta=None)\n'
    assert say(script + first + "print(json.dumps(nights(2, spec)))", acme) == [8, 16]
    # The next process begins with what is stored.
    assert say(script + "print(json.dumps(nights(2)))", acme) == [32, 8]
    refused = """
from zeus.errors import ZeusError
try:
    nights(1)
except ZeusError as error:
    print(json.dumps(str(error)))
"""
    assert "`policy` must be one of zeus, paper" in say(script + refused, tmp_path)


def test_objectives_and_schedules_are_options_of_commands(acme):
    done = zeus("frontier", "--simulate", "v100:imagenet", "--lowest-power", "500",
                PYTHONPATH=str(acme))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "LowestPower 500 s" in done.stdout
    assert "lowest power within S seconds" in zeus("frontier", "-h", PYTHONPATH=str(acme)).stdout
    profile = acme / "profile.csv"
    rows = [f"{stage},{kind},{clock},{time},{energy}" for stage in range(2)
            for kind in ("forward", "backward")
            for clock, time, energy in ((1000, 0.1, 20), (700, 0.13, 17))]  # fmt: skip
    profile.write_text("stage,instruction,frequency,time,energy\n" + "\n".join(rows) + "\n")
    done = zeus("plan", str(profile), "--schedule", "depth-first", "--microbatches", "3",
                "--blocking-power", "50", PYTHONPATH=str(acme))  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_broken_extension_costs_itself_and_one_warning(both, gpus):
    done = zeus("env", "--json", PYTHONPATH=both, ACME_GPUS=str(gpus))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [gpu["name"] for gpu in report["gpus"]] == ["Acme a", "Acme b"]
    found = {(each["group"], each["name"], each["distribution"]): each["problem"]
             for each in report["extensions"]}  # fmt: skip
    good = {key[:2] for key, problem in found.items() if key[2] == "acme-zeus 1.2"}
    assert good == {
        ("zeus.gpu_vendors", "Acme"),
        ("zeus.objectives", "LowestPower"),
        ("zeus.batch_size_policies", "try-all"),
        ("zeus.schedules", "depth-first"),
        ("zeus.metric_sources", "acme"),
    }
    assert not any(found[key] for key in found if key[2] == "acme-zeus 1.2")
    problems = {key[1]: text for key, text in found.items() if key[2] == "broken-zeus 0.1"}
    for name, expected in {
        "NVIDIA": "its name must be none of Zeus's own (NVIDIA, AMD",
        "Liar": "`name` must be that of its entry point, but is 'NVIDIA'",
        "Missing": "loading broken_zeus:NO_SUCH_NAME failed: AttributeError",
        "Energy": "its name must be none of Zeus's own (Energy, Time",
        "NoEntry": "it must be an ObjectiveEntry, but is GpuVendor(",
        "exits": "failed: SystemExit: this package needs a license",
        "no-policy": "it must be a Policy with a `name`",
        "try-all": "its name must be its own, but another extension is called 'try-all'",
        "number": "it must be a function of a Shape, but is 42",
    }.items():
        assert expected in problems[name]
        warnings = [line for line in done.stderr.splitlines() if f"`{name}` (" in line]
        assert len(warnings) == 1
        assert "of broken-zeus 0.1 is not used: " in warnings[0]
    assert "which Fails GPUs are visible is unknown: IndexError" in done.stderr
    assert "collector fails: OSError: no fans" in done.stderr
    shown = zeus("env", PYTHONPATH=both, ACME_GPUS=str(gpus)).stdout
    assert "Extensions" in shown
    assert "not used: it must be a function of a Shape" in shown


def test_metrics_of_others_are_published_beside_ours_under_names_of_their_own(acme, gpus):
    done = zeus("export", "--once", PYTHONPATH=str(acme), ACME_GPUS=str(gpus))
    assert 'acme_fan_speed_hertz{fan="1"} 30.0' in done.stdout
    assert done.stdout.count("# TYPE zeus_exporter_info") == 1
    assert 'zeus_collector_success{collector="acme"} 0.0' in done.stdout
    assert "must have names of their own, but got zeus_exporter_info" in done.stderr
