"""`make paper`: files, their bytes, the page; and what it refuses."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.support import LONG_ENOUGH, environment

from paper.figures import CATALOGUE
from paper.lab import Lab
from paper.produce import produce
from zeus.replay._traces import load_traces

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
ONLY = ("figure-1", "figure-3", "figure-4", "figure-10", "table-2")


def paper(*arguments):
    """Run the command to its end, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "paper", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(traces, tmp_path_factory):
    """The files that the command writes."""
    output = tmp_path_factory.mktemp("paper")
    done = paper(
        "--traces", str(traces / "nsdi23"), "--output", str(output / "new"),
        "--only", ",".join(ONLY), "--seeds", "3",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 figures and tables" in done.stdout
    return output / "new"


def test_files_are_there(folder):
    drawn = ("figure-1", "figure-4", "figure-10")
    expected = {f"{name}.{kind}" for name in drawn for kind in ("png", "svg", "json")}
    assert {path.name for path in folder.iterdir()} == expected | {"table-2.json", "index.html"}
    assert (folder / "figure-4.png").read_bytes().startswith(b"\x89PNG")
    svg = (folder / "figure-4.svg").read_text()
    assert "<dc:date>" not in svg
    assert json.loads((folder / "table-2.json").read_text())["v100"]["power_limits"][-1] == 250


def test_the_same_bytes_again(folder, traces, tmp_path):
    produce(load_traces(traces / "nsdi23"), tmp_path, only=ONLY, seeds=3)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_the_page_can_be_read(folder, open_page):
    for options in (
        {"viewport": {"width": 390, "height": 800}},
        {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    ):
        page = open_page(folder / "index.html", **options)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("[...document.images].map(i => i.naturalWidth > 100)") == [True] * 3
        assert "Not recomputed" in page.locator("#figure-3").inner_text()
        assert "23.8" in page.locator("#figure-1").inner_text()
    for target in page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash)"):
        assert page.locator(target).count() == 1


@pytest.fixture(scope="module")
def stages(traces, tmp_path_factory):
    """The page before each exhibit is computed, and at the end."""
    output = tmp_path_factory.mktemp("stages")
    pages = []

    def keep(_, what):
        if what in ("table-2", ""):  # the first of them has been written, too
            pages.append((output / "index.html").read_text())

    recorded = load_traces(traces / "nsdi23")
    produce(recorded, output, only=["figure-1", "table-2"], seeds=1, progress=keep)
    return pages


def test_the_page_fills_while_it_is_computed(stages, open_page, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(stages[0])
    page = open_page(path, viewport={"width": 1000, "height": 600})
    assert "0 of 2 figures and tables so far" in page.locator(".status").inner_text()
    assert page.locator("#figure-1").inner_text().split("\n")[-1] == "Being computed."
    assert page.locator("#table-2").inner_text().split("\n")[-1] == "Not computed yet."
    path.write_text(stages[1])
    # Without anybody's doing. What was computed is there, and the rest is not announced any more.
    page.locator("#figure-1 img").wait_for()
    page.locator("#table-2 table").wait_for()
    assert page.locator(".status").count() == 0
    assert "refresh" not in stages[1]


def test_a_reader_stays_where_they_are(stages, open_page, tmp_path):
    path = tmp_path / "index.html"
    begun = stages[1].replace("</head>", '<meta http-equiv="refresh" content="1"></head>')
    path.write_text(begun.replace("</main>", "<p>the first</p></main>"))
    page = open_page(path, viewport={"width": 1000, "height": 600})
    page.evaluate("scrollTo({top: 500, behavior: 'instant'})")
    path.write_text(begun.replace("</main>", "<p>the second</p></main>"))
    page.get_by_text("the second").wait_for()
    page.wait_for_function("scrollY === 500")


def test_a_page_that_will_never_be_complete_says_so(traces, tmp_path):
    def interrupt(_, what):
        if what == "table-2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        produce(
            load_traces(traces / "nsdi23"), tmp_path, only=["table-1", "table-2"], seeds=1,
            progress=interrupt,
        )  # fmt: skip
    text = (tmp_path / "index.html").read_text()
    assert "ended early: the page has 1 of 2" in text
    assert "Not computed." in text
    assert "Being computed" not in text
    assert 'http-equiv="refresh"' not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "table-1.json"]


def test_a_gpu_that_was_never_seen(traces, tmp_path):
    """With fewer workloads and batch sizes, and a power limit that was not always recorded."""
    source, target = traces / "nsdi23", tmp_path / "traces"
    target.mkdir()
    (target / "summary_train.csv").write_bytes((source / "summary_train.csv").read_bytes())
    with (source / "summary_power_v100.csv").open() as file:
        rows = list(csv.DictReader(file))
    kept = [
        row for row in rows
        if row["dataset"] in ("cifar100", "imagenet") and int(row["batch_size"]) < 300
        and (row["batch_size"], row["power_limit"]) != ("128", "250")
    ]  # fmt: skip
    with (target / "summary_power_x1.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(kept)
    recorded = load_traces(target)
    lab = Lab(recorded, seeds=1)
    for name in CATALOGUE:
        if name not in ("figure-9", "figure-10", "figure-22"):  # slow, or of other data
            json.dumps(CATALOGUE[name](lab).data, allow_nan=False)
    produce(recorded, tmp_path / "paper", only=["figure-2", "figure-17", "figure-18"], seeds=1)
    text = (tmp_path / "paper" / "index.html").read_text()
    assert "on X1" in text
    assert not re.search(r"\b(nan|inf)\b", re.sub('src="[^"]*"', "", text))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--only", "figure-99"], "unknown figure-99; available: headline,"),
        (["--gpu", "h100"], "no power trace of h100; available: a40, v100"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_wrong_options(traces, tmp_path, options, complaint):
    done = paper("--traces", str(traces / "nsdi23"), "--output", str(tmp_path / "o"), *options)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (tmp_path / "o").exists()
