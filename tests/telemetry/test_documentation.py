"""The list of metrics in the documentation is complete and right, and the examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.telemetry._collection import all_metrics
from zeus.telemetry._metrics import Kind

PATH = Path(__file__).parents[2] / "docs" / "telemetry.md"
BEGIN = "<!-- metrics: made from src/zeus/telemetry; a test compares -->\n"
END = "<!-- end of metrics -->"


def table() -> str:
    rows = []
    for metric in all_metrics():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {labels} | {metric.help} |")
    return "\n".join(["| metric | labels | |", "|---|---|---|", *rows, ""])


def written(text: str) -> str:
    head, _, rest = PATH.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}{text}{END}{rest.partition(END)[2]}"


def test_the_list_of_metrics_is_that_of_the_code():
    expected = written(table())
    assert PATH.read_text(encoding="utf-8") == expected, f"run `python {__file__}`"


def test_names_and_units_follow_the_conventions():
    names = [metric.name for metric in all_metrics()]
    assert len(set(names)) == len(names)
    units = "joules|watts|celsius|hertz|bytes|ratio|seconds|info|success|steps|batch_size|observing"
    for metric in all_metrics():
        assert re.fullmatch(rf"zeus_[a-z_]*?({units})(_total)?", metric.name)
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert not {"job", "instance", "le", "quantile"} & set(metric.labels), "taken by Prometheus"


BLOCKS = re.findall(r"```python\n(.*?)```", PATH.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["training", "OpenTelemetry"])
def test_examples_run_as_they_are(block):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        env={**os.environ, "ZEUS_SIMULATE": "v100"},
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    PATH.write_text(written(table()), encoding="utf-8")
