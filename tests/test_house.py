"""The public line and the language: which modules and names are promised, and in which words."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from zeus._bridges._names import MODULES, NAMES, PROGRAMS, Former

SOURCE = Path(__file__).parents[1] / "src" / "zeus"

PUBLIC_MODULES = {
    "clock.py", "errors.py",
    "integrations/accelerate.py", "integrations/keras.py", "integrations/lightning.py",
    "integrations/loop.py", "integrations/mlflow.py", "integrations/pipeline_engine.py",
    "integrations/pipelining.py", "integrations/pytorch.py", "integrations/tensorboard.py",
    "integrations/torchtitan.py", "integrations/tracker.py", "integrations/trackio.py",
    "integrations/transformers.py", "integrations/wandb.py",
    "optimizer/callback.py", "optimizer/frequency.py", "optimizer/power_limit.py",
}  # fmt: skip
"""Modules that users import from. One file per command in `cli/` comes on top."""

PUBLIC_NAMES = {
    "zeus": [
        "Measurement",
        "PowerMonitor",
        "TemperatureMonitor",
        "ZeusDataLoader",
        "ZeusError",
        "ZeusMonitor",
        "__version__",
        "get_cpus",
        "get_gpus",
        "get_soc",
    ],
    "zeus.arena": [
        "ArenaSettings",
        "Contender",
        "create_app",
    ],
    "zeus.device": [
        "Candidate",
        "Capability",
        "CapabilityError",
        "ClockRange",
        "Cpu",
        "CurrentClocks",
        "DeviceSet",
        "Gpu",
        "GpuDriver",
        "GpuIdentity",
        "GpuProcess",
        "GpuVendor",
        "Hold",
        "KnobError",
        "MemoryUse",
        "Node",
        "PowerLimits",
        "Problem",
        "ProcessUsage",
        "Reason",
        "Soc",
        "Support",
        "SupportedClocks",
        "Visible",
        "current_node",
        "get_cpus",
        "get_gpus",
        "get_soc",
    ],
    "zeus.frontier": [
        "All",
        "Deadline",
        "Energy",
        "EnergyBudget",
        "Frontier",
        "LatencyBound",
        "MaxSlowdownConstraint",
        "Objective",
        "ObjectiveEntry",
        "Point",
        "PowerCap",
        "Selection",
        "Settings",
        "Time",
        "ZeusCost",
        "as_objective",
    ],
    "zeus.integrations": [
        "accelerate",
        "keras",
        "lightning",
        "loop",
        "mlflow",
        "pipeline_engine",
        "pipelining",
        "pytorch",
        "tensorboard",
        "torchtitan",
        "tracker",
        "trackio",
        "transformers",
        "wandb",
    ],
    "zeus.monitor": [
        "CpuDomain",
        "Measurement",
        "Method",
        "PowerDomain",
        "PowerMonitor",
        "Reading",
        "Request",
        "RequestEnergy",
        "RequestMonitor",
        "RequestStatistics",
        "TemperatureMonitor",
        "WindowScope",
        "ZeusMonitor",
    ],
    "zeus.optimizer": [
        "BatchSizeOptimizer",
        "Callback",
        "GlobalFrequencyOptimizer",
        "GlobalPowerLimitOptimizer",
        "JobSpec",
        "PipelineFrequencyOptimizer",
        "ServingOptimizer",
    ],
    "zeus.optimizer.serving": [
        "Decision",
        "ServingInterval",
        "ServingOptimizer",
        "ServingSetting",
        "control",
    ],
    "zeus.optimizer.power_limit": [
        "All",
        "Deadline",
        "Energy",
        "EnergyBudget",
        "GlobalPowerLimitOptimizer",
        "LatencyBound",
        "MaxSlowdownConstraint",
        "Objective",
        "PowerCap",
        "Time",
        "ZeusCost",
    ],
    "zeus.optimizer.batch_size": [
        "BatchSizeOptimizer",
        "CreateJob",
        "Decide",
        "EndTrial",
        "JobLog",
        "JobSpec",
        "JobState",
        "ReportEpoch",
        "open_jobs",
    ],
    "zeus.optimizer.batch_size.policies": [
        "Choices",
        "JobBatch",
        "Policy",
        "Role",
        "State",
        "Trials",
        "simple_choices",
    ],
    "zeus.optimizer.pipeline_frequency": [
        "Continuous",
        "Execution",
        "Operation",
        "Option",
        "Phase",
        "Pipeline",
        "PipelineFrequencyOptimizer",
        "Plan",
        "Profile",
        "Shape",
        "Solution",
        "Step",
        "TotalPower",
        "build",
        "solve",
        "solve_capped",
        "total_power",
    ],
    "zeus.replay.cluster": [
        "ALL_WORKLOADS",
        "ClusterRecord",
        "ClusterResult",
        "ClusterTrace",
        "Counts",
        "POLICIES",
        "made_up_trace",
        "read_trace",
        "simulate",
        "write_tables",
    ],
    "zeus.replay.pipelines": [
        "Comparison",
        "Errors",
        "Model",
        "Prediction",
        "Recording",
        "Run",
        "Split",
        "compare_plans",
        "fit_model",
        "read_recording",
        "splits",
        "validate",
    ],
    "zeus.proxy": [
        "Answer",
        "Chunk",
        "OpenAIClient",
        "Timeouts",
        "Usage",
    ],
    "zeus.replay.serving": [
        "Bounds",
        "Oracle",
        "Outcome",
        "Runs",
        "Study",
        "by_metrics",
        "find_oracle",
        "study",
        "suitable_replicas",
    ],
    "zeus.server": [
        "create_app",
        "listen",
        "serve",
    ],
    "zeus.store": [
        "Store",
        "Token",
        "Tokens",
        "default_storage",
    ],
    "zeus.telemetry": [
        "Family",
        "Kind",
        "Metric",
        "Source",
        "TrainingTelemetry",
        "observe_node",
        "prometheus_collector",
    ],
    "zeus.testing": [
        "Arrival",
        "CounterMeter",
        "Held",
        "HostNoise",
        "NoisySteps",
        "PowerSegment",
        "ProfileNode",
        "RecordedJob",
        "RecordedProfile",
        "ReplayMonitor",
        "RequestEvent",
        "Roofline",
        "ServedRequest",
        "ServingResult",
        "ServingWorkload",
        "SimulatedNode",
        "Traffic",
        "VirtualClock",
        "Workload",
        "draw_power",
        "recorded_jobs",
        "recorded_workload",
        "serve_on",
        "serving",
        "simulate_serving",
    ],
}
"""What packages hand out. A change here is a change of the interface: say so in the changelog."""

FORMER_NAMES = {
    "zeus.callback": ["Callback", "CallbackSet"],
    "zeus.device.cpu": ["get_current_cpu_index"],
    "zeus.exception": ["ZeusBaseError"],
    "zeus.monitor.energy": ["Measurement", "ZeusMonitor"],
    "zeus.monitor.power": ["PowerDomain", "PowerMonitor"],
    "zeus.monitor.temperature": ["TemperatureMonitor"],
    "zeus.optimizer.batch_size.client": ["BatchSizeOptimizer"],
    "zeus.optimizer.batch_size.common": ["JobSpec"],
    "zeus.optimizer.pipeline_frequency.optimizer": ["PipelineFrequencyOptimizer"],
    "zeus.optimizer.power_limit": [
        "HFGlobalPowerLimitOptimizer",
        "OptimumSelector",
        "PowerLimitMeasurement",
    ],
    "zeus.utils.env": ["get_env"],
    "zeus.utils.framework": ["sync_execution"],
    "zeus.utils.lr_scaler": ["LinearScaler", "SquareRootScaler"],
    "zeus.utils.metric": ["zeus_cost"],
    "zeus.utils.testing": ["ReplayZeusMonitor"],
}
"""Names of zeus 0.16 that still work, with a warning. They are no promise: a version drops them."""

FORMER_PROGRAMS = {"zeus.monitor.__main__", "zeus.show_env"}

DIALECT = re.compile(
    r"\b(tells?|told|looks?|whoever|nobody|somebody|heeds?|anew|dear)\b"
    r"|^\s*What (?:is|was|are|a|the)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Words that this project used to have for samples, reports, polls and previous values."""

