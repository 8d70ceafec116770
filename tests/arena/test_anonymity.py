"""Nothing but the words tells who is who before the vote: a classifier finds only chance.

Two models with the same number of words, of which one is slow, starts late and sends many words at
once. The classifier gets all that a client receives: times and sizes of chunks, headers, the page,
and when text appeared on which side.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.arena.processes import ArenaProcess, arena, fake_model

from zeus.arena._pacing import FRAME_BYTES

WORDS = [18, 22, 26, 30]
FAST = {"name": "fast-one", "words": WORDS, "seconds": 0.005, "joules": 5.0}
SLOW = {"name": "slow-one", "words": WORDS, "seconds": 0.05, "chunk": 5, "delay": 0.3, "joules": 90}
ROUNDS = 72
SIDES = ("left", "right")


def received(running: ArenaProcess, number: int) -> tuple[dict[str, Any], bool]:
    """All that a client gets of a round before its vote; then, whether the left one is fast."""
    name = running.ask(f"prompt {number:03}")
    host = urllib.parse.urlsplit(running.url).netloc
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request("GET", f"/arena/rounds/{name}")
    page = connection.getresponse()
    html = page.read().decode()
    connection.request("GET", f"/arena/rounds/{name}/stream")
    stream = connection.getresponse()
    times, sizes, frames = [], [], []
    began = time.monotonic()
    while chunk := stream.read1(65536):
        times.append(time.monotonic() - began)
        sizes.append(len(chunk))
        frames.append(chunk)
    connection.close()
    lines = [json.loads(line) for line in b"".join(frames).splitlines()]
    assert lines[-1]["state"] == "answered"
    assert len(b"".join(frames)) % FRAME_BYTES == 0
    running.call(f"/api/rounds/{name}/vote", {"vote": "bad"})
    view = running.call(f"/api/rounds/{name}/judgement", {"judgement": "none"})[1]
    seen = {
        "html": html.replace(name, "NAME").replace(f"prompt {number:03}", "PROMPT"),
        "headers": [*page.getheaders(), *stream.getheaders()],
        "times": times,
        "sizes": sizes,
        "lines": lines,
    }
    return seen, view["answers"]["left"]["model"] == "fast"


def features(seen: dict[str, Any]) -> list[float]:
    """Numbers for the classifier, without the words and their number."""
    times, gaps = seen["times"], np.diff(seen["times"])
    found = [len(times), times[0], times[-1], gaps.mean(), gaps.std(), gaps.max(), gaps.min()]
    found += [
        float(np.mean(seen["sizes"])),
        float(np.std(seen["sizes"])),
        len(str(seen["headers"])),
    ]
    shown = {
        side: [place for place, line in enumerate(seen["lines"]) if line[side]] for side in SIDES
    }
    # When text appeared on each side, up to where the shorter one ends: beyond is its number.
    until = min(shown["left"][-1], shown["right"][-1])
    for side in SIDES:
        places = [place for place in shown[side] if place < until]
        steps = np.diff(places)
        found += [places[0], places[-1], steps.mean(), steps.std(), steps.max()]
    return found


def accuracy(samples: list[list[float]], labels: list[bool]) -> float:
    ensemble = pytest.importorskip("sklearn.ensemble")
    selection = pytest.importorskip("sklearn.model_selection")
    forest = ensemble.RandomForestClassifier(200, random_state=0, min_samples_leaf=2)
    folds = selection.StratifiedKFold(6, shuffle=True, random_state=0)
    return float(selection.cross_val_score(forest, samples, labels, cv=folds).mean())


def direct(url: str) -> list[float]:
    """What an arena would give away that passes chunks on as they come."""
    host = urllib.parse.urlsplit(url).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("POST", "/v1/chat/completions", b"{}")
    stream, times, sizes = connection.getresponse(), [], []
    began = time.monotonic()
    while chunk := stream.read1(65536):
        times.append(time.monotonic() - began)
        sizes.append(len(chunk))
    connection.close()
    return [times[0], times[-1], len(times), float(np.mean(sizes))]


def passed_on(fast: str, slow: str, label: bool) -> list[float]:
    return direct(fast) + direct(slow) if label else direct(slow) + direct(fast)


@pytest.mark.real_time  # a classifier may be lucky once in a few hundred runs, not three times
def test_a_classifier_finds_only_chance(tmp_path):
    with fake_model(**FAST) as fast, fake_model(**SLOW) as slow:
        models = {"fast": fast, "slow": slow}
        options = ["--max-running", "64"]
        with (
            arena(f"sqlite:///{tmp_path}/a.db", models, *options) as running,
            ThreadPoolExecutor(18) as pool,
        ):
            rounds = list(pool.map(lambda n: received(running, n), range(ROUNDS)))
        seen, labels = [each for each, _ in rounds], [label for _, label in rounds]
        with ThreadPoolExecutor(18) as pool:
            naive = list(pool.map(lambda label: passed_on(fast, slow, label), labels[:36]))
    # The pages and headers of all rounds are the same, but for the time of day.
    assert len({each["html"] for each in seen}) == 1
    headers = {
        tuple((name, value) for name, value in each["headers"] if name.lower() != "date")
        for each in seen
    }
    assert len(headers) == 1
    for word in ("fast", "slow", "joules"):
        assert word not in str(next(iter(headers)))
        assert all(word not in json.dumps(each["lines"]) for each in seen)
    # On every tick both sides get as many words, until one of them ends.
    for each in seen:
        left, right = ([len(line[side].split()) for line in each["lines"]] for side in SIDES)
        ends = min(np.flatnonzero(left)[-1], np.flatnonzero(right)[-1])
        assert left[:ends] == right[:ends]
    assert accuracy(naive, labels[:36]) > 0.9  # the classifier can find it where it is to be found
    found = accuracy([features(each) for each in seen], labels)
    assert found < 0.5 + 3 * 0.5 / ROUNDS**0.5, found
