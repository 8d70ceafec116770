"""Tools for tracking experiments, on this machine: begin a run, and read back what was logged."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TOOLS = ("mlflow", "tensorboard", "trackio", "wandb")

#: Steps and values by name, in the order in which they were logged.
Logged = dict[str, list[tuple[int, float]]]


class Tool:
    """A run of a tool, of which nothing leaves a directory."""

    tracker: Any  # the class

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self) -> None:
        """Begin a run, if the program must."""

    def make(self, **options: Any) -> Any:
        return self.tracker(**options)

    def end(self) -> None:
        """End the run."""

    def read(self) -> Logged:
        """What was logged by now, or by the end of the run."""
        raise NotImplementedError


class Mlflow(Tool):
    def begin(self) -> None:
        self.tracker = import_module("zeus.integrations.mlflow").MlflowTracker
        self.mlflow = import_module("mlflow")
        self.mlflow.set_tracking_uri(f"sqlite:///{self.directory}/mlflow.db")
        # Else it makes a directory for artifacts where the tests are run.
        experiment = self.mlflow.create_experiment(
            "tests", artifact_location=f"{self.directory}/artifacts"
        )
        self.run_id = self.mlflow.start_run(experiment_id=experiment).info.run_id

    def end(self) -> None:
        self.mlflow.end_run()

    def read(self) -> Logged:
        client = self.mlflow.MlflowClient()
        metrics = client.get_run(self.run_id).data.metrics
        history = {name: client.get_metric_history(self.run_id, name) for name in metrics}
        return {name: [(at.step, at.value) for at in found] for name, found in history.items()}


class TensorBoard(Tool):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.events = directory / "events"

    def begin(self) -> None:
        self.tracker = import_module("zeus.integrations.tensorboard").TensorBoardTracker

    def make(self, **options: Any) -> Any:
        return self.tracker(self.events, **options)

    def read(self) -> Logged:
        if not self.events.exists():
            return {}
        package = "tensorboard.backend.event_processing"
        events = import_module(f"{package}.event_accumulator").EventAccumulator(
            str(self.events), size_guidance={"scalars": 0}
        )
        events.Reload()
        return {
            name: [(event.step, event.value) for event in events.Scalars(name)]
            for name in events.Tags()["scalars"]
        }


class Trackio(Tool):
    project = name = "tests"

    def begin(self) -> None:
        self.tracker = import_module("zeus.integrations.trackio").TrackioTracker
        self.trackio = import_module("trackio")
        # What it samples of this machine in the background is none of ours.
        options = {"auto_log_gpu": False, "auto_log_cpu": False}
        self.run = self.trackio.init(project=self.project, name=self.name, **options)

    def end(self) -> None:
        if self.run is not None:
            self.trackio.finish()
            self.run = None

    def read(self) -> Logged:
        storage = import_module("trackio.sqlite_storage").SQLiteStorage
        found: Logged = defaultdict(list)
        for row in storage.get_logs(self.project, self.name):
            for name, value in row.items():
                if name not in ("step", "timestamp"):
                    found[name].append((row["step"], value))
        return dict(found)


class Wandb(Tool):
    def begin(self) -> None:
        self.tracker = import_module("zeus.integrations.wandb").WandbTracker
        self.wandb = import_module("wandb")
        settings = self.wandb.Settings(
            silent=True, console="off", disable_git=True, x_disable_stats=True
        )
        self.run = self.wandb.init(
            project="tests", mode="offline", dir=self.directory, settings=settings
        )

    def end(self) -> None:
        self.run.finish()

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """The step of W&B and the values of each row."""
        import_module("wandb").teardown()  # waits until its service has written all
        (path,) = self.directory.glob("wandb/offline-run-*/*.wandb")
        for record in _wandb_records(path):
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {
                    item.nested_key[0] or item.key: json.loads(item.value_json) for item in items
                }
                yield record.history.step.num, row

    def read(self) -> Logged:
        found: Logged = defaultdict(list)
        for step, row in self.rows():
            for name, value in row.items():
                if not name.startswith("_"):
                    at = row["zeus/step"] if name.startswith("zeus/") else step
                    found[name].append((int(at), value))
        return dict(found)


def _wandb_records(path: Path) -> Iterator[Any]:
    """Records of a file of an offline run: blocks as in logs of LevelDB, after a short header."""
    messages = import_module("wandb.proto.wandb_internal_pb2")
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    header, block = 7, 32 * 1024
    at, whole = header, b""
    while at < len(content):
        left = block - at % block
        if left < header:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = messages.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


KINDS: dict[str, type[Tool]] = {
    "mlflow": Mlflow, "tensorboard": TensorBoard, "trackio": Trackio, "wandb": Wandb,
}  # fmt: skip
NEEDS = {"tensorboard": "tensorboard.backend"}


def prepare(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tool that keeps all in a directory; the test is skipped where it is not installed."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(directory))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    pytest.importorskip(NEEDS.get(name, name))
    if name == "wandb":
        import_module("wandb").teardown()  # else it keeps the directory of another test
    if name == "trackio":
        _place_trackio(directory / "trackio", monkeypatch)
    return KINDS[name](directory)


@contextmanager
def running(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A run of a tool."""
    tool = prepare(name, directory, monkeypatch)
    tool.begin()
    try:
        yield tool
    finally:
        tool.end()


def _place_trackio(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules keep the directory from their import on."""
    utils, storage = import_module("trackio.utils"), import_module("trackio.sqlite_storage")
    directory.mkdir(parents=True, exist_ok=True)
    for module in (utils, storage, import_module("trackio.run"), import_module("trackio")):
        for constant, place in (("TRACKIO_DIR", directory), ("MEDIA_DIR", directory / "media")):
            if hasattr(module, constant):
                monkeypatch.setattr(module, constant, place)


def zeus_steps(logged: Logged) -> dict[str, list[int]]:
    """The steps under which each value of Zeus was logged."""
    return {
        name: [step for step, _ in at] for name, at in logged.items() if name.startswith("zeus/")
    }


assert set(KINDS) == set(TOOLS)