OLD_NAMES = {
    "Brain", "Card", "Doorkeeper", "EnergyTrack", "Feed", "Follower", "Gate", "Grip", "Handover",
    "Happening", "Lanes", "Ledger", "Look", "Passage", "Seat", "Senses", "SharedLooks", "ShortCut",
    "Slice", "Standing", "Stretch", "Taken", "Walk", "Watcher", "Way", "Wire", "Worked",
}  # fmt: skip


def modules() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if "migrations" not in path.relative_to(SOURCE).parts
    ]


def test_only_promised_modules_have_public_names():
    public = {
        path.relative_to(SOURCE).as_posix()
        for path in modules()
        if not path.name.startswith("_") and path.parent != SOURCE / "cli"
    }
    assert public == PUBLIC_MODULES


@pytest.mark.parametrize("package", sorted(PUBLIC_NAMES))
def test_public_names_are_frozen(package):
    assert sorted(importlib.import_module(package).__all__) == PUBLIC_NAMES[package]


def test_former_names_are_frozen():
    provided = {
        module: sorted(name for name, former in names.items() if isinstance(former, Former))
        for module, names in {**MODULES, **NAMES}.items()
        if not isinstance(names, str)
    }
    assert {module: names for module, names in provided.items() if names} == FORMER_NAMES
    assert set(PROGRAMS) == FORMER_PROGRAMS


