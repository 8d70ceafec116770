"""The documents are true: every README block runs, every file they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def _run(block, machine, warnings="error"):
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", block],
        capture_output=True,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": machine},
        check=False,
        timeout=300,
    )


def test_the_simulated_server_example_runs():
    (block,) = _blocks("docs/simulated-server.md")
    done = _run(block, "")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"saved [1-4]\d%\n", done.stdout)


BLOCKS = _blocks("README.md")


def test_there_are_two_examples():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["measure", "optimize"])
@pytest.mark.parametrize("machine", ["", "v100x2"], ids=["without GPUs", "simulated"])
def test_readme_examples_run_as_they_are(block, machine):
    done = _run(block, machine)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("block", _blocks("docs/optimizing.md"), ids=["limit", "loader", "hold"])
def test_optimizing_examples_run_as_they_are(block):
    done = _run(block, "v100")
    assert (done.returncode, done.stderr) == (0, "")


FROM_ZEUS = _blocks("docs/from-zeus.md")
FORMER = [block for block in FROM_ZEUS if block.startswith("# zeus 0.16\n")]


def test_what_was_stands_beside_what_is():
    assert len(FORMER) == 3
    for block in FORMER:
        assert FROM_ZEUS[FROM_ZEUS.index(block) + 1] not in FORMER


@pytest.mark.parametrize("block", FORMER, ids=["measure", "selector", "job"])
def test_what_was_written_for_zeus_0_16_runs_and_warns(block):
    done = _run(block, "v100x2", warnings="default")
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    assert warned
    assert all("DeprecationWarning: " in line for line in warned), warned


@pytest.mark.parametrize("block", [block for block in FROM_ZEUS if block not in FORMER])
def test_what_is_written_instead_runs_without_warnings(block):
    done = _run(block, "v100x2")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", _blocks("docs/from-codecarbon.md"), ids=["carbon", "function"])
@pytest.mark.parametrize("machine", ["", "v100x2"], ids=["without GPUs", "simulated"])
def test_what_is_written_instead_of_codecarbon_runs(block, machine):
    done = _run(block, machine)
    assert (done.returncode, done.stderr) == (0, "")
    if machine:
        assert re.search(r"kWh ± \d+%|J, .* on average", done.stdout)


def test_the_serving_example_runs_and_keeps_its_promise():
    (block,) = _blocks("docs/serving.md")
    done = _run(block, "")
    assert (done.returncode, done.stderr) == (0, "")
    *table, choice = done.stdout.splitlines()
    p99 = {int(row.split()[0]): float(row.split()[-2 if "*" in row else -1]) for row in table[2:]}
    clock = int(choice.split()[0])
    assert p99[clock] <= 200 < min(p99[slower] for slower in p99 if slower < clock)


def test_the_example_of_a_service_runs_and_saves():
    (block,) = _blocks("docs/slo.md")
    done = _run(block, "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(": kept, measured") == 2
    assert "Decision(setting=ServingSetting(prefill=1410" not in done.stdout


START_PAGES = [f"docs/start/{name}.md" for name in ("training", "serving", "research")]


@pytest.mark.parametrize("page", START_PAGES)
def test_pages_to_start_from_run_as_they_are(page):
    (block,) = _blocks(page)
    done = _run(block, "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


DOCUMENTS = sorted(
    path
    for folder in (
        ".",
        "docs",
        "docs/*",
        "benchmarks",
        "drivers",
        "examples/*",
        "paper",
        "paper/*",
        "verified",
    )
    for path in ROOT.glob(f"{folder}/*.md")
)


def _anchors(path):
    """What a link to a heading of this document may be called, as GitHub names them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]*)#?([^)]*)\)", path.read_text(encoding="utf-8"))
    for target, anchor in links:
        if target.startswith("https://"):
            continue
        there = (path.parent / target) if target else path
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there), f"{target}#{anchor}"


def test_architecture_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = {path.name for path in (ROOT / "src").rglob("*.py")}
    for name in re.findall(r"`(\w+\.py)`", text):
        assert name in source, name


def test_readme_is_short():
    assert len(README.split()) < 800


def test_every_variable_is_documented():
    """Those that only pass from a process of ours to its child, or into a test, need not be."""
    own = {"ZEUS_DRM_ROOT", "ZEUS_POWERCAP_ROOT", "ZEUS_TRIAL_NOTES"}
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    told = "".join(document.read_text(encoding="utf-8") for document in documents)
    for path in (ROOT / "src").rglob("*.py"):
        named = re.findall(r'"(ZEUS_[A-Z_]+)"', path.read_text(encoding="utf-8"))
        assert [name for name in named if name not in own and name not in told] == [], path
