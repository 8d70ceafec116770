"""`zeus slo` as users run it: a process of its own beside a server that publishes metrics."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from tests.cli.busy_server import BusyServer, until
from tests.cli.support import LONG_ENOUGH, one_error_line, serving, start, zeus
from tests.optimizer.serving.pages import LLAMA_CPP

from zeus.device import get_gpus

SLO = ("slo", "--bound", "ttft:p99:1.5", "--bound", "tpot:p99:0.2", "--interval", "0.05")


@pytest.fixture(autouse=True)
def simulated(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    monkeypatch.setenv("ZEUS_STATE_DIR", str(tmp_path / "state"))


def locked() -> bool:
    return all(gpu.locked_graphics_clock() is not None for gpu in get_gpus())


def unlocked() -> bool:
    return all(gpu.locked_graphics_clock() is None for gpu in get_gpus())


def one_hold_or_more(url: str, *more: str) -> subprocess.Popen[str]:
    process = start(*SLO, "--to", url, *more)
    until(locked)
    return process


@pytest.mark.parametrize("server", ["vLLM", "SGLang", "TensorRT-LLM"])
def test_it_lowers_the_clock_and_restores_it_with_a_report(server):
    with serving(BusyServer(server)) as url:
        process = one_hold_or_more(url)
        first, second = (gpu.locked_graphics_clock() for gpu in get_gpus())
        assert first == second  # one setting for the whole group
        process.send_signal(signal.SIGTERM if server == "vLLM" else signal.SIGINT)
        out, err = process.communicate(timeout=LONG_ENOUGH)
    assert (process.returncode, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"controlling {server} (m) at ")
    assert "holds 1" in out
    assert "ttft p99 1.5 s: kept" in out
    assert "J per generated token" in out
    assert unlocked()


def test_the_report_as_json_and_what_was_learned_for_the_next_start(tmp_path):
    with serving(BusyServer()) as url:
        process = one_hold_or_more(url, "--json", "--quiet")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LONG_ENOUGH)
        report = json.loads(out)
        again = zeus(*SLO, "--to", url, "--duration", "0.2")
        other = zeus(*SLO, "--to", url, "--duration", "0.2", "--forget")
        other_knob = zeus(*SLO, "--to", url, "--duration", "0.2", "--knob", "power-limit")
    assert report["energy"] > 0
    assert [bound["kept"] for bound in report["bounds"]] == [True, True]
    assert report["held"][0]["reason"].startswith("highest")
    assert min(entry["decode"] for entry in report["held"]) < 1380
    assert "continuing with what was learned before" in again.stdout
    assert "continuing" not in other.stdout
    assert "continuing" not in other_knob.stdout
    assert "250 to 104 W" in other_knob.stdout
    assert len(list((tmp_path / "state" / "serving").iterdir())) == 2


def test_a_killed_controller_leaves_nothing_behind():
    with serving(BusyServer()) as url:
        process = one_hold_or_more(url)
        process.kill()
        process.communicate()
    assert locked()
    assert zeus("restore").returncode == 0
    assert unlocked()


def test_observing_changes_nothing_and_predicts():
    with serving(BusyServer()) as url:
        done = zeus(*SLO, "--to", url, "--observe", "--duration", "2", "--json", "--quiet")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert unlocked()
    assert report["predicted_saving"] > 0
    assert "predicted, not measured" in done.stderr


def test_a_server_out_of_reach_gets_its_clock_back():
    server = BusyServer()
    with serving(server) as url:
        process = one_hold_or_more(url)
    until(unlocked)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=LONG_ENOUGH)
    assert "the server cannot be read, the previous setting is restored" in out
    assert process.returncode == 0


def test_what_cannot_be_checked_is_refused_before_anything_is_held():
    with serving(LLAMA_CPP.encode()) as url:
        done = zeus(*SLO, "--to", url)
        assert done.returncode == 1
        error = one_error_line(done)
        assert "the bound on tpot cannot be checked: llama.cpp publishes no histogram" in error
    with serving(b"up 1\n") as url:
        assert "must have metrics of Zeus proxy, vLLM" in one_error_line(zeus(*SLO, "--to", url))
    with serving(b"", status=500) as url:
        assert "/metrics has status 500" in one_error_line(zeus(*SLO, "--to", url))
    assert "cannot be read: Connection refused" in one_error_line(
        zeus(*SLO, "--to", "http://127.0.0.1:9")
    )
    assert unlocked()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--phases",), "--phases needs --prefill-gpus and --decode-gpus"),
        (("--prefill-gpus", "0"), "are for --phases"),
        (
            ("--phases", "--prefill-gpus", "0", "--decode-gpus", "0,1"),
            "must be different GPUs",
        ),
        (("--bound", "ttft:p99:2"), "each of another percentile, but got ttft p99"),
        (("--bound", "ttfb:p99:2"), "must name one of ttft, tpot, itl, e2e"),
        (("--bound", "ttft:p99"), "must be such as ttft:p99:1.5, but got 'ttft:p99'"),
        (("--bound", "ttft:p100:1"), "a percentile"),
        (("--knob", "fan"), "must be one of clock, power-limit, but got 'fan'"),
        (("--interval", "0"), "must be seconds, at least 0.05"),
        (("--name", "a/b"), "must have no /"),
    ],
)
def test_wrong_options(options, error):
    done = zeus(*SLO, "--to", "http://127.0.0.1:9", *options)
    assert done.returncode == 2
    assert error in one_error_line(done)


def test_phases_on_different_gpus():
    with serving(BusyServer()) as url:
        options = ("--phases", "--prefill-gpus", "0", "--decode-gpus", "1")
        process = start(*SLO, "--to", url, *options)
        until(lambda: get_gpus()[1].locked_graphics_clock() is not None)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LONG_ENOUGH)
    assert (process.returncode, err) == (0, "")
    assert unlocked()