def test_no_former_name_is_promised():
    for module, names in FORMER_NAMES.items():
        assert not set(names) & set(PUBLIC_NAMES.get(module, ()))


def imports(path: Path, known: set[str]) -> set[str]:
    """Modules of Zeus that a module imports, also for typing and inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & known) | ({node.module} if names - known else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_by_way_of_others():
    paths = {module_name(path): path for path in modules()}
    # A package's own file hands out names of its modules, which may import the package's siblings.
    graph = {
        name: imports(path, set(paths)) if path.name != "__init__.py" else set()
        for name, path in paths.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def documented(package: str, name: str) -> Iterator[tuple[str, Callable[..., object], str]]:
    """Label, function and docstrings of what a public name can be called with."""
    found = getattr(importlib.import_module(package), name)
    if inspect.isfunction(found):
        yield name, found, str(found.__doc__)
    if not inspect.isclass(found) or issubclass(found, Enum | BaseException):
        return
    if "__init__" in vars(found):
        texts = [str(base.__doc__) for base in found.__mro__]
        yield name, found, " ".join([*texts, str(found.__init__.__doc__)])
    for method, value in vars(found).items():
        function = getattr(value, "__func__", value)
        if not method.startswith("_") and inspect.isfunction(function):
            texts = [str(getattr(vars(base).get(method), "__doc__", "")) for base in found.__mro__]
            yield f"{name}.{method}", function, " ".join(texts)


@pytest.mark.parametrize("package", sorted(set(PUBLIC_NAMES) - {"zeus.integrations"}))
def test_parameters_are_documented_where_they_are(package: str) -> None:
    if package == "zeus":
        pytest.importorskip("torch", reason="ZeusDataLoader needs PyTorch")
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    missing = [
        f"{label}({parameter.name})"
        for name in PUBLIC_NAMES[package]
        for label, function, text in documented(package, name)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls") and not parameter.name.startswith("_")
        if parameter.kind not in several and not re.search(rf"\b{parameter.name}\b", text)
    ]
    assert missing == []


def docstrings(path: Path) -> list[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    found = (ast.get_docstring(node) for node in nodes if isinstance(node, documented))
    return [text for text in found if text]


def test_docstrings_are_in_the_words_of_the_field():
    texts = [text for path in modules() for text in docstrings(path)]
    words = sum(len(text.split()) for text in texts)
    odd = [match.group().strip() for text in texts for match in DIALECT.finditer(text)]
    assert len(odd) <= 10 * words / 10_000, odd


def test_messages_and_help_are_in_the_words_of_the_field():
    odd = []
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shown = [
            part.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise | ast.Call)
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value
        ]
        odd += [f"{path.name}: {text}" for text in shown if DIALECT.search(text)]
    assert odd == []


def test_old_names_stay_away():
    defined = {
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert defined & OLD_NAMES == set()
